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
import threading
from collections.abc import Coroutine, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Self

from odradek.testing.topics import TopicHelpers

if TYPE_CHECKING:
    import asyncio

    from odradek.broker.surroundings import Surroundings
    from odradek.testing.broker_thread import BrokerThread
    from odradek.testing.certificates import Certificates
    from odradek.testing.full_disk import FillableDisk


__all__ = ["CLEAN_MARK", "AsyncEmbeddedBroker", "EmbeddedBroker"]

# A broker leaves this file in its data directory when it stops in order.
CLEAN_MARK: Final = ".kafka_cleanshutdown"

_DEFAULTS: Final[Mapping[str, object]] = MappingProxyType(
    {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        # A test's members join when it says so; nothing is gained by waiting for more of them.
        "group.initial.rebalance.delay.ms": "0",
        # One is enough for a test, and quicker to create.
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
    }
)


class AsyncEmbeddedBroker:
    """A broker on the running loop, for the duration of an `async with`."""

    # Whether a name that no setting has is an error: in a test it is a mistake.
    _refuses_unknown: ClassVar[bool] = True

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
        self._log_dirs: list[str] = []
        # The listeners with their ports, after a kill.
        self._port_before: str | None = None
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
            ConfigError: A setting is unknown or cannot be used.
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

    async def kill(self) -> None:
        """Ends the broker as a crash would: its logs are recovered at the next start.

        That start is on the same port. It finds the data if `data_dir` was given.

        Raises:
            RuntimeError: It is not running.
        """
        if self._life is None:
            raise RuntimeError("the broker is not running: use it inside of `with`")
        self._port_before = self._listeners
        self._is_killed = True
        try:
            await self.__aexit__(None, None, None)
        finally:
            self._is_killed = False
            for directory in self._log_dirs:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(directory, CLEAN_MARK))

    def _surroundings(self) -> "Surroundings | None":
        """The machine of the broker; None is that of this process."""
        return None

    async def _live(self, ready: "asyncio.Future[None]", end: "asyncio.Event") -> None:
        # Imports allocate much and leave no garbage; collections would take a tenth of their time.
        with _without_collection():
            from odradek.broker.broker import Broker
            from odradek.broker.config import load_broker_settings
            from odradek.testing.settings import check_known

        with contextlib.ExitStack() as cleanup:
            data_dir = self._data_dir
            if data_dir is None:
                data_dir = cleanup.enter_context(tempfile.TemporaryDirectory(prefix="odradek-"))
            overrides = {**_DEFAULTS, "log.dirs": os.fspath(data_dir), **self._settings}
            if self._port_before is not None:
                overrides["listeners"] = self._port_before
            if self._refuses_unknown:
                check_known(self._settings)
            loaded = load_broker_settings(None, overrides, {})
            self._log_dirs = [os.fspath(data_dir)]
            broker = Broker(loaded, self._surroundings())
            await broker.start()
            try:
                self._bootstrap_servers = broker.bootstrap_server
                self._listeners = ",".join(each.connection_string for each in broker.endpoints)
                ready.set_result(None)
                await end.wait()
            finally:
                self._bootstrap_servers = None
                await broker.stop(hands_over=not self._is_killed)


class _FaultyBroker(AsyncEmbeddedBroker):
    """A broker on a disk that can be full."""

    def __init__(
        self,
        settings: Mapping[str, object] | None,
        *,
        data_dir: str | os.PathLike[str] | None,
    ) -> None:
        super().__init__(settings, data_dir=data_dir)
        self.disk: FillableDisk | None = None

    @property
    def was_killed(self) -> bool:
        """Whether the next start goes on where a kill ended the broker."""
        return self._port_before is not None

    def use_data_dir(self, data_dir: str) -> None:
        """Chooses the directory of the next start."""
        self._data_dir = data_dir

    def add_settings(self, settings: Mapping[str, object]) -> None:
        """Adds to the settings; those that were given are stronger."""
        self._settings = {**settings, **self._settings}

    def forget_kill(self) -> None:
        """Makes the next start a fresh one."""
        self._port_before = None

    def _surroundings(self) -> "Surroundings":
        from odradek.broker.surroundings import Surroundings
        from odradek.testing.full_disk import FillableDisk

        self.disk = FillableDisk()
        return Surroundings.system(self.disk)


class EmbeddedBroker(TopicHelpers):
    """A broker on a thread of its own, for the duration of a `with`, or from `start` to `stop`.

    Faults, each until its block ends::

        with broker.paused(): ...      # no answers, connections stay: like SIGSTOP
        with broker.slowed(0.05): ...  # each request takes several times as long
        with broker.disk_full(): ...   # writes fail: the broker takes its directory offline

    `kill` and `start` are a crash and the recovery from it.
    """

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        *,
        data_dir: str | os.PathLike[str] | None = None,
        tls: bool | Literal["mutual"] = False,
    ) -> None:
        """Prepares a broker; `with` or `start` starts it.

        Args:
            settings: Kafka's names, e.g. ``{"auto.create.topics.enable": "false"}``.
            data_dir: Kept afterwards. None: a temporary directory, which is removed.
            tls: Whether clients speak TLS, with `certificates`; "mutual": and show their own.
        """
        self._tls = tls
        self._files = contextlib.ExitStack()
        self._certificates: Certificates | None = None
        self._data_dir = data_dir
        self._broker = _FaultyBroker(settings, data_dir=data_dir)
        self._thread: BrokerThread | None = None
        self._paused: threading.Event | None = None

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` for clients.

        Raises:
            RuntimeError: It is not running.
        """
        return self._broker.bootstrap_servers

    @property
    def certificates(self) -> "Certificates":
        """The files for clients of other libraries.

        Raises:
            RuntimeError: The broker speaks no TLS, or was not started.
        """
        if self._certificates is None:
            raise RuntimeError("the broker has no certificates: expected tls=True, and a start")
        return self._certificates

    @property
    def client_settings(self) -> Mapping[str, str]:
        """The settings to connect with, under Kafka's names, those of TLS among them.

        Raises:
            RuntimeError: It is not running.
        """
        settings = {"bootstrap.servers": self.bootstrap_servers}
        if self._certificates is not None:
            settings["security.protocol"] = "SSL"
            settings["ssl.truststore.location"] = os.fspath(self._certificates.ca)
            settings["ssl.keystore.location"] = os.fspath(self._certificates.client_keystore)
        return settings

    def start(self) -> None:
        """Starts the broker and returns when it serves clients.

        After `kill`, it has the data and the port from before.

        Raises:
            RuntimeError: It is running already.
            ConfigError: A setting is unknown or cannot be used.
        """
        from odradek.testing.broker_thread import BrokerThread

        if self._thread is not None:
            raise RuntimeError("the broker is running already")
        self._prepare()
        self._thread = BrokerThread("odradek-broker")
        try:
            self._thread.run(self._broker.__aenter__())
        except BaseException:
            self._end_thread()
            self._files.close()
            raise

    def _prepare(self) -> None:
        """Makes the directory and the certificates, unless they are there since before a kill."""
        if self._data_dir is None and not self._broker.was_killed:
            directory = tempfile.TemporaryDirectory(prefix="odradek-")
            self._broker.use_data_dir(self._files.enter_context(directory))
        if self._tls and self._certificates is None:
            from odradek.testing.certificates import make_certificates
            from odradek.testing.settings import tls_settings

            folder = tempfile.TemporaryDirectory(prefix="odradek-tls-")
            made = make_certificates(Path(self._files.enter_context(folder)))
            self._certificates = made
            self._broker.add_settings(tls_settings(made, is_mutual=self._tls == "mutual"))

    def stop(self) -> None:
        """Stops the broker gracefully; a second call does nothing."""
        try:
            if self._thread is not None:
                self.resume()
                self._end(self._broker.__aexit__(None, None, None))
        finally:
            self._certificates = None
            self._broker.forget_kill()
            self._files.close()

    def kill(self) -> None:
        """Ends the broker as a crash would; `start` starts it again, on the same port and data.

        Raises:
            RuntimeError: It is not running.
        """
        self._running()
        self.resume()
        self._end(self._broker.kill())

    def _end(self, ending: Coroutine[Any, Any, None]) -> None:
        from odradek.errors import StorageError

        thread, disk = self._running(), self._broker.disk
        try:
            thread.run(ending)
        except StorageError:
            # A broker without room for its metadata cannot go on: what the test wanted to see.
            if disk is None or not disk.has_refused:
                raise
        finally:
            self._end_thread()

    def pause(self) -> None:
        """Stops all work of the broker until `resume`: clients stay connected, without answers.

        Raises:
            RuntimeError: It is not running.
        """
        thread = self._running()
        if self._paused is None:
            self._paused = threading.Event()
            thread.call_soon(self._paused.wait)

    def resume(self) -> None:
        """Ends a pause; does nothing if there is none."""
        paused, self._paused = self._paused, None
        if paused is not None:
            paused.set()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """A pause for the block.

        Raises:
            RuntimeError: It is not running.
        """
        self.pause()
        try:
            yield
        finally:
            self.resume()

    @contextlib.contextmanager
    def slowed(self, seconds: float) -> Iterator[None]:
        """Makes each turn of the broker's loop take so much longer; a request takes a few turns.

        Raises:
            RuntimeError: It is not running.
        """
        thread = self._running()
        end = threading.Event()

        def drag() -> None:
            if not end.wait(seconds):
                thread.call_soon(drag)

        thread.call_soon(drag)
        try:
            yield
        finally:
            end.set()

    @contextlib.contextmanager
    def disk_full(self) -> Iterator[None]:
        """Makes every write of the broker fail for want of room, for the block.

        The broker takes the directory offline when a write fails, for good: `kill` and `start`
        bring it back, with what was acknowledged before.

        Raises:
            RuntimeError: It is not running.
        """
        self._running()
        disk = self._broker.disk
        assert disk is not None, "the broker runs on it"
        disk.is_full = True
        try:
            yield
        finally:
            disk.is_full = False

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

    def _running(self) -> "BrokerThread":
        if self._thread is None:
            raise RuntimeError("the broker is not running: use it inside of `with`")
        return self._thread

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
