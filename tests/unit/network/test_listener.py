"""How a listener deals connections to its processors, without a socket of its own."""

import random
import socket
from collections.abc import Callable
from typing import cast

import pytest

from odradek.errors import InvariantViolation
from odradek.metrics import MetricRegistry
from odradek.model import Endpoint, SecurityProtocol
from odradek.network.connection_quotas import ConnectionQuotas
from odradek.network.listener import Listener
from odradek.network.processor import Processor
from odradek.purgatory import ManualTimer
from odradek.testing import ManualClock


class FakeLoop:
    """Nothing happens on it."""

    def add_reader(self, fd: int, callback: Callable[[], object], /) -> None:
        raise AssertionError("nothing is watched here")

    add_writer = add_reader

    def remove_reader(self, fd: int, /) -> bool:
        return False

    remove_writer = remove_reader

    def call_soon(self, callback: Callable[[], object], /) -> object:
        raise AssertionError("nothing is called here")


class FakeProcessor:
    """Takes connections as long as it has room."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.taken: list[object] = []
        self.told: Callable[[], None] | None = None

    def try_accept(self, sock: socket.socket, address: str) -> bool:
        if len(self.taken) >= self.room:
            return False
        self.taken.append(sock)
        return True

    def when_room(self, callback: Callable[[], None]) -> None:
        self.told = callback


class FakeSocket:
    def close(self) -> None:
        pass


def make_listener(*rooms: int) -> tuple[Listener, list[FakeProcessor]]:
    clock = ManualClock()
    quotas = ConnectionQuotas(clock)
    quotas.add_listener("PLAINTEXT")
    listener = Listener(
        Endpoint("127.0.0.1", 0, "PLAINTEXT", SecurityProtocol.PLAINTEXT),
        quotas=quotas,
        loop=FakeLoop(),
        timer=ManualTimer("listener"),
        clock=clock,
        metrics=MetricRegistry(clock, random.Random(0)),
    )
    processors = [FakeProcessor(room) for room in rooms]
    listener.processors = cast("list[Processor]", list(processors))
    return listener, processors


def deal(listener: Listener) -> bool:
    return listener._deal(cast("socket.socket", FakeSocket()), "127.0.0.1")


def test_connections_are_dealt_round_robin() -> None:
    """02:D-3: what is passed on are connections."""
    listener, processors = make_listener(9, 9, 9)
    assert all(deal(listener) for _ in range(7))

    assert [len(processor.taken) for processor in processors] == [3, 2, 2]


def test_full_processors_are_passed_over() -> None:
    """02:N-15: the first two are full."""
    listener, processors = make_listener(0, 0, 1)

    assert deal(listener)
    assert [len(processor.taken) for processor in processors] == [0, 0, 1]
    assert all(processor.told is None for processor in processors)


def test_when_all_are_full_the_last_one_asked_is_waited_for() -> None:
    """02:N-15: all are full."""
    listener, processors = make_listener(0, 0, 0)
    assert not deal(listener)

    assert [processor.told is not None for processor in processors] == [False, False, True]
    processors[0].room = 1
    told = processors[2].told
    assert told is not None
    told()
    assert [len(processor.taken) for processor in processors] == [1, 0, 0]


def test_a_shorter_list_of_processors_is_no_trap() -> None:
    listener, processors = make_listener(9, 9, 9)
    assert all(deal(listener) for _ in range(2))
    removed = listener.remove_processors(2)
    assert [cast("FakeProcessor", processor) for processor in removed] == processors[1:]

    assert deal(listener)
    assert len(processors[0].taken) == 2


def test_an_unbound_listener_has_no_port() -> None:
    listener, _ = make_listener(1)
    with pytest.raises(InvariantViolation, match="PLAINTEXT is not bound"):
        _ = listener.bound_port
