"""What every CoordinationStore engine promises; a new engine joins by an entry in ENGINES."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Protocol, Self, TypeAlias
from uuid import uuid4

import pytest

from odradek.clock import SystemClock
from odradek.coordination.embedded import EmbeddedEngine
from odradek.coordination.session import EmbeddedStore
from odradek.coordination.store import (
    ANY_VERSION,
    MAX_DATA_BYTES,
    Check,
    CoordinationStore,
    Create,
    Created,
    Delete,
    Operation,
    SessionState,
    Set,
    Stat,
    WatchEvent,
    WatchKind,
)
from odradek.coordination.zookeeper.client import ZooKeeperConfig, open_store
from odradek.coordination.zookeeper.servers import parse_connect_string
from odradek.coordination.zookeeper.store import ZooKeeperStore
from odradek.errors import (
    BadArguments,
    BadVersion,
    ConnectionLost,
    ControllerMoved,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionExpired,
    StoreError,
)
from odradek.testing.store import FaultyStore
from tests.support.zookeeper import ZooKeeperProcess
from tests.support.zookeeper_sessions import end_from_outside


class Harness(Protocol):
    """A running engine as the suite needs it."""

    @property
    def most_data_bytes(self) -> int:
        """The largest data of a node /a."""
        ...

    async def connect(self) -> CoordinationStore:
        """A new session."""
        ...

    async def expire(self, store: CoordinationStore) -> None:
        """Ends a session against its owner's will."""
        ...

    async def restart(self) -> None:
        """Stops the store and starts it again; all sessions are over."""
        ...


class EmbeddedHarness:
    most_data_bytes = MAX_DATA_BYTES

    def __init__(self, directory: Path) -> None:
        self._directory = str(directory)

    async def __aenter__(self) -> Self:
        self._engine = await EmbeddedEngine(self._directory).__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._engine.__aexit__(None, None, None)

    async def connect(self) -> CoordinationStore:
        return self._engine.connect()

    async def expire(self, store: CoordinationStore) -> None:
        assert isinstance(store, EmbeddedStore)
        await store.session.expire()

    async def restart(self) -> None:
        await self.__aexit__()
        await self.__aenter__()


class ZooKeeperHarness:
    def __init__(self, server: ZooKeeperProcess, chroot: str) -> None:
        self._server = server
        self._config = ZooKeeperConfig(
            ensemble=parse_connect_string(f"{server.address}{chroot}"),
            session_timeout_ms=30_000,
            connection_timeout_ms=30_000,
        )
        self._sessions = AsyncExitStack()
        # A request is at most MAX_DATA_BYTES: with xid, operation, path, access list and flags.
        self.most_data_bytes = MAX_DATA_BYTES - 8 - 4 - len(f"{chroot}/a") - 4 - 27 - 4

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._sessions.aclose()

    async def connect(self) -> CoordinationStore:
        return await self._sessions.enter_async_context(
            open_store(self._config, clock=SystemClock(), random=Random(1))
        )

    async def expire(self, store: CoordinationStore) -> None:
        assert isinstance(store, ZooKeeperStore)
        await end_from_outside(store, self._config.ensemble.servers[0])

    async def restart(self) -> None:
        await self._sessions.aclose()
        self._server.restart()


Scenario: TypeAlias = Callable[[Harness], Awaitable[None]]
Start: TypeAlias = Callable[[pytest.FixtureRequest], AbstractAsyncContextManager[Harness]]


@asynccontextmanager
async def start_embedded(request: pytest.FixtureRequest) -> AsyncIterator[Harness]:
    async with EmbeddedHarness(request.getfixturevalue("tmp_path")) as harness:
        yield harness


@asynccontextmanager
async def start_zookeeper(request: pytest.FixtureRequest) -> AsyncIterator[Harness]:
    server = request.getfixturevalue("zookeeper")
    chroot = f"/{uuid4().hex}/store"
    async with ZooKeeperHarness(server, chroot) as harness:
        yield harness


ENGINES = [
    pytest.param(start_embedded, id="embedded"),
    pytest.param(start_zookeeper, id="zookeeper"),
]


@pytest.fixture(params=ENGINES)
def run(request: pytest.FixtureRequest) -> Callable[[Scenario], None]:
    start: Start = request.param

    def run_scenario(scenario: Scenario) -> None:
        async def main() -> None:
            async with start(request) as harness:
                await scenario(harness)

        asyncio.run(main())

    return run_scenario


Run: TypeAlias = Callable[[Scenario], None]


async def until(condition: Callable[[], bool]) -> None:
    """Lets the loop turn until something another session did is visible here."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - the store has no event for a test to wait on
            await asyncio.sleep(0.001)  # A real ensemble takes seconds for some of it.


def test_nodes_have_data_versions_and_transaction_ids(run: Run) -> None:
    async def scenario(harness: Harness) -> None:
        store = await harness.connect()
        path, created = await store.create("/a", b"x")
        assert (path, created.version, created.cversion, created.ephemeral_owner) == ("/a", 0, 0, 0)
        assert created.czxid == created.mzxid > 0
        changed = await store.set("/a", None, 0)
        assert (changed.version, changed.czxid) == (1, created.czxid)
        assert changed.mzxid > created.mzxid
        assert await store.get("/a") == (None, changed)
        assert await store.exists("/a") == changed
        await store.delete("/a", 1)
        assert await store.exists("/a") is None

    run(scenario)


def test_children_are_sorted_and_counted_in_the_parent(run: Run) -> None:
    async def scenario(harness: Harness) -> None:
        store = await harness.connect()
        await store.create("/p")
        for name in ("b", "a", "c"):
            await store.create(f"/p/{name}")
        await store.delete("/p/b", ANY_VERSION)
        names, stat = await store.children("/p")
        assert names == ["a", "c"]
        assert (stat.cversion, stat.version) == (4, 0)
        assert (await store.children("/p/a"))[0] == []

    run(scenario)


def test_refusals_change_nothing(run: Run) -> None:
    async def scenario(harness: Harness) -> None:
        store = await harness.connect()
        _, stat = await store.create("/a", b"1")
        await store.create("/a/b")
        refused: list[tuple[Awaitable[object], type[StoreError]]] = [
            (store.get("/none"), NoNode),
            (store.children("/none"), NoNode),
            (store.create("/a"), NodeExists),
            (store.create("/none/b"), NoNode),
            (store.set("/none", b"", ANY_VERSION), NoNode),
            (store.set("/a", b"2", 7), BadVersion),
            (store.delete("/none", ANY_VERSION), NoNode),
            (store.delete("/a", 7), BadVersion),
            (store.delete("/a", ANY_VERSION), NotEmpty),
            (store.create("relative"), BadArguments),
            (store.create("/a//c"), BadArguments),
            (store.create("/a/../c"), BadArguments),
            (store.create("/a/"), BadArguments),
            (store.create("/a/\x00"), BadArguments),
        ]
        for call, error in refused:
            with pytest.raises(error):
                await call
        data, now = await store.get("/a")
        assert (data, now.mzxid, now.version, now.cversion) == (b"1", stat.mzxid, 0, 1)

    run(scenario)


def test_data_is_at_most_one_packet(run: Run) -> None:
    async def scenario(harness: Harness) -> None:
        store = await harness.connect()
        await store.create("/a", bytes(harness.most_data_bytes))
        with pytest.raises(BadArguments):
            await store.create("/b", bytes(harness.most_data_bytes + 1))
        with pytest.raises(BadArguments):
            await store.set("/a", bytes(MAX_DATA_BYTES + 1), ANY_VERSION)
        with pytest.raises(BadArguments):
            await store.multi([Create("/b", bytes(harness.most_data_bytes)), Create("/c", b"1")])
        assert (await store.children("/"))[0] == ["a"]

    run(scenario)


def test_one_of_two_racing_creates_wins(run: Run) -> None:
    """03b:ST-1, first half."""

    async def scenario(harness: Harness) -> None:
        first, second = await harness.connect(), await harness.connect()
        outcomes = await asyncio.gather(
            first.create("/x", b"1"), second.create("/x", b"2"), return_exceptions=True
        )
        winners = [o for o in outcomes if isinstance(o, Created)]
        losers = [o for o in outcomes if isinstance(o, NodeExists)]
        assert (len(winners), len(losers)) == (1, 1)

    run(scenario)


def test_a_version_can_be_used_once(run: Run) -> None:
    """03b:ST-1, second half."""

    async def scenario(harness: Harness) -> None:
        store = await harness.connect()
        await store.create("/x", b"")
        outcomes = await asyncio.gather(
            store.set("/x", b"1", 0), store.set("/x", b"2", 0), return_exceptions=True
        )
        assert isinstance(outcomes[0], Stat)
        assert isinstance(outcomes[1], BadVersion)
        assert (await store.get("/x"))[0] == b"1"

    run(scenario)


@pytest.mark.parametrize(
    ("third", "error"),
    [
        (Create("/a"), NodeExists),
        (Set("/a", b"", 9), BadVersion),
        (Delete("/none", ANY_VERSION), NoNode),
        (Check("/a", 9), BadVersion),
    ],
    ids=["create", "set", "delete", "check"],
)
def test_multi_is_all_or_nothing(run: Run, third: Operation, error: type[StoreError]) -> None:
    """03b:ST-2, a failing third operation."""

    async def scenario(harness: Harness) -> None:
        store = await harness.connect()
        await store.create("/a", b"old")
        with pytest.raises(error) as caught:
            await store.multi([Create("/b"), Set("/a", b"new", 0), third])
        assert caught.value.operation_index == 2
        assert await store.exists("/b") is None
        data, stat = await store.get("/a")
        assert (data, stat.version) == (b"old", 0)

    run(scenario)


def test_multi_is_one_transaction_that_sees_itself(run: Run) -> None:
    async def scenario(harness: Harness) -> None:
        store = await harness.connect()
        created, child, check, changed, deleted = await store.multi(
            [
                Create("/a"),
                Create("/a/n-", sequential=True),
                Check("/a", 0),
                Set("/a", b"1", 0),
                Delete("/a/n-0000000000", ANY_VERSION),
            ]
        )
        assert isinstance(created, Created)
        assert isinstance(child, Created)
        assert child.path == "/a/n-0000000000"
        assert isinstance(changed, Stat)
        assert check is None
        assert deleted is None
        assert created.stat.czxid == child.stat.czxid == changed.mzxid
        assert (await store.get("/a"))[1]._replace(cversion=0) == changed._replace(cversion=0)

    run(scenario)


def test_a_stale_fence_stops_every_kind_of_write(run: Run) -> None:
    """03b:ST-2, a stale fence."""

    async def scenario(harness: Harness) -> None:
        store = await harness.connect()
        with pytest.raises(ControllerMoved):
            await store.create("/early", fence=0)
        await store.create("/controller_epoch", b"0")
        await store.set("/controller_epoch", b"1", 0)
        await store.create("/a", fence=1)
        calls: list[Awaitable[object]] = [
            store.create("/b", fence=0),
            store.set("/a", b"1", ANY_VERSION, fence=0),
            store.delete("/a", ANY_VERSION, fence=2),
            store.multi([Create("/c"), Check("/none", 0)], fence=0),
        ]
        for call in calls:
            with pytest.raises(ControllerMoved):
                await call
        assert (await store.children("/"))[0] == ["a", "controller_epoch"]
        assert (await store.get("/a"))[1].version == 0
        await store.set("/a", b"2", ANY_VERSION, fence=1)
        await store.create("/d", fence=ANY_VERSION)

    run(scenario)


def test_a_watch_fires_once_and_the_next_read_shows_the_last_write(run: Run) -> None:
    """03b:ST-3."""

    async def scenario(harness: Harness) -> None:
        reader, writer = await harness.connect(), await harness.connect()
        await writer.create("/x", b"0")
        await reader.sync()
        events: list[WatchEvent] = []
        await reader.get("/x", events.append)
        for data in (b"1", b"2", b"3"):
            await writer.set("/x", data, ANY_VERSION)
        await until(lambda: bool(events))
        await reader.sync()
        assert (await reader.get("/x"))[0] == b"3"
        assert events == [WatchEvent(WatchKind.CHANGED, "/x")]

    run(scenario)


def test_every_kind_of_watch_fires_for_own_writes(run: Run) -> None:
    async def scenario(harness: Harness) -> None:
        store = await harness.connect()
        events: list[WatchEvent] = []
        await store.exists("/a", events.append)
        await store.children("/", events.append)
        await store.create("/a")
        await until(lambda: len(events) == 2)
        assert sorted(events, key=str) == [
            WatchEvent(WatchKind.CHILDREN, "/"),
            WatchEvent(WatchKind.CREATED, "/a"),
        ]
        events.clear()
        await store.get("/a", events.append)
        await store.set("/a", b"1", 0)
        await until(lambda: bool(events))
        assert events == [WatchEvent(WatchKind.CHANGED, "/a")]
        events.clear()
        await store.get("/a", events.append)
        await store.exists("/a", events.append)
        await store.children("/a", events.append)
        await store.delete("/a", ANY_VERSION)
        await until(lambda: bool(events))
        await store.sync()
        assert events == [WatchEvent(WatchKind.DELETED, "/a")]

    run(scenario)


def test_a_refused_read_or_write_leaves_and_fires_no_watch(run: Run) -> None:
    async def scenario(harness: Harness) -> None:
        store = await harness.connect()
        events: list[WatchEvent] = []
        with pytest.raises(NoNode):
            await store.get("/a", events.append)
        with pytest.raises(NoNode):
            await store.children("/a", events.append)
        await store.create("/a")
        await store.create("/a/b")
        await store.get("/a", events.append)
        with pytest.raises(BadVersion):
            await store.set("/a", b"", 5)
        await store.sync()
        assert events == []

    run(scenario)


def test_the_end_of_a_session_takes_its_ephemerals_in_one_step(run: Run) -> None:
    """03b:ST-5."""

    async def scenario(harness: Harness) -> None:
        dying, watching = await harness.connect(), await harness.connect()
        await watching.create("/ids")
        for name in ("1", "2"):
            created = await dying.create(f"/ids/{name}", ephemeral=True)
            assert created.stat.ephemeral_owner == dying.session.id != 0
        await watching.create("/ids/3", ephemeral=True)
        await watching.sync()
        events: list[WatchEvent] = []
        await watching.children("/ids", events.append)
        await watching.exists("/ids/2", events.append)
        await dying.session.close()
        await until(lambda: len(events) == 2)
        assert set(events) == {
            WatchEvent(WatchKind.CHILDREN, "/ids"),
            WatchEvent(WatchKind.DELETED, "/ids/2"),
        }
        names, stat = await watching.children("/ids")
        assert (names, stat.cversion) == (["3"], 5)
        with pytest.raises(SessionExpired):
            await dying.get("/ids")
        assert dying.session.state is SessionState.LOST
        await dying.session.close()

    run(scenario)


def test_an_ephemeral_node_has_no_children(run: Run) -> None:
    async def scenario(harness: Harness) -> None:
        store = await harness.connect()
        await store.create("/e", ephemeral=True)
        with pytest.raises(BadArguments):
            await store.create("/e/child")

    run(scenario)


def test_a_lost_session_is_replaced_with_both_callbacks_around(run: Run) -> None:
    async def scenario(harness: Harness) -> None:
        store = await harness.connect()
        await store.create("/e", ephemeral=True)
        events: list[WatchEvent] = []
        await store.get("/e", events.append)
        old_id = store.session.id
        story: list[str] = []

        async def before() -> None:
            await asyncio.sleep(0)
            assert store.session.state is SessionState.LOST
            with pytest.raises(SessionExpired):
                await store.get("/")
            story.append("before")

        def after() -> None:
            assert store.session.state is SessionState.CONNECTED
            story.append("after")

        store.session.on_state(lambda state: story.append(state.value))
        store.session.on_replacement(before=before, after=after)
        await harness.expire(store)
        await until(lambda: "after" in story)
        # An engine with a link may lose that, and find another, before it learns of the end.
        assert story[story.index("lost") :] == ["lost", "before", "connected", "after"]
        assert store.session.id not in (0, old_id)
        assert await store.exists("/e") is None
        # A server may still tell the session that its end deletes the node.
        assert all((event.kind, event.path) == (WatchKind.DELETED, "/e") for event in events)
        created = await store.create("/e", ephemeral=True)
        assert created.stat.ephemeral_owner == store.session.id

    run(scenario)


def test_sequential_names_never_repeat(run: Run) -> None:
    """03b:ST-6."""

    async def scenario(harness: Harness) -> None:
        store = await harness.connect()
        await store.create("/n")
        paths = [(await store.create("/n/c_", sequential=True)).path for _ in range(2)]
        assert paths == ["/n/c_0000000000", "/n/c_0000000001"]
        for path in paths:
            await store.delete(path, ANY_VERSION)
        assert (await store.create("/n/c_", sequential=True)).path == "/n/c_0000000002"
        await harness.restart()
        store = await harness.connect()
        assert (await store.create("/n/c_", sequential=True)).path == "/n/c_0000000003"

    run(scenario)


def test_the_creation_id_of_a_broker_node_grows(run: Run) -> None:
    """03b:ST-7."""

    async def scenario(harness: Harness) -> None:
        store = await harness.connect()
        await store.multi([Create("/brokers"), Create("/brokers/ids")])
        epochs: list[int] = []
        for restarts in (False, True, True):
            epochs.append((await store.create("/brokers/ids/1", ephemeral=True)).stat.czxid)
            if restarts:
                await harness.restart()
            else:
                await store.session.close()
            store = await harness.connect()
            assert await store.exists("/brokers/ids/1") is None
        epochs.append((await store.create("/brokers/ids/1", ephemeral=True)).stat.czxid)
        assert epochs == sorted(set(epochs))

    run(scenario)


@pytest.mark.parametrize("applied", [True, False])
def test_a_cut_link_leaves_the_outcome_to_a_read(run: Run, applied: bool) -> None:
    """03b:ST-8. The link is a wrapper's; an engine in this process has none of its own to cut."""

    async def scenario(harness: Harness) -> None:
        store = FaultyStore(await harness.connect())
        await store.create("/x", b"old")
        store.cut_next_write(applied=applied)
        with pytest.raises(ConnectionLost):
            await store.set("/x", b"new", 0)
        data, stat = await store.get("/x")
        assert (data, stat.version) == ((b"new", 1) if applied else (b"old", 0))

    run(scenario)


def test_a_suspended_session_lives_on(run: Run) -> None:
    async def scenario(harness: Harness) -> None:
        store, other = FaultyStore(await harness.connect()), await harness.connect()
        states: list[SessionState] = []
        store.session.on_state(states.append)
        await store.create("/e", b"0", ephemeral=True)
        events: list[WatchEvent] = []
        await store.get("/e", events.append)
        store.suspend()
        with pytest.raises(ConnectionLost):
            await store.set("/e", b"1", 0)
        await other.sync()
        await other.set("/e", b"2", 0)
        reading = asyncio.ensure_future(store.get("/e"))
        await asyncio.sleep(0)
        assert (events, reading.done(), store.session.state) == ([], False, SessionState.SUSPENDED)
        store.resume()
        assert (await reading)[0] == b"2"
        assert events == [WatchEvent(WatchKind.CHANGED, "/e")]
        assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]

    run(scenario)


def test_sync_ends_the_view_of_the_past(run: Run) -> None:
    async def scenario(harness: Harness) -> None:
        reader, writer = FaultyStore(await harness.connect()), await harness.connect()
        await writer.create("/x", b"0")
        await reader.sync()
        events: list[WatchEvent] = []
        await reader.get("/x", events.append)
        await reader.hold_reads()
        await writer.set("/x", b"1", 0)
        await writer.create("/x/child")
        assert (await reader.get("/x"))[0] == b"0"
        assert await reader.exists("/x/child", events.append) is None
        assert (await reader.children("/x"))[0] == []
        assert events == []
        await reader.sync()
        assert (await reader.get("/x"))[0] == b"1"
        assert (await reader.children("/x"))[0] == ["child"]
        assert events == [
            WatchEvent(WatchKind.CHANGED, "/x"),
            WatchEvent(WatchKind.CREATED, "/x/child"),
        ]

    run(scenario)
