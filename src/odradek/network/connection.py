"""One connection of a client: bytes in, requests out to the handlers, answers back, in order.

One wake-up does as much as it can: receive once, hand every complete frame to the channel, and send
all answers in one write. Rules:

1. A frame is not handed out before the request before it is answered, that is, before its response
   is in the send queue. `odradek.network.mute` says when a connection is muted.
2. While a request is in process nothing is received, so its bytes stay where they are. The socket
   is only unwatched when something arrives meanwhile: most clients wait for their answer, and then
   muting costs nothing.
3. More than `MAX_QUEUED_BYTES` or `MAX_QUEUED_FILES` unsent keep the connection muted until they
   are gone: a peer that does not read gets no further request served. So a connection holds that
   and one answer, however many requests its peer sends at once.
4. The end of the peer's stream is the end of requests, not of answers: earlier requests are still
   answered if the peer reads on, and if the answer comes soon. The hang-up of a peer is noticed
   also while the connection is not read (`odradek.network.closing`).
5. A connection closes once, with one line in the log that says why, and releases its memory.
6. A piece of a file that is not in memory is read by a thread (`odradek.network.page_cache`).
   Until then nothing is sent: answers stay in order, and others are served.
7. Small answers leave when every connection of the wake-up has been served. Each of them wakes its
   reader, and a reader that is awake already costs a fraction: one process with fifty connections
   is woken once instead of fifty times. Answers that leave together are counted when the last of
   them has left, and no peer waits for that.
8. Requests that were sent ahead are served for `SLICE_NS` in one turn of the loop. The others stay
   in the buffer and the connection is not read until the next turn, so that a peer that sends
   thousands of small requests at once keeps no other peer waiting (02 section 12).
"""

import logging
from collections import deque
from contextlib import suppress
from dataclasses import replace
from typing import Final

from odradek.errors import FramingError
from odradek.network.authentication import (
    AUTHENTICATION_TIMEOUT_MS,
    HANDSHAKE_TIMEOUT_MS,
    Authenticator,
    ListenerSecurity,
)
from odradek.network.closing import (
    HANG_UP_GRACE_MS,
    UNSUPPORTED_DELAY_MS,
    CloseCause,
    CloseTime,
    decide_closing,
    has_hung_up,
    log_closing,
)
from odradek.network.connection_host import ConnectionHost
from odradek.network.mute import WHILE_HANDLING, MuteEvent, MuteState, after, unmute
from odradek.network.page_cache import ReadAheadJob
from odradek.network.poller import SocketWatch
from odradek.network.receive_buffer import OutOfMemoryError, ReceiveBuffer
from odradek.network.request import (
    ClientInformation,
    CloseConnectionResponse,
    ConnectionContext,
    Request,
    Response,
    SendResponse,
)
from odradek.network.send_queue import SendQueue, TruncatedFileError
from odradek.network.streams import ByteStream
from odradek.network.transport import TlsTransport, Transport
from odradek.protocol.headers import RequestHeaderReader
from odradek.purgatory.timer import TimerCall

__all__ = ["MAX_QUEUED_BYTES", "MAX_QUEUED_FILES", "SLICE_NS", "Connection"]

logger = logging.getLogger(__name__)

# Above it, the next request waits until the peer has read. With 2000 peers that never read it is
# 128 MB, and one answer each.
MAX_QUEUED_BYTES: Final = 64 << 10
# Likewise for pieces of files, each with a descriptor: many small ones stay below the bytes. With
# the pieces of one answer to a fetch, 100 at most, a connection holds 116 descriptors.
MAX_QUEUED_FILES: Final = 16
# Receives of one wake-up: a large frame needs several, and other connections need their turn.
_RECEIVES_PER_TURN: Final = 16
# So much waits for the end of the wake-up, see rule 7. More goes out at once: peers can begin to
# read it while others are served.
_DEFERRED_BYTES: Final = 16 << 10
# How long requests of one connection keep the loop in one turn, see rule 8. Longer than a handler
# may take, so that requests which are sent ahead by the dozen still share one write.
SLICE_NS: Final = 2_000_000
# A connection that was active a moment ago need not move in the order of use again.
_TOUCH_AFTER_NS: Final = 20_000_000

_NOT_MUTED: Final = MuteState.NOT_MUTED


class Connection:
    """See the module's docstring."""

    __slots__ = (
        "_authenticator", "_busy", "_deadline", "_headers", "_host", "_is_behind", "_is_draining",
        "_is_eof", "_is_handshaking", "_is_plain", "_is_pool_bounded", "_loop",
        "_max_frame_bytes", "_metrics", "_mute_state", "_now_ns", "_principal_of", "_reading",
        "_receive_buffer", "_request", "_send_queue", "_socket", "_throttle", "_transport",
        "_unsent", "_watch", "channel", "context", "is_closed", "last_active_ns", "processor_id",
    )  # fmt: skip

    def __init__(
        self,
        sock: ByteStream,
        context: ConnectionContext,
        host: ConnectionHost,
        *,
        security: ListenerSecurity,
        max_frame_bytes: int,
    ) -> None:
        self._socket = sock
        # The host, and what every request uses of it.
        self._host = host
        self.processor_id = host.id
        self.channel = host.channel
        self._metrics = host.channel.metrics
        self._loop = host.loop
        self._watch = SocketWatch(host.loop, sock.fileno())
        self._busy = host.busy
        self._now_ns = host.now_ns
        self.context = context
        self._max_frame_bytes = max_frame_bytes
        self._transport: Transport
        self._is_plain = security.tls is None
        if security.tls is None:
            self._transport = host.plain_transport(sock)
        else:
            self._transport = TlsTransport(sock, security.tls, server_side=True)
        self._is_handshaking = security.tls is not None
        self._principal_of = security.principal_of
        self._authenticator: Authenticator | None = None
        if security.authenticator is not None:
            self._authenticator = security.authenticator(context)
            max_frame_bytes = min(max_frame_bytes, self._authenticator.max_frame_bytes)
        self._receive_buffer = ReceiveBuffer(max_frame_bytes, host.pool)
        self._headers = RequestHeaderReader()
        self._is_pool_bounded = host.pool.is_bounded
        self._send_queue = SendQueue(host.read_ahead.pages)
        self._reading: ReadAheadJob | None = None  # Of what the send queue has to send next.
        # Answers in the send queue, oldest first.
        self._unsent: deque[SendResponse] = deque()
        self._mute_state = _NOT_MUTED
        self._request: Request | None = None  # In process, its answer still to come.
        # Whether the last answer waits, with RESPONSE_SENT, for the send queue to empty.
        self._is_draining = False
        self._is_behind = False  # Frames in the buffer wait for the loop's next turn.
        self._is_eof = False
        self._throttle: TimerCall | None = None
        self._deadline: TimerCall | None = None  # Until requests may flow.
        self.is_closed = False
        self.last_active_ns = host.now_ns()

    @property
    def is_muted(self) -> bool:
        return self._mute_state is not _NOT_MUTED

    @property
    def is_busy(self) -> bool:
        """Whether a request is in process: then the peer waits for the broker."""
        return self._request is not None

    @property
    def has_peer_hung_up(self) -> bool:
        """Whether the peer has closed its side, read or not: a muted connection does not read."""
        return has_hung_up(self._socket)

    @property
    def has_unsent(self) -> bool:
        return bool(self._send_queue) or self._transport.wants_write

    @property
    def buffer_bytes(self) -> int:
        return self._receive_buffer.capacity_bytes

    def start(self) -> None:
        """Begins to read."""
        if self._is_handshaking or self._authenticator is not None:
            delay_ms = HANDSHAKE_TIMEOUT_MS if self._is_handshaking else AUTHENTICATION_TIMEOUT_MS
            self._set_deadline(delay_ms, f"not finished within {delay_ms} ms")
        self._watch.watch_reads(self.on_readable)

    def register_client(self, information: ClientInformation) -> None:
        """Keeps the peer's software as named in its ApiVersions request."""
        self._host.count_client(self.context.client_information, information)
        self.context = replace(self.context, client_information=information)

    def complete(self, response: Response) -> None:
        """Sends the answer to the request in process, and continues with the requests after it."""
        now_ns = self._now_ns()
        if self.is_closed or response.request is not self._request:
            self._metrics.request_done(response.request, now_ns)
            return
        response.request.response_dequeue_ns = now_ns
        self._request = None
        try:
            self._answer(response)
            if (
                self._mute_state is _NOT_MUTED
                and self._watch.has_reads
                and self._is_plain
                and not (self._receive_buffer.end or self._is_pool_bounded)
            ):
                self.flush()  # As nearly always: nothing waits behind it, and all is watched.
                return
        except Exception as error:  # noqa: BLE001 - the border of a connection
            self.fail(error)
        self._resume()

    def throttle(self, throttle_ms: int) -> None:
        """Stays muted for a time, from now on."""
        self._mute_state = after(self._mute_state, MuteEvent.THROTTLE_STARTED)
        self._throttle = TimerCall(throttle_ms, self._end_throttle)
        self._host.timer.add(self._throttle)

    def trim(self) -> None:
        """Releases memory that is not in use."""
        if self._request is None and not self.is_closed:
            self._receive_buffer.trim()

    # Reading

    def on_readable(self) -> None:
        """The loop's callback."""
        if self._is_behind:
            return
        if self._mute_state is not _NOT_MUTED or self._is_eof:
            self._watch.unwatch_reads()
            if self._request is not None:
                self._watch.watch_hang_up(self._on_hang_up)
            return
        try:
            self._read()
        except Exception as error:  # noqa: BLE001 - the border of a connection
            self.fail(error)

    def _read(self) -> None:
        host = self._host
        handlers = self.channel.busy
        now_ns = self._now_ns()
        started_ns = now_ns - handlers.count
        if now_ns - self.last_active_ns > _TOUCH_AFTER_NS:
            host.touch(self, now_ns)
        if self._is_handshaking and not self._shake_hands():
            return
        buffer = self._receive_buffer
        recv_into = self._transport.recv_into
        for _ in range(_RECEIVES_PER_TURN):
            try:
                received = buffer.receive(recv_into)
            except (BlockingIOError, InterruptedError):
                break
            except OutOfMemoryError:
                self._watch.unwatch_reads()
                host.pool.when_available(self._resume)
                break
            if not received:
                self._is_eof = True
                self._watch.unwatch_reads()
                break
            self._handle_frames(now_ns)
            if buffer.is_drained or self._mute_state is not _NOT_MUTED or self._is_behind:
                break
        else:
            if self._transport.has_pending:
                # The kernel does not report bytes that TLS has already read.
                self._loop.call_soon(self._go_on)
        queue = self._send_queue
        unsent_bytes = queue.enqueued_bytes - queue.sent_bytes
        if self._loop.has_more and 0 < unsent_bytes <= _DEFERRED_BYTES and not self._is_eof:
            host.flush_later(self)
        elif unsent_bytes or self._request is None or not self._is_plain:
            self.flush()
        # Else the request was parked, and nothing is to be sent or closed.
        self._busy.count += self._now_ns() - handlers.count - started_ns

    def _handle_frames(self, now_ns: int) -> None:
        buffer = self._receive_buffer
        slice_end_ns = now_ns + SLICE_NS
        while self._mute_state is _NOT_MUTED:
            if now_ns >= slice_end_ns:
                self._is_behind = True
                self._loop.call_soon(self._go_on)
                return
            payload = buffer.next_frame()
            if payload is None:
                if self._is_pool_bounded:
                    self._give_memory_back()
                return
            if self._authenticator is not None:
                self._authenticate(self._authenticator, payload)
                continue
            header, body_offset = self._headers.read(payload)
            request = Request(self, header, payload, body_offset, now_ns)
            self._mute_state = WHILE_HANDLING
            response = self.channel.submit(request)
            if response is None:
                self._request = request
                return
            if self.is_closed:
                return
            now_ns = request.response_complete_ns
            self._answer(response)
            if not buffer.end and not self._is_pool_bounded:
                return  # As nearly always: the peer waits for its answer.

    def _go_on(self) -> None:
        self._is_behind = False
        self._resume()

    def _resume(self) -> None:
        """Continues after an answer, a throttle or a lack of memory."""
        if self.is_closed:
            return
        try:
            if self._mute_state is _NOT_MUTED and (
                self._receive_buffer.buffered_bytes or self._is_pool_bounded
            ):
                self._handle_frames(self._now_ns())
            if self._mute_state is _NOT_MUTED and not (self._is_eof or self._is_behind):
                if not self._watch.has_reads:
                    self._watch.watch_reads(self.on_readable)
                if not self._is_plain and self._transport.has_pending:
                    self._read()
                    return
            self.flush()
            if self._request is not None and not self._watch.has_reads:
                # The peer may have hung up while an earlier request waited: epoll reports it again.
                self._watch.watch_hang_up(self._on_hang_up)
        except Exception as error:  # noqa: BLE001 - the border of a connection
            self.fail(error)

    # Answering

    def _answer(self, response: Response) -> None:
        if self._is_pool_bounded:
            self._give_memory_back(response.request)
        if type(response) is SendResponse:
            queue = self._send_queue
            response.end_bytes = end_bytes = queue.append_frame(response.chunks)
            self._unsent.append(response)
            if end_bytes - queue.sent_bytes > MAX_QUEUED_BYTES or (
                queue.file_count and queue.file_count > MAX_QUEUED_FILES
            ):
                self._is_draining = True
                self.flush()
                return
        else:
            self._metrics.request_done(response.request, self._now_ns())
            if isinstance(response, CloseConnectionResponse):
                self.flush()
                self.close(CloseCause.REQUEST, response.reason, asked=response.request)
                return
        if self._mute_state is WHILE_HANDLING:  # As nearly always.
            self._mute_state = _NOT_MUTED
        else:
            self._response_sent()

    def _give_memory_back(self, request: Request | None = None) -> None:
        """Returns the memory of an answered request: its peer may read the answer late or never."""
        buffer = self._receive_buffer
        if buffer.has_borrowed and not buffer.buffered_bytes:
            if request is not None:
                request.let_go_of_payload()
            buffer.trim()

    def _response_sent(self) -> None:
        if self._mute_state is WHILE_HANDLING:
            self._mute_state = _NOT_MUTED
        else:
            self._mute_state = unmute(after(self._mute_state, MuteEvent.RESPONSE_SENT))

    def _end_throttle(self) -> None:
        self._throttle = None
        if self.is_closed:
            return
        self._mute_state = unmute(after(self._mute_state, MuteEvent.THROTTLE_ENDED))
        self._resume()

    def on_writable(self) -> None:
        """The loop's callback."""
        was_draining = self._is_draining
        try:
            if self._is_handshaking:
                self._read()
                return
            self.flush()
        except Exception as error:  # noqa: BLE001 - the border of a connection
            self.fail(error)
        if was_draining and not self._is_draining:
            self._resume()

    def flush(self) -> None:
        """Sends as much as the socket takes; closes after the last answer if the peer hung up.

        An error is raised: its caller, the border of the connection, passes it to `fail`.
        """
        if self.is_closed or self._reading is not None:
            return
        queue = self._send_queue
        before = queue.sent_bytes
        if queue.enqueued_bytes != before or self._transport.wants_write:
            if self._is_plain:
                is_empty = queue.flush_to_socket(self._socket)
            else:
                is_empty = self._transport.flush(queue)
            if queue.sent_bytes != before:
                sent = self._host.sent
                if sent is None:
                    self.count_sent(self._now_ns())
                else:
                    sent.append(self)
            if not is_empty:
                if queue.cold is None:
                    self._watch.watch_writes(self.on_writable)
                else:
                    self._read_cold(queue)
                return
            if self._watch.has_writes:
                self._watch.unwatch_writes()
        if self._is_draining:
            self._is_draining = False
            self._response_sent()
        if self._is_eof and self._request is None:
            self.close(CloseCause.PEER)

    def _read_cold(self, queue: SendQueue) -> None:
        """Lets a thread read the next bytes to send; continues as if the socket became writable."""
        cold, count = queue.cold, queue.cold_bytes
        assert cold is not None, "the caller has seen it"
        self._watch.unwatch_writes()  # A socket with room would wake the loop again and again.

        def go_on() -> None:
            self._reading = None
            queue.warmed(count)
            self.on_writable()

        self._reading = self._host.read_ahead.start(cold.fd, cold.position, count, go_on)

    def count_sent(self, now_ns: int) -> None:
        """Counts the requests whose answers the kernel has taken by now, the last one just now."""
        if self.is_closed:
            return  # They were counted then.
        if now_ns - self.last_active_ns > _TOUCH_AFTER_NS:
            self._host.touch(self, now_ns)
        sent_bytes = self._send_queue.sent_bytes
        unsent = self._unsent
        while unsent and unsent[0].end_bytes <= sent_bytes:
            response = unsent.popleft()
            self._metrics.request_done(response.request, now_ns)
            if response.on_complete is not None:
                response.on_complete()

    # Becoming trusted

    def _shake_hands(self) -> bool:
        if not self._transport.handshake():
            if self._transport.wants_write:
                self._watch.watch_writes(self.on_writable)
            else:  # A socket that takes bytes would wake us again and again.
                self._watch.unwatch_writes()
            return False
        self._is_handshaking = False
        self._watch.unwatch_writes()
        if self._principal_of is not None:
            principal = self._principal_of(self._transport.peer_certificate())
            self.context = replace(self.context, principal=principal)
        self._clear_deadline()
        if self._authenticator is not None:
            left_ms = AUTHENTICATION_TIMEOUT_MS - HANDSHAKE_TIMEOUT_MS
            self._set_deadline(left_ms, f"not finished within {AUTHENTICATION_TIMEOUT_MS} ms")
        return True

    def _authenticate(self, authenticator: Authenticator, payload: memoryview) -> None:
        step = authenticator.receive(payload)
        queue = self._send_queue
        if step.reply:
            queue.append_frame(step.reply)
        if step.failure is not None:
            self._mute_state = MuteState.MUTED
            self.flush()
            self._set_deadline(self._host.failed_authentication_delay_ms, step.failure)
        elif step.principal is not None:
            self.context = replace(self.context, principal=step.principal)
            self._authenticator = None
            self._receive_buffer.max_frame_bytes = self._max_frame_bytes
            self._clear_deadline()
        if step.failure is None and queue.queued_bytes > MAX_QUEUED_BYTES:
            # As after an answer (rule 3): a peer that does not read gets no frame served.
            self._mute_state = WHILE_HANDLING
            self._is_draining = True
            self.flush()

    def _set_deadline(self, delay_ms: int, reason: str) -> None:
        self._clear_deadline()
        cause = CloseCause.TLS if self._is_handshaking else CloseCause.AUTHENTICATION
        self._deadline = TimerCall(delay_ms, lambda: self.close(cause, reason))
        self._host.timer.add(self._deadline)

    def _clear_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    # Ending

    def fail(self, error: Exception) -> None:
        """Closes because of an error: at once, after a flush, or after a delay."""
        is_framing = isinstance(error, FramingError)
        first_bytes = self._receive_buffer.first_bytes(2) if is_framing else b""
        when, cause, detail = decide_closing(error, first_bytes)
        if when is not CloseTime.NOW:
            # Earlier, valid requests are still answered.
            with suppress(OSError, TruncatedFileError):
                self._transport.flush(self._send_queue)
        if when is not CloseTime.LATER:
            self.close(cause, detail, error if cause is CloseCause.BUG else None)
            return
        self._mute_state = MuteState.MUTED
        self._watch.unwatch_reads()
        self._clear_deadline()
        self._deadline = TimerCall(UNSUPPORTED_DELAY_MS, lambda: self.close(cause, detail))
        self._host.timer.add(self._deadline)

    def _on_hang_up(self) -> None:
        """The loop's callback: the peer sends no more, or is gone."""
        self._watch.unwatch_hang_up()
        request = self._request
        if request is not None:
            self._host.timer.add(TimerCall(HANG_UP_GRACE_MS, lambda: self._give_up(request)))

    def _give_up(self, request: Request) -> None:
        if self._request is request:
            self.close(CloseCause.PEER, "while its request waited")

    def close(
        self,
        cause: CloseCause,
        detail: str = "",
        error: Exception | None = None,
        *,
        asked: Request | None = None,
    ) -> None:
        """Closes, once; a second call does nothing.

        Args:
            cause: Why.
            detail: Added to the line in the log.
            error: An unexpected error, logged with its traceback.
            asked: The request that caused it, unless it is the one in process.
        """
        if self.is_closed:
            return
        self.is_closed = True
        self._mute_state = MuteState.MUTED  # No frame is handed out any more.
        now_ns = self._now_ns()
        self._watch.end()
        self._clear_deadline()
        if self._throttle is not None:
            self._throttle.cancel()
        if self._reading is not None:
            self._reading.cancel()
        self._transport.shut_down()
        self._socket.close()
        self._host.pool.forget(self._resume)
        self._receive_buffer.close()
        self._send_queue.clear()
        unsent, self._unsent = self._unsent, deque()
        for response in unsent:
            self._metrics.request_done(response.request, now_ns)
            if response.end_bytes <= self._send_queue.sent_bytes and response.on_complete:
                response.on_complete()
        request, self._request = self._request, None
        self._host.forget(self)
        if logger.isEnabledFor(cause.level) and self._host.may_log(cause.name, now_ns):
            log_closing(logger, self.context, cause, detail, error, asked or request)
        if request is not None and request.on_abandoned is not None:
            try:
                request.on_abandoned()
            except Exception:  # the end of one request must not keep others
                logger.exception("The callback for the abandoned request %s failed", request)
