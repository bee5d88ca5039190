"""A broker, put together: builds, starts and stops everything, in order.

Start, each step on what the ones before gave; metrics and health are there from the first to the
last:

1. the store opens, with the nodes that must exist, and the cluster's id is compared;
2. configs of the cluster are read: topics' settings count from the first log on;
3. logs are loaded;
4. listeners are bound, so that ports are known; clients connect, and wait;
5. the broker registers, and its controller stands for election;
6. the first metadata is published: clients are served, and `start` returns.

Stop runs the other way round: no more requests, controller resigns, the delta under way is
published, logs closed in order and marked clean, the store, and last the page that tells of health.
"""

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from random import Random, SystemRandom
from typing import Any

from odradek.broker.background import LoopTasks, yield_to_requests
from odradek.broker.config import BROKER_COUNT, BrokerSettings, TopicConfigs
from odradek.broker.context import BrokerContext
from odradek.broker.control_socket import ControlSocket
from odradek.broker.dispatch import StartGate, dispatch
from odradek.broker.edge import MetadataEdge
from odradek.broker.expansions import Expansions
from odradek.broker.identity import check_directories
from odradek.broker.internal_partitions import (
    InternalPartitions,
    follow_leadership,
    led_high_watermark,
)
from odradek.broker.live_settings import (
    apply_network_settings,
    listener_security,
    published_by,
)
from odradek.broker.log_metrics import damage_meter, flush_timer, register_log_gauges
from odradek.broker.metadata_waiter import MetadataWaiter
from odradek.broker.observability import ObservabilityServer
from odradek.broker.producer_ids import ProducerIdAllocator
from odradek.broker.publisher import Publisher
from odradek.broker.quotas import ClientQuotas
from odradek.broker.re_election import re_elect_controller
from odradek.broker.topic_creation import AutoTopicCreator
from odradek.clock import SystemClock
from odradek.config import Source
from odradek.controller import Controller, ControllerConfig, LocalChannel
from odradek.controller.results import NewTopic
from odradek.coordinator.group.coordinator import OFFSETS_TOPIC, GroupCoordinator
from odradek.coordinator.stall_clock import StallClock
from odradek.errors import ConfigError, StorageError
from odradek.files import Disk, make_directories
from odradek.metadata.cache import MetadataCache
from odradek.metadata.delta import ClusterDelta, ImageDelta
from odradek.metadata.image import Broker as BrokerImage
from odradek.metadata.image import ClusterImage
from odradek.metadata_store.config_feed import ConfigFeed
from odradek.metadata_store.engine import open_embedded
from odradek.metrics import MetricRegistry
from odradek.model import Endpoint, TopicPartition, uuid_text
from odradek.network.socket_server import SocketServer
from odradek.protocol.enums import ConfigResourceType
from odradek.purgatory import DelayedOperationPurgatory, SystemTimer
from odradek.replication import (
    Purgatories,
    ReplicaManager,
    ReplicaManagerConfig,
    ReplicationStats,
    register_fetch_session_metrics,
)
from odradek.replication.fetch_session import FetchSessionCache
from odradek.replication.isr_updates import IsrUpdates
from odradek.storage.cleaning.stats import register_cleaner_gauges
from odradek.storage.log import LogServices
from odradek.storage.log_directory import LogDirectory
from odradek.storage.log_manager import LogManager
from odradek.storage.open_files import raise_open_file_limit

__all__ = ["Broker"]

logger = logging.getLogger(__name__)

_INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, "__transaction_state"})
_STOP_GRACE_MS = 5_000  # For answers that are under way when the broker stops.
_QUOTA_EXPIRY_MS = 60_000  # How often measurements of clients that went away are dropped.
_MOST_CLEANERS = 64  # As many as `log.cleaner.threads` may become; they start as needed.
_STORAGE_THREADS = 4  # Syncing, mostly: they wait for the disk, not for the interpreter.


class Broker:
    """One broker. `start` and `stop` belong to the same task.

    Args:
        settings: All of them.
        disk: Where its files live.
    """

    def __init__(self, settings: BrokerSettings, *, disk: Disk | None = None) -> None:
        self._settings = settings
        self._disk = disk or Disk()
        self._clock = SystemClock()
        self._random = SystemRandom()
        self.broker_id = settings.node.id
        # Samples of histograms need no secrets, and the system's would cost a call each.
        self.metrics = MetricRegistry(self._clock, Random(self._random.getrandbits(64)))  # noqa: S311 - see above
        self._stack = contextlib.AsyncExitStack()
        self._running: set[asyncio.Task[None]] = set()
        # The controller's ear for topics that permit unclean elections, once there is one.
        self._on_unclean_enabled: Callable[[str], None] = lambda _topic: None
        # The server's ear for settings of this broker, once there is one.
        self._on_broker_settings: Callable[[BrokerSettings, BrokerSettings], None] = (
            lambda _before, _after: None
        )
        self._unhealthy: str | None = "the broker has not started yet"
        # Set when the broker cannot go on, with the reason.
        self.failed: asyncio.Future[str] | None = None
        # What clients are told to connect to; known once started.
        self.endpoints: tuple[Endpoint, ...] = ()
        self.metrics_address: tuple[str, int] | None = None

    @property
    def bootstrap_server(self) -> str:
        """The first advertised `host:port`."""
        endpoint = self.endpoints[0]
        host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
        return f"{host}:{endpoint.port}"

    @property
    def settings(self) -> BrokerSettings:
        """What counts now, dynamic changes included."""
        return self._settings

    # Starting

    async def start(self) -> None:
        """Starts everything; returns when clients are served.

        Raises:
            ConfigError: The settings and the machine do not go together.
            LogDirLockedError: A data directory is in use.
            StorageError: No data directory can be used.
        """
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> None:
        loop = asyncio.get_running_loop()
        self.failed = loop.create_future()
        settings = self._settings
        raise_open_file_limit()
        await self._start_observability()
        executor = ThreadPoolExecutor(_STORAGE_THREADS, thread_name_prefix="storage")
        self._stack.callback(executor.shutdown)
        directories = settings.log.log_dirs
        await loop.run_in_executor(executor, make_directories, self._disk, directories[0])
        engine = await self._stack.enter_async_context(
            open_embedded(
                directories[0],
                self.broker_id,
                clock=self._clock,
                disk=self._disk,
                executor=executor,
                new_cluster_id=lambda: uuid_text(_random_uuid(self._random)),
                controlled_shutdown=self._controlled_shutdown,
            )
        )
        cluster_id = engine.cluster_id
        self._port = port = engine.port
        self._tasks = await self._stack.enter_async_context(asyncio.TaskGroup())
        self._stack.callback(self._cancel_tasks)
        self._build_state(loop, executor)
        await self._start_config_feed(engine.config_feed)
        self._stack.callback(self._shutdown_logs)
        self._stack.push_async_callback(self._background.stop)
        self._stack.push_async_callback(self._stop_cleaning)
        self._stack.push_async_callback(self._publisher.stop)
        await _to_its_end(loop.run_in_executor(executor, self._log_manager.load))
        self._log_manager.take_into_service()
        register_log_gauges(self._log_manager, self.metrics)
        register_cleaner_gauges(
            self._log_manager.cleaner, self._log_manager.online_directories, self.metrics
        )
        check_directories(
            [directory.path for directory in self._log_manager.online_directories],
            broker_id=self.broker_id,
            cluster_id=cluster_id,
            disk=self._disk,
        )
        self._isr_updates = IsrUpdates(
            self._replicas,
            port,
            clock=self._clock,
            spawn=self._spawn,
            sleep=asyncio.sleep,
            announce=port.notify_isr_changes,
        )
        edge = MetadataEdge(
            self._publisher,
            read_topic_configs=engine.config_feed.read_topic,
            broker_epoch=lambda: port.broker_epoch,
        )
        control = settings.network.planes.control
        self._controller = Controller(
            self.broker_id,
            engine.persistence,
            lambda _broker, _endpoint: LocalChannel(edge.handle),
            clock=self._clock,
            metrics=self.metrics,
            random=self._random,
            config=ControllerConfig(
                delete_topic_enable=settings.topics.delete_enabled,
                default_partition_count=settings.topics.num_partitions,
                default_replication_factor=settings.topics.default_replication_factor,
                inter_broker_listener=settings.network.inter_broker_listener,
                control_plane_listener=control.listener if control is not None else None,
                leader_balance=settings.leader_balance,
            ),
            check_configs=self._check_topic_configs,
            unclean_default=lambda: self._topic_configs.default.unclean_leader_election,
        )
        self._controller.on_deletion_step = self._waiter.notify
        started_with = self._settings
        server = await self._start_server(loop, cluster_id)
        await port.register(self._registration())
        self._on_broker_settings = partial(self._apply_network_settings, server)
        self._on_broker_settings(started_with, self._settings)  # Changed meanwhile.
        await self._controller.start()
        self._on_unclean_enabled = self._controller.enable_unclean_election
        self._stack.push_async_callback(self._controller.stop)
        await self._first_publish.wait()
        await self._controller.told_own_broker()
        self._gate.open()
        self._start_periodic_work()
        await self._start_control_socket(directories[0])
        self._unhealthy = None

    def _build_state(self, loop: asyncio.AbstractEventLoop, executor: ThreadPoolExecutor) -> None:
        """What requests work on, still empty."""
        settings = self._settings
        clock = self._clock
        self._background = LoopTasks(loop, executor)
        # A pass takes long, and sleeps to keep its rate: flushes must not wait for it.
        cleaners = ThreadPoolExecutor(
            _MOST_CLEANERS, thread_name_prefix="cleaner", initializer=yield_to_requests
        )
        self._stack.callback(cleaners.shutdown)
        self._cleaning = LoopTasks(loop, cleaners)
        self._topic_configs = TopicConfigs(settings)
        self._quotas = ClientQuotas(settings.quotas, clock=clock, metrics=self.metrics)
        self._log_manager = LogManager(
            settings.log.log_dirs,
            services=LogServices(
                disk=self._disk,
                clock=clock,
                random=self._random,
                tasks=self._background,
                producer_id_expiration_ms=settings.log.producer_id_expiration_ms,
                on_flushed=flush_timer(self.metrics).update,
                on_damage=damage_meter(self.metrics).mark,
            ),
            config=settings.log.log_manager_config(settings.cleaner),
            cleaner_tasks=self._cleaning,
            default_log_config=self._topic_configs.default.log,
            topic_config=self._topic_configs.log_config,
            on_directory_failed=self._handle_directory_failure,
            on_all_directories_failed=lambda: self._fail("no data directory is left"),
        )
        self._cache = MetadataCache(self.broker_id)
        requests = settings.requests

        def purgatory(name: str, purge_interval: int) -> DelayedOperationPurgatory[Any]:
            made: DelayedOperationPurgatory[Any] = DelayedOperationPurgatory(
                name,
                SystemTimer(name, loop=loop, clock=clock),
                broker_id=self.broker_id,
                purge_interval=purge_interval,
                metrics=self.metrics,
            )
            self._stack.callback(made.shutdown)
            return made

        self._replicas = ReplicaManager(
            ReplicaManagerConfig(
                broker_id=self.broker_id,
                max_lag_ms=settings.replication.lag_time_max_ms,
                internal_topics=_INTERNAL_TOPICS,
            ),
            log_manager=self._log_manager,
            purgatories=Purgatories(
                purgatory("Produce", requests.produce_purge_interval),
                purgatory("Fetch", requests.fetch_purge_interval),
                purgatory("DeleteRecords", requests.delete_records_purge_interval),
            ),
            clock=clock,
            stats=ReplicationStats(self.metrics),
            min_insync_replicas=self._topic_configs.min_insync_replicas,
        )
        self._replicas.use_metadata(
            self._cache.contains,
            lambda broker_id: self._cache.get_alive_broker(broker_id) is not None,
        )
        self._waiter = MetadataWaiter(purgatory("topic", 1000), clock)
        self._election_waiter = MetadataWaiter(purgatory("ElectLeader", 1000), clock)
        self._first_publish = asyncio.Event()
        self._publisher = Publisher(
            self._cache,
            self._replicas,
            on_settings=self._apply_settings,
            on_roles=lambda delta: follow_leadership(
                self._groups.runtime, delta, OFFSETS_TOPIC, self.broker_id
            ),
            on_published=self._on_published,
            on_deleted=lambda topics: self._groups.upkeep.forget_topics(topics),
        )
        self._groups = self._build_groups(loop)
        self._gate = StartGate()

    def _build_groups(self, loop: asyncio.AbstractEventLoop) -> GroupCoordinator:
        settings = self._settings
        config = settings.groups
        deadlines = StallClock(self._clock, loop.call_later)
        timer = SystemTimer("group", loop=loop, clock=deadlines)
        deadlines.is_needed = lambda: timer.size > 0
        timer.drive_with(lambda: timer.advance_clock(0))
        groups = GroupCoordinator(
            config,
            InternalPartitions(
                OFFSETS_TOPIC,
                self._replicas,
                timeout_ms=config.commit_timeout_ms,
                required_acks=config.commit_required_acks,
            ),
            partition_count=self._offsets_partition_count,
            has_topic=self._cache.contains_topic,
            high_watermark=partial(led_high_watermark, self._replicas),
            clock=self._clock,
            deadlines=deadlines,
            timer=timer,
            spawn=self._spawn,
            sleep=asyncio.sleep,
            new_id=lambda: str(_random_uuid(self._random)),
            metrics=self.metrics,
        )
        self._stack.callback(groups.stop)
        return groups

    def _offsets_partition_count(self) -> int:
        topic = self._cache.image.topics.get(OFFSETS_TOPIC)
        if topic is not None:
            return len(topic.partitions)
        return self._settings.internal_topics.offsets_partitions

    def _offsets_topic(self) -> NewTopic:
        """As many replicas as this store can have brokers, unless the operator says how many."""
        fitting = self._settings.fitting_internal_topics(
            BROKER_COUNT, on_lowered=lambda line: logger.info("%s", line)
        )
        return NewTopic(
            name=OFFSETS_TOPIC,
            partition_count=fitting.offsets_partitions,
            replication_factor=fitting.offsets_replication_factor,
            configs={
                "cleanup.policy": "compact",
                "segment.bytes": str(fitting.offsets_segment_bytes),
                "compression.type": "producer",
            },
        )

    async def _start_config_feed(self, feed: ConfigFeed) -> None:
        """Publishes what the store holds now; the rest follows in the background."""
        first = asyncio.Event()

        async def renewed(delta: ClusterDelta) -> ImageDelta:
            return ImageDelta(cluster=await feed.renewed(delta))

        async def follow() -> None:
            async for delta in feed.deltas():
                await self._publisher.publish_made(partial(renewed, delta))
                first.set()

        self._spawn(self._publisher.run())
        self._spawn(follow())
        await first.wait()

    async def _start_server(self, loop: asyncio.AbstractEventLoop, cluster_id: str) -> SocketServer:
        settings = self._settings
        network = settings.network
        context = self._context(cluster_id)
        timer = SystemTimer("network", loop=loop, clock=self._clock)
        timer.drive_with(lambda: timer.advance_clock(0))
        self._stack.callback(timer.shutdown)
        server = SocketServer(
            network,
            dispatch(context, self._gate),
            broker_id=self.broker_id,
            loop=loop,
            timer=timer,
            clock=self._clock,
            metrics=self.metrics,
            security={
                endpoint.listener: listener_security(settings, endpoint)
                for endpoint in network.endpoints
            },
            limits={
                endpoint.listener: settings.listener_limits(endpoint.listener)
                for endpoint in network.endpoints
            },
        )
        await self._stack.enter_async_context(server)
        self._server = server
        self._groups.service.commit_lane.wake_ups = server.poller
        self._replicas.after_answers = server.after_answers
        server.bind()
        self.endpoints = published_by(server, network)
        server.start_processing()
        self._stack.push_async_callback(server.shut_down, _STOP_GRACE_MS)
        return server

    def _context(self, cluster_id: str) -> BrokerContext:
        settings = self._settings
        sessions = FetchSessionCache(settings.requests.fetch_session_slots, random=self._random)
        register_fetch_session_metrics(sessions, self.metrics)
        return BrokerContext(
            broker_id=self.broker_id,
            cluster_id=cluster_id,
            clock=self._clock,
            cache=self._cache,
            replicas=self._replicas,
            fetch_sessions=sessions,
            producer_ids=ProducerIdAllocator(self._port.allocate_producer_ids, spawn=self._spawn),
            quotas=self._quotas,
            topic_creator=AutoTopicCreator(
                self._controller, self._spawn, {OFFSETS_TOPIC: self._offsets_topic()}
            ),
            auto_create_topics=settings.topics.auto_create,
            internal_topics=_INTERNAL_TOPICS,
            compression_type=lambda topic: self._topic_configs.get(topic).compression_type,
            controller=self._controller,
            controller_port=self._port,
            metadata_waiter=self._waiter,
            election_waiter=self._election_waiter,
            topic_configs=self._topic_configs,
            groups=self._groups,
            expansions=Expansions(self._spawn),
            broker_settings=lambda: self._settings,
            delete_topics_enabled=settings.topics.delete_enabled,
            max_fetch_bytes=settings.requests.fetch_max_bytes,
            max_described_partitions=settings.requests.max_described_partitions,
        )

    def _registration(self) -> BrokerImage:
        return BrokerImage(
            self.broker_id,
            self.endpoints,
            self._settings.node.rack,
        )

    def _start_periodic_work(self) -> None:
        settings = self._settings
        self._log_manager.start()
        self._every(
            settings.replication.high_watermark_checkpoint_interval_ms,
            lambda: self._replicas.checkpoint_high_watermarks(self._background),
        )
        self._spawn(self._isr_updates.run_expiration())
        self._spawn(self._isr_updates.run_announcements())
        self._every(_QUOTA_EXPIRY_MS, self._quotas.expire)
        self._every(settings.groups.retention_check_interval_ms, self._groups.upkeep.start_round)

    async def _start_observability(self) -> None:
        observability = self._settings.observability
        if observability.port < 0:
            return
        http = ObservabilityServer(
            self.metrics,
            lambda: self._unhealthy,
            host=observability.host,
            port=observability.port,
        )
        try:
            self.metrics_address = await http.start()
        except OSError as error:
            why = f"cannot listen there on {observability.host}: {error}"
            raise ConfigError("odradek.metrics.port", observability.port, why) from error
        self._stack.push_async_callback(http.stop)

    async def _start_control_socket(self, directory: str) -> None:
        control = ControlSocket(
            directory,
            {
                "re-elect-controller": lambda: re_elect_controller(
                    self._controller, self._cache, self._waiter, clock=self._clock
                )
            },
        )
        self._stack.push_async_callback(control.stop)
        await control.start()

    # Running

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._running.add(task := self._tasks.create_task(work))
        task.add_done_callback(self._running.discard)

    def _cancel_tasks(self) -> None:
        for task in self._running:
            task.cancel()

    def _every(self, interval_ms: int, action: Callable[[], None]) -> None:
        """Runs an action again and again; one that fails is logged and runs again."""

        def run() -> None:
            try:
                action()
            except StorageError as error:
                logger.warning("%s", error)
            self._background.call_later(interval_ms, run)

        self._background.call_later(interval_ms, run)

    def _on_published(self) -> None:
        self._waiter.notify()
        self._election_waiter.notify()
        if self._cache.is_published:
            self._first_publish.set()

    def _apply_settings(self, delta: ClusterDelta, image: ClusterImage) -> Iterator[None]:
        """Makes changed settings count, in small steps; all logs are passed once, at the end."""
        changed: set[str] = set()
        is_broker_changed = False
        for resource in delta.configs:
            overrides = image.configs.get(resource, {})
            if resource.type is ConfigResourceType.TOPIC:
                changed.add(resource.name)
                effective = self._topic_configs.apply(resource.name, overrides)
                if effective.unclean_leader_election:
                    self._on_unclean_enabled(resource.name)
            elif resource.type is ConfigResourceType.BROKER:
                is_broker_changed |= yield from self._apply_broker_settings(
                    resource.name, overrides
                )
            yield
        if delta.quotas:
            self._quotas.update(image.quotas)
        if changed or is_broker_changed:

            def is_changed(topic: str) -> bool:
                return is_broker_changed or topic in changed

            yield from self._log_manager.renew_configs(is_changed)
            yield from self._replicas.renew_settings(is_changed)

    def _apply_broker_settings(
        self, name: str, overrides: Mapping[str, str]
    ) -> Generator[None, None, bool]:
        """Makes settings of brokers count; returns whether any do here."""
        if name not in ("", str(self.broker_id)):
            return False
        source = Source.DYNAMIC_BROKER if name else Source.DYNAMIC_DEFAULT
        before = self._settings
        try:
            self._settings = before.with_dynamic(source, overrides, is_stored=True)
        except ConfigError as error:
            logger.error("dynamic configuration is not applied: %s", error)  # noqa: TRY400
            return False
        self._on_broker_settings(before, self._settings)
        self._log_manager.use_recovery_threads(self._settings.log.recovery_threads)
        self._log_manager.cleaner.config = self._settings.cleaner
        yield from self._topic_configs.renew(self._settings)
        return True

    def _apply_network_settings(
        self, server: SocketServer, before: BrokerSettings, after: BrokerSettings
    ) -> None:
        apply_network_settings(server, before, after)
        endpoints = published_by(server, after.network)
        if endpoints != self.endpoints:
            self.endpoints = endpoints
            self._spawn(self._port.update_registration(self._registration()))

    def _check_topic_configs(
        self, _topic: str, configs: Mapping[str, str | None]
    ) -> Mapping[str, str]:
        self._topic_configs.check(configs)
        return {name: value for name, value in configs.items() if value is not None}

    async def _controlled_shutdown(
        self, broker_id: int, broker_epoch: int
    ) -> frozenset[TopicPartition]:
        return await self._controller.controlled_shutdown(broker_id, broker_epoch)

    def _handle_directory_failure(self, directory: LogDirectory) -> None:
        self._replicas.handle_directory_failure(directory)
        self._spawn(self._port.report_log_dir_failure())

    def _fail(self, reason: str) -> None:
        self._unhealthy = reason
        if self.failed is not None and not self.failed.done():
            self.failed.set_result(reason)

    # Stopping

    async def stop(self) -> None:
        """Stops everything, in the opposite order; stopping twice is fine."""
        self._unhealthy = "the broker stops"
        await self._stack.aclose()

    async def _stop_cleaning(self) -> None:
        self._log_manager.stop_cleaning()
        await self._cleaning.stop()

    def _shutdown_logs(self) -> None:
        with contextlib.suppress(StorageError):
            self._replicas.checkpoint_high_watermarks()
        self._log_manager.shutdown(self._port.broker_epoch)


async def _to_its_end(work: asyncio.Future[None]) -> None:
    """Waits for work on a thread; who is cancelled meanwhile waits, too, for it cannot be."""
    try:
        await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        if (error := work.exception()) is not None:
            logger.warning("the start was given up, and would have failed: %s", error)
        raise


def _random_uuid(random: Random) -> uuid.UUID:
    return uuid.UUID(bytes=random.randbytes(16), version=4)
