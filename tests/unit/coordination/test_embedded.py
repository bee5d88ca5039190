"""The embedded engine: durability before visibility, group commit, failures, ends."""

import asyncio
import contextlib
import errno
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, Future
from itertools import count
from pathlib import Path
from random import Random
from typing import ParamSpec, TypeVar

import pytest

from odradek.coordination.embedded import EmbeddedEngine
from odradek.coordination.journal import JOURNAL_NAME, SNAPSHOT_NAME
from odradek.coordination.store import ANY_VERSION, Create, SessionState, WatchEvent
from odradek.errors import (
    LogDirLockedError,
    NodeExists,
    SessionExpired,
    StorageError,
    StoreCorruptError,
)
from odradek.testing import SimDisk, SimulatedCrash

P = ParamSpec("P")
T = TypeVar("T")


class GatedExecutor(Executor):
    """Runs what it is given at once, or keeps it until told."""

    def __init__(self) -> None:
        self.is_held = False
        self._waiting: list[Callable[[], None]] = []

    def submit(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(call(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)

        if self.is_held:
            self._waiting.append(run)
        else:
            run()
        return future

    def release(self) -> None:
        self.is_held = False
        waiting, self._waiting = self._waiting, []
        for run in waiting:
            run()


async def turns(number: int = 20) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


def syncs(disk: SimDisk) -> int:
    return disk.operations.count(("fsync", JOURNAL_NAME))


def test_nothing_is_visible_before_it_is_durable(tmp_path: Path) -> None:
    async def main() -> None:
        executor = GatedExecutor()
        async with EmbeddedEngine(str(tmp_path), executor=executor) as engine:
            store = engine.connect()
            events: list[WatchEvent] = []
            await store.exists("/a", events.append)
            executor.is_held = True
            writing = asyncio.ensure_future(store.create("/a"))
            await turns()
            # The refusal depends on the first create, so it must wait for it, too.
            refused = asyncio.ensure_future(store.create("/a"))
            await turns()
            assert (writing.done(), refused.done(), events) == (False, False, [])
            assert await store.exists("/a") is None
            executor.release()
            await writing
            assert len(events) == 1
            with pytest.raises(NodeExists):
                await refused

    asyncio.run(main())


def test_a_batch_costs_one_sync(tmp_path: Path) -> None:
    async def main() -> None:
        disk = SimDisk(tmp_path)
        async with EmbeddedEngine(str(tmp_path), disk=disk, executor=GatedExecutor()) as engine:
            stores = [engine.connect() for _ in range(3)]
            disk.operations.clear()
            created = await asyncio.gather(*(stores[n % 3].create(f"/{n}") for n in range(50)))
            assert [c.stat.czxid for c in created] == list(range(1, 51))
            assert syncs(disk) <= 2  # The first may start before the others have queued up.
            # A refusal alone costs none.
            disk.operations.clear()
            with pytest.raises(NodeExists):
                await stores[0].create("/1")
            assert syncs(disk) == 0

    asyncio.run(main())


def test_a_snapshot_is_taken_every_so_many_transactions(tmp_path: Path) -> None:
    async def main() -> None:
        for first in range(0, 30, 10):
            async with EmbeddedEngine(str(tmp_path), snapshot_interval=7) as engine:
                store = engine.connect()
                for n in range(first, first + 10):
                    await store.create(f"/{n:02}", b"x")
                    assert engine.last_zxid == n + 1
                await store.session.close()
        async with EmbeddedEngine(str(tmp_path)) as engine:
            names, stat = await engine.connect().children("/")
            assert (len(names), stat.cversion) == (30, 30)

    asyncio.run(main())
    assert (tmp_path / SNAPSHOT_NAME).exists()
    assert (tmp_path / JOURNAL_NAME).stat().st_size < 7 * 60


def test_the_ephemerals_of_a_dead_process_go_before_the_first_session(tmp_path: Path) -> None:
    async def main() -> None:
        async with EmbeddedEngine(str(tmp_path)) as engine:
            store = engine.connect()
            await store.create("/ids")
            await store.create("/ids/1", ephemeral=True)
            await engine.connect().create("/ids/2", ephemeral=True)
            zxid = engine.last_zxid
        async with EmbeddedEngine(str(tmp_path)) as engine:
            assert engine.last_zxid == zxid + 1
            assert (await engine.connect().children("/ids"))[0] == []

    asyncio.run(main())


def test_the_end_of_a_session_takes_ephemerals_of_the_same_batch(tmp_path: Path) -> None:
    async def main() -> None:
        async with EmbeddedEngine(str(tmp_path)) as engine:
            store, other = engine.connect(), engine.connect()
            creating = asyncio.ensure_future(store.create("/e", ephemeral=True))
            await asyncio.sleep(0)
            closing = asyncio.ensure_future(store.session.close())
            await asyncio.sleep(0)
            with pytest.raises(SessionExpired):
                await store.create("/late", ephemeral=True)
            await creating
            await closing
            assert (await other.children("/"))[0] == []

    asyncio.run(main())


def test_a_second_engine_on_the_directory_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with EmbeddedEngine(str(tmp_path)):
            with pytest.raises(LogDirLockedError, match="in use by process"):
                await EmbeddedEngine(str(tmp_path)).__aenter__()

    asyncio.run(main())


def test_a_refused_start_leaves_the_directory_free(tmp_path: Path) -> None:
    (tmp_path / JOURNAL_NAME).write_bytes(b"not a journal at all")

    async def main() -> None:
        for _ in range(2):
            with pytest.raises(StoreCorruptError, match=JOURNAL_NAME):
                await EmbeddedEngine(str(tmp_path)).__aenter__()

    asyncio.run(main())


@pytest.mark.parametrize("operation", ["write", "fsync"])
def test_a_failing_disk_ends_all_sessions_and_the_engine(tmp_path: Path, operation: str) -> None:
    states: list[SessionState] = []
    outcomes: list[BaseException | object] = []

    async def main() -> None:
        disk = SimDisk(tmp_path)
        async with EmbeddedEngine(str(tmp_path), disk=disk) as engine:
            store, other = engine.connect(), engine.connect()
            await store.create("/a")
            store.session.on_state(states.append)
            other.session.on_state(states.append)
            disk.fail(operation, path_contains=JOURNAL_NAME, error=errno.EIO)
            try:
                outcomes.extend(
                    await asyncio.gather(
                        store.create("/b"), other.create("/c"), return_exceptions=True
                    )
                )
                await asyncio.Event().wait()  # The engine ends us.
            finally:
                with pytest.raises(SessionExpired):
                    await other.get("/a")
                with pytest.raises(SessionExpired):
                    engine.connect()

    with pytest.raises(StorageError, match=r"failed: .*Input/output error") as caught:
        asyncio.run(main())
    assert caught.value.log_dir == str(tmp_path)
    assert states == [SessionState.LOST, SessionState.LOST]
    assert all(isinstance(outcome, SessionExpired) for outcome in outcomes)


def test_the_failure_of_the_disk_hides_what_it_caused(tmp_path: Path) -> None:
    async def main() -> None:
        disk = SimDisk(tmp_path)
        async with EmbeddedEngine(str(tmp_path), disk=disk) as engine:
            store = engine.connect()
            disk.fail("fsync", path_contains=JOURNAL_NAME)
            try:
                await store.create("/a")
            finally:
                await store.session.close()

    with pytest.raises(StorageError):
        asyncio.run(main())


def test_a_failing_snapshot_ends_the_engine_too(tmp_path: Path) -> None:
    async def main() -> None:
        disk = SimDisk(tmp_path)
        async with EmbeddedEngine(str(tmp_path), disk=disk, snapshot_interval=1) as engine:
            disk.fail("rename")
            await engine.connect().create("/a")
            await asyncio.Event().wait()

    with pytest.raises(StorageError):
        asyncio.run(main())

    async def again() -> None:
        async with EmbeddedEngine(str(tmp_path)) as engine:
            assert await engine.connect().exists("/a") is not None

    asyncio.run(again())


def test_a_cancelled_caller_does_not_disturb_the_others(tmp_path: Path) -> None:
    async def main() -> None:
        executor = GatedExecutor()
        async with EmbeddedEngine(str(tmp_path), executor=executor) as engine:
            store = engine.connect()
            executor.is_held = True
            given_up = asyncio.ensure_future(store.create("/a"))
            await turns()
            given_up.cancel()
            patient = asyncio.ensure_future(store.create("/b"))
            await turns()
            executor.release()
            await patient
            assert (await store.children("/"))[0] == ["a", "b"]

    asyncio.run(main())


def test_more_than_one_batch_is_committed_in_order(tmp_path: Path) -> None:
    async def main() -> None:
        async with EmbeddedEngine(str(tmp_path)) as engine:
            store = engine.connect()
            created = await asyncio.gather(*(store.create(f"/{n}") for n in range(170)))
            assert [c.stat.czxid for c in created] == list(range(1, 171))

    asyncio.run(main())


def test_leaving_commits_what_is_queued(tmp_path: Path) -> None:
    async def main() -> None:
        async with EmbeddedEngine(str(tmp_path)) as engine:
            store = engine.connect()
            writes = [asyncio.ensure_future(store.create(f"/{n}")) for n in range(10)]
            await asyncio.sleep(0)
        assert all(write.done() for write in writes)
        for write in writes:
            write.result()
        assert store.session.state is SessionState.LOST
        with pytest.raises(SessionExpired):
            await store.create("/late")
        with pytest.raises(SessionExpired):
            engine.connect()

    asyncio.run(main())


def test_an_error_of_the_body_passes_through(tmp_path: Path) -> None:
    async def main() -> None:
        async with EmbeddedEngine(str(tmp_path)) as engine:
            await engine.connect().create("/a")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(main())


def test_a_cancelled_body_ends_the_engine_and_stays_cancelled(tmp_path: Path) -> None:
    async def main() -> None:
        executor = GatedExecutor()

        async def body() -> None:
            async with EmbeddedEngine(str(tmp_path), executor=executor) as engine:
                executor.is_held = True
                await engine.connect().create("/a")

        running = asyncio.ensure_future(body())
        await turns()
        running.cancel()
        await turns()
        assert not running.done()  # It waits for the write that is on its way.
        running.cancel()
        await turns()
        executor.release()
        with pytest.raises(asyncio.CancelledError):
            await running
        async with EmbeddedEngine(str(tmp_path)):
            pass

    asyncio.run(main())


def test_leaving_does_not_wait_for_a_replacement_that_hangs(tmp_path: Path) -> None:
    async def main() -> None:
        async with EmbeddedEngine(str(tmp_path)) as engine:
            store = engine.connect()

            async def before() -> None:
                await asyncio.Event().wait()

            store.session.on_replacement(before=before, after=lambda: None)
            await store.session.expire()
            await turns()
            assert store.session.state is SessionState.LOST

    asyncio.run(main())


def test_a_session_closed_while_lost_is_not_replaced(tmp_path: Path) -> None:
    async def main() -> None:
        async with EmbeddedEngine(str(tmp_path)) as engine:
            store = engine.connect()
            store.session.on_replacement(before=store.session.close, after=lambda: None)
            await store.session.expire()
            await turns()
            assert store.session.state is SessionState.LOST

    asyncio.run(main())


def test_a_listener_that_raises_is_logged_and_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: object) -> None:
        raise ZeroDivisionError

    async def broken_before() -> None:
        raise ZeroDivisionError

    def broken_after() -> None:
        raise ZeroDivisionError

    async def main() -> None:
        async with EmbeddedEngine(str(tmp_path)) as engine:
            store = engine.connect()
            events: list[WatchEvent] = []
            await store.exists("/a", broken)
            await store.exists("/a", events.append)
            await store.create("/a")
            assert len(events) == 1
            store.session.on_state(broken)
            store.session.on_replacement(before=broken_before, after=broken_after)
            await store.session.expire()
            await turns()
            assert store.session.state is SessionState.CONNECTED

    with caplog.at_level(logging.ERROR):
        asyncio.run(main())
    # One watch, the states LOST, CONNECTED and LOST at the end, both sides of the replacement.
    assert len(caplog.records) == 6


async def life_of_two_brokers(
    directory: Path, disk: SimDisk, answered: list[int], done: Callable[[], None]
) -> None:
    """Registers, writes, expires and re-registers; `answered` gets each zxid told to a caller."""
    engine = EmbeddedEngine(
        str(directory), disk=disk, executor=GatedExecutor(), snapshot_interval=4
    )
    async with engine:
        one, two = engine.connect(), engine.connect()

        async def note(call: Awaitable[object]) -> None:
            await call
            answered.append(engine.last_zxid)

        await note(one.multi([Create("/ids"), Create("/topics")]))
        await asyncio.gather(
            note(one.create("/ids/1", b"x" * 3000, ephemeral=True)),
            note(two.create("/ids/2", ephemeral=True)),
        )
        await note(one.session.expire())
        await turns()
        await note(one.create("/ids/1", ephemeral=True))
        await note(two.create("/topics/n", sequential=True))
        await note(two.set("/topics", bytes(5000), ANY_VERSION))
        await note(two.session.close())
    done()


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["drop", "torn", "kill"])
def test_a_killed_process_leaves_a_prefix_and_no_ephemeral(tmp_path: Path, mode: str) -> None:
    """03b:ST-4: every write boundary of a run of the whole engine."""
    finished: list[bool] = []
    for point in count():
        directory = tmp_path / str(point)
        directory.mkdir()
        disk = SimDisk(directory)
        answered: list[int] = [0]
        disk.crash_at(point)
        with contextlib.suppress(SimulatedCrash, BaseExceptionGroup):
            asyncio.run(
                life_of_two_brokers(directory, disk, answered, lambda: finished.append(True))
            )
        if finished:
            assert point > 15
            break
        if mode == "kill":
            disk.kill()
        elif mode == "drop":
            disk.crash()
        else:
            disk.crash(Random(point), mode="torn")
        asyncio.run(check_after_crash(directory, disk, answered))


async def check_after_crash(directory: Path, disk: SimDisk, answered: list[int]) -> None:
    async with EmbeddedEngine(str(directory), disk=disk, executor=GatedExecutor()) as engine:
        store = engine.connect()
        names, _ = await store.children("/")
        assert names in ([], ["ids", "topics"])
        if names:
            assert (await store.children("/ids"))[0] == []
        created = await store.create("/new", ephemeral=True)
        assert created.stat.czxid > max(answered)
