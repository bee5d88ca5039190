"""Moves between data directories: what is copied, what may happen meanwhile (05 section 11)."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from odradek.errors import ApiError, ErrorCode
from odradek.files import Disk
from odradek.model import TopicPartition
from odradek.records.batch import patch_offset_and_epoch
from odradek.replication.directory_moves import DirectoryMoves
from odradek.storage.cleaning.throttle import Throttle
from odradek.storage.directories.log_directory import LogDirectory
from odradek.storage.log.config import LogConfig
from odradek.storage.log.log import Log
from odradek.storage.log.services import run_here
from odradek.tasks import OwnedTasks
from odradek.testing import SimDisk
from tests.support.logs import batch, offsets, read_all
from tests.support.replicas import ReplicaFixture, hosted, state_of, stopped, tp

PATIENCE_S = 30.0
FAST = 1e18


class Moving:
    """A broker's replicas in two directories, and its moves."""

    def __init__(self, fixture: ReplicaFixture, moves: DirectoryMoves) -> None:
        self.fixture = fixture
        self.moves = moves
        self.at_work: set[TopicPartition] = set()
        self.replaced: list[TopicPartition] = []

    @property
    def directories(self) -> list[LogDirectory]:
        return self.fixture.log_manager.directories

    def elsewhere(self, partition: TopicPartition) -> LogDirectory:
        [other] = [
            one for one in self.directories if one is not self.fixture.log(partition).log_directory
        ]
        return other

    def future(self, partition: TopicPartition) -> Log:
        log = self.fixture.log_manager.get_future_log(partition)
        assert log is not None
        return log

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():  # noqa: ASYNC110 - a log has no event for it
                await asyncio.sleep(0)

    async def finish(self, partition: TopicPartition) -> Log:
        """Waits for the end of a move; returns the log that is live then."""
        await self.until(lambda: partition not in self.moves.moving)
        log = self.fixture.log(partition)
        assert self.fixture.log_manager.get_log(partition) is log
        assert self.fixture.log_manager.get_future_log(partition) is None
        return log

    async def move(self, partition: TopicPartition) -> Log:
        target = self.elsewhere(partition)
        assert await self.moves.alter(partition, target.path) is ErrorCode.NONE
        log = await self.finish(partition)
        assert log.log_directory is target
        return log

    async def begin_slowly(self, partition: TopicPartition) -> None:
        """Begins a move that stops behind the first turn, until `go_on`."""
        self.moves.throttle.bytes_per_second = 1e-3
        target = self.elsewhere(partition)
        assert await self.moves.alter(partition, target.path) is ErrorCode.NONE
        await self.until(lambda: self.future(partition).log_end_offset > 0)

    def go_on(self) -> None:
        self.moves.throttle.bytes_per_second = FAST


@asynccontextmanager
async def moving(fixture: ReplicaFixture) -> AsyncIterator[Moving]:
    async with OwnedTasks() as tasks:
        moves = DirectoryMoves(
            log_manager=fixture.log_manager,
            find=lambda p: fixture.replicas.find_online(p.topic, p.partition),
            find_or_raise=fixture.replicas.find_partition,
            is_at_work=lambda p: p in made.at_work or fixture.replicas.is_at_work(p),
            storage_tasks=fixture.services.tasks,
            tasks=tasks,
            throttle=Throttle(fixture.clock, FAST),
            moves_at_once=1,
            on_replaced=lambda p: made.replaced.append(p),
            on_start_moved=fixture.replicas.note_moved,
        )
        made = Moving(fixture, moves)
        fixture.replicas.moves = moves
        yield made
        await moves.stop()


def run(
    tmp_path: Path,
    scenario: Callable[[Moving], Awaitable[None]],
    *,
    config: LogConfig | None = None,
    disk: Disk | None = None,
) -> None:
    async def whole() -> None:
        with ReplicaFixture(
            tmp_path, directories=("one", "two"), config=config, disk=disk
        ) as fixture:
            async with moving(fixture) as made:
                await scenario(made)

    asyncio.run(whole())


def sim_disk(fixture: ReplicaFixture) -> SimDisk:
    assert isinstance(fixture.disk, SimDisk)
    return fixture.disk


def from_leader(count: int, *, first: int, epoch: int, value: bytes = b"v") -> bytearray:
    """Batches as a leader sends them."""
    data = bytearray()
    for offset in range(first, first + count):
        one = batch(value=value)
        patch_offset_and_epoch(one, 0, base_offset=offset, leader_epoch=epoch)
        data += one
    return data


def test_other_segment_boundaries_do_not_stall_a_move(tmp_path: Path) -> None:
    """15:KAFKA-8002: the copy has other segments, and replaces the log all the same."""

    async def scenario(made: Moving) -> None:
        fixture = made.fixture
        fixture.lead(tp())
        for _ in range(30):
            fixture.produce({tp(): batch(2)})
        current = fixture.log(tp())
        content, bases = read_all(current), [one.base_offset for one in current.segments]
        fixture.log_manager.update_config("t", LogConfig(segment_bytes=1_000))
        log = await made.move(tp())
        assert [one.base_offset for one in log.segments] != bases
        assert len(log.segments) > 1
        assert read_all(log) == content
        assert log.high_watermark == log.log_end_offset == 60
        assert made.replaced == [tp()]
        fixture.produce({tp(): batch(1)})
        assert log.log_end_offset == 61

    run(tmp_path, scenario, config=LogConfig(segment_bytes=300))


def test_a_gap_at_the_end_is_copied(tmp_path: Path) -> None:
    """Compaction may remove the last records before the active segment; the ends still meet."""

    async def scenario(made: Moving) -> None:
        fixture = made.fixture
        fixture.lead(tp())
        fixture.produce({tp(): batch(3)})
        current = fixture.log(tp())
        current.roll(9)
        current.update_log_end_offset(9)
        log = await made.move(tp())
        assert (log.log_start_offset, log.log_end_offset) == (0, 9)
        assert offsets(read_all(log)) == [0, 1, 2]
        fixture.produce({tp(): batch(1)})
        fixture.restart()
        fixture.lead(tp(), leader_epoch=1)
        assert offsets(read_all(fixture.log(tp()))) == [0, 1, 2, 9]

    run(tmp_path, scenario)


def test_an_empty_log_moves(tmp_path: Path) -> None:
    async def scenario(made: Moving) -> None:
        made.fixture.lead(tp())
        log = await made.move(tp())
        assert (log.log_start_offset, log.log_end_offset) == (0, 0)
        current = log
        current.truncate_fully_and_start_at(7)
        log = await made.move(tp())
        assert (log.log_start_offset, log.log_end_offset) == (7, 7)

    run(tmp_path, scenario)


def test_a_log_start_within_a_batch_is_kept(tmp_path: Path) -> None:
    """15:KAFKA-6975 for a copy: the batch with the log start is copied as a whole."""

    async def scenario(made: Moving) -> None:
        fixture = made.fixture
        fixture.lead(tp())
        for _ in range(5):
            fixture.produce({tp(): batch(4)})
        fixture.delete_records({tp(): 10})
        log = await made.move(tp())
        assert (log.log_start_offset, log.log_end_offset) == (10, 20)
        assert offsets(read_all(log)) == list(range(8, 20))

    run(tmp_path, scenario)


def test_epochs_are_those_of_the_log(tmp_path: Path) -> None:
    async def scenario(made: Moving) -> None:
        fixture = made.fixture
        for epoch in (0, 2, 5, 6):
            fixture.lead(tp(), leader_epoch=epoch)
            if epoch != 6:  # The last one has no record yet.
                for _ in range(3):
                    fixture.produce({tp(): batch(1)})
        entries = fixture.log(tp()).leader_epochs.entries
        assert [entry.epoch for entry in entries] == [0, 2, 5, 6]
        log = await made.move(tp())
        assert log.leader_epochs.entries == entries
        fixture.restart()
        [live] = [one for one in fixture.log_manager.all_logs() if one.topic_partition == tp()]
        assert live.log_end_offset == 9

    run(tmp_path, scenario)


def test_epochs_are_durable_before_their_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the append would sync them, on the loop: also for those within one read, behind gaps."""
    assigned: list[int] = []
    append = DirectoryMoves._append

    def watch(moves: DirectoryMoves, pair: Any, data: memoryview, most_batches: int) -> int:
        before = pair.future.leader_epochs.entries
        size = append(moves, pair, data, most_batches)
        after = pair.future.leader_epochs.entries
        assigned.extend(entry.epoch for entry in after if entry not in before)
        return size

    async def scenario(made: Moving) -> None:
        fixture = made.fixture
        fixture.apply(hosted(state_of(tp(), leader=2, leader_epoch=9, replicas=(1, 2))))
        current = fixture.log(tp())
        for epoch, first in ((0, 0), (2, 3), (5, 6), (7, 20), (8, 30)):
            current.append_as_follower(from_leader(3, first=first, epoch=epoch))
        content = read_all(current)
        monkeypatch.setattr(DirectoryMoves, "_append", watch)
        log = await made.move(tp())
        assert read_all(log) == content
        assert log.leader_epochs.entries == current.leader_epochs.entries
        assert [entry.epoch for entry in log.leader_epochs.entries] == [0, 2, 5, 7, 8]
        assert assigned == []

    run(tmp_path, scenario)


def test_a_truncation_during_the_move_is_repeated_on_the_copy(tmp_path: Path) -> None:
    """A follower cuts its log and gets other records: none of the old ones may stay in the copy."""

    async def scenario(made: Moving) -> None:
        fixture = made.fixture
        fixture.apply(hosted(state_of(tp(), leader=2, leader_epoch=1, replicas=(1, 2))))
        current = fixture.log(tp())
        current.append_as_follower(from_leader(40, first=0, epoch=1))
        current.append_as_follower(from_leader(40, first=40, epoch=1))
        await made.begin_slowly(tp())
        copied = made.future(tp()).log_end_offset
        assert 0 < copied < 80
        run_here(current.truncate_steps(copied - 7))
        current.append_as_follower(from_leader(60, first=copied - 7, epoch=3, value=b"other"))
        made.go_on()
        content = read_all(current)
        log = await made.finish(tp())
        assert log is not current
        assert read_all(log) == content
        assert log.leader_epochs.entries == current.leader_epochs.entries

    run(tmp_path, scenario)


@pytest.mark.parametrize("epoch", [1, 3, 9])
def test_an_interrupted_move_is_cut_where_the_logs_part(tmp_path: Path, epoch: int) -> None:
    """After a crash the copy may have records that the log lost, and got others for."""

    async def scenario(made: Moving) -> None:
        fixture = made.fixture
        fixture.apply(hosted(state_of(tp(), leader=2, leader_epoch=4, replicas=(1, 2))))
        current = fixture.log(tp())
        current.append_as_follower(from_leader(5, first=0, epoch=1))
        current.append_as_follower(from_leader(9, first=5, epoch=4, value=b"other"))
        steps = fixture.log_manager.futures.create_steps(current, made.elsewhere(tp()), None)
        future = run_here(steps)
        future.append_as_follower(from_leader(8, first=0, epoch=1))
        future.append_as_follower(from_leader(2, first=8, epoch=epoch))
        content = read_all(current)
        made.moves.resume()
        log = await made.finish(tp())
        assert log is future
        assert read_all(log) == content

    run(tmp_path, scenario)


@pytest.mark.parametrize("is_still_compacted", [True, False])
def test_an_interrupted_copy_of_a_compacted_log_begins_anew(
    tmp_path: Path, is_still_compacted: bool
) -> None:
    """Its log was compacted while the target was offline: deleted keys must not come back."""
    compacted, kept = LogConfig(cleanup_policy=("compact",)), LogConfig()

    async def scenario(made: Moving) -> None:
        fixture = made.fixture
        fixture.apply(hosted(state_of(tp(), leader=2, leader_epoch=1, replicas=(1, 2))))
        current = fixture.log(tp())
        current.append_as_follower(from_leader(2, first=4, epoch=1))
        current.append_as_follower(from_leader(5, first=9, epoch=1))
        if not is_still_compacted:
            fixture.log_manager.cleaner.first_dirty.raise_to(current, 9)()
            fixture.log_manager.update_config("t", kept)
        steps = fixture.log_manager.futures.create_steps(current, made.elsewhere(tp()), None)
        future = run_here(steps)
        future.append_as_follower(from_leader(12, first=0, epoch=1))
        content = read_all(current)
        made.moves.resume()
        log = await made.finish(tp())
        assert log is future
        assert offsets(read_all(log)) == [4, 5, 9, 10, 11, 12, 13]
        assert read_all(log) == content
        assert log.leader_epochs.entries == current.leader_epochs.entries

    run(tmp_path, scenario, config=compacted)


def test_the_log_is_not_replaced_while_its_role_changes(tmp_path: Path) -> None:
    """15:KAFKA-9750: the change has looked the log up, and would go on with the replaced one."""

    async def scenario(made: Moving) -> None:
        fixture = made.fixture
        fixture.lead(tp())
        fixture.produce({tp(): batch(3)})
        made.at_work.add(tp())
        assert await made.moves.alter(tp(), made.elsewhere(tp()).path) is ErrorCode.NONE
        current = fixture.log(tp())
        for _ in range(200):
            await asyncio.sleep(0)
        assert fixture.log(tp()) is current
        assert made.moves.moving == [tp()]
        made.at_work.clear()
        assert await made.finish(tp()) is not current
        fixture.lead(tp(), leader_epoch=1)
        assert fixture.log(tp()).leader_epochs.latest_epoch == 1

    run(tmp_path, scenario)


def test_deleted_records_wait_for_the_copy(tmp_path: Path) -> None:
    """05:8.1: the low watermark is the lowest of all logs, the future one among them."""

    async def scenario(made: Moving) -> None:
        fixture = made.fixture
        fixture.lead(tp())
        for _ in range(120):
            fixture.produce({tp(): batch(1)})
        await made.begin_slowly(tp())
        answers = fixture.delete_records({tp(): 3}, timeout_ms=60_000)
        assert answers == []
        assert fixture.partition(tp()).low_watermark == 0
        made.go_on()
        await made.until(lambda: bool(answers))
        assert answers[0][tp()].low_watermark == 3
        assert (await made.finish(tp())).log_start_offset == 3

    run(tmp_path, scenario)


def test_a_second_target_and_the_own_directory(tmp_path: Path) -> None:
    """As in Kafka: another target replaces the copy, the own directory ends the move."""

    async def scenario(made: Moving) -> None:
        fixture = made.fixture
        fixture.lead(tp())
        for _ in range(120):
            fixture.produce({tp(): batch(1)})
        home = fixture.log(tp()).log_directory
        await made.begin_slowly(tp())
        future = made.future(tp())
        assert await made.moves.alter(tp(), future.log_directory.path) is ErrorCode.NONE
        assert made.future(tp()) is future
        made.go_on()
        assert await made.moves.alter(tp(), home.path) is ErrorCode.NONE
        log = await made.finish(tp())
        assert log.log_directory is home
        assert not future.is_usable

    run(tmp_path, scenario)


def test_a_topic_that_is_deleted_ends_its_move(tmp_path: Path) -> None:
    async def scenario(made: Moving) -> None:
        fixture = made.fixture
        fixture.lead(tp())
        for _ in range(120):
            fixture.produce({tp(): batch(1)})
        await made.begin_slowly(tp())
        fixture.apply(stopped(tp()))
        assert fixture.log_manager.all_logs() == []
        made.go_on()
        await made.until(lambda: not made.moves.moving)

    run(tmp_path, scenario)


def test_moves_wait_for_each_other(tmp_path: Path) -> None:
    """num.replica.alter.log.dirs.threads: one at a time here; the next begins at the end of one."""

    async def scenario(made: Moving) -> None:
        fixture = made.fixture
        fixture.lead(tp("t"))
        fixture.lead(tp("u"))
        for _ in range(120):
            fixture.produce({tp("t"): batch(1), tp("u"): batch(1)})
        await made.begin_slowly(tp("t"))
        target = made.elsewhere(tp("u"))
        assert await made.moves.alter(tp("u"), target.path) is ErrorCode.NONE
        assert made.moves.moving == [tp("t")]
        made.go_on()
        await made.until(lambda: fixture.log(tp("u")).log_directory is target)
        assert made.replaced == [tp("t"), tp("u")]

    run(tmp_path, scenario)


def test_requests_that_cannot_be_served(tmp_path: Path) -> None:
    """The errors of Kafka 3.9; a partition that comes later is created in the wished directory."""

    async def scenario(made: Moving) -> None:
        fixture, alter = made.fixture, made.moves.alter
        first, last = made.directories
        fixture.lead(tp())
        assert await alter(tp(), str(tmp_path)) is ErrorCode.LOG_DIR_NOT_FOUND
        assert await alter(tp("gone"), last.path) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        fixture.known.add(tp("later"))
        assert await alter(tp("later"), last.path) is ErrorCode.REPLICA_NOT_AVAILABLE
        fixture.lead(tp("other"))
        assert fixture.log(tp("other")).log_directory is last
        fixture.lead(tp("another"))
        assert fixture.log(tp("another")).log_directory is first
        fixture.lead(tp("later"))
        assert fixture.log(tp("later")).log_directory is last
        long = tp("n" * 249)
        fixture.lead(long)
        target = made.elsewhere(long)
        assert await alter(long, target.path) is ErrorCode.INVALID_TOPIC_EXCEPTION
        last.fail("test", OSError("gone"))
        assert await alter(tp(), last.path) is ErrorCode.KAFKA_STORAGE_ERROR
        assert await alter(tp("later"), first.path) is ErrorCode.KAFKA_STORAGE_ERROR
        assert await alter(tp(), first.path) is ErrorCode.NONE

    run(tmp_path, scenario)


def test_a_target_that_fails_ends_the_move(tmp_path: Path) -> None:
    async def scenario(made: Moving) -> None:
        fixture = made.fixture
        fixture.lead(tp())
        for _ in range(120):
            fixture.produce({tp(): batch(1)})
        await made.begin_slowly(tp())
        current, target = fixture.log(tp()), made.elsewhere(tp())
        target.fail("test", OSError("gone"))
        made.go_on()
        assert await made.finish(tp()) is current
        fixture.produce({tp(): batch(1)})
        assert current.log_end_offset == 121
        assert fixture.partition(tp()).low_watermark == 0

    run(tmp_path, scenario)


def test_a_source_that_fails_in_the_replacement_leaves_the_partition_online(tmp_path: Path) -> None:
    """The partition has its log in the target by then: only partitions of the source are lost."""

    async def scenario(made: Moving) -> None:
        fixture = made.fixture
        fixture.lead(tp())
        fixture.produce({tp(): batch(3)})
        source, target = fixture.log(tp()).log_directory, made.elsewhere(tp())
        sim_disk(fixture).fail("rename", path_contains="t-0 -> ")
        assert await made.moves.alter(tp(), target.path) is ErrorCode.NONE
        log = await made.finish(tp())
        assert not source.is_online
        assert log.log_directory is target
        assert fixture.replicas.find_online("t", 0) is not None
        fixture.produce({tp(): batch(1)})
        assert log.log_end_offset == 4

    run(tmp_path, scenario, disk=SimDisk(tmp_path))


def test_a_target_that_fails_in_the_replacement_takes_the_partition_offline(tmp_path: Path) -> None:
    """The snapshot of producers without records cannot be written: the log is closed."""

    async def scenario(made: Moving) -> None:
        fixture = made.fixture
        fixture.lead(tp())
        sent = batch(2, producer_id=9, producer_epoch=0, base_sequence=0)
        fixture.produce({tp(): sent})
        for _ in range(5):
            fixture.produce({tp(): batch(1)})
        fixture.delete_records({tp(): 4})
        assert fixture.log_manager.delete_expired_segments()
        target = made.elsewhere(tp())
        sim_disk(fixture).fail("open", path_contains=f"{Path(target.path).name}/t-0/")
        assert await made.moves.alter(tp(), target.path) is ErrorCode.NONE
        await made.until(lambda: not made.moves.moving)
        assert "write a snapshot" in (target.offline_reason or "")
        assert fixture.replicas.find_online("t", 0) is None
        with pytest.raises(ApiError) as refused:
            fixture.replicas.find_partition(tp())
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR

    run(tmp_path, scenario, config=LogConfig(segment_bytes=200), disk=SimDisk(tmp_path))


@pytest.mark.parametrize("size", [400_000, 1_500_000])
def test_batches_that_are_larger_than_a_turn_are_copied_whole(tmp_path: Path, size: int) -> None:
    async def scenario(made: Moving) -> None:
        fixture = made.fixture
        fixture.lead(tp())
        for _ in range(3):
            fixture.produce({tp(): batch(1, size=size)})
        content = read_all(fixture.log(tp()))
        assert read_all(await made.move(tp())) == content

    run(tmp_path, scenario, config=LogConfig(max_message_bytes=2_000_000))
