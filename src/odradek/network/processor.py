"""The owner of connections: registers new ones, routes answers to them, closes idle ones.

Kafka has a thread here; on one event loop it is an object with an id, a name and gauges of its own.
Once per turn of the loop, if there is anything to do, `run_turn`

1. registers new connections, at most 20,
2. passes answers that were made outside of a read callback to their connections,
3. closes the least recently used connection, if the broker has too many.
"""

import logging
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from typing import Any, Final

from odradek.clock import PreciseClock
from odradek.metrics import Meter, MetricRegistry
from odradek.model import Endpoint
from odradek.network.authentication import ListenerSecurity
from odradek.network.closing import CloseCause
from odradek.network.connection import Connection
from odradek.network.connection_quotas import ConnectionQuotas
from odradek.network.memory_pool import MemoryPool
from odradek.network.page_cache import ReadAhead
from odradek.network.poller import Poller
from odradek.network.request import (
    UNKNOWN_CLIENT,
    ClientInformation,
    ConnectionContext,
    Response,
)
from odradek.network.request_channel import RequestChannel
from odradek.network.streams import ByteStream
from odradek.network.transport import PlainTransport, Transport
from odradek.purgatory import Timer
from odradek.purgatory.timer import TimerCall

__all__ = ["MAX_NEW_CONNECTIONS", "Processor", "remote_host"]

logger = logging.getLogger(__name__)

MAX_NEW_CONNECTIONS: Final = 20
# A connection without traffic for this long releases its receive buffer.
TRIM_AFTER_MS: Final = 5_000
# Closed at a time, so that the loop serves others in between.
_CLOSES_PER_SWEEP: Final = 64
# Lines per cause and second: a port scan must not fill the disk.
_LOG_LINES_PER_S: Final = 10

_NS_PER_MS: Final = 1_000_000


class Processor:
    """See the module's docstring.

    Args:
        processor_id: Unique in the broker.
        name: Kafka's name of the corresponding thread.
        request_turn: Asks for `run_turn` in the next turn of the loop.
    """

    def __init__(
        self,
        processor_id: int,
        name: str,
        *,
        endpoint: Endpoint,
        channel: RequestChannel,
        security: ListenerSecurity,
        quotas: ConnectionQuotas,
        pool: MemoryPool,
        read_ahead: ReadAhead,
        loop: Poller,
        timer: Timer,
        clock: PreciseClock,
        metrics: MetricRegistry,
        request_turn: Callable[[], None],
        max_frame_bytes: int,
        max_idle_ms: int,
        failed_authentication_delay_ms: int,
        plain_transport: Callable[[ByteStream], Transport] = PlainTransport,
        is_control_plane: bool = False,
    ) -> None:
        self.id = processor_id
        self.name = name
        self.channel = channel
        self.loop = loop
        self.timer = timer
        self.pool = pool
        self.read_ahead = read_ahead
        self.now_ns = clock.monotonic_ns
        self.plain_transport = plain_transport
        self.failed_authentication_delay_ms = failed_authentication_delay_ms
        self.security = security  # Replaced when certificates are; connections keep the old one.
        self._endpoint = endpoint
        self._quotas = quotas
        self._request_turn = request_turn
        self._max_frame_bytes = max_frame_bytes
        self._max_idle_ns = max_idle_ms * _NS_PER_MS if max_idle_ms >= 0 else None
        # Interval of sweeps, and how long a connection must be quiet before a sweep trims it.
        self._sweep_ms = TRIM_AFTER_MS
        if self._max_idle_ns is not None:
            self._sweep_ms = min(TRIM_AFTER_MS, max(max_idle_ms // 2, 1))
        self._is_control_plane = is_control_plane
        # Accepted, not registered yet. Invariant: at most MAX_NEW_CONNECTIONS.
        self._new_connections: deque[tuple[ByteStream, str]] = deque()
        self._responses: deque[Response] = deque()
        # All connections, the least recently used first.
        self._connections: OrderedDict[Connection, None] = OrderedDict()
        self._next_index = 0
        self._when_room: Callable[[], None] | None = None
        self._sweep: TimerCall | None = None
        # Connections with answers that leave at the end of the wake-up.
        self._unflushed: list[Connection] = []
        self.sent: list[Connection] | None = None
        self._log_window: dict[str, tuple[int, int]] = {}  # By cause: second, lines in it.
        # Connections by the software that their peers say they are; each is counted once at most.
        self.clients: Counter[ClientInformation] = Counter()
        self.is_stopping = False
        self.idle_closed_count = 0
        self.busy = Meter(clock)  # Nanoseconds spent with sockets, handlers apart.
        self._metrics = metrics.group(
            "kafka.network", "Processor", networkProcessor=str(processor_id)
        )
        self._metrics.gauge("IdlePercent", self.idle_share)

    def idle_share(self) -> float:
        """Share of the last minute not spent with sockets."""
        return max(0.0, 1.0 - self.busy.rates().one_minute / 1_000_000_000)

    @property
    def response_queue_size(self) -> int:
        return len(self._responses)

    @property
    def connection_count(self) -> int:
        return len(self._connections) + len(self._new_connections)

    @property
    def connections(self) -> tuple[Connection, ...]:
        """The least recently used first."""
        return tuple(self._connections)

    @property
    def has_room(self) -> bool:
        return len(self._new_connections) < MAX_NEW_CONNECTIONS

    def try_accept(self, sock: ByteStream, address: str) -> bool:
        """Takes a connection that is counted already; False if there is no room."""
        if not self.has_room:
            return False
        self._new_connections.append((sock, address))
        self._request_turn()
        return True

    def when_room(self, callback: Callable[[], None]) -> None:
        """Calls back, once, when new connections can be taken again."""
        self._when_room = callback

    def enqueue_response(self, response: Response) -> None:
        responses = self._responses
        responses.append(response)
        if len(responses) == 1:  # Behind others a turn is asked for already.
            self._request_turn()

    def run_turn(self) -> None:
        """See the module's docstring."""
        if self._new_connections:
            self._take_over()
        responses = self._responses
        if responses:
            self.sent = []
            for _ in range(len(responses)):
                response = responses.popleft()
                try:
                    response.request.connection.complete(response)
                except Exception:  # the border between connections
                    logger.exception("The answer to %s could not be given", response.request)
            self._count_sent()
        if responses:  # Came meanwhile.
            self._request_turn()
        if self._connections and self._quotas.is_exceeded(self._endpoint.listener):
            self._close_least_recently_used()

    def touch(self, connection: Connection, now_ns: int) -> None:
        connection.last_active_ns = now_ns
        self._connections.move_to_end(connection)

    def flush_later(self, connection: Connection) -> None:
        if not self._unflushed:
            self.loop.at_end(self._flush_all)
        self._unflushed.append(connection)

    def flush_deferred(self) -> None:
        """Sends the answers that were deferred to the end of the wake-up."""
        if self._unflushed:
            self._flush_all()

    def _flush_all(self) -> None:
        started_ns = self.now_ns()
        unflushed, self._unflushed = self._unflushed, []
        self.sent = []
        for connection in unflushed:
            try:
                connection.flush()
            except Exception as error:  # noqa: BLE001 - the border between connections
                self._fail(connection, error)
        self._count_sent()
        self.busy.count += self.now_ns() - started_ns

    def _count_sent(self) -> None:
        """Counts the answers that have left together, at the time when the last of them did."""
        sent, self.sent = self.sent, None
        if sent:
            now_ns = self.now_ns()
            for connection in sent:
                connection.count_sent(now_ns)

    def _fail(self, connection: Connection, error: Exception) -> None:
        try:
            connection.fail(error)
        except Exception:  # the border between connections
            logger.exception("Connection %s failed", connection.context.connection_id)

    def forget(self, connection: Connection) -> None:
        self._connections.pop(connection, None)
        self.count_client(connection.context.client_information, UNKNOWN_CLIENT)
        self._quotas.decrement(self._endpoint.listener, connection.context.client_address)

    def count_client(self, before: ClientInformation, after: ClientInformation) -> None:
        clients = self.clients
        if before is not UNKNOWN_CLIENT:
            clients[before] -= 1
            if not clients[before]:
                del clients[before]
        if after is not UNKNOWN_CLIENT:
            clients[after] += 1

    def may_log(self, cause: str, now_ns: int) -> bool:
        second = now_ns // 1_000_000_000
        last, count = self._log_window.get(cause, (second, 0))
        count = count + 1 if last == second else 1
        self._log_window[cause] = second, count
        return count <= _LOG_LINES_PER_S

    def sweep(self) -> None:
        """Closes idle connections, and releases the buffers of quiet ones."""
        now_ns = self.now_ns()
        quiet_before_ns = now_ns - self._sweep_ms * _NS_PER_MS
        closed = 0
        for connection in tuple(self._connections):
            if connection.last_active_ns > quiet_before_ns or closed == _CLOSES_PER_SWEEP:
                break
            idle_ns = now_ns - connection.last_active_ns
            is_idle = self._max_idle_ns is not None and idle_ns > self._max_idle_ns
            # While a request is in process the peer waits for the broker, unless it has hung up.
            if connection.is_busy and not (is_idle and connection.has_peer_hung_up):
                continue
            if is_idle:
                closed += 1
                connection.close(CloseCause.IDLE, f"for {idle_ns // _NS_PER_MS} ms")
            elif connection.buffer_bytes:
                connection.trim()
        self.idle_closed_count += closed
        self._sweep = None
        self._schedule_sweep(1 if closed == _CLOSES_PER_SWEEP else self._sweep_ms)

    def close_idle_connections(self) -> None:
        """Closes connections without a request in process or unsent answers; for shutdown."""
        self.is_stopping = True
        for connection in tuple(self._connections):
            if not connection.is_busy and not connection.has_unsent:
                connection.close(CloseCause.SHUTDOWN)

    def shut_down(self) -> None:
        """Closes every connection."""
        self.is_stopping = True
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        for connection in tuple(self._connections):
            connection.close(CloseCause.SHUTDOWN)
        while self._new_connections:
            self._drop(*self._new_connections.popleft())
        self._responses.clear()
        self._metrics.remove()
        self._tell_of_room()  # This processor refuses; the listener asks the others.

    def _tell_of_room(self) -> None:
        if self._when_room is not None:
            callback, self._when_room = self._when_room, None
            callback()

    def _take_over(self) -> None:
        for _ in range(len(self._new_connections)):
            sock, address = self._new_connections.popleft()
            try:
                connection = Connection(
                    sock,
                    self._context(sock, address),
                    self,
                    security=self.security,
                    max_frame_bytes=self._max_frame_bytes,
                )
            except OSError as error:
                logger.info("A connection of %s broke before it began: %s", address, error)
                self._drop(sock, address)
                continue
            except Exception:  # the border between connections
                logger.exception("A connection of %s could not be set up", address)
                self._drop(sock, address)
                continue
            self._connections[connection] = None
            try:
                connection.start()
            except OSError as error:  # The system cannot watch another socket.
                connection.close(CloseCause.SYSTEM, str(error))
        self._schedule_sweep(self._sweep_ms)
        self._tell_of_room()

    def _context(self, sock: ByteStream, address: str) -> ConnectionContext:
        local, remote = sock.getsockname(), sock.getpeername()
        index = self._next_index
        self._next_index = (index + 1) & 0x7FFFFFFF
        return ConnectionContext(
            connection_id=f"{_host_port(local)}-{_host_port(remote)}-{index}",
            listener=self._endpoint.listener,
            security_protocol=self._endpoint.security_protocol,
            client_address=address,
            is_control_plane=self._is_control_plane,
        )

    def _drop(self, sock: ByteStream, address: str) -> None:
        sock.close()
        self._quotas.decrement(self._endpoint.listener, address)

    def _close_least_recently_used(self) -> None:
        next(iter(self._connections)).close(CloseCause.EXCESS)
        if self._quotas.is_exceeded(self._endpoint.listener):
            self._request_turn()

    def _schedule_sweep(self, delay_ms: int) -> None:
        if self._sweep is None and self._connections and not self.is_stopping:
            self._sweep = TimerCall(delay_ms, self.sweep)
            self.timer.add(self._sweep)


def _host_port(address: tuple[Any, ...]) -> str:
    """The address of a socket: host and port, with IPv6 two parts more."""
    host, _, _ = address[0].partition("%")  # The scope of a link-local address is not a host.
    return f"{host}:{address[1]}"


def remote_host(connection_id: str) -> str:
    """The peer's address in a connection id, whose hosts may contain colons."""
    local_and_remote, _, _ = connection_id.rpartition("-")
    _, _, remote = local_and_remote.rpartition("-")
    host, _, _ = remote.rpartition(":")
    return host
