"""10 section 8.4: a thread writes the snapshot of many producers, while their log goes on."""

import dataclasses
import itertools
import threading
import time
from pathlib import Path
from random import Random
from typing import Literal

import pytest

from odradek.files import Disk
from odradek.model import AppendOrigin
from odradek.storage.log.log import Log
from odradek.storage.log.retention import delete_old_segments
from odradek.storage.producers import snapshot_files
from odradek.storage.producers.entry import ProducerEntry
from odradek.storage.producers.snapshot import load_snapshot
from odradek.storage.producers.views import ProducerView
from odradek.testing import SimDisk, SimulatedCrash
from tests.support.held_tasks import HeldTasks
from tests.support.logs import LogFixture, batch, file_names

PRODUCERS = 12
Facts = dict[int, tuple[object, ...]]


@pytest.fixture(autouse=True)
def _few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_files, "MAX_WRITTEN_AT_ONCE", PRODUCERS - 1)


class Held:
    """A log whose background work is done when a test says so."""

    def __init__(self, fixture: LogFixture) -> None:
        self.fixture = fixture
        self.tasks = HeldTasks()
        fixture.services = dataclasses.replace(fixture.services, tasks=self.tasks)
        self.log = fixture.open()
        self.sequences = dict.fromkeys(range(PRODUCERS), 0)

    def append(self, producer_id: int) -> None:
        sequence = self.sequences.get(producer_id, 0)
        records = batch(2, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
        self.log.append_unreplicated(records, 0, AppendOrigin.CLIENT)
        self.sequences[producer_id] = sequence + 2

    def fill(self) -> Facts:
        """Each producer writes seven batches; then the log rolls."""
        for producer_id in range(PRODUCERS):
            for _ in range(7):
                self.append(producer_id)
        before = facts(self.log)
        self.log.roll()
        return before

    @property
    def names(self) -> set[str]:
        return {name for name in file_names(self.log.directory) if not name.endswith(".deleted")}


def facts(log: Log) -> Facts:
    return {
        entry.producer_id: (
            entry.producer_epoch,
            entry.last_timestamp,
            entry.current_transaction_first_offset,
            tuple(entry.batches),
        )
        for entry in log.producer_state.producers.values()
    }


def loaded(log: Log, offset: int) -> Facts:
    entries = load_snapshot(log.services.disk, log.directory, offset)
    return {
        entry.producer_id: (
            entry.producer_epoch,
            entry.last_timestamp,
            entry.current_transaction_first_offset,
            tuple(entry.batches),
        )
        for entry in entries
    }


def snapshot_name(offset: int) -> str:
    return f"{offset:020d}.snapshot"


def test_what_is_appended_meanwhile_is_not_in_it(tmp_path: Path) -> None:
    """Nor does the log lose it: a duplicate is recognised before and after."""
    with LogFixture(tmp_path) as fixture:
        held = Held(fixture)
        before = held.fill()
        base = held.log.log_end_offset
        for producer_id in (3, 5, 3, PRODUCERS):
            held.append(producer_id)
        held.log.roll()
        second, later = facts(held.log), held.log.log_end_offset
        held.append(5)
        assert snapshot_name(base) not in held.names
        assert held.log.recovery_point == 0

        held.tasks.run_all()

        assert loaded(held.log, base) == before
        assert loaded(held.log, later) == second
        assert held.log.recovery_point == later
        repeated = batch(2, producer_id=3, producer_epoch=0, base_sequence=held.sequences[3] - 2)
        assert held.log.append_as_leader(repeated, leader_epoch=0).is_duplicate
        held.append(3)
        assert not held.log.producer_state.views


def test_an_entry_is_copied_once_and_only_while_it_is_read(tmp_path: Path) -> None:
    with LogFixture(tmp_path) as fixture:
        held = Held(fixture)
        held.fill()
        producers = held.log.producer_state.producers
        first, other = producers[3], producers[4]
        held.append(3)
        copy = producers[3]
        assert copy is not first
        held.append(3)
        assert producers[3] is copy
        held.tasks.run_all()
        held.append(4)
        assert producers[4] is other


def test_appends_beside_the_thread_that_writes_do_not_tear_it(tmp_path: Path) -> None:
    """The thread encodes while the log appends, of the same producers, again and again."""
    with LogFixture(tmp_path) as fixture:
        held = Held(fixture)
        for _ in range(20):
            before = held.fill()
            base = held.log.log_end_offset
            work, done = held.tasks.waiting.popleft()
            thread = threading.Thread(target=work)
            thread.start()
            for producer_id in range(PRODUCERS):
                held.append(producer_id)
            thread.join()
            done(None)
            assert loaded(held.log, base) == before


@pytest.mark.parametrize("is_written", [False, True])
def test_a_truncation_below_it_removes_it(tmp_path: Path, is_written: bool) -> None:
    with LogFixture(tmp_path) as fixture:
        held = Held(fixture)
        held.fill()
        base = held.log.log_end_offset
        if is_written:
            held.tasks.run_all()
        held.log.truncate_to(base - 1)
        held.tasks.run_all()
        assert snapshot_name(base) not in held.names
        assert not any(name.endswith(".recent") for name in held.names)
        assert {len(entry.batches) for entry in held.log.producer_state.producers.values()} == {5}


def test_a_restart_of_the_log_elsewhere_removes_it(tmp_path: Path) -> None:
    with LogFixture(tmp_path) as fixture:
        held = Held(fixture)
        held.fill()
        held.log.truncate_fully_and_start_at(7)
        held.tasks.run_all()
        assert not any(name.endswith((".snapshot", ".recent")) for name in held.names)
        assert not held.log.producer_state.producers


def test_records_are_deleted_when_it_is_written(tmp_path: Path) -> None:
    """It is all that is left of producers whose records are deleted, also after a kill."""
    with LogFixture(tmp_path) as fixture:
        held = Held(fixture)
        before = held.fill()
        base = held.log.log_end_offset
        held.log.maybe_increment_log_start_offset(base)
        assert delete_old_segments(held.log) == 0
        held.tasks.run_all()
        assert delete_old_segments(held.log) == 1

        fixture.abandon()
        log = fixture.open(clean=False, log_start_offset=base)

        assert facts(log).keys() == before.keys()


def test_a_log_without_visible_records_keeps_its_last_segment_until_then(tmp_path: Path) -> None:
    with LogFixture(tmp_path) as fixture:
        held = Held(fixture)
        for producer_id in range(PRODUCERS):
            held.append(producer_id)
        held.log.config = dataclasses.replace(held.log.config, retention_bytes=0)
        assert delete_old_segments(held.log) == 0  # It has rolled.
        held.tasks.run_all()
        assert delete_old_segments(held.log) == 1
        assert snapshot_name(held.log.log_end_offset) in held.names


def test_it_follows_a_renamed_directory(tmp_path: Path) -> None:
    """And leaves the directory alone that has the old name now."""
    with LogFixture(tmp_path) as fixture:
        held = Held(fixture)
        before = held.fill()
        old, new = Path(held.log.directory), tmp_path / "t-0.moved"
        old.rename(new)
        held.log.follow_directory(str(new))
        old.mkdir()
        held.tasks.run_all()
        assert loaded(held.log, held.log.log_end_offset) == before
        assert not list(old.iterdir())


def test_a_log_that_is_removed_gets_none(tmp_path: Path) -> None:
    with LogFixture(tmp_path) as fixture:
        held = Held(fixture)
        held.fill()
        held.log.retire("the topic is deleted")
        held.tasks.run_all()
        assert not any("snapshot" in name for name in file_names(held.log.directory))
        assert fixture.log_directory.is_online


def test_a_stop_in_order_writes_it(tmp_path: Path) -> None:
    with LogFixture(tmp_path) as fixture:
        held = Held(fixture)
        before = held.fill()
        base = held.log.log_end_offset
        held.append(3)
        held.log.close()
        assert loaded(held.log, base) == before
        held.tasks.run_all()
        assert fixture.log_directory.is_online


@pytest.mark.parametrize("mode", ["drop", "torn", "keep"])
def test_a_crash_at_any_moment_leaves_it_whole_or_not_at_all(
    tmp_path: Path, mode: Literal["drop", "torn", "keep"]
) -> None:
    """And the five last batches of each producer are known, if their records are."""
    for number in itertools.count():
        (tmp_path / str(number)).mkdir()
        disk = SimDisk(tmp_path / str(number))
        fixture = LogFixture(disk.root, disk=disk)
        held = Held(fixture)
        before = held.fill()
        base = held.log.log_end_offset
        disk.crash_at(number)
        work, _ = held.tasks.waiting.popleft()
        try:
            work()
        except SimulatedCrash:
            is_over = False
        else:
            is_over = True
        disk.crash(Random(number), mode=mode)

        log = fixture.open(clean=False)

        if log.log_end_offset == base:
            assert facts(log) == before
        if snapshot_name(base) in file_names(log.directory):
            assert loaded(log, base) == facts(log)
        assert not any("new.deleted" in name for name in file_names(log.directory))
        fixture.close()
        if is_over:
            assert number > 8
            break


def test_a_roll_with_many_producers_is_a_short_turn(tmp_path: Path) -> None:
    """02 section 12. CPU time of the thread that owns the log, as loops measure their turns."""
    count = 30_000
    with LogFixture(tmp_path) as fixture:
        held = Held(fixture)
        for producer_id in range(count):
            held.append(producer_id)
        shortest_ns = 1 << 60
        for _ in range(3):
            held.append(0)
            started_ns = time.thread_time_ns()
            held.log.roll()
            shortest_ns = min(shortest_ns, time.thread_time_ns() - started_ns)
            held.tasks.run_all()
        assert len(loaded(held.log, held.log.log_end_offset)) == count
    assert shortest_ns < 10_000_000, f"{shortest_ns / 1e6:.1f} ms"


def test_one_is_begun_for_each_offset_beyond_the_last(tmp_path: Path) -> None:
    with LogFixture(tmp_path) as fixture:
        held = Held(fixture)
        held.fill()
        state, base = held.log.producer_state, held.log.log_end_offset
        state.begin_snapshot()
        assert [one.offset for one in state.snapshots.unwritten(base)] == [base]
        state.update_map_end_offset(base + 1)
        state.begin_snapshot()
        assert [one.offset for one in state.snapshots.unwritten(base + 1)] == [base, base + 1]
        assert [one.offset for one in state.snapshots.unwritten(base)] == [base]
        assert state.snapshots.unwritten(base - 1) == []


def test_so_many_are_many() -> None:
    assert not snapshot_files.are_many(snapshot_files.MAX_WRITTEN_AT_ONCE)
    assert snapshot_files.are_many(snapshot_files.MAX_WRITTEN_AT_ONCE + 1)


@pytest.mark.parametrize(
    ("first", "last", "kept"),
    [(10, 20, [10, 20]), (11, 20, [20]), (10, 19, [10]), (11, 19, []), (9, 21, [10, 20])],
)
def test_those_outside_of_the_records_are_withdrawn(
    tmp_path: Path, first: int, last: int, kept: list[int]
) -> None:
    files = snapshot_files.SnapshotFiles(Disk(), str(tmp_path))
    for offset in (10, 20):
        files.begin(offset, ProducerView({7: ProducerEntry(7, 0)}))
    files.keep_between(first, last)
    files.finish()
    assert files.offsets() == kept
