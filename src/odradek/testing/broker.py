"""A whole broker for tests: started in one line, removed with its data afterwards.

From ordinary tests, with any client, since the broker runs on a loop in a thread of its own::

    with EmbeddedBroker() as broker:
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})

From coroutines, on the loop of the test::

    async with AsyncEmbeddedBroker() as broker:
        ...

Both listen on a free loopback port, keep their data in a temporary directory and read no
environment variables. Neither the broker nor asyncio is imported before one starts: pytest loads
this package at every start, wherever Odradek is installed.
"""

import contextlib
import gc
import os
import tempfile
from collections.abc import Iterator, Mapping
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    import asyncio

    from odradek.broker.surroundings import Surroundings
    from odradek.testing.broker_thread import BrokerThread


__all__ = ["AsyncEmbeddedBroker", "EmbeddedBroker"]

_DEFAULTS: Final[Mapping[str, object]] = MappingProxyType(
    {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        # One is enough for a test, and quicker to create.
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
    }
)


class AsyncEmbeddedBroker:
    """A broker on the running loop, for the duration of an `async with`."""

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        *,
        data_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        """Prepares a broker; `async with` starts it.

        Args:
            settings: Kafka's names, e.g. ``{"auto.create.topics.enable": "false"}``.
            data_dir: Kept afterwards, so that a second broker can use the data of the first one.
                None: a temporary directory, which is removed.
        """
        self._settings = dict(settings or {})
        self._data_dir = data_dir
        self._bootstrap_servers: str | None = None
        self._listeners = ""
        self._is_killed = False
        self._life: asyncio.Task[None] | None = None
        self._end: asyncio.Event | None = None

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` for clients.

        Raises:
            RuntimeError: It is not running.
        """
        if self._bootstrap_servers is None:
            raise RuntimeError("the broker is not running: use it inside of `with`")
        return self._bootstrap_servers

    async def __aenter__(self) -> Self:
        """Starts the broker.

        Raises:
            RuntimeError: It is running already.
            ConfigError: A setting cannot be used.
        """
        import asyncio

        if self._life is not None:
            raise RuntimeError("the broker is running already")
        self._end = asyncio.Event()
        ready = asyncio.get_running_loop().create_future()
        # A task of its own, because a broker is stopped by the task that started it, and test
        # frameworks run the two halves of a fixture in different ones.
        self._life = asyncio.create_task(self._live(ready, self._end))
        try:
            await asyncio.wait((self._life, ready), return_when=asyncio.FIRST_COMPLETED)
            if not ready.done():
                await self._life
        except BaseException:
            self._life.cancel()
            await asyncio.wait((self._life,))
            self._life = None
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        life, self._life = self._life, None
        if life is not None and self._end is not None:
            self._end.set()
            await life

    def _surroundings(self) -> "Surroundings | None":
        """The machine of the broker; None is that of this process."""
        return None

    async def _live(self, ready: "asyncio.Future[None]", end: "asyncio.Event") -> None:
        # Imports allocate much and leave no garbage; collections would take a tenth of their time.
        with _without_collection():
            from odradek.broker.broker import Broker
            from odradek.broker.config import load_broker_settings

        with contextlib.ExitStack() as cleanup:
            data_dir = self._data_dir
            if data_dir is None:
                data_dir = cleanup.enter_context(tempfile.TemporaryDirectory(prefix="odradek-"))
            overrides = {**_DEFAULTS, "log.dirs": os.fspath(data_dir), **self._settings}
            broker = Broker(load_broker_settings(None, overrides, {}), self._surroundings())
            await broker.start()
            try:
                self._bootstrap_servers = broker.bootstrap_server
                self._listeners = ",".join(each.connection_string for each in broker.endpoints)
                ready.set_result(None)
                await end.wait()
            finally:
                self._bootstrap_servers = None
                await broker.stop(hands_over=not self._is_killed)


class EmbeddedBroker:
    """A broker on a thread of its own, for the duration of a `with`, or from `start` to `stop`."""

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        *,
        data_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        """Prepares a broker; `with` or `start` starts it.

        Args:
            settings: Kafka's names, e.g. ``{"auto.create.topics.enable": "false"}``.
            data_dir: Kept afterwards. None: a temporary directory, which is removed.
        """
        self._broker = AsyncEmbeddedBroker(settings, data_dir=data_dir)
        self._thread: BrokerThread | None = None

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` for clients.

        Raises:
            RuntimeError: It is not running.
        """
        return self._broker.bootstrap_servers

    def start(self) -> None:
        """Starts the broker and returns when it serves clients.

        Raises:
            RuntimeError: It is running already.
            ConfigError: A setting cannot be used.
        """
        from odradek.testing.broker_thread import BrokerThread

        if self._thread is not None:
            raise RuntimeError("the broker is running already")
        self._thread = BrokerThread("odradek-broker")
        try:
            self._thread.run(self._broker.__aenter__())
        except BaseException:
            self._end_thread()
            raise

    def stop(self) -> None:
        """Stops the broker gracefully; a second call does nothing."""
        if self._thread is None:
            return
        try:
            self._thread.run(self._broker.__aexit__(None, None, None))
        finally:
            self._end_thread()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _end_thread(self) -> None:
        thread, self._thread = self._thread, None
        assert thread is not None, "the thread is running"
        thread.end()


@contextlib.contextmanager
def _without_collection() -> Iterator[None]:
    """Suspends the garbage collector, if it is enabled."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
