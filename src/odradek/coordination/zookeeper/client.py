"""Opens a session with an ensemble, and owns it: a `CoordinationStore` for one broker."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from random import Random
from typing import TypeVar

from odradek.clock import Clock
from odradek.coordination.paths import ancestors
from odradek.coordination.zookeeper.link import Authentication, Credentials, OpenStream
from odradek.coordination.zookeeper.saved_session import SavedSession
from odradek.coordination.zookeeper.servers import Ensemble, Server, ServerTurns
from odradek.coordination.zookeeper.session import ZooKeeperSession
from odradek.coordination.zookeeper.session_metrics import SessionMetrics
from odradek.coordination.zookeeper.store import Chroot, ZooKeeperStore
from odradek.errors import ConfigError, ConnectionLost, NodeExists, SessionExpired, StoreError
from odradek.lazy_dataclass import dataclass
from odradek.metrics import MetricRegistry
from odradek.security.digest_md5 import Login
from odradek.tasks import Sleep

__all__ = ["ZooKeeperConfig", "open_store", "stream_opener"]

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperConfig:
    """How to reach an ensemble."""

    ensemble: Ensemble
    session_timeout_ms: int = 18_000
    connection_timeout_ms: int = 18_000  # Of the first link.
    max_in_flight: int = 10
    # Whether only this broker's identity may change the nodes it makes.
    has_acl: bool = False
    tls: ssl.SSLContext | None = None
    login: Login | None = None  # For SASL.


def stream_opener(tls: ssl.SSLContext | None) -> OpenStream:
    """Connects over the network of this machine."""

    async def open_stream(
        server: Server,
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(server.host, server.port, ssl=tls)

    return open_stream


class _OnDisk:
    """Keeps the session's credentials in the data directory; calls run on an executor."""

    def __init__(self, saved: SavedSession | None, executor: Executor | None) -> None:
        self._saved = saved
        self._executor = executor

    async def load(self) -> Credentials | None:
        return None if self._saved is None else await self._blocking(self._saved.load)

    async def save(self, credentials: Credentials) -> None:
        saved = self._saved
        if saved is not None:
            await self._blocking(lambda: saved.save(credentials))

    async def remove(self) -> None:
        if self._saved is not None:
            await self._blocking(self._saved.remove)

    def _blocking(self, call: Callable[[], _T]) -> Awaitable[_T]:
        return asyncio.get_running_loop().run_in_executor(self._executor, call)


@asynccontextmanager
async def open_store(
    config: ZooKeeperConfig,
    *,
    clock: Clock,
    random: Random,
    sleep: Sleep = asyncio.sleep,
    saved: SavedSession | None = None,
    executor: Executor | None = None,
    metrics: MetricRegistry | None = None,
    open_stream: OpenStream | None = None,
) -> AsyncIterator[ZooKeeperStore]:
    """Opens a session and makes the chroot if it is missing; the session is closed at the end.

    Args:
        saved: Where the session is kept for the next life, and that of the former life is; the
            caller holds the lock of that directory.
        executor: Runs blocking calls.
        open_stream: Replaces the network of this machine.

    Raises:
        ConfigError: No server gave a session within the connection timeout, the login was refused,
            or there is none and one is demanded.
    """
    ensemble = config.ensemble
    keep = _OnDisk(saved, executor)
    chroot = Chroot(ensemble.chroot)
    session = ZooKeeperSession(
        ServerTurns(ensemble.servers, random),
        len(ensemble.servers),
        timeout_ms=config.session_timeout_ms,
        max_in_flight=config.max_in_flight,
        open_stream=open_stream or stream_opener(config.tls),
        clock=clock,
        sleep=sleep,
        keep=keep,
        former=await keep.load(),
        locate=chroot.locate,
        relative=chroot.relative,
        authentication=None if config.login is None else Authentication(config.login, random),
    )
    if metrics is not None:
        session.metrics = SessionMetrics(metrics, lambda: session.state)
    failure: Exception | None = None
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(session.run(), name="zookeeper-session")
        try:
            await _first_link(session, config)
            await _make_chroot(
                ZooKeeperStore(session, Chroot(""), has_acl=config.has_acl), ensemble
            )
            yield ZooKeeperStore(session, chroot, has_acl=config.has_acl)
        except Exception as error:  # noqa: BLE001 - raised below, not wrapped into a group
            failure = error
        finally:
            await session.close()
    if failure is not None:
        raise failure


async def _first_link(session: ZooKeeperSession, config: ZooKeeperConfig) -> None:
    try:
        async with asyncio.timeout(config.connection_timeout_ms / 1000):
            await session.has_outcome.wait()
    except TimeoutError:
        found = _failures(session)
        raise ConfigError(
            "zookeeper.connect",
            str(config.ensemble),
            f"no server gave a session within zookeeper.connection.timeout.ms ="
            f" {config.connection_timeout_ms} ({found or 'none answered'}); start ZooKeeper, or"
            " correct the list",
        ) from None
    if session.is_login_refused:
        raise ConfigError(
            "zookeeper.connect",
            str(config.ensemble),
            f"no server took the broker's login ({_failures(session)}); correct username and"
            " password in the file of java.security.auth.login.config, or those of the servers",
        )


def _failures(session: ZooKeeperSession) -> str:
    return "; ".join(f"{server}: {why}" for server, why in session.failures.items())


async def _make_chroot(store: ZooKeeperStore, ensemble: Ensemble) -> None:
    chroot = ensemble.chroot
    for path in [*ancestors(chroot), chroot] if chroot else ["/"]:
        while True:
            try:
                if await store.exists(path) is None:
                    await store.create(path)
            except NodeExists:
                pass  # Another broker starts at the same time.
            except (ConnectionLost, SessionExpired):
                await store.session.is_connected.wait()
                continue
            except StoreError:
                if store.session.is_login_demanded:
                    raise ConfigError(
                        "zookeeper.connect",
                        str(ensemble),
                        "ZooKeeper serves only clients that log in by SASL; give the broker a JAAS"
                        " file with username and password: java.security.auth.login.config",
                    ) from None
                raise
            break
