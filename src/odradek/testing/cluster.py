"""Several brokers for tests, in one process and on one store, as one cluster.

From ordinary tests, with any client, since the brokers run on a loop in a thread of their own::

    with EmbeddedCluster(brokers=3) as cluster:
        producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers})
        cluster.kill(0)

From coroutines, on the loop of the test::

    async with AsyncEmbeddedCluster(brokers=3) as cluster:
        await cluster.kill(0)

The brokers have the ids 0, 1, …, a data directory and a free loopback port each, which a broker
keeps when it is started again. They speak with each other through sockets, as brokers on several
hosts do; the store they share is embedded, in a directory of its own.

A killed broker has no time to hand over: its registration ends at once, as if the store had missed
it for the session timeout, and its logs are recovered at the next start, as after a crash. It is
still a part of this process: to see a process end in the middle of a write, kill a process.
"""

import contextlib
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from odradek.testing.broker import AsyncEmbeddedBroker
from odradek.testing.topics import TopicHelpers

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from odradek.broker.surroundings import Surroundings
    from odradek.clock import Clock
    from odradek.coordination.embedded import EmbeddedEngine
    from odradek.coordination.session import EmbeddedSession, EmbeddedStore
    from odradek.files import Disk
    from odradek.metadata.image import ClusterImage
    from odradek.metadata.ports import ControlledShutdownCall
    from odradek.metadata_store.engine import StoreEngine
    from odradek.protocol.inter_broker import NodeForms
    from odradek.testing.broker_thread import BrokerThread

__all__ = ["AsyncEmbeddedCluster", "EmbeddedCluster"]

_T = TypeVar("_T")

# A broker that cannot hand over its leaderships stops without long pauses.
_DEFAULTS: Final = MappingProxyType({"controlled.shutdown.retry.backoff.ms": "50"})
_STORE_DIRECTORY: Final = "store"


class _Member(AsyncEmbeddedBroker):
    """A broker of the cluster, from one start to its end."""

    # `odradek cluster` starts with a warning, as `odradek serve` does.
    _refuses_unknown = False

    def __init__(
        self,
        broker_id: int,
        settings: Mapping[str, object],
        data_dir: Path,
        store: "EmbeddedEngine",
    ) -> None:
        super().__init__({**_DEFAULTS, **settings, "broker.id": str(broker_id)}, data_dir=data_dir)
        self._store = store
        self.directory = data_dir
        self.session: EmbeddedSession | None = None

    @property
    def listeners(self) -> str:
        """The listeners of the last start, with their ports."""
        return self._listeners

    def _surroundings(self) -> "Surroundings":
        from dataclasses import replace

        from odradek.broker.surroundings import Surroundings

        return replace(Surroundings.system(), open_store=self._open_store)

    @contextlib.asynccontextmanager
    async def _open_store(
        self,
        directory: str,  # noqa: ARG002 - the store is not in the directory of a broker
        broker_id: int,
        *,
        clock: "Clock",
        disk: "Disk",  # noqa: ARG002 - see above
        executor: "Executor",  # noqa: ARG002 - see above
        new_cluster_id: Callable[[], str],
        controlled_shutdown: "ControlledShutdownCall",
        image: "Callable[[], ClusterImage]",
        nodes: "NodeForms",
    ) -> "AsyncIterator[StoreEngine]":
        from odradek.metadata_store.engine import open_session

        store = self._store.connect()
        self.session = store.session
        async with open_session(
            store,
            broker_id,
            clock=clock,
            new_cluster_id=new_cluster_id,
            controlled_shutdown=controlled_shutdown,
            image=image,
            nodes=nodes,
        ) as engine:
            yield engine


class AsyncEmbeddedCluster:
    """Brokers on the running loop, for the duration of an `async with`."""

    def __init__(
        self,
        brokers: int = 3,
        settings: Mapping[str, object] | None = None,
        *,
        data_dir: str | os.PathLike[str] | None = None,
        settings_of: Callable[[int], Mapping[str, object]] = lambda _broker_id: {},
    ) -> None:
        """Prepares a cluster; `async with` starts it.

        Args:
            brokers: Their number.
            settings: Of all brokers, under Kafka's names.
            data_dir: Kept afterwards, with a directory for each broker and one for the store. None:
                a temporary directory, which is removed.
            settings_of: Further settings of one broker, by its id.
        """
        self._ids = range(brokers)
        self._settings = dict(settings or {})
        self._settings_of = settings_of
        self._data_dir = data_dir
        self._stack = contextlib.AsyncExitStack()
        self._engine: EmbeddedEngine | None = None
        self._directory = Path()
        self._members: dict[int, _Member] = {}
        # The listeners of each broker since its first start.
        self._listeners: dict[int, str] = {}

    @property
    def broker_ids(self) -> list[int]:
        """The brokers that run."""
        return sorted(self._members)

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of each broker that runs, for clients.

        Raises:
            RuntimeError: None is running.
        """
        if not self._members:
            raise RuntimeError("no broker is running: use the cluster inside of `with`")
        return ",".join(self._members[each].bootstrap_servers for each in self.broker_ids)

    def bootstrap_server(self, broker_id: int) -> str:
        """`host:port` of one broker.

        Raises:
            RuntimeError: It is not running.
        """
        return self._member(broker_id).bootstrap_servers

    def listeners(self, broker_id: int) -> str:
        """The listeners of one broker, as `NAME://host:port,…`.

        Raises:
            RuntimeError: It is not running.
        """
        return self._member(broker_id).listeners

    def store(self) -> "EmbeddedStore":
        """A session of the caller's own with the brokers' store, which the caller closes.

        Raises:
            RuntimeError: The cluster is not running.
        """
        return self._running_engine().connect()

    async def __aenter__(self) -> Self:
        """Starts the store and the brokers, one after another.

        Raises:
            RuntimeError: It is running already.
            ConfigError: A setting cannot be used.
        """
        from odradek.coordination.embedded import EmbeddedEngine

        if self._engine is not None:
            raise RuntimeError("the cluster is running already")
        try:
            directory = self._data_dir
            if directory is None:
                directory = self._stack.enter_context(
                    tempfile.TemporaryDirectory(prefix="odradek-")
                )
            self._directory = Path(directory)
            store = self._directory / _STORE_DIRECTORY
            store.mkdir(parents=True, exist_ok=True)
            self._engine = await self._stack.enter_async_context(EmbeddedEngine(os.fspath(store)))
            self._stack.push_async_callback(self._stop_all)
            for broker_id in self._ids:
                await self.start(broker_id)
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._close()

    async def start(self, broker_id: int) -> None:
        """Starts a broker that is stopped; returns when it serves clients.

        Raises:
            RuntimeError: It is running, or the cluster is not.
            ValueError: The cluster has no such broker.
        """
        if broker_id not in self._ids:
            raise ValueError(f"expected a broker of {list(self._ids)}, found {broker_id}")
        if broker_id in self._members:
            raise RuntimeError(f"broker {broker_id} is running already")
        settings = {**self._settings, **self._settings_of(broker_id)}
        if broker_id in self._listeners:
            settings["listeners"] = self._listeners[broker_id]
        directory = self._directory / f"broker-{broker_id}"
        member = _Member(broker_id, settings, directory, self._running_engine())
        await member.__aenter__()
        self._members[broker_id] = member
        self._listeners[broker_id] = member.listeners

    async def stop(self, broker_id: int) -> None:
        """Stops a broker gracefully.

        Raises:
            RuntimeError: It is not running.
        """
        member = self._member(broker_id)
        del self._members[broker_id]
        await member.__aexit__(None, None, None)

    async def kill(self, broker_id: int) -> None:
        """Ends a broker as a crash would: unregistered at once, its logs not closed in order.

        Raises:
            RuntimeError: It is not running.
        """
        member = self._member(broker_id)
        del self._members[broker_id]
        assert member.session is not None, "it runs"
        await member.session.close()
        await member.kill()

    async def expire(self, broker_id: int) -> None:
        """Ends the session of a broker that goes on running; it registers again, with a new epoch.

        Raises:
            RuntimeError: It is not running.
        """
        session = self._member(broker_id).session
        assert session is not None, "it runs"
        await session.expire()

    async def restart(self, broker_id: int) -> None:
        """Stops a broker gracefully, and starts it again.

        Raises:
            RuntimeError: It is not running.
        """
        await self.stop(broker_id)
        await self.start(broker_id)

    def _member(self, broker_id: int) -> _Member:
        member = self._members.get(broker_id)
        if member is None:
            raise RuntimeError(f"broker {broker_id} is not running, only {self.broker_ids}")
        return member

    def _running_engine(self) -> "EmbeddedEngine":
        if self._engine is None:
            raise RuntimeError("the cluster is not running: use it inside of `with`")
        return self._engine

    async def _stop_all(self) -> None:
        # The last one started is no controller, most likely: no election follows its stop.
        for broker_id in reversed(self.broker_ids):
            await self.stop(broker_id)

    async def _close(self) -> None:
        try:
            await self._stack.aclose()
        finally:
            self._engine = None


class EmbeddedCluster(TopicHelpers):
    """Brokers on a thread of their own, for the duration of a `with`."""

    def __init__(
        self,
        brokers: int = 3,
        settings: Mapping[str, object] | None = None,
        *,
        data_dir: str | os.PathLike[str] | None = None,
        settings_of: Callable[[int], Mapping[str, object]] = lambda _broker_id: {},
    ) -> None:
        """Prepares a cluster; `with` starts it.

        Args:
            brokers: Their number.
            settings: Of all brokers, under Kafka's names.
            data_dir: Kept afterwards. None: a temporary directory, which is removed.
            settings_of: Further settings of one broker, by its id.
        """
        self._cluster = AsyncEmbeddedCluster(
            brokers, settings, data_dir=data_dir, settings_of=settings_of
        )
        self._thread: BrokerThread | None = None

    @property
    def broker_ids(self) -> list[int]:
        """The brokers that run."""
        return self._cluster.broker_ids

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of each broker that runs, for clients.

        Raises:
            RuntimeError: None is running.
        """
        return self._cluster.bootstrap_servers

    @property
    def client_settings(self) -> Mapping[str, str]:
        """The settings to connect with, under Kafka's names.

        Raises:
            RuntimeError: None is running.
        """
        return {"bootstrap.servers": self.bootstrap_servers}

    def bootstrap_server(self, broker_id: int) -> str:
        """`host:port` of one broker.

        Raises:
            RuntimeError: It is not running.
        """
        return self._cluster.bootstrap_server(broker_id)

    def __enter__(self) -> Self:
        """Starts the brokers.

        Raises:
            RuntimeError: They are running already.
            ConfigError: A setting cannot be used.
        """
        from odradek.testing.broker_thread import BrokerThread

        if self._thread is not None:
            raise RuntimeError("the cluster is running already")
        self._thread = BrokerThread("odradek-cluster")
        try:
            self._run(self._cluster.__aenter__())
        except BaseException:
            self._end_thread()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self._run(self._cluster.__aexit__(None, None, None))
        finally:
            self._end_thread()

    def start(self, broker_id: int) -> None:
        """Starts a broker that is stopped; returns when it serves clients.

        Raises:
            RuntimeError: It is running, or the cluster is not.
        """
        self._run(self._cluster.start(broker_id))

    def stop(self, broker_id: int) -> None:
        """Stops a broker gracefully.

        Raises:
            RuntimeError: It is not running.
        """
        self._run(self._cluster.stop(broker_id))

    def kill(self, broker_id: int) -> None:
        """Ends a broker as a crash would.

        Raises:
            RuntimeError: It is not running.
        """
        self._run(self._cluster.kill(broker_id))

    def restart(self, broker_id: int) -> None:
        """Stops a broker gracefully, and starts it again.

        Raises:
            RuntimeError: It is not running.
        """
        self._run(self._cluster.restart(broker_id))

    def _run(self, work: Coroutine[Any, Any, _T]) -> _T:
        if self._thread is None:
            work.close()
            raise RuntimeError("the cluster is not running: use it inside of `with`")
        return self._thread.run(work)

    def _end_thread(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.end()
