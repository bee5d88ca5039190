"""Why connections close: the log line of each cause, its level, and the delay before closing.

A peer whose request is of a kind or version that is not served gets no answer, since the layout of
one is unknown, and its connection closes (spec 11 section 1, as with Kafka). A program that does
not expect this asks again on a new connection at once, thousands of times a second. So such a
connection stays open, unread, for `UNSUPPORTED_DELAY_MS`: the peer waits for its answer meanwhile.

A peer that hangs up while its request waits may have closed its side alone, and still read. It has
`HANG_UP_GRACE_MS` to get its answer; then the connection closes and its memory is released.
"""

import logging
import ssl
from enum import Enum, auto
from socket import IPPROTO_TCP, TCP_INFO
from typing import Final

from odradek.errors import DecodeError, FramingError, UnsupportedRequestError
from odradek.network.request import ConnectionContext, Request
from odradek.network.send_queue import TruncatedFileError
from odradek.network.streams import ByteStream

__all__ = [
    "HANG_UP_GRACE_MS",
    "UNSUPPORTED_DELAY_MS",
    "CloseCause",
    "CloseTime",
    "decide_closing",
    "has_hung_up",
    "log_closing",
]

# One attempt a second and connection; `max.connections.per.ip` bounds the connections.
UNSUPPORTED_DELAY_MS: Final = 1_000
# Enough for the answer to a program that closes its side of the connection after its request.
HANG_UP_GRACE_MS: Final = 1_000

_TLS_HELLO: Final = b"\x16\x03"
# The kernel's number of the state, the first byte of TCP_INFO.
_TCP_ESTABLISHED: Final = 1


class CloseCause(Enum):
    """Why a connection closed: level of the log line, and its words."""

    PEER = logging.DEBUG, "the peer hung up"
    BROKEN = logging.DEBUG, "the connection broke"
    SYSTEM = logging.WARNING, "the system refused"
    IDLE = logging.INFO, "it was idle"
    EXCESS = logging.INFO, "the broker has too many connections"
    SHUTDOWN = logging.DEBUG, "the broker stops"
    INVALID = logging.WARNING, "invalid bytes"
    TLS = logging.WARNING, "TLS failed"
    AUTHENTICATION = logging.WARNING, "authentication failed"
    REQUEST = logging.WARNING, "a request could not be answered"
    TRUNCATED = logging.WARNING, "a file was cut while it was sent"
    BUG = logging.ERROR, "an unexpected error"

    @property
    def level(self) -> int:
        return self.value[0]

    @property
    def words(self) -> str:
        return self.value[1]


class CloseTime(Enum):
    """When a connection closes for an error."""

    NOW = auto()
    # After the answers to earlier requests are sent, as far as the socket takes them.
    AFTER_FLUSH = auto()
    LATER = auto()  # The same, and then after `UNSUPPORTED_DELAY_MS`.


def decide_closing(error: Exception, first_bytes: bytes) -> tuple[CloseTime, CloseCause, str]:
    """Decides when a connection closes for an error, why, and with which detail in the log.

    Args:
        first_bytes: The first two received bytes, if they are not the start of a frame.
    """
    match error:
        case FramingError() if first_bytes == _TLS_HELLO:
            detail = "a TLS hello on a plain listener"
            return CloseTime.AFTER_FLUSH, CloseCause.INVALID, detail
        case UnsupportedRequestError():
            return CloseTime.LATER, CloseCause.INVALID, str(error)
        case DecodeError():
            return CloseTime.AFTER_FLUSH, CloseCause.INVALID, str(error)
        case ssl.SSLError():
            return CloseTime.NOW, CloseCause.TLS, _tls_reason(error)
        case TruncatedFileError():
            return CloseTime.NOW, CloseCause.TRUNCATED, str(error)
        case ConnectionError() | TimeoutError():
            return CloseTime.NOW, CloseCause.BROKEN, str(error)
        case OSError():
            return CloseTime.NOW, CloseCause.SYSTEM, str(error)
        case _:
            return CloseTime.NOW, CloseCause.BUG, repr(error)


def has_hung_up(stream: ByteStream) -> bool:
    """Asks the system whether the peer has closed its side, without receiving."""
    return stream.getsockopt(IPPROTO_TCP, TCP_INFO, 1)[0] != _TCP_ESTABLISHED


def _tls_reason(error: ssl.SSLError) -> str:
    """Why TLS failed, in words."""
    if error.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE"):
        return f"no TLS came on a TLS listener ({error.reason})"
    return error.reason or str(error)


def log_closing(
    logger: logging.Logger,
    context: ConnectionContext,
    cause: CloseCause,
    detail: str,
    error: Exception | None,
    request: Request | None,
) -> None:
    """Writes the line about the end of a connection.

    Args:
        error: What went wrong, if that is a surprise.
        request: The one that is to blame, or was under way.
    """
    logger.log(
        cause.level,
        "Closed connection %s of listener %s: %s%s",
        context.connection_id,
        context.listener,
        cause.words,
        f": {detail}" if detail else "",
        exc_info=error,
        extra=_log_fields(context, cause, request),
    )


def _log_fields(
    context: ConnectionContext, cause: CloseCause, request: Request | None
) -> dict[str, object]:
    """The fields of a log line about a closed connection, for programs that read the log."""
    fields: dict[str, object] = {
        "client_address": context.client_address,
        "listener": context.listener,
        "reason": cause.name.lower(),
    }
    if request is not None:
        header = request.header
        fields |= {"api": header.api_key.name, "client_id": header.client_id}
    return fields
