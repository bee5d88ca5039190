"""A simulated network of byte streams in one process: delays, cuts and resets drawn from a seed.

`SimNetwork.at(host)` is the `ByteStreams` of one host: its sockets behave as the kernel's do, on a
`VirtualLoop`:

* bytes arrive in order, in pieces, each some milliseconds after it was sent;
* a peer that does not read lets its window fill, and `send` raises `BlockingIOError`;
* the peer sees the end of the stream after all bytes sent before it; a socket that is closed with
  unread bytes resets the connection.

============================  ===================================================================
fault                         effect
============================  ===================================================================
`cut(a, b)`                   nothing passes from a to b: bytes, ends of streams and attempts to
                              connect wait, and pass after `heal`. The direction from b to a is cut
                              separately
`reset(host)`                 every connection of a host breaks, at both ends
`slow(factor)`                pieces sent from now on take `factor` times as long
`kill(process)`               its streams end, as the kernel ends those of a process that died
`silence(process)`            its streams vanish, as when the host loses power: a peer notices only
                              when it sends
============================  ===================================================================

A piece of a file is read and sent (`PieceTransport`), where the kernel would use `sendfile`.
"""

import contextvars
import errno
import os
import select
import socket
from collections import deque
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, Final

from odradek.network.send_queue import SendQueue
from odradek.network.streams import ByteStream
from odradek.network.transport import Transport
from odradek.testing.virtual_loop import Process, VirtualLoop

__all__ = ["HostStreams", "PieceTransport", "SimNetwork"]

# Most bytes of one direction that are sent and not yet read, like the buffers of a kernel.
WINDOW_BYTES: Final = 64 << 10
# Bounds of the delay between sending a piece and its arrival.
_SHORTEST_S: Final = 0.000_2
_LONGEST_S: Final = 0.003
# States of a connection in the kernel's TCP_INFO. A socket whose peer's host lost its power stays
# ESTABLISHED until it sends.
_ESTABLISHED: Final = 1
_CLOSE_WAIT: Final = 8

_FIRST_PORT: Final = 40_000


class SimSocket:
    """One end of a connection."""

    def __init__(
        self, network: "SimNetwork", host: str, port: int, process: Process | None
    ) -> None:
        self.network = network
        self.host, self.port = host, port
        self.process = process
        self.peer: SimSocket | None = None
        self.fd = network.loop.add_descriptor(self)
        self.unread = bytearray()
        self.in_flight_bytes = 0  # Sent by this end, not arrived.
        self.is_eof = False  # The peer closed its end, and all its bytes have arrived.
        self.is_reset = False
        self.is_closed = False
        # Time of the latest arrival so far: a later piece does not overtake it.
        self.arrives_at_s = 0.0

    # The interface of a socket

    def fileno(self) -> int:
        return -1 if self.is_closed else self.fd

    def getsockname(self) -> tuple[str, int]:
        return self.host, self.port

    def getpeername(self) -> tuple[str, int]:
        if self.peer is None or self.is_reset:
            raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))
        return self.peer.host, self.peer.port

    def setblocking(self, flag: bool, /) -> None:
        assert not flag, "nothing here blocks"

    def setsockopt(self, level: int, name: int, value: int | bytes, /) -> None:
        """Ignores the option: the network simulates none."""

    def getsockopt(self, level: int, name: int, size: int, /) -> bytes:
        assert (level, name, size) == (socket.IPPROTO_TCP, socket.TCP_INFO, 1), "not simulated"
        return bytes((_CLOSE_WAIT if self.is_eof or self.is_reset else _ESTABLISHED,))

    def recv(self, size: int, /) -> bytes:
        buffer = bytearray(size)
        return bytes(buffer[: self.recv_into(memoryview(buffer))])

    def recv_into(self, view: memoryview, /) -> int:
        self._check()
        if not self.unread:
            if self.is_eof:
                return 0
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        count = min(len(view), len(self.unread))
        view[:count] = self.unread[:count]
        del self.unread[:count]
        if self.peer is not None:
            self.network.changed(self.peer)  # The peer may have been waiting for room.
        return count

    def send(self, data: bytes | memoryview, flags: int = 0, /) -> int:
        self._check()
        room = self.room_bytes
        if room <= 0:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        piece = bytes(data[:room])
        self.in_flight_bytes += len(piece)
        self.network.transmit(self, piece)
        return len(piece)

    def sendmsg(
        self, buffers: Iterable[bytes | memoryview], ancillary: Iterable[Any], flags: int = 0, /
    ) -> int:
        return self.send(b"".join(buffers), flags)

    def close(self) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        self.network.forget(self)
        if self.is_reset or self.peer is None:
            return
        # As TCP does: closing with unread bytes resets the connection.
        self.network.transmit(self, _RESET if self.unread else _END)

    # The interface to the network

    @property
    def room_bytes(self) -> int:
        waiting = len(self.peer.unread) if self.peer is not None else 0
        return WINDOW_BYTES - self.in_flight_bytes - waiting

    def is_readable(self) -> bool:
        return bool(self.unread) or self.is_eof or self.is_reset

    def is_writable(self) -> bool:
        return self.is_reset or self.room_bytes > 0

    @property
    def events(self) -> int:
        return (
            (select.EPOLLIN if self.is_readable() else 0)
            | (select.EPOLLOUT if self.is_writable() else 0)
            | (select.EPOLLRDHUP if self.is_eof or self.is_reset else 0)
            | (select.EPOLLHUP | select.EPOLLERR if self.is_reset else 0)
        )

    def arrive(self, piece: bytes) -> None:
        """Receives a piece that the peer sent."""
        if self.is_closed or self.is_reset:
            if piece is not _END and piece is not _RESET:
                self.network.transmit(self, _RESET)
            return
        if piece is _RESET:
            self.break_off()
            return
        if piece is _END:
            self.is_eof = True
        else:
            self.unread += piece
        self.network.changed(self)

    def break_off(self) -> None:
        """Resets this end of the connection."""
        self.is_reset = True
        self.unread.clear()
        self.network.changed(self)

    def _check(self) -> None:
        if self.is_closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        if self.is_reset:
            raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))


# Signals that are transmitted like pieces of bytes; compared by identity.
_END: Final = b"the end of the stream"
_RESET: Final = b"the connection is broken"


class SimListener:
    """A listening socket."""

    def __init__(self, network: "SimNetwork", host: str, port: int, backlog: int) -> None:
        self._network = network
        self.host, self.port = host, port
        self._backlog = backlog
        self.process = network.loop.running_process
        self.fd = network.loop.add_descriptor(self)
        self._waiting: deque[SimSocket] = deque()
        self.is_closed = False

    def fileno(self) -> int:
        return -1 if self.is_closed else self.fd

    def getsockname(self) -> tuple[str, int]:
        return self.host, self.port

    def accept(self) -> tuple[SimSocket, tuple[str, int]]:
        if not self._waiting:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        accepted = self._waiting.popleft()
        peer = accepted.peer
        assert peer is not None, "it was connected"
        return accepted, (peer.host, peer.port)

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self._network.forget_listener(self)
            while self._waiting:
                self._waiting.popleft().close()

    def is_readable(self) -> bool:
        return bool(self._waiting)

    def is_writable(self) -> bool:
        return False

    def try_add(self, arrived: SimSocket) -> bool:
        """Queues an arriving connection; returns False if the backlog is full or closed."""
        if self.is_closed or len(self._waiting) >= self._backlog:
            return False
        self._waiting.append(arrived)
        self._network.loop.poke(self.fd)
        return True


class SimEpoll:
    """Reports the sockets that are ready, beginning with those ready for longest."""

    def __init__(self, network: "SimNetwork") -> None:
        self._network = network
        self._watched: dict[int, int] = {}
        self._ready: dict[int, None] = {}  # May be ready; `poll` asks each of them.
        self.fd = network.loop.add_descriptor(self)
        network.epolls[self.fd] = self

    def fileno(self) -> int:
        return self.fd

    def register(self, fd: int, events: int, /) -> None:
        if fd in self._watched:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        self._watch(fd, events)

    def modify(self, fd: int, events: int, /) -> None:
        if fd not in self._watched:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        self._watch(fd, events)

    def unregister(self, fd: int, /) -> None:
        if self._watched.pop(fd, None) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        self._ready.pop(fd, None)

    def poll(self, timeout: float, max_events: int, /) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        for fd in list(self._ready):
            events = self._events(fd)
            if not events:
                del self._ready[fd]
            elif len(found) < max_events:
                found.append((fd, events))
        # The next poll begins with those that were left out of this one.
        for fd, _ in found:
            del self._ready[fd]
            self._ready[fd] = None
        return found

    def close(self) -> None:
        self._network.epolls.pop(self.fd, None)
        self._network.loop.remove_descriptor(self.fd)
        self._watched.clear()
        self._ready.clear()

    def is_readable(self) -> bool:
        return any(self._events(fd) for fd in self._ready)

    def is_writable(self) -> bool:
        return False

    def changed(self, fd: int) -> None:
        """Notes that a socket may be ready now."""
        if fd in self._watched and self._events(fd):
            self._ready.setdefault(fd)
            self._network.loop.poke(self.fd)

    def forget(self, fd: int) -> None:
        """Stops watching a socket that was closed."""
        self._watched.pop(fd, None)
        self._ready.pop(fd, None)

    def _watch(self, fd: int, events: int) -> None:
        self._watched[fd] = events
        self.changed(fd)

    def _events(self, fd: int) -> int:
        sock = self._network.sockets.get(fd)
        wanted = self._watched.get(fd, 0) | select.EPOLLHUP | select.EPOLLERR
        return sock.events & wanted if sock is not None else 0


class PieceTransport:
    """A plain transport over a stream that is not the kernel's: files are read, then sent."""

    has_pending: Final = False
    wants_write: Final = False

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self.recv_into = stream.recv_into

    def handshake(self) -> bool:
        return True

    def flush(self, queue: SendQueue) -> bool:
        try:
            while (piece := queue.next_piece()) is not None:
                queue.advance(self._stream.send(piece))
        except BlockingIOError:
            return False
        return not queue

    def shut_down(self) -> None:
        """Does nothing: closing the socket informs the peer."""

    def peer_certificate(self) -> bytes | None:
        return None


class HostStreams:
    """The byte streams of one host; see `odradek.network.sockets.ByteStreams`."""

    def __init__(self, network: "SimNetwork", host: str) -> None:
        self._network = network
        self._host = host

    def listen(
        self, host: str, port: int, *, backlog: int, receive_buffer_bytes: int = -1
    ) -> SimListener:
        return self._network.listen(self._host, port, backlog)

    async def connect(
        self, host: str, port: int, *, send_buffer_bytes: int = -1, receive_buffer_bytes: int = -1
    ) -> SimSocket:
        return await self._network.connect(self._host, host, port)

    def plain_transport(self, stream: ByteStream) -> Transport:
        return PieceTransport(stream)

    def epoll(self) -> SimEpoll:
        return SimEpoll(self._network)

    def bind_local(self, path: str) -> socket.socket:
        raise OSError(errno.EOPNOTSUPP, "the simulated network has no local sockets", path)


class SimNetwork:
    """See the module's docstring.

    Args:
        loop: The loop that runs the deliveries.
        random: Draws the delay of each piece.
    """

    def __init__(self, loop: VirtualLoop, random: Random) -> None:
        self.loop = loop
        self._random = random
        self._factor = 1.0
        self._listeners: dict[tuple[str, int], SimListener] = {}
        self._cut: set[tuple[str, str]] = set()
        # Deliveries that wait behind cuts, in order.
        self._held: list[Callable[[], None]] = []
        self._next_port = _FIRST_PORT
        self.sockets: dict[int, SimSocket] = {}
        self.epolls: dict[int, SimEpoll] = {}

    def at(self, host: str) -> HostStreams:
        """The byte streams of a host."""
        return HostStreams(self, host)

    # Faults

    def cut(self, source: str, target: str) -> None:
        """Lets nothing pass from one host to another, until `heal`."""
        self._cut.add((source, target))

    def slow(self, factor: float) -> None:
        """Multiplies the delay of pieces sent from now on by `factor`."""
        self._factor = factor

    def heal(self) -> None:
        """Removes all cuts and the slowness; deliveries that waited are sent."""
        self._cut.clear()
        self._factor = 1.0
        held, self._held = self._held, []
        for go_on in held:
            go_on()

    def reset(self, host: str) -> None:
        """Breaks every connection of a host."""
        for sock in list(self.sockets.values()):
            if sock.host == host or (sock.peer is not None and sock.peer.host == host):
                sock.break_off()

    def kill(self, process: Process) -> None:
        """Closes the streams of a process that died; their peers see the end."""
        for listener in [each for each in self._listeners.values() if each.process is process]:
            listener.close()
        for sock in [each for each in self.sockets.values() if each.process is process]:
            sock.close()

    def silence(self, process: Process) -> None:
        """Removes the streams of a process whose host lost power; their peers see nothing."""
        for listener in [each for each in self._listeners.values() if each.process is process]:
            listener.is_closed = True
            self.forget_listener(listener)
        for sock in [each for each in self.sockets.values() if each.process is process]:
            sock.is_closed = True
            self.forget(sock)

    # Streams

    def listen(self, host: str, port: int, backlog: int) -> SimListener:
        if port == 0:
            port, self._next_port = self._next_port, self._next_port + 1
        if (host, port) in self._listeners:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        listener = self._listeners[host, port] = SimListener(self, host, port, backlog)
        return listener

    async def connect(self, source: str, target: str, port: int) -> SimSocket:
        """Connects two hosts; it takes one delay there and one back."""
        own_port, self._next_port = self._next_port, self._next_port + 1
        near = SimSocket(self, source, own_port, self.loop.running_process)
        self.sockets[near.fd] = near
        answered = self.loop.create_future()

        def answer(error: int) -> None:
            if not answered.done():
                if error:
                    answered.set_exception(OSError(error, os.strerror(error)))
                else:
                    answered.set_result(None)

        def arrive() -> None:
            listener = self._listeners.get((target, port))
            error = errno.ECONNREFUSED
            if listener is not None and not near.is_closed:
                far = SimSocket(self, target, port, listener.process)
                far.peer, near.peer = near, far
                self.sockets[far.fd] = far
                if listener.try_add(far):
                    error = 0
                else:
                    far.peer = near.peer = None
                    far.close()
            self._pass((target, source), lambda: answer(error))

        self._pass((source, target), arrive)
        try:
            await answered
        except BaseException:
            near.close()
            raise
        return near

    def transmit(self, sender: SimSocket, piece: bytes) -> None:
        """Sends a piece of bytes, or a signal, to the peer."""
        receiver = sender.peer
        if receiver is None:
            return

        def arrive() -> None:
            if piece is not _END and piece is not _RESET:
                sender.in_flight_bytes -= len(piece)
            receiver.arrive(piece)

        self._pass((sender.host, receiver.host), arrive, receiver)

    def changed(self, sock: SimSocket) -> None:
        """Notifies the watchers of a socket that it may be ready now."""
        self.loop.poke(sock.fd)
        for epoll in tuple(self.epolls.values()):
            epoll.changed(sock.fd)

    def forget(self, sock: SimSocket) -> None:
        """Removes a closed socket."""
        self.sockets.pop(sock.fd, None)
        self.loop.remove_descriptor(sock.fd)
        for epoll in tuple(self.epolls.values()):
            epoll.forget(sock.fd)

    def forget_listener(self, listener: SimListener) -> None:
        """Removes a closed listening socket."""
        self._listeners.pop((listener.host, listener.port), None)
        self.loop.remove_descriptor(listener.fd)

    def _pass(
        self,
        way: tuple[str, str],
        action: Callable[[], None],
        receiver: SimSocket | None = None,
    ) -> None:
        """Runs an action at the other end after a delay; behind a cut, after `heal`."""
        if way in self._cut:
            self._held.append(lambda: self._pass(way, action, receiver))
            return
        delay_s = (_SHORTEST_S + self._random.random() * (_LONGEST_S - _SHORTEST_S)) * self._factor
        at_s = self.loop.time() + delay_s
        if receiver is not None:
            at_s = receiver.arrives_at_s = max(at_s, receiver.arrives_at_s)
        # In an empty context, so that it belongs to no process and survives that of the sender.
        self.loop.call_at(at_s, action, context=contextvars.Context())
