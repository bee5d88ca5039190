"""The composition root of a broker: builds, starts and stops its parts, in order.

Start, each step with the results of those before; metrics and health are served throughout:

1. the store opens, with the nodes that must exist, and the cluster's id is compared;
2. configs of the cluster are read: topics' settings count from the first log on;
3. logs are loaded;
4. listeners are bound, so that ports are known; clients connect, and wait;
5. the broker registers, and its controller becomes a candidate in the election;
6. the first metadata is published: clients are served, and `start` returns.

Stop runs in the opposite order: leaderships are handed over, requests end, the controller resigns,
the delta under way is published, logs are closed in order and marked clean, then the store, and
last the health page.

The parts are built in `odradek.broker.parts`, from the settings and the machine's services
(`odradek.broker.surroundings`). No request passes through here once it runs.
"""

import asyncio
import contextlib
from dataclasses import replace
from random import Random

from odradek.broker.config import BrokerSettings
from odradek.broker.dispatch import StartGate
from odradek.broker.hand_over import hand_over
from odradek.broker.parts.base import Base
from odradek.broker.parts.cluster import cluster_parts
from odradek.broker.parts.metadata import follow_metadata, open_metadata
from odradek.broker.parts.network import Network, build_poller, serve_requests
from odradek.broker.parts.observability import serve_commands, serve_observability
from odradek.broker.parts.state import build_state
from odradek.broker.parts.storage import STORAGE_THREADS, loaded, raise_open_file_limit
from odradek.broker.periodic import start_periodic_work
from odradek.broker.settings.settings_changes import SettingsChanges
from odradek.broker.surroundings import Surroundings
from odradek.metrics import MetricRegistry
from odradek.model import Endpoint
from odradek.tasks import OwnedTasks

__all__ = ["Broker"]


class Broker:
    """One broker. `start` and `stop` belong to the same task.

    Args:
        settings: All settings.
        surroundings: The machine it runs on; by default that of this process.
    """

    def __init__(self, settings: BrokerSettings, surroundings: Surroundings | None = None) -> None:
        around = surroundings or Surroundings.system()
        # Samples of histograms need no secure numbers, which would cost a system call each.
        self.metrics = MetricRegistry(around.clock, Random(around.random.getrandbits(64)))  # noqa: S311 - see above
        self._base = Base(settings=settings, around=around, metrics=self.metrics)
        self.broker_id = settings.node.id
        self._stack = contextlib.AsyncExitStack()
        self._gate = StartGate()
        self._changes: SettingsChanges | None = None
        self._network: Network | None = None
        self._unhealthy: str | None = "the broker has not started yet"
        self._hands_over = True
        # Set when the broker cannot continue, with the reason.
        self.failed: asyncio.Future[str] | None = None
        self.metrics_address: tuple[str, int] | None = None

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """The advertised endpoints; known once started."""
        return () if self._network is None else self._network.endpoints

    @property
    def bootstrap_server(self) -> str:
        """The first advertised `host:port`."""
        endpoint = self.endpoints[0]
        host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
        return f"{host}:{endpoint.port}"

    @property
    def settings(self) -> BrokerSettings:
        """The effective settings, dynamic changes included."""
        return self._base.settings if self._changes is None else self._changes.current

    async def start(self) -> None:
        """Starts everything; returns when clients are served.

        Raises:
            ConfigError: The settings cannot be used on this machine.
            LogDirLockedError: A data directory is in use.
            StorageError: No data directory can be used.
        """
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self, *, hands_over: bool = True) -> None:
        """Stops everything, in the opposite order; may be called twice.

        Args:
            hands_over: Whether the controller first moves the leaderships of this broker to others.
        """
        self._hands_over = hands_over
        self._unhealthy = "the broker stops"
        await self._stack.aclose()

    # Long because it is the order of the start, which is read from the first step to the last.
    async def _start(self) -> None:
        base, around = self._base, self._base.around
        enter, build = self._stack.enter_async_context, self._stack.enter_context
        self.failed = asyncio.get_running_loop().create_future()
        raise_open_file_limit()
        self.metrics_address = await enter(serve_observability(base, lambda: self._unhealthy))
        executor = build(around.threads(STORAGE_THREADS, "storage"))

        # 1. The store.
        engine = await enter(
            open_metadata(
                base,
                executor,
                controlled_shutdown=lambda *which: self._cluster.link.controlled_shutdown(*which),
                image=lambda: self._state.cache.image,
            )
        )
        if engine.broker_id != base.settings.node.id:  # It was drawn.
            settings = base.settings.with_id(engine.broker_id)
            base = self._base = replace(base, settings=settings)
        self.broker_id = engine.broker_id
        self._port = port = engine.port
        tasks = await enter(OwnedTasks(around.sleep))

        poller = build(build_poller(base))

        # 2. The configs, applied to the still empty state.
        self._state = state = build(
            build_state(
                base, executor, port, tasks, poller, lambda: self._fail("no data directory is left")
            )
        )
        self._changes = state.changes
        await follow_metadata(engine.feed, state.publisher, tasks)

        # 3. The logs.
        await enter(
            loaded(
                base,
                state.storage,
                cluster_id=engine.cluster_id,
                release=state.publisher.stop,
                close=lambda: state.close_logs(port.broker_epoch),
            )
        )

        # 4. The listeners, once all parts that requests use exist.
        base = replace(base, settings=state.changes.current)  # As the cluster has them.
        replicas = state.replication.replicas
        self._cluster = cluster = await enter(cluster_parts(base, engine, state, tasks))
        self._controller = controller = cluster.controller
        self._network = network = await enter(
            serve_requests(base, cluster.context, self._gate, poller)
        )
        replicas.use_answers(network.server.after_answers)
        port.on_session_lost = replicas.suspend_leaders

        # 5. The cluster.
        await port.register(network.registration())
        network.on_endpoints = lambda: tasks.spawn(port.update_registration(network.registration()))
        cluster.follow_settings(state.changes, network, base.settings)
        await enter(controller)
        state.changes.on_unclean_enabled = controller.enable_unclean_election

        # 6. The first metadata.
        await state.replication.first_publish.wait()
        await controller.told_own_broker()
        self._gate.open()
        start_periodic_work(base.settings, state, cluster.isr_updates, tasks)
        await enter(serve_commands(base, controller, state))
        self._stack.push_async_callback(self._hand_over)
        self._unhealthy = None

    async def _hand_over(self) -> None:
        if self._hands_over:
            await hand_over(
                self._port,
                self._state.cache,
                self.settings.inter_broker,
                broker_id=self.broker_id,
                sleep=self._base.around.sleep,
            )

    def _fail(self, reason: str) -> None:
        self._unhealthy = reason
        if self.failed is not None and not self.failed.done():
            self.failed.set_result(reason)
