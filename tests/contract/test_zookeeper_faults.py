"""What the ZooKeeper engine promises when links break, servers die and loops are held."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Protocol, TypeAlias
from uuid import uuid4

import pytest

from odradek.clock import SystemClock
from odradek.coordination.store import (
    ANY_VERSION,
    CoordinationStore,
    Create,
    Created,
    SessionState,
    Set,
    WatchEvent,
    WatchKind,
)
from odradek.coordination.zookeeper.client import ZooKeeperConfig, open_store
from odradek.coordination.zookeeper.saved_session import SESSION_FILE, SavedSession
from odradek.coordination.zookeeper.servers import parse_connect_string
from odradek.coordination.zookeeper.store import ZooKeeperStore
from odradek.errors import ConnectionLost, NoNode, SessionExpired
from odradek.files import Disk
from tests.support.zookeeper import (
    ZooKeeperProcess,
    missing_zookeeper,
    running_ensemble,
    running_zookeeper,
)
from tests.support.zookeeper_proxy import ZooKeeperProxy
from tests.support.zookeeper_sessions import credentials_of

# Longer than a test: no session ends by itself.
PATIENT_MS = 30_000
# What a server grants at least: such sessions end, and such links are given up, within a moment.
HASTY_MS = 400


class JumpingClock(SystemClock):
    """The machine's clock, which a test can put forward, as if the loop had been held."""

    def __init__(self) -> None:
        self.jumped_ms = 0

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self.jumped_ms


@asynccontextmanager
async def session(
    addresses: str,
    *,
    timeout_ms: int = PATIENT_MS,
    max_in_flight: int = 10,
    clock: SystemClock | None = None,
    directory: Path | None = None,
) -> AsyncIterator[ZooKeeperStore]:
    config = ZooKeeperConfig(
        ensemble=parse_connect_string(addresses),
        session_timeout_ms=timeout_ms,
        connection_timeout_ms=60_000,
        max_in_flight=max_in_flight,
    )
    saved = None if directory is None else SavedSession(str(directory), Disk())
    async with open_store(
        config, clock=clock or SystemClock(), random=Random(1), saved=saved
    ) as store:
        yield store


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - the store has no event for a test to wait on
            await asyncio.sleep(0.002)


def states_of(store: CoordinationStore) -> list[SessionState]:
    states: list[SessionState] = []
    store.session.on_state(states.append)
    return states


Scenario: TypeAlias = Callable[[ZooKeeperProxy, ZooKeeperStore, ZooKeeperStore], Awaitable[None]]


class Run(Protocol):
    def __call__(self, scenario: Scenario, *, timeout_ms: int = PATIENT_MS) -> None: ...


@pytest.fixture
def run(zookeeper: ZooKeeperProcess) -> Run:
    """Runs a scenario with a session behind a proxy, and another one that nothing happens to."""

    def run_scenario(scenario: Scenario, *, timeout_ms: int = PATIENT_MS) -> None:
        async def main() -> None:
            chroot = f"/{uuid4().hex}"
            async with (
                ZooKeeperProxy(zookeeper.port) as proxy,
                session(zookeeper.address + chroot) as other,
                session(proxy.address + chroot, timeout_ms=timeout_ms) as store,
            ):
                await scenario(proxy, store, other)

        asyncio.run(main())

    return run_scenario


@pytest.mark.parametrize("applied", [True, False])
def test_a_write_whose_link_breaks_is_applied_once_or_not_at_all(run: Run, applied: bool) -> None:
    """03b:ST-8, with a real link; and 14:SM-5's first half."""

    async def scenario(proxy: ZooKeeperProxy, store: ZooKeeperStore, other: ZooKeeperStore) -> None:
        await store.create("/x", b"old")
        session_id = store.session.id
        writes: list[Callable[[], Awaitable[object]]] = [
            lambda: store.set("/x", b"new", 0),
            lambda: store.create("/y"),
            lambda: store.multi([Create("/z"), Set("/x", b"newer", ANY_VERSION)]),
            lambda: store.delete("/y", ANY_VERSION) if applied else store.delete("/x", ANY_VERSION),
        ]
        for write in writes:
            await store.sync()  # Waits for a link.
            if applied:
                proxy.cut_after_request()
            else:
                proxy.cut_before_request()
            with pytest.raises(ConnectionLost):
                await write()
        names, _ = await store.children("/")
        data, stat = await store.get("/x")
        assert names == (["x", "z"] if applied else ["x"])
        assert (data, stat.version) == ((b"newer", 2) if applied else (b"old", 0))
        assert store.session.id == session_id
        await other.sync()
        assert await other.get("/x") == (data, stat)

    run(scenario)


def test_reads_are_repeated_on_the_next_link(run: Run) -> None:
    async def scenario(proxy: ZooKeeperProxy, store: ZooKeeperStore, other: ZooKeeperStore) -> None:
        await store.create("/x", b"1")
        events: list[WatchEvent] = []
        reads: list[Callable[[], Awaitable[object]]] = [
            lambda: store.get("/x", events.append),
            lambda: store.exists("/x", events.append),
            lambda: store.children("/x", events.append),
            store.sync,
        ]
        for number, read in enumerate(reads):
            connections = proxy.connections
            if number % 2:
                proxy.cut_before_request()
            else:
                proxy.cut_after_request()
            await read()
            assert proxy.connections == connections + 1
        await other.sync()
        await other.delete("/x", ANY_VERSION)
        await until(lambda: bool(events))
        await store.sync()
        assert events == [WatchEvent(WatchKind.DELETED, "/x")]

    run(scenario)


def test_changes_between_two_links_fire_the_watches(run: Run) -> None:
    """03b section 0.2.1 (c): no change is missed, and no watch fires without one."""

    async def scenario(proxy: ZooKeeperProxy, store: ZooKeeperStore, other: ZooKeeperStore) -> None:
        for path in ("/changed", "/deleted", "/parent", "/quiet", "/gone"):
            await store.create(path)
        events: list[WatchEvent] = []
        for path in ("/changed", "/deleted", "/quiet"):
            await store.get(path, events.append)
        for path in ("/created", "/absent"):
            assert await store.exists(path, events.append) is None
        for path in ("/parent", "/gone"):
            await store.children(path, events.append)
        proxy.close()
        await until(lambda: store.session.state is SessionState.SUSPENDED)
        await other.sync()
        await other.set("/changed", b"1", 0)
        await other.delete("/deleted", 0)
        await other.delete("/gone", 0)
        await other.create("/created")
        await other.create("/parent/child")
        assert events == []
        proxy.is_closed = False
        await store.sync()
        assert set(events) == {
            WatchEvent(WatchKind.CHANGED, "/changed"),
            WatchEvent(WatchKind.DELETED, "/deleted"),
            WatchEvent(WatchKind.DELETED, "/gone"),
            WatchEvent(WatchKind.CREATED, "/created"),
            WatchEvent(WatchKind.CHILDREN, "/parent"),
        }
        assert len(events) == 5
        events.clear()
        await other.set("/quiet", b"1", 0)
        await other.create("/absent")
        await until(lambda: len(events) == 2)
        assert set(events) == {
            WatchEvent(WatchKind.CHANGED, "/quiet"),
            WatchEvent(WatchKind.CREATED, "/absent"),
        }

    run(scenario)


@pytest.mark.slow
@pytest.mark.parametrize("is_lost", [False, True], ids=["suspended", "lost"])
def test_a_server_that_lags_behind_is_not_read(zookeeper: ZooKeeperProcess, is_lost: bool) -> None:
    """15:KAFKA-16667: a session, and the one that replaces it, never read what is older than seen.

    A server that was never written to stands for one that is far behind.
    """
    if (why := missing_zookeeper()) is not None:
        pytest.skip(why)

    async def main(behind: ZooKeeperProcess) -> None:
        clock = JumpingClock()
        async with ZooKeeperProxy(zookeeper.port) as proxy:
            chroot = f"/{uuid4().hex}"
            async with session(proxy.address + chroot, clock=clock) as store:
                await store.create("/x", b"written")
                old_id = store.session.id
                proxy.server_port = behind.port
                if is_lost:
                    clock.jumped_ms += 2 * PATIENT_MS
                    with pytest.raises(SessionExpired):
                        await store.get("/x")
                else:
                    proxy.cut()
                tried = proxy.connections
                await until(lambda: proxy.connections >= tried + 3)
                assert not store.session.is_connected.is_set()
                proxy.server_port = zookeeper.port
                await store.session.is_connected.wait()
                assert (await store.get("/x"))[0] == b"written"
                assert (store.session.id != old_id) is is_lost

    with running_zookeeper() as behind:
        asyncio.run(main(behind))


def test_a_write_while_suspended_is_never_sent(run: Run) -> None:
    async def scenario(proxy: ZooKeeperProxy, store: ZooKeeperStore, other: ZooKeeperStore) -> None:
        await store.create("/x", b"old")
        states = states_of(store)
        proxy.close()
        await until(lambda: store.session.state is SessionState.SUSPENDED)
        with pytest.raises(ConnectionLost, match="nothing was sent"):
            await store.set("/x", b"new", 0)
        reading = asyncio.ensure_future(store.get("/x"))
        proxy.is_closed = False
        assert (await reading)[0] == b"old"
        await store.sync()
        assert (await store.get("/x"))[1].version == 0
        assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]

    run(scenario)


@pytest.mark.parametrize("direction", ["is_deaf", "is_mute"])
def test_a_link_that_is_cut_one_way_is_given_up(run: Run, direction: str) -> None:
    """08:A6: the server's frames are lost, or the client's."""

    async def scenario(proxy: ZooKeeperProxy, store: ZooKeeperStore, other: ZooKeeperStore) -> None:
        await store.create("/x", b"1")
        states = states_of(store)
        session_id = store.session.id
        # Healed when the link is given up, before another one is tried.
        store.session.on_state(lambda _state: setattr(proxy, direction, False))
        setattr(proxy, direction, True)
        await until(lambda: len(states) == 2)
        assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]
        assert store.session.id == session_id
        assert (await store.get("/x"))[0] == b"1"

    run(scenario, timeout_ms=2_000)


def test_a_session_that_expired_behind_a_broken_link_is_replaced(run: Run) -> None:
    async def scenario(proxy: ZooKeeperProxy, store: ZooKeeperStore, other: ZooKeeperStore) -> None:
        await store.create("/e", ephemeral=True)
        events: list[WatchEvent] = []
        await other.sync()
        assert await other.exists("/e", events.append) is not None
        story: list[str] = []
        store.session.on_state(lambda state: story.append(state.value))

        async def before() -> None:
            story.append("before")

        store.session.on_replacement(before=before, after=lambda: story.append("after"))
        old_id = store.session.id
        watched: list[WatchEvent] = []
        await store.exists("/e", watched.append)
        proxy.close()
        await until(lambda: bool(events))
        reading = asyncio.ensure_future(store.get("/e"))
        await asyncio.sleep(0)
        proxy.is_closed = False
        with pytest.raises(SessionExpired):
            await reading
        await until(lambda: "after" in story)
        assert story == ["suspended", "lost", "before", "connected", "after"]
        assert store.session.id != old_id
        assert watched == []
        with pytest.raises(NoNode):
            await store.get("/e")
        created = await store.create("/e", ephemeral=True)
        assert created.stat.ephemeral_owner == store.session.id

    run(scenario, timeout_ms=HASTY_MS)


def test_slots_are_free_again_after_a_broken_link(run: Run) -> None:
    async def scenario(proxy: ZooKeeperProxy, store: ZooKeeperStore, other: ZooKeeperStore) -> None:
        await store.create("/x", b"1")
        for _ in range(3):
            proxy.cut_after_request(5)
            outcomes = await asyncio.gather(
                *(store.get("/x") for _ in range(30)),
                *(store.set("/x", b"1", ANY_VERSION) for _ in range(30)),
                return_exceptions=True,
            )
            assert not any(isinstance(each, BaseException) for each in outcomes[:30])
            assert any(isinstance(each, ConnectionLost) for each in outcomes[30:])
        _, stat = await store.get("/x")
        assert stat.version <= 90
        # As many as there are slots, all at once.
        assert len(await asyncio.gather(*(store.get("/x") for _ in range(10)))) == 10
        assert store.session._slots._value == 10
        cancelled = [asyncio.ensure_future(store.get("/x")) for _ in range(10)]
        await asyncio.sleep(0)
        for task in cancelled:
            task.cancel()
        await store.sync()
        await until(lambda: store.session._slots._value == 10)

    run(scenario)


def test_a_loop_that_was_held_for_the_timeout_has_lost_its_session(
    zookeeper: ZooKeeperProcess,
) -> None:
    """Also if the server has not noticed: its old session is ended before the new one is used."""

    async def main() -> None:
        clock = JumpingClock()
        chroot = f"/{uuid4().hex}"
        async with (
            session(zookeeper.address + chroot) as other,
            session(zookeeper.address + chroot, clock=clock) as store,
        ):
            await store.create("/e", b"1", ephemeral=True)
            old_id = store.session.id
            states = states_of(store)
            clock.jumped_ms += PATIENT_MS - 1_000
            assert (await store.get("/e"))[0] == b"1"
            clock.jumped_ms += PATIENT_MS
            with pytest.raises(SessionExpired):
                await store.get("/e")
            assert store.session.state is SessionState.LOST
            await until(lambda: store.session.state is SessionState.CONNECTED)
            assert states == [SessionState.LOST, SessionState.CONNECTED]
            assert store.session.id != old_id
            await other.sync()
            assert await other.exists("/e") is None

    asyncio.run(main())


def test_a_held_loop_uses_nothing_that_came_meanwhile(zookeeper: ZooKeeperProcess) -> None:
    async def main() -> None:
        clock = JumpingClock()
        async with session(f"{zookeeper.address}/{uuid4().hex}", clock=clock) as store:
            await store.create("/x", b"1")
            states = states_of(store)
            reading = asyncio.ensure_future(store.get("/x"))
            writing = asyncio.ensure_future(store.set("/x", b"2", 0))
            await asyncio.sleep(0)  # Both are sent.
            clock.jumped_ms += PATIENT_MS
            with pytest.raises(SessionExpired):
                await reading
            with pytest.raises(ConnectionLost):
                await writing
            assert states[0] is SessionState.LOST

    asyncio.run(main())


def test_the_next_life_ends_the_session_of_the_former(
    zookeeper: ZooKeeperProcess, tmp_path: Path
) -> None:
    async def main() -> None:
        address = f"{zookeeper.address}/{uuid4().hex}"
        async with session(address, directory=tmp_path) as former:
            await former.create("/e", ephemeral=True)
            kept = SavedSession(str(tmp_path), Disk()).load()
            assert kept == credentials_of(former)
            # As a kill leaves it: the connection ends, the session does not.
            assert former.session._task is not None
            former.session._task.cancel()
            async with session(address, directory=tmp_path) as heir:
                assert await heir.exists("/e") is None
                assert SavedSession(str(tmp_path), Disk()).load() == credentials_of(heir)
        assert not (tmp_path / SESSION_FILE).exists()

    asyncio.run(main())


def test_servers_that_hang_or_talk_nonsense_are_passed_over(zookeeper: ZooKeeperProcess) -> None:
    async def main() -> None:
        release = asyncio.Event()

        async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await release.wait()
            writer.close()

        async def nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            writer.close()

        async def short(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"\x00\x00\x00\x05nope!")
            writer.close()

        servers = [
            await asyncio.start_server(each, "127.0.0.1", 0) for each in (hang, nonsense, short)
        ]
        ports = [server.sockets[0].getsockname()[1] for server in servers]
        try:
            addresses = ",".join(f"127.0.0.1:{port}" for port in [*ports, zookeeper.port])
            async with session(f"{addresses}/{uuid4().hex}", timeout_ms=4_000) as store:
                await store.create("/x")
                for _ in range(2):  # Once more around all of them.
                    store.session._link.break_off()  # type: ignore[union-attr]
                    await until(lambda: store.session.state is not SessionState.CONNECTED)
                    assert await store.exists("/x") is not None
        finally:
            release.set()
            for server in servers:
                server.close()

    asyncio.run(main())


@pytest.mark.slow
@pytest.mark.skipif(missing_zookeeper() is not None, reason=missing_zookeeper() or "")
def test_the_session_outlives_the_leader_of_its_ensemble() -> None:
    """Written under load: what was acknowledged is there, once, and zxids grow."""

    async def main() -> None:
        with running_ensemble() as servers:
            addresses = ",".join(server.address for server in servers)
            async with session(f"{addresses}/chroot", timeout_ms=10_000) as store:
                await store.create("/log")
                await store.create("/e", ephemeral=True)
                session_id = store.session.id
                acknowledged: list[tuple[int, str]] = []
                unknown = 0
                is_killed = False
                while not is_killed or len(acknowledged) < 400:
                    if len(acknowledged) >= 150 and not is_killed:
                        (leader,) = [server for server in servers if server.mode == "leader"]
                        leader.kill()
                        is_killed = True
                    try:
                        made = await store.multi(
                            [Create("/log/n-", sequential=True), Create("/log/m-", sequential=True)]
                        )
                    except ConnectionLost:
                        unknown += 1
                        await store.sync()
                        continue
                    for each in made:
                        assert isinstance(each, Created)
                        path, stat = each
                        # The Stat of a create in a transaction is ours: the server has the same.
                        assert await store.exists(path) == stat
                        acknowledged.append((stat.czxid, path))
                assert acknowledged == sorted(acknowledged, key=lambda each: each[0])
                names, _ = await store.children("/log")
                paths = {f"/log/{name}" for name in names}
                assert {path for _, path in acknowledged} <= paths
                assert len(paths) <= len(acknowledged) + 2 * unknown
                assert store.session.id == session_id
                assert await store.exists("/e") is not None

    asyncio.run(main())
