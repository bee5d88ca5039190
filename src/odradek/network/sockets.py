"""The factory of byte streams: the one module of the network layer that opens sockets.

It opens the listening sockets of a broker, and the connections of clients, followers and the
controller. A simulated network (`odradek.testing`) offers the same, so that the layers above run on
either.

Connections within one host need no congestion control. Where the system paces what it sends
(`net.ipv4.tcp_congestion_control = bbr`), it does so towards a client on the same host, too: timers
between packets that only pass through memory. Fetching from the page cache was half as fast again
without. So local connections get the plainest control, `reno`: it sends as much as the peer has
room for, and every Linux has it. Nothing changes for remote peers: their paths may be congested,
and the operator has chosen how to behave then.
"""

import asyncio
import contextlib
import os
import select
import socket
from typing import Final, Protocol

from odradek.network.streams import ByteStream, Epoll, ListeningStream
from odradek.network.transport import PlainTransport, Transport

__all__ = ["SYSTEM_STREAMS", "ByteStreams", "SystemStreams", "is_local", "send_unpaced"]

_PLAINEST: Final = b"reno"  # Congestion control.


class ByteStreams(Protocol):
    """Opens byte streams, and watches them."""

    def listen(
        self, host: str, port: int, *, backlog: int, receive_buffer_bytes: int = -1
    ) -> ListeningStream:
        """Binds and listens; connections wait until they are accepted.

        Args:
            host: Empty for every address of this machine.
            port: 0 for any free one.
            receive_buffer_bytes: -1 leaves the choice to the system.

        Raises:
            OSError: The address cannot be bound.
        """
        ...

    async def connect(
        self, host: str, port: int, *, send_buffer_bytes: int = -1, receive_buffer_bytes: int = -1
    ) -> ByteStream:
        """Connects to the first address of a host that answers.

        Raises:
            OSError: No address answers.
        """
        ...

    def plain_transport(self, stream: ByteStream) -> Transport:
        """Moves bytes through a stream as they are."""
        ...

    def epoll(self) -> Epoll:
        """Makes a watcher of streams; the loop can watch its descriptor."""
        ...

    def bind_local(self, path: str) -> socket.socket:
        """Binds a socket to a path that processes of this machine can connect to.

        Raises:
            OSError: The file system does not support sockets, or refused.
        """
        ...


class SystemStreams:
    """The kernel's sockets."""

    __slots__ = ()

    epoll = staticmethod(select.epoll)

    def listen(
        self, host: str, port: int, *, backlog: int, receive_buffer_bytes: int = -1
    ) -> socket.socket:
        if host:
            family, kind, _, _, address = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
        elif socket.has_dualstack_ipv6():
            family, kind, address = socket.AF_INET6, socket.SOCK_STREAM, ("::", port)
        else:
            family, kind, address = socket.AF_INET, socket.SOCK_STREAM, ("", port)
        sock = socket.socket(family, kind)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, bool(host))
            if receive_buffer_bytes > 0:
                # Accepted sockets inherit it; set later it would come after the window was agreed.
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
            sock.bind(address)
            sock.listen(backlog)
        except BaseException:
            sock.close()
            raise
        return sock

    async def connect(
        self, host: str, port: int, *, send_buffer_bytes: int = -1, receive_buffer_bytes: int = -1
    ) -> socket.socket:
        loop = asyncio.get_running_loop()
        failure: OSError | None = None
        addresses = await loop.getaddrinfo(host, port, proto=socket.IPPROTO_TCP)
        for family, kind, protocol, _, address in addresses:
            sock = socket.socket(family, kind, protocol)
            try:
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                if send_buffer_bytes > 0:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
                if receive_buffer_bytes > 0:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
                await loop.sock_connect(sock, address)
                if is_local(sock.getsockname()[0], sock.getpeername()[0]):
                    send_unpaced(sock)
            except OSError as error:
                sock.close()
                failure = error
            except BaseException:
                sock.close()
                raise
            else:
                return sock
        raise failure or OSError(f"{host} has no address")

    def plain_transport(self, stream: ByteStream) -> Transport:
        return PlainTransport(stream)

    def bind_local(self, path: str) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # Before it has a name: no other user gets in, not even for a moment.
            os.fchmod(listener.fileno(), 0o600)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)  # Of a process that was killed: the directory is ours now.
            listener.bind(path)
            os.chmod(path, 0o600)
        except BaseException:
            listener.close()
            raise
        return listener


SYSTEM_STREAMS: Final[ByteStreams] = SystemStreams()


def is_local(own_address: str, peer_address: str) -> bool:
    """Whether both ends of a connection are on this host, by their addresses."""
    own, peer = (address.removeprefix("::ffff:") for address in (own_address, peer_address))
    return own == peer or (own.startswith("127.") and peer.startswith("127."))


def send_unpaced(sock: ByteStream) -> None:
    """Makes a socket send as fast as the peer receives; no effect if the system refuses."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, _PLAINEST)
