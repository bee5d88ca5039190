"""A request in the broker, the connection it came from, and its response.

A request is stamped at each stage; `odradek.network.request_metrics` computes times from the
stamps. Stamps are monotonic nanoseconds, -1 until set.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol

from odradek.errors import ErrorCode
from odradek.lazy_dataclass import dataclass
from odradek.marks import mypyc_attr
from odradek.model import SecurityProtocol
from odradek.network.send_queue import Chunk
from odradek.protocol.headers import RequestHeader
from odradek.security.principal import ANONYMOUS, Principal

__all__ = [
    "ONE_SUCCESS",
    "UNKNOWN_CLIENT",
    "ClientInformation",
    "CloseConnectionResponse",
    "ConnectionContext",
    "NoOpResponse",
    "Request",
    "Response",
    "SendResponse",
    "is_valid_client_information",
]

UNSET: Final = -1
_NOTHING: Final = memoryview(b"")

# The errors of an answer with one error code, which is NONE.
ONE_SUCCESS: Final[Mapping[ErrorCode, int]] = MappingProxyType({ErrorCode.NONE: 1})

_SOFTWARE_NAME: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?", re.ASCII)


class ClientInformation(NamedTuple):
    """The peer's software, as its ApiVersions request names it."""

    software_name: str = "unknown"
    software_version: str = "unknown"


UNKNOWN_CLIENT: Final = ClientInformation()


def is_valid_client_information(name: str, version: str) -> bool:
    """Whether both are valid: letters, digits, and in between dots and dashes."""
    return bool(_SOFTWARE_NAME.fullmatch(name) and _SOFTWARE_NAME.fullmatch(version))


@mypyc_attr(native_class=False)
@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionContext:
    """All that a handler may know of a request's connection. Replaced, never edited."""

    # localHost:localPort-remoteHost:remotePort-index; unique in the process.
    connection_id: str
    listener: str
    security_protocol: SecurityProtocol
    client_address: str
    principal: Principal = ANONYMOUS
    client_information: ClientInformation = UNKNOWN_CLIENT
    # Whether it came by the control plane's listener.
    is_control_plane: bool = False


class RequestPlane(Protocol):
    """The part of a request channel that connections and requests need."""

    def submit(self, request: "Request") -> "Response | None":
        """Handles a request; returns its answer, or None if later."""
        ...

    def submit_again(self, request: "Request") -> "Response | None":
        """Handles a request that was parked before its handler had it."""
        ...

    def send_response(self, response: "Response") -> None:
        """Answers a request that was parked."""
        ...


class Owner(Protocol):
    """The part of a connection that its requests need."""

    context: ConnectionContext
    is_closed: bool

    @property
    def channel(self) -> RequestPlane: ...

    @property
    def processor_id(self) -> int: ...

    def register_client(self, information: ClientInformation) -> None:
        """Keeps the peer's software as named in its ApiVersions request."""
        ...

    def throttle(self, throttle_ms: int) -> None:
        """Stays muted for a time, from now on."""
        ...

    def complete(self, response: "Response") -> None:
        """Sends the answer to the request in process."""
        ...


class Request:
    """One request. Its bytes are valid until it is answered; copy them to keep them longer."""

    __slots__ = (
        "api_local_complete_ns", "api_remote_complete_ns", "body_offset", "connection", "context",
        "dequeue_ns", "errors", "header", "is_answered_at_once", "message_conversions_ns",
        "metrics_name", "on_abandoned", "parsed", "payload", "response_complete_ns",
        "response_dequeue_ns", "start_ns", "temporary_memory_bytes",
    )  # fmt: skip

    def __init__(
        self,
        connection: Owner,
        header: RequestHeader,
        payload: memoryview,
        body_offset: int,
        start_ns: int,
    ) -> None:
        self.connection = connection
        self.context = connection.context
        self.header = header
        self.payload = payload  # The frame without its length: header and body.
        # Where in the payload the body begins; minus the body's size once the payload is dropped.
        self.body_offset = body_offset
        # Stamps of its stages.
        self.start_ns = start_ns  # Received whole.
        self.dequeue_ns = UNSET  # Handed to its handler.
        self.api_local_complete_ns = UNSET  # The handler returned.
        self.api_remote_complete_ns = UNSET  # Nothing is waited for any more.
        self.response_complete_ns = UNSET  # The response was made.
        self.response_dequeue_ns = UNSET  # The response was taken up by the connection.
        self.message_conversions_ns = 0
        self.temporary_memory_bytes = 0
        # How often each error code occurs in the answer, NONE too; None if not counted.
        self.errors: Mapping[ErrorCode, int] | None = None
        # A second name to count under, such as FetchFollower; None for none.
        self.metrics_name: str | None = None
        # The body of a long request, which was parsed before its handler is called.
        self.parsed: Any = None
        # Called if the connection closes before the answer, to unpark the request.
        self.on_abandoned: Callable[[], object] | None = None
        # Whether its handler ran at once and returned the answer: then its times consist of its
        # start, the response and its end alone.
        self.is_answered_at_once = False

    @property
    def body(self) -> memoryview:
        return self.payload[self.body_offset :]

    def let_go_of_payload(self) -> None:
        """Drops the payload and keeps its size, since sending the answer may take long."""
        self.body_offset -= len(self.payload)
        self.payload = _NOTHING

    def reply(self, response: "Response") -> None:
        """Answers a request that its handler has parked."""
        self.connection.channel.send_response(response)

    def submit_again(self) -> None:
        """Hands a request to its handler that was parked before."""
        self.api_local_complete_ns = UNSET  # Parking it was no work of a handler.
        response = self.connection.channel.submit_again(self)
        if response is not None:
            self.reply(response)

    def throttle(self, throttle_ms: int) -> None:
        """Keeps the connection muted for a time; to be called before the request is answered.

        The answer itself is not delayed: it leaves at once, and tells the client to wait.
        """
        connection = self.connection
        if throttle_ms > 0 and not connection.is_closed:
            connection.throttle(throttle_ms)

    def complete(self, now_ns: int) -> None:
        """Stamps the response as made; that ends the handler's part, if it has not ended before."""
        self.response_complete_ns = now_ns
        if self.api_local_complete_ns == UNSET:
            self.api_local_complete_ns = now_ns

    def __repr__(self) -> str:
        header = self.header
        return (
            f"{header.api_key.name} v{header.api_version} (correlation id "
            f"{header.correlation_id}, client {header.client_id!r}, {self.context.connection_id})"
        )


class Response:
    """The outcome of a request."""

    __slots__ = ("request",)

    def __init__(self, request: Request) -> None:
        self.request = request


class SendResponse(Response):
    """An answer.

    Args:
        chunks: Response header and body, without the frame's length.
        on_complete: Called when the last byte was handed to the kernel; not if the connection
            broke before.
    """

    __slots__ = ("chunks", "end_bytes", "on_complete")

    def __init__(
        self,
        request: Request,
        chunks: Sequence[Chunk],
        on_complete: Callable[[], None] | None = None,
    ) -> None:
        self.request = request
        self.chunks = chunks
        self.on_complete = on_complete
        self.end_bytes = 0  # Where in the stream of sent bytes it ends; set when queued.


class NoOpResponse(Response):
    """Nothing to send, as for Produce with acks=0; the next request may come."""

    __slots__ = ()


class CloseConnectionResponse(Response):
    """The request cannot be answered; the connection closes."""

    __slots__ = ("reason",)

    def __init__(self, request: Request, reason: str = "a request failed") -> None:
        super().__init__(request)
        self.reason = reason
