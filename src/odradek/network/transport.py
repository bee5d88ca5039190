"""Transports, which move bytes in and out of a socket: plain, or through TLS.

Both offer the same four operations to a connection, none of which ever waits:

=============  =============================================================================
handshake      continue it; True when requests may flow
recv_into      bytes into a buffer; 0 at the end, `BlockingIOError` if nothing is there
flush          out of a `SendQueue`; True when nothing is left, False if the socket is full or
               the queue has something cold
has_pending    whether bytes were received that the kernel no longer reports
=============  =============================================================================

TLS runs over memory: bytes from the peer go into one BIO, bytes to the peer come out of another.
A read may have something to write (a key update) and a write may have to wait for neither; the
connection watches the socket for writing as long as `wants_write`.
"""

import ssl
from collections.abc import Callable
from contextlib import suppress
from socket import MSG_NOSIGNAL
from typing import Final, Protocol, cast

from odradek.network.send_queue import FLUSH_BUDGET_BYTES, SendQueue
from odradek.network.streams import ByteStream

__all__ = ["PlainTransport", "TlsTransport", "Transport"]

# Four TLS records.
_RECEIVE_BYTES: Final = 64 << 10


class Transport(Protocol):
    """See the module's docstring."""

    @property
    def has_pending(self) -> bool: ...

    @property
    def wants_write(self) -> bool: ...

    def handshake(self) -> bool: ...

    def recv_into(self, view: memoryview, /) -> int: ...

    def flush(self, queue: SendQueue) -> bool: ...

    def shut_down(self) -> None: ...

    def peer_certificate(self) -> bytes | None: ...


class PlainTransport:
    """The socket itself."""

    __slots__ = ("_socket", "recv_into")

    has_pending: Final = False
    wants_write: Final = False

    def __init__(self, sock: ByteStream) -> None:
        self._socket = sock
        self.recv_into = sock.recv_into  # The method itself: no frame of ours on the hot path.

    def handshake(self) -> bool:
        return True

    def flush(self, queue: SendQueue) -> bool:
        return queue.flush_to_socket(self._socket)

    def shut_down(self) -> None:
        """Does nothing: closing the socket tells the peer."""

    def peer_certificate(self) -> bytes | None:
        return None


class TlsTransport:
    """TLS over memory BIOs, server or client.

    Args:
        server_hostname: For a client: the name the certificate must have. None for a server.
    """

    __slots__ = ("_incoming", "_is_eof", "_outgoing", "_read_into", "_socket", "_tls", "_unsent")

    def __init__(
        self,
        sock: ByteStream,
        context: ssl.SSLContext,
        *,
        server_side: bool,
        server_hostname: str | None = None,
    ) -> None:
        self._socket = sock
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_side, server_hostname=server_hostname
        )
        # With a buffer it returns a count, which the declaration of `read` does not know.
        self._read_into = cast("Callable[[int, memoryview], int]", self._tls.read)
        # Encrypted bytes the kernel did not take. Invariant: bounded by what one piece encrypts to.
        self._unsent = memoryview(b"")
        self._is_eof = False

    @property
    def has_pending(self) -> bool:
        return bool(self._tls.pending() or self._incoming.pending)

    @property
    def wants_write(self) -> bool:
        return bool(self._unsent or self._outgoing.pending)

    def handshake(self) -> bool:
        """Continues the handshake. Returns whether it is finished.

        Raises:
            ssl.SSLError: The peer does not speak TLS, or none that this side accepts.
            ConnectionResetError: The peer hung up.
        """
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._push()
                if self._is_eof:
                    raise ConnectionResetError("hung up during the TLS handshake") from None
                try:
                    self._pull()
                except BlockingIOError:
                    return False
            except ssl.SSLError:
                self._push()  # The alert that tells the peer why.
                raise
            else:
                self._push()
                return True

    def recv_into(self, view: memoryview, /) -> int:
        """Decrypts until the view is full or the socket empty: a view not filled means empty."""
        count = 0
        size = len(view)
        try:
            while count < size:
                try:
                    received = self._read_into(size - count, view[count:])
                except ssl.SSLWantReadError:
                    if self._is_eof:
                        break
                    self._pull()
                except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                    break
                else:
                    if received == 0:
                        break
                    count += received
        except BlockingIOError:
            if not count:
                raise
        finally:
            if self._outgoing.pending:
                self._push()
        return count

    def flush(self, queue: SendQueue) -> bool:
        """Encrypts and sends; files are read in pieces."""
        stop_at = queue.sent_bytes + FLUSH_BUDGET_BYTES
        while self._push():
            if queue.sent_bytes >= stop_at:
                return not queue
            piece = queue.next_piece()
            if piece is None:
                return not queue
            try:
                queue.advance(self._tls.write(piece))
            except ssl.SSLWantReadError:
                return False
        return False

    def shut_down(self) -> None:
        """Sends the closing alert if the socket takes it; never waits for that of the peer."""
        # After a hang-up, or before the end of the handshake, there is no peer to send it to.
        with suppress(ssl.SSLError, OSError, ValueError):
            self._tls.unwrap()
        with suppress(OSError):
            self._push()

    def peer_certificate(self) -> bytes | None:
        """The peer's certificate as DER; None if it was not asked for one."""
        return self._tls.getpeercert(binary_form=True)

    def _pull(self) -> None:
        """Receives the bytes that the socket has.

        Raises:
            BlockingIOError: It has none.
        """
        data = self._socket.recv(_RECEIVE_BYTES)
        if data:
            self._incoming.write(data)
        else:
            self._is_eof = True
            self._incoming.write_eof()

    def _push(self) -> bool:
        """Sends encrypted bytes. Returns whether all were sent."""
        while True:
            if not self._unsent:
                if not self._outgoing.pending:
                    return True
                self._unsent = memoryview(self._outgoing.read())
            try:
                count = self._socket.send(self._unsent, MSG_NOSIGNAL)
            except (BlockingIOError, InterruptedError):
                return False
            self._unsent = self._unsent[count:]
