"""Many sockets behind one descriptor of the loop."""

import logging
from collections.abc import Callable, Iterator
from functools import partial
from socket import socket, socketpair
from typing import Any

import pytest

from odradek.network.poller import MAX_EVENTS, Poller


class Loop:
    """Remembers what it is asked for; a test wakes it by hand."""

    def __init__(self) -> None:
        self.readers: dict[int, Callable[[], object]] = {}
        self.soon: list[Callable[[], object]] = []

    def add_reader(self, fd: int, callback: Callable[[], object], /) -> None:
        self.readers[fd] = callback

    def remove_reader(self, fd: int, /) -> bool:
        return self.readers.pop(fd, None) is not None

    def call_soon(self, callback: Callable[[], object], /) -> Any:
        self.soon.append(callback)

    def wake(self) -> None:
        (callback,) = self.readers.values()
        callback()


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def poller(loop: Loop) -> Iterator[Poller]:
    made = Poller(loop)
    yield made
    made.close()
    assert not loop.readers


@pytest.fixture
def pairs() -> Iterator[list[tuple[socket, socket]]]:
    made = [socketpair() for _ in range(MAX_EVENTS + 3)]
    yield made
    for ours, theirs in made:
        ours.close()
        theirs.close()


def test_one_wake_up_serves_every_socket_and_then_its_end(
    loop: Loop, poller: Poller, pairs: list[tuple[socket, socket]]
) -> None:
    seen: list[object] = []

    def read(number: int) -> None:
        seen.append((number, poller.has_more))
        if number == 0:
            poller.at_end(lambda: seen.append("end"))

    for number, (ours, theirs) in enumerate(pairs[:3]):
        poller.add_reader(ours.fileno(), partial(read, number))
        theirs.send(b"x")
    assert len(loop.readers) == 1
    loop.wake()
    assert seen == [(0, True), (1, True), (2, False), "end"]
    assert not poller.is_running


def test_what_the_end_leaves_is_done_after_it_and_no_later(
    loop: Loop, poller: Poller, pairs: list[tuple[socket, socket]]
) -> None:
    """Requests for a turn that come later go to the loop: the wake-up is over then."""
    seen: list[bool] = []
    ours, theirs = pairs[0]

    def end() -> None:
        seen.append(poller.is_running)
        poller.at_end(lambda: seen.append(poller.is_running))

    poller.add_reader(ours.fileno(), lambda: poller.at_end(end))
    theirs.send(b"x")
    loop.wake()
    assert seen == [True, False]


def test_more_sockets_than_a_wake_up_takes_come_in_the_next(
    loop: Loop, poller: Poller, pairs: list[tuple[socket, socket]]
) -> None:
    seen: list[int] = []
    for number, (ours, theirs) in enumerate(pairs):
        theirs.send(b"x")

        def read(number: int = number, ours: socket = ours) -> None:
            ours.recv(1)
            seen.append(number)

        poller.add_reader(ours.fileno(), read)
    loop.wake()
    assert len(seen) == MAX_EVENTS
    loop.wake()
    assert sorted(seen) == list(range(len(pairs)))


def test_a_socket_that_was_removed_in_the_same_wake_up_is_not_called(
    loop: Loop, poller: Poller, pairs: list[tuple[socket, socket]]
) -> None:
    seen: list[str] = []
    (first, to_first), (second, to_second) = pairs[:2]

    def read() -> None:
        seen.append("first")
        assert poller.remove_reader(second.fileno())
        assert not poller.remove_reader(second.fileno())
        second.close()

    poller.add_reader(first.fileno(), read)
    poller.add_reader(second.fileno(), lambda: seen.append("second"))
    to_first.send(b"x")
    to_second.send(b"x")
    loop.wake()
    assert seen == ["first"]


def test_reading_and_writing_are_watched_apart(
    loop: Loop, poller: Poller, pairs: list[tuple[socket, socket]]
) -> None:
    seen: list[str] = []
    ours, theirs = pairs[0]
    poller.add_reader(ours.fileno(), lambda: seen.append("read"))
    loop.wake()
    assert seen == []
    poller.add_writer(ours.fileno(), lambda: seen.append("write"))
    loop.wake()
    assert seen == ["write"]
    theirs.send(b"x")
    loop.wake()
    assert seen == ["write", "read", "write"]
    assert poller.remove_writer(ours.fileno())
    assert not poller.remove_writer(ours.fileno())
    loop.wake()
    assert seen == ["write", "read", "write", "read"]


def test_the_end_of_a_stream_wakes_its_reader(
    loop: Loop, poller: Poller, pairs: list[tuple[socket, socket]]
) -> None:
    seen: list[bytes] = []
    ours, theirs = pairs[0]
    poller.add_reader(ours.fileno(), lambda: seen.append(ours.recv(1)))
    theirs.close()
    loop.wake()
    assert seen == [b""]


def test_a_callback_that_fails_does_not_end_the_others(
    loop: Loop,
    poller: Poller,
    pairs: list[tuple[socket, socket]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[str] = []

    def fail() -> None:
        poller.at_end(lambda: seen.append("end"))
        raise RuntimeError("of a test")

    (first, to_first), (second, to_second) = pairs[:2]
    poller.add_reader(first.fileno(), fail)
    poller.add_reader(second.fileno(), lambda: seen.append("second"))
    to_first.send(b"x")
    to_second.send(b"x")
    with caplog.at_level(logging.ERROR):
        loop.wake()
    assert seen == ["second", "end"]
    assert "of a test" in caplog.text


def test_the_end_comes_even_if_the_process_is_to_end(
    loop: Loop, poller: Poller, pairs: list[tuple[socket, socket]]
) -> None:
    seen: list[str] = []

    def interrupt() -> None:
        poller.at_end(lambda: seen.append("end"))
        raise KeyboardInterrupt

    ours, theirs = pairs[0]
    poller.add_reader(ours.fileno(), interrupt)
    theirs.send(b"x")
    with pytest.raises(KeyboardInterrupt):
        loop.wake()
    assert seen == ["end"]
    assert not poller.is_running
    assert not poller.has_more


def test_closing_ends_it_and_a_later_socket_begins_anew(
    loop: Loop, poller: Poller, pairs: list[tuple[socket, socket]]
) -> None:
    seen: list[str] = []
    (first, to_first), (second, to_second) = pairs[:2]
    poller.add_reader(first.fileno(), lambda: seen.append("first"))
    poller.close()
    poller.close()
    assert not loop.readers
    poller.add_reader(second.fileno(), lambda: seen.append("second"))
    to_first.send(b"x")
    to_second.send(b"x")
    loop.wake()
    assert seen == ["second"]


def test_a_hang_up_is_told_without_reading(
    loop: Loop, poller: Poller, pairs: list[tuple[socket, socket]]
) -> None:
    """Bytes that nobody wants to read wake nobody."""
    seen: list[str] = []
    ours, theirs = pairs[0]
    fd = ours.fileno()
    poller.add_hang_up(fd, lambda: seen.append("gone"))
    theirs.send(b"unread")
    loop.wake()
    assert seen == []
    poller.add_writer(fd, lambda: seen.append("writable"))
    loop.wake()
    assert seen == ["writable"]
    assert poller.remove_writer(fd)
    theirs.close()
    loop.wake()
    assert seen == ["writable", "gone"]
    assert poller.remove_hang_up(fd)
    assert not poller.remove_hang_up(fd)
    loop.wake()
    assert seen == ["writable", "gone"]
