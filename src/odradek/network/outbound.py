"""One connection to one broker: sends requests and returns each answer to its caller.

Clients, followers and the controller all speak through it. A broker answers the requests of a
connection in their order, so an answer belongs to the oldest request in flight, and its correlation
id only proves it. Rules:

1. At most `max_in_flight` requests are unanswered; `request` waits for a place.
2. A request that is not answered in time ends the connection: later answers could not be told from
   the late one. The request fails with `RequestTimedOutError`, all others with `DisconnectedError`.
3. After the end every request fails at once. A connection is never reopened; make another one.

The socket is raw and non-blocking, driven by the loop's readiness callbacks, like a broker's side.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from typing import Final, Self, TypeAlias

from odradek.errors import (
    ApiError,
    DecodeError,
    DisconnectedError,
    ErrorCode,
    RequestTimedOutError,
    UnsupportedVersionError,
)
from odradek.lazy_dataclass import dataclass
from odradek.network.memory_pool import MemoryPool
from odradek.network.receive_buffer import START_BYTES, ReceiveBuffer
from odradek.network.send_queue import Chunk, SendQueue, TruncatedFileError
from odradek.network.sockets import SYSTEM_STREAMS, ByteStreams
from odradek.network.streams import ByteStream
from odradek.network.transport import TlsTransport, Transport
from odradek.protocol.api_keys import API_SUPPORT, ApiKey
from odradek.protocol.codec import encode_message_parts
from odradek.protocol.envelope import parse_response
from odradek.protocol.headers import (
    RequestHeader,
    encode_request_header,
    parse_response_header,
)
from odradek.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.protocol.schema import Message
from odradek.protocol.versions import NO_VERSIONS, VersionRange

__all__ = ["OnAnswer", "OutboundConnection", "OutboundOptions"]

# Receives of one wake-up.
_RECEIVES_PER_TURN: Final = 16
# An answer up to this size gets its buffer at once: that to a Fetch has 50 MB by default, and one
# batch more.
_TRUSTED_BYTES: Final = 64 << 20
_MAX_CORRELATION_ID: Final = 2**31 - 1

_Answer: TypeAlias = "asyncio.Future[memoryview]"
# Takes an answer, or the reason why there is none.
OnAnswer: TypeAlias = Callable[[memoryview | Exception], object]


class _AnswerCall:
    """Where a future would be: passes the answer on in the turn that brings it."""

    __slots__ = ("_on_answer",)

    def __init__(self, on_answer: OnAnswer) -> None:
        self._on_answer: OnAnswer | None = on_answer

    def done(self) -> bool:
        return self._on_answer is None

    def set_result(self, frame: memoryview) -> None:
        self._pass_on(frame)

    def set_exception(self, error: Exception) -> None:
        self._pass_on(error)

    def exception(self) -> None:
        """As of a future; the error was passed on."""

    def _pass_on(self, answer: memoryview | Exception) -> None:
        on_answer, self._on_answer = self._on_answer, None
        assert on_answer is not None, "an answer was passed on before"
        on_answer(answer)


_Pending: TypeAlias = "asyncio.Future[memoryview] | _AnswerCall"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboundOptions:
    """How to connect and how long to wait."""

    client_id: str = "odradek"
    client_software_name: str = "odradek"
    client_software_version: str = "0.1.0"
    max_in_flight: int = 5
    connect_timeout_ms: int = 10_000  # Name look-up, TCP and TLS together.
    request_timeout_ms: int = 30_000
    # The answer to a Fetch has as many bytes as its limits allow, and one batch more.
    max_response_bytes: int = 2**31 - 1
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1
    tls: ssl.SSLContext | None = None
    # The name in the broker's certificate, if not the host that is connected to.
    server_hostname: str | None = None
    # Runs before the connection is returned to the caller: authenticates with SASL.
    authenticate: "Callable[[OutboundConnection], Awaitable[None]] | None" = None
    # Where connections come from.
    streams: ByteStreams = SYSTEM_STREAMS


class _InFlight:
    """A request that waits for its answer."""

    __slots__ = ("answer", "api_key", "api_version", "correlation_id", "deadline_s")

    def __init__(
        self,
        correlation_id: int,
        api_key: ApiKey,
        api_version: int,
        answer: _Pending,
        deadline_s: float,
    ) -> None:
        self.correlation_id = correlation_id
        self.api_key = api_key
        self.api_version = api_version
        self.answer = answer
        self.deadline_s = deadline_s  # In the loop's time.


class OutboundConnection:
    """See the module's docstring. Made by `open`."""

    def __init__(
        self,
        sock: ByteStream,
        host: str,
        port: int,
        options: OutboundOptions,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.host = host
        self.port = port
        self._socket = sock
        self._fd = sock.fileno()
        self._options = options
        self._loop = loop
        self._transport: Transport
        if options.tls is None:
            self._transport = options.streams.plain_transport(sock)
        else:
            name = options.server_hostname or host
            self._transport = TlsTransport(
                sock, options.tls, server_side=False, server_hostname=name
            )
        self._receive_buffer = ReceiveBuffer(
            options.max_response_bytes, MemoryPool(), trusted_bytes=_TRUSTED_BYTES
        )
        self._send_queue = SendQueue()
        self._correlation_ids = count()
        # Oldest first. Invariant: at most max_in_flight, as long as callers respect `can_send`.
        self._in_flight: deque[_InFlight] = deque()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._handshake: asyncio.Future[None] | None = None
        self._timeout: asyncio.TimerHandle | None = None
        self._is_write_watched = False
        self._versions: dict[ApiKey, VersionRange] = {}
        # The cluster's features, by name, as the broker knew them then; -1: it knows none.
        self.features: dict[str, int] = {}
        self.features_epoch = -1
        self.is_closed = False
        # Called once, when the connection ends.
        self.on_close: Callable[[], None] | None = None

    @classmethod
    async def open(
        cls, host: str, port: int, options: OutboundOptions | None = None, *, negotiate: bool = True
    ) -> Self:
        """Connects, shakes hands, asks for versions (unless told not to) and authenticates.

        Raises:
            DisconnectedError: No broker answers at that address, or with another protocol.
            RequestTimedOutError: The connection was not ready in time.
        """
        options = options or OutboundOptions()
        loop = asyncio.get_running_loop()
        connection: Self | None = None
        try:
            async with asyncio.timeout(options.connect_timeout_ms / 1000):
                sock = await options.streams.connect(
                    host,
                    port,
                    send_buffer_bytes=options.send_buffer_bytes,
                    receive_buffer_bytes=options.receive_buffer_bytes,
                )
                connection = cls(sock, host, port, options, loop)
                await connection._shake_hands()
                if negotiate:
                    await connection.negotiate()
                if options.authenticate is not None:
                    await options.authenticate(connection)
        except TimeoutError:
            if connection is not None:
                connection.close("it was not ready within the time to connect")
            raise RequestTimedOutError(
                f"no connection to {host}:{port} within {options.connect_timeout_ms} ms"
            ) from None
        except BaseException as error:
            if connection is not None:
                connection.close("the connection could not be set up")
            if isinstance(error, OSError):
                raise DisconnectedError(f"no connection to {host}:{port}: {error}") from error
            raise
        return connection

    @property
    def in_flight_count(self) -> int:
        return len(self._in_flight)

    @property
    def can_send(self) -> bool:
        return not self.is_closed and len(self._in_flight) < self._options.max_in_flight

    @property
    def has_unsent(self) -> bool:
        """Whether bytes wait to be sent."""
        return self._is_write_watched

    # Versions

    async def negotiate(self) -> None:
        """Asks which versions the broker serves; an older broker is asked again in its version.

        Raises:
            ApiError: The broker refused, or the connection ended.
        """
        version = API_SUPPORT[ApiKey.API_VERSIONS].parsed.last
        response = await self._ask_versions(version)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            known = {entry.api_key: entry.max_version for entry in response.api_keys}
            version = min(version, known.get(ApiKey.API_VERSIONS, 0))
            response = await self._ask_versions(version)
        if response.error_code != ErrorCode.NONE:
            raise ApiError(ErrorCode(response.error_code), f"{self} refused to list its versions")
        self._versions = {
            ApiKey(entry.api_key): VersionRange(entry.min_version, entry.max_version)
            for entry in response.api_keys
            if entry.api_key in ApiKey._value2member_map_
        }
        self.features = {one.name: one.max_version_level for one in response.finalized_features}
        self.features_epoch = response.finalized_features_epoch

    async def _ask_versions(self, version: int) -> ApiVersionsResponse:
        request = ApiVersionsRequest(
            client_software_name=self._options.client_software_name,
            client_software_version=self._options.client_software_version,
        )
        response = await self.request(ApiKey.API_VERSIONS, request, version)
        assert isinstance(response, ApiVersionsResponse), "the registry gave another class"
        return response

    def versions(self, api_key: ApiKey) -> VersionRange:
        """The versions of an API that the broker serves; empty if none, or before `negotiate`."""
        return self._versions.get(api_key, NO_VERSIONS)

    def version_for(self, api_key: ApiKey, within: VersionRange | None = None) -> int:
        """The newest version that both sides know, and that lies `within` the caller's range.

        Raises:
            UnsupportedVersionError: There is none.
        """
        ours, theirs = API_SUPPORT[api_key].parsed, self.versions(api_key)
        first = max(ours.first, theirs.first, within.first if within else 0)
        last = min(ours.last, theirs.last, within.last if within else ours.last)
        if first > last:
            raise UnsupportedVersionError(
                f"{api_key.name}: {self} serves {theirs}, we speak {within or ours}"
            )
        return last

    # Requests

    async def request(
        self,
        api_key: ApiKey,
        message: Message,
        version: int | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> Message:
        """Sends a request, in the newest version both sides know unless given; awaits its answer.

        Raises:
            DisconnectedError: The connection ended; whether the request was executed is unknown.
            RequestTimedOutError: No answer in time; the connection has ended.
            ApiError: UNSUPPORTED_VERSION, the version lacks a field that is set.
        """
        if version is None:
            version = self.version_for(api_key)
        await self.wait_for_place()
        parts = encode_message_parts(message, version)
        payload = await self.send(api_key, version, parts, timeout_ms=timeout_ms)
        try:
            _, response = parse_response(payload, api_key, version)
        except DecodeError as error:
            self.close(f"a bad answer to {api_key.name} v{version}: {error}")
            raise DisconnectedError(f"{self} gave a bad answer: {error}") from error
        return response

    async def wait_for_place(self) -> None:
        """Waits until another request may be sent.

        Raises:
            DisconnectedError: The connection ended.
        """
        while not self.is_closed and not self.can_send:
            place = self._loop.create_future()
            self._waiting.append(place)
            try:
                await place
            except BaseException:
                if place.done() and not place.cancelled():
                    self._free_place()  # Not used: another caller may have it.
                raise
            if self._waiting:
                # The caller may send nothing after all: then the place is offered again.
                self._loop.call_soon(self._offer_place)
        self._check_open()

    def send(
        self,
        api_key: ApiKey,
        version: int,
        body: Sequence[Chunk],
        *,
        timeout_ms: int | None = None,
    ) -> _Answer:
        """Sends an encoded request now; the answer is its whole payload, header included.

        The caller keeps the limit of requests in flight, by `can_send` or `wait_for_place`.

        Raises:
            DisconnectedError: The connection has ended.
        """
        answer: _Answer = self._loop.create_future()
        self._send(api_key, version, body, answer, timeout_ms)
        return answer

    def ask(
        self,
        api_key: ApiKey,
        version: int,
        body: Sequence[Chunk],
        on_answer: OnAnswer,
    ) -> None:
        """As `send`, but calls back, in the turn that brings the answer, or the end before it.

        The callback must not raise; it may send the next request.

        Raises:
            DisconnectedError: The connection has ended; there will be no call.
        """
        self._send(api_key, version, body, _AnswerCall(on_answer), None)

    def _send(
        self,
        api_key: ApiKey,
        version: int,
        body: Sequence[Chunk],
        answer: _Pending,
        timeout_ms: int | None,
    ) -> None:
        self._check_open()
        correlation_id = self._enqueue(api_key, version, body)
        if timeout_ms is None:
            timeout_ms = self._options.request_timeout_ms
        deadline_s = self._loop.time() + timeout_ms / 1000
        self._in_flight.append(_InFlight(correlation_id, api_key, version, answer, deadline_s))
        self._arm_timeout(deadline_s)
        self._try_flush()

    def send_unanswered(self, api_key: ApiKey, version: int, body: Sequence[Chunk]) -> None:
        """Sends a request that has no answer, as Produce with acks=0.

        Raises:
            DisconnectedError: The connection has ended.
        """
        self._check_open()
        self._enqueue(api_key, version, body)
        self._try_flush()
        self._check_open()

    def close(self, reason: str = "closed by us", error: Exception | None = None) -> None:
        """Ends the connection; unanswered requests fail with `DisconnectedError` or `error`."""
        if self.is_closed:
            return
        self.is_closed = True
        self._loop.remove_reader(self._fd)
        self._unwatch_writes()
        if self._timeout is not None:
            self._timeout.cancel()
        self._transport.shut_down()
        self._socket.close()
        self._receive_buffer.close()
        self._send_queue.clear()
        failure = error or DisconnectedError(f"{self}: {reason}")
        waiting: list[asyncio.Future[None] | _Pending] = [*self._waiting]
        waiting += [request.answer for request in self._in_flight]
        if self._handshake is not None:
            waiting.append(self._handshake)
        self._waiting.clear()
        self._in_flight.clear()
        for future in waiting:
            _set_failure(future, failure)
        if self.on_close is not None:
            self.on_close()

    def __str__(self) -> str:
        return f"broker at {self.host}:{self.port}"

    def _check_open(self) -> None:
        if self.is_closed:
            raise DisconnectedError(f"the connection to the {self} has ended")

    def _enqueue(self, api_key: ApiKey, version: int, body: Sequence[Chunk]) -> int:
        correlation_id = next(self._correlation_ids) & _MAX_CORRELATION_ID
        header = RequestHeader(api_key, version, correlation_id, self._options.client_id)
        self._send_queue.append_frame([encode_request_header(header), *body])
        return correlation_id

    # The socket

    async def _shake_hands(self) -> None:
        self._handshake = self._loop.create_future()
        self._loop.add_reader(self._fd, self._on_readable)
        self._on_readable()
        await self._handshake
        self._handshake = None

    def _on_readable(self) -> None:
        try:
            if self._handshake is not None and not self._handshake.done():
                self._go_on_with_handshake()
                return
            self._receive()
        except DecodeError as error:
            self.close(f"invalid bytes: {error}")
        except (OSError, TruncatedFileError) as error:
            self.close(f"it broke: {error}")

    def _go_on_with_handshake(self) -> None:
        assert self._handshake is not None, "called during the handshake only"
        if self._transport.handshake():
            self._unwatch_writes()
            self._handshake.set_result(None)
        elif self._transport.wants_write:
            self._watch_writes()
        else:  # A socket that takes bytes would wake us again and again.
            self._unwatch_writes()

    def _receive(self) -> None:
        buffer = self._receive_buffer
        for _ in range(_RECEIVES_PER_TURN):
            try:
                received = buffer.receive(self._transport.recv_into)
            except (BlockingIOError, InterruptedError):
                return
            if not received:
                self.close("it hung up")
                return
            while not self.is_closed and (frame := buffer.next_frame()) is not None:
                self._answer(frame)
            if self.is_closed or buffer.is_drained:
                return
        if self._transport.has_pending:
            self._loop.call_soon(self._on_readable_again)

    def _on_readable_again(self) -> None:
        if not self.is_closed:
            self._on_readable()

    def _answer(self, frame: memoryview) -> None:
        if not self._in_flight:
            raise DecodeError("an answer though no request is in flight")
        request = self._in_flight[0]
        correlation_id, _ = parse_response_header(frame, request.api_key, request.api_version)
        if correlation_id != request.correlation_id:
            raise DecodeError(f"correlation id {correlation_id}, expected {request.correlation_id}")
        self._in_flight.popleft()
        if len(frame) > START_BYTES:
            # The answer keeps the memory it was received in; the buffer starts with new memory.
            self._receive_buffer.trim()
        else:
            frame = memoryview(bytes(frame))
        if not request.answer.done():
            request.answer.set_result(frame)
        self._free_place()

    def _free_place(self) -> None:
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(None)
                return

    def _offer_place(self) -> None:
        if self.can_send:
            self._free_place()

    def _on_writable(self) -> None:
        if self._handshake is not None and not self._handshake.done():
            self._on_readable()
        else:
            self._try_flush()

    def _try_flush(self) -> None:
        try:
            is_empty = self._transport.flush(self._send_queue)
        except (OSError, TruncatedFileError) as error:
            self.close(f"it broke: {error}")
            return
        if is_empty:
            self._unwatch_writes()
        else:
            self._watch_writes()

    def _watch_writes(self) -> None:
        if not self._is_write_watched:
            self._is_write_watched = True
            self._loop.add_writer(self._fd, self._on_writable)

    def _unwatch_writes(self) -> None:
        if self._is_write_watched:
            self._is_write_watched = False
            self._loop.remove_writer(self._fd)

    def _arm_timeout(self, deadline_s: float) -> None:
        """Keeps one timer, at the earliest deadline or before it if that request was answered."""
        if self._timeout is not None:
            if self._timeout.when() <= deadline_s:
                return
            self._timeout.cancel()
        self._timeout = self._loop.call_at(deadline_s, self._check_timeouts)

    def _check_timeouts(self) -> None:
        self._timeout = None
        now_s = self._loop.time()
        late = [request for request in self._in_flight if request.deadline_s <= now_s]
        if late:
            for request in late:
                _set_failure(
                    request.answer,
                    RequestTimedOutError(f"{self} did not answer {request.api_key.name} in time"),
                )
            self.close("a request was not answered in time")
        elif self._in_flight:
            self._arm_timeout(min(request.deadline_s for request in self._in_flight))


def _set_failure(future: "asyncio.Future[None] | _Pending", error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # A future that no task awaits any more need not be logged.
