"""All listeners of a broker, in two planes.

==================  =====================================  =============================
                    data plane                             control plane
==================  =====================================  =============================
listeners           all but the control plane's            none or one
processors          `num.network.threads` per listener     1
queue, slots        `queued.max.requests`,                 20, 1
                    `num.io.threads`
served              after it                               first in each turn of the loop
==================  =====================================  =============================

Duties of its owner, in order:

1. ``async with SocketServer(...)``: handlers that wait live in its task group.
2. `bind`: ports are known from here on, and connections wait in the kernel.
3. `start_processing`, once state is loaded: control plane first, then the inter-broker listener,
   then the others.
4. `shut_down`: stop accepting, close idle connections, send the answers in process, close the rest.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Final, Self

from odradek.clock import PreciseClock
from odradek.errors import InvariantViolation
from odradek.metrics import MetricName, MetricRegistry
from odradek.model import Endpoint
from odradek.network.authentication import ListenerSecurity
from odradek.network.config import ListenerLimits, NetworkConfig, check_resize, parse_ip_overrides
from odradek.network.connection_host import ServerLoop
from odradek.network.connection_quotas import ConnectionQuotas
from odradek.network.listener import Listener
from odradek.network.loop_turns import turns_of
from odradek.network.memory_pool import MemoryPool
from odradek.network.page_cache import PageCache, ReadAhead
from odradek.network.poller import Poller
from odradek.network.processor import Processor
from odradek.network.request import ClientInformation
from odradek.network.request_channel import (
    CONTROL_PLANE_PREFIX,
    CONTROL_PLANE_QUEUE_SIZE,
    CONTROL_PLANE_SLOTS,
    Handler,
    RequestChannel,
)
from odradek.network.sockets import SYSTEM_STREAMS, ByteStreams
from odradek.purgatory import Timer
from odradek.tasks import OwnedTasks, Sleep, Threads

__all__ = ["SocketServer"]

logger = logging.getLogger(__name__)

# How often a shutdown looks whether the last answers have left.
_SHUTDOWN_POLL_S: Final = 0.01

# Kafka's name, without the processor: processors are objects of one loop here.
_CLIENTS: Final = MetricName("kafka.server", "socket-server-metrics", "connections")


class _Plane:
    """A channel and the listeners that feed it."""

    __slots__ = ("channel", "listeners", "prefix")

    def __init__(self, channel: RequestChannel, prefix: str) -> None:
        self.channel = channel
        self.prefix = prefix
        self.listeners: dict[str, Listener] = {}

    def processors(self) -> list[Processor]:
        return [p for listener in self.listeners.values() for p in listener.processors]


class SocketServer:
    """See the module's docstring.

    Args:
        handler: Runs requests of the data plane.
        control_handler: Runs those of the control plane; the same if not given.
        security: How connections of each listener become trusted, by its name; plain if absent.
        limits: Limits of single listeners.
        pages: Tells which pieces of files are in memory; the system's page cache if not given.
        poller: Watches the connections; closed with the server. A new one if not given.
    """

    def __init__(
        self,
        config: NetworkConfig,
        handler: Handler,
        *,
        broker_id: int,
        loop: ServerLoop,
        timer: Timer,
        clock: PreciseClock,
        metrics: MetricRegistry,
        control_handler: Handler | None = None,
        security: Mapping[str, ListenerSecurity] | None = None,
        limits: Mapping[str, ListenerLimits] | None = None,
        pages: PageCache | None = None,
        streams: ByteStreams = SYSTEM_STREAMS,
        threads: Threads = ThreadPoolExecutor,
        sleep: Sleep = asyncio.sleep,
        poller: Poller | None = None,
    ) -> None:
        self._config = config
        self._broker_id = broker_id
        self._loop = loop
        self._streams = streams
        self._turns = turns_of(loop)
        self._turns.register(metrics)
        # Of the connections; listeners have the loop itself.
        self.poller = poller or Poller(loop, streams.epoll)
        self._timer = timer
        self._clock = clock
        self._metrics = metrics
        self._security = dict(security or {})
        self._limits = dict(limits or {})
        self._network_threads = config.network_threads
        self._io_threads = config.io_threads
        self._next_processor_id = 0
        self._is_processing = False
        self._is_turn_requested = False
        self._after_answers: list[Callable[[], None]] = []
        self._tasks = OwnedTasks(sleep)  # Of handlers that wait.
        planes = config.planes
        self._inter_broker_listener = config.inter_broker_listener
        self.quotas = ConnectionQuotas(
            clock,
            max_connections=config.max_connections,
            max_per_ip=config.max_connections_per_ip,
            per_ip_overrides=parse_ip_overrides(config.max_connections_per_ip_overrides),
            max_creation_rate=config.max_creation_rate,
            inter_broker_listener=self._inter_broker_listener,
        )
        pool_bytes = config.queued_max_request_bytes
        self._read_ahead = ReadAhead(pages or PageCache(), loop.call_soon_threadsafe, threads)
        self.pool = MemoryPool(pool_bytes if pool_bytes > 0 else None)
        self._group = metrics.group("kafka.network", "SocketServer")
        self._register_metrics()
        # In the order in which a turn serves them.
        self._planes: list[_Plane] = []
        if planes.control is not None:
            channel = self._make_channel(
                control_handler or handler,
                CONTROL_PLANE_QUEUE_SIZE,
                CONTROL_PLANE_SLOTS,
                CONTROL_PLANE_PREFIX,
            )
            self._add_plane(_Plane(channel, CONTROL_PLANE_PREFIX), (planes.control,))
        channel = self._make_channel(handler, config.queued_max_requests, self._io_threads, "")
        self._add_plane(_Plane(channel, ""), planes.data)

    def _register_metrics(self) -> None:
        self._group.gauge("MemoryPoolAvailable", lambda: self.pool.available_bytes)
        self._group.gauge("MemoryPoolUsed", lambda: self.pool.used_bytes)
        self._metrics.collect(
            _CLIENTS,
            self._count_clients,
            "Connections by what their peers' ApiVersions requests say of their software.",
        )

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.close()
        # The handlers' tasks never fail; an error of the body propagates unchanged.
        await self._tasks.__aexit__(None, None, None)

    @property
    def data_channel(self) -> RequestChannel:
        return self._planes[-1].channel

    @property
    def control_channel(self) -> RequestChannel | None:
        return self._planes[0].channel if len(self._planes) == 2 else None

    @property
    def listeners(self) -> dict[str, Listener]:
        """By name, the control plane's first."""
        return {
            name: listener for plane in self._planes for name, listener in plane.listeners.items()
        }

    @property
    def connection_count(self) -> int:
        return self.quotas.total

    def bound_port(self, listener: str) -> int:
        """The port a listener got."""
        return self.listeners[listener.upper()].bound_port

    def bind(self) -> None:
        """Binds every listener; if one fails, none stays bound.

        Raises:
            ConfigError: An address cannot be bound.
        """
        for listener in self.listeners.values():
            try:
                listener.bind()
            except BaseException:
                for other in self.listeners.values():
                    other.close()
                raise

    def start_processing(self) -> None:
        """Begins to accept; a second call does nothing.

        Raises:
            InvariantViolation: The inter-broker listener is not among the data plane's.
        """
        if self._is_processing:
            logger.info("Requests are being processed already")
            return
        data = self._planes[-1].listeners
        if self._inter_broker_listener not in data:
            raise InvariantViolation(
                f"no inter-broker listener {self._inter_broker_listener} among "
                f"{', '.join(sorted(data)) or 'no listeners'}"
            )
        self._is_processing = True
        if len(self._planes) == 2:
            for listener in self._planes[0].listeners.values():
                listener.start()
        # Requests of other listeners may need state that other brokers send by this one.
        data[self._inter_broker_listener].start()
        for name, listener in data.items():
            if name != self._inter_broker_listener:
                listener.start()

    def resize_network_threads(self, count: int) -> None:
        """Changes the number of processors of every data listener.

        Raises:
            ConfigError: The step is too large.
        """
        check_resize("num.network.threads", self._network_threads, count)
        plane = self._planes[-1]
        for listener in plane.listeners.values():
            surplus = len(listener.processors) - count
            if surplus > 0:
                for processor in listener.remove_processors(surplus):
                    processor.shut_down()
                    plane.channel.remove_processor(processor.id)
            for _ in range(-surplus):
                self._add_processor(plane, listener)
        self._network_threads = count

    def resize_io_threads(self, count: int) -> None:
        """Changes how many handlers of the data plane may be suspended.

        Raises:
            ConfigError: The step is too large.
        """
        check_resize("num.io.threads", self._io_threads, count)
        self._io_threads = count
        self.data_channel.resize(count)

    def add_listener(self, endpoint: Endpoint, security: ListenerSecurity | None = None) -> None:
        """Opens another listener of the data plane while running; plaintext without `security`.

        Raises:
            ConfigError: The address cannot be bound.
        """
        if security is not None:
            self._security[endpoint.listener] = security
        listener = self._make_listener(self._planes[-1], endpoint)
        try:
            listener.bind()
        except BaseException:
            self._remove_listener(self._planes[-1], listener)
            raise
        if self._is_processing:
            listener.start()

    def remove_listener(self, name: str) -> None:
        """Closes a listener of the data plane, and its connections."""
        plane = self._planes[-1]
        self._remove_listener(plane, plane.listeners[name.upper()])

    def replace_security(self, listener: str, security: ListenerSecurity) -> None:
        """Uses other certificates for new connections; existing ones keep theirs."""
        self._security[listener.upper()] = security
        for processor in self.listeners[listener.upper()].processors:
            processor.security = security

    async def shut_down(self, grace_ms: int = 0) -> None:
        """Stops accepting, gives answers under way `grace_ms` to leave, then closes everything."""
        for listener in self.listeners.values():
            listener.close()
        processors = [p for plane in self._planes for p in plane.processors()]
        deadline_ms = self._clock.monotonic_ms() + grace_ms
        while True:
            for processor in processors:
                processor.close_idle_connections()
            if not self.quotas.total or self._clock.monotonic_ms() >= deadline_ms:
                break
            await self._tasks.sleep(_SHUTDOWN_POLL_S)
        self.close()

    def close(self) -> None:
        """Closes every listener and connection at once; harmless when done before."""
        self._is_processing = False
        for plane in self._planes:
            for listener in tuple(plane.listeners.values()):
                self._remove_listener(plane, listener)
            plane.channel.clear()
        self.poller.close()
        self._read_ahead.close()
        self._group.remove()

    # Building

    def _add_plane(self, plane: _Plane, endpoints: tuple[Endpoint, ...]) -> None:
        self._planes.append(plane)
        self._group.gauge(
            f"{plane.prefix}NetworkProcessorAvgIdlePercent", lambda: _mean_idle(plane.processors())
        )
        for endpoint in endpoints:
            self._make_listener(plane, endpoint)

    def _make_channel(
        self, handler: Handler, queue_size: int, slots: int, prefix: str
    ) -> RequestChannel:
        return RequestChannel(
            handler,
            queue_size=queue_size,
            slots=slots,
            clock=self._clock,
            timer=self._timer,
            metrics=self._metrics,
            tasks=self._tasks,
            request_turn=self._request_turn,
            turns=self._turns,
            metric_prefix=prefix,
        )

    def _make_listener(self, plane: _Plane, endpoint: Endpoint) -> Listener:
        config = self._config
        limits = self._limits.get(endpoint.listener, ListenerLimits())
        self.quotas.add_listener(
            endpoint.listener,
            max_connections=limits.max_connections,
            max_creation_rate=limits.max_creation_rate,
        )
        listener = plane.listeners[endpoint.listener] = Listener(
            endpoint,
            quotas=self.quotas,
            loop=self._loop,
            timer=self._timer,
            clock=self._clock,
            metrics=self._metrics,
            receive_buffer_bytes=config.receive_buffer_bytes,
            send_buffer_bytes=config.send_buffer_bytes,
            backlog=config.listen_backlog,
            streams=self._streams,
            metric_prefix=plane.prefix,
        )
        for _ in range(1 if plane.prefix else self._network_threads):
            self._add_processor(plane, listener)
        return listener

    def _add_processor(self, plane: _Plane, listener: Listener) -> None:
        endpoint = listener.endpoint
        thread_prefix = "control-plane" if plane.prefix else "data-plane"
        processor_id = self._next_processor_id
        self._next_processor_id += 1
        processor = Processor(
            processor_id,
            f"{thread_prefix}-kafka-network-thread-{self._broker_id}"
            f"-ListenerName({endpoint.listener})-{endpoint.security_protocol.name}-{processor_id}",
            endpoint=endpoint,
            channel=plane.channel,
            security=self._security.get(endpoint.listener, ListenerSecurity()),
            quotas=self.quotas,
            pool=self.pool,
            read_ahead=self._read_ahead,
            loop=self.poller,
            plain_transport=self._streams.plain_transport,
            timer=self._timer,
            clock=self._clock,
            metrics=self._metrics,
            request_turn=self._request_turn,
            max_frame_bytes=self._config.request_max_bytes,
            max_idle_ms=self._config.max_idle_ms,
            failed_authentication_delay_ms=self._config.failed_authentication_delay_ms,
            is_control_plane=bool(plane.prefix),
        )
        plane.channel.add_processor(processor)
        listener.processors.append(processor)

    def _remove_listener(self, plane: _Plane, listener: Listener) -> None:
        listener.close()
        for processor in listener.processors:
            processor.shut_down()
            plane.channel.remove_processor(processor.id)
        del plane.listeners[listener.name]
        self.quotas.remove_listener(listener.name)

    # Running

    def _count_clients(self) -> Iterator[tuple[tuple[tuple[str, str], ...], float]]:
        for name, listener in tuple(self.listeners.items()):
            counts: Counter[ClientInformation] = Counter()
            for processor in listener.processors:
                counts += processor.clients
            for client, count in counts.items():
                tags = (
                    ("clientSoftwareName", client.software_name),
                    ("clientSoftwareVersion", client.software_version),
                    ("listener", name),
                )
                yield tags, float(count)

    def _request_turn(self) -> None:
        if not self._is_turn_requested:
            self._is_turn_requested = True
            if self.poller.is_running:
                self.poller.at_end(self._run_turn)
            else:
                self._loop.call_soon(self._run_turn)

    def after_answers(self, callback: Callable[[], None]) -> None:
        """Calls back once, when the answers of the requests under way were given to the kernel.

        For work that other clients wait for: the answer to the request that caused it goes first.
        """
        self._after_answers.append(callback)
        self._request_turn()

    def _run_turn(self) -> None:
        self._is_turn_requested = False
        if self._after_answers:
            self._run_after_answers()
        for plane in self._planes:
            plane.channel.run_queued()
            # Callbacks may add or remove listeners and processors.
            for listener in tuple(plane.listeners.values()):
                for processor in tuple(listener.processors):
                    processor.run_turn()

    def _run_after_answers(self) -> None:
        for plane in self._planes:
            for listener in plane.listeners.values():
                for processor in listener.processors:
                    processor.flush_deferred()
        callbacks, self._after_answers = self._after_answers, []
        for callback in callbacks:
            try:
                callback()
            except Exception:  # the border between requests: one must not end others
                logger.exception("A callback after the answers failed")


def _mean_idle(processors: list[Processor]) -> float:
    shares: list[float] = [processor.idle_share() for processor in processors]
    return sum(shares) / len(shares) if shares else 1.0
