"""Watches the sockets of a server: one poll of all, a callback for each, then common work.

asyncio makes a handle for every socket that is ready, and calls it in a context: for a request of a
few bytes that is a good part of its whole cost. Here an epoll of our own holds the sockets, and the
loop watches nothing but that epoll. One wake-up of it

1. asks once which sockets are ready, `MAX_EVENTS` at most, so that the rest of the loop gets its
   time; the others stay ready and come first in the next wake-up;
2. calls back for each of them, in the order of the kernel;
3. calls the callbacks given to `at_end`: work that costs the same for one request as for many, such
   as a write to one file, is done there for all requests of the wake-up.

A socket that is not read from can be watched for the hang-up of its peer alone.

`has_more` says whether later requests of the wake-up may share the cost of such work.
"""

import logging
from collections.abc import Callable
from select import EPOLLERR, EPOLLHUP, EPOLLIN, EPOLLOUT, EPOLLRDHUP, epoll
from typing import Any, Final, Protocol

from odradek.network.streams import Epoll

__all__ = ["MAX_EVENTS", "Poller", "SocketWatch"]

logger = logging.getLogger(__name__)

# Sockets served in one wake-up: a few milliseconds if each brings a small request.
MAX_EVENTS: Final = 64

_FAILED: Final = "A callback of a socket failed"

_HUNG_UP: Final = EPOLLRDHUP | EPOLLHUP | EPOLLERR

_Callback = Callable[[], object]


class _Loop(Protocol):
    """The part of an event loop that is needed below."""

    def add_reader(self, fd: int, callback: _Callback, /) -> None: ...

    def remove_reader(self, fd: int, /) -> bool: ...

    def call_soon(self, callback: _Callback, /) -> Any: ...


class Poller:
    """See the module's docstring; an `odradek.network.connection_host.EventLoop`.

    Args:
        loop: Watches the epoll.
        new_epoll: Makes it.
    """

    __slots__ = (
        "_at_end",
        "_epoll",
        "_hang_ups",
        "_loop",
        "_new_epoll",
        "_readers",
        "_writers",
        "has_more",
        "is_running",
    )

    def __init__(self, loop: _Loop, new_epoll: Callable[[], Epoll] = epoll) -> None:
        self._loop = loop
        self._new_epoll = new_epoll
        self._epoll: Epoll | None = None  # From the first socket on, until `close`.
        self._readers: dict[int, _Callback] = {}
        self._writers: dict[int, _Callback] = {}
        self._hang_ups: dict[int, _Callback] = {}
        self._at_end: list[_Callback] = []
        # Whether further sockets get their turn before this wake-up ends. Written out, since every
        # request asks.
        self.has_more = False
        self.is_running = False  # In a wake-up, before its end.

    def at_end(self, callback: _Callback) -> None:
        """Calls back once when every socket had its turn; only while `is_running`."""
        assert self.is_running, "there is no wake-up whose end would come"
        self._at_end.append(callback)

    def add_reader(self, fd: int, callback: _Callback, /) -> None:
        self._add(self._readers, fd, callback)

    def remove_reader(self, fd: int, /) -> bool:
        before = self._events(fd)
        if self._readers.pop(fd, None) is None:
            return False
        self._watch(fd, before)
        return True

    def add_writer(self, fd: int, callback: _Callback, /) -> None:
        self._add(self._writers, fd, callback)

    def remove_writer(self, fd: int, /) -> bool:
        before = self._events(fd)
        if self._writers.pop(fd, None) is None:
            return False
        self._watch(fd, before)
        return True

    def add_hang_up(self, fd: int, callback: _Callback, /) -> None:
        """Calls back when the peer has closed its side; for sockets that are not read from."""
        self._add(self._hang_ups, fd, callback)

    def remove_hang_up(self, fd: int, /) -> bool:
        before = self._events(fd)
        if self._hang_ups.pop(fd, None) is None:
            return False
        self._watch(fd, before)
        return True

    def call_soon(self, callback: _Callback, /) -> Any:
        return self._loop.call_soon(callback)

    def close(self) -> None:
        """Watches nothing any more; harmless when done before."""
        self._readers.clear()
        self._writers.clear()
        self._hang_ups.clear()
        if self._epoll is not None:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._epoll = None

    def _add(self, table: dict[int, _Callback], fd: int, callback: _Callback) -> None:
        before = self._events(fd)
        table[fd] = callback
        try:
            self._watch(fd, before)
        except OSError:  # The system cannot watch another socket.
            del table[fd]
            raise

    def _events(self, fd: int) -> int:
        return (
            (EPOLLIN if fd in self._readers else 0)
            | (EPOLLOUT if fd in self._writers else 0)
            | (EPOLLRDHUP if fd in self._hang_ups else 0)
        )

    def _watch(self, fd: int, before: int) -> None:
        """Tells the kernel which events to wait for, if they have changed."""
        events = self._events(fd)
        if events == before:
            return
        poll = self._epoll
        if poll is None:
            poll = self._epoll = self._new_epoll()
            self._loop.add_reader(poll.fileno(), self._on_ready)
        if not before:
            poll.register(fd, events)
        elif not events:
            poll.unregister(fd)
        else:
            poll.modify(fd, events)

    def _on_ready(self) -> None:
        poll = self._epoll
        if poll is None:
            return
        events = poll.poll(0, MAX_EVENTS)
        readers, writers = self._readers, self._writers
        left = len(events)
        self.has_more = left > 1
        self.is_running = True
        try:
            for fd, mask in events:
                left -= 1
                if not left:
                    self.has_more = False
                # An error or the end of the stream wakes reader and writer. A socket that was
                # removed meanwhile is in no table.
                if mask != EPOLLOUT and (reader := readers.get(fd)) is not None:
                    try:  # As `_call`, without its frame: this is on the way of every request.
                        reader()
                    except Exception:  # the border between sockets
                        logger.exception(_FAILED)
                if mask != EPOLLIN:
                    if (writer := writers.get(fd)) is not None:
                        _call(writer)
                    if mask & _HUNG_UP and (callback := self._hang_ups.get(fd)) is not None:
                        _call(callback)
        finally:  # Also on SystemExit or KeyboardInterrupt: `at_end` has promised its callbacks.
            self.has_more = False
            self._run_end()
            self.is_running = False
            self._run_end()  # From here on callers of `at_end` use the loop's next turn.

    def _run_end(self) -> None:
        waiting, self._at_end = self._at_end, []
        for callback in waiting:
            _call(callback)


def _call(callback: _Callback) -> None:
    try:
        callback()
    except Exception:  # the border between sockets: one must not end others
        logger.exception(_FAILED)


class SocketWatch:
    """The events that one socket is watched for; passes only changes to the poller.

    Callbacks are passed with each call and not kept here: they would form a reference cycle with
    the owner of the socket, which only the garbage collector could free.
    """

    __slots__ = ("_fd", "_loop", "has_hang_up", "has_reads", "has_writes")

    def __init__(self, loop: Poller, fd: int) -> None:
        self._loop = loop
        self._fd = fd
        self.has_reads = False
        self.has_writes = False
        self.has_hang_up = False

    def watch_reads(self, callback: _Callback) -> None:
        """Calls back when bytes have arrived; the hang-up of the peer is then found by reading."""
        if not self.has_reads:
            self.unwatch_hang_up()
            self._loop.add_reader(self._fd, callback)
            self.has_reads = True

    def unwatch_reads(self) -> None:
        if self.has_reads:
            self.has_reads = False
            self._loop.remove_reader(self._fd)

    def watch_hang_up(self, callback: _Callback) -> None:
        """Calls back when the peer closes its side; for a socket that is not read from."""
        if not self.has_hang_up:
            self._loop.add_hang_up(self._fd, callback)
            self.has_hang_up = True

    def unwatch_hang_up(self) -> None:
        if self.has_hang_up:
            self.has_hang_up = False
            self._loop.remove_hang_up(self._fd)

    def watch_writes(self, callback: _Callback) -> None:
        """Calls back when the socket takes bytes."""
        if not self.has_writes:
            self._loop.add_writer(self._fd, callback)
            self.has_writes = True

    def unwatch_writes(self) -> None:
        if self.has_writes:
            self.has_writes = False
            self._loop.remove_writer(self._fd)

    def end(self) -> None:
        """Watches nothing any more, before the socket closes."""
        self.unwatch_reads()
        self.unwatch_hang_up()
        self.unwatch_writes()
