"""Witnesses of rolls (01 sections 8.4 and 9.6): no crash of the machine leaves a hole in a log."""

import errno
import itertools
import logging
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from odradek.errors import StorageError
from odradek.storage.log.config import LogConfig
from odradek.storage.log.log import Log
from odradek.storage.log.roll_witnesses import RollWitnesses
from odradek.storage.segments.replacement import swap_segments
from odradek.testing import SimDisk, SimulatedCrash
from tests.support.log_scenarios import DeferredTasks, append_follower, bases
from tests.support.logs import LogFixture, batch, offsets, read_all, rename_directory

# Small indexes: a crash looks at every page of them.
CONFIG = LogConfig(segment_index_bytes=1_200)


def witness(base: int, end: int) -> str:
    return f"{base:020d}.{end:020d}.rolled"


def witnesses(fixture: LogFixture) -> list[str]:
    return sorted(name for name in fixture.names() if name.endswith(".rolled"))


def deferred(path: Path, disk: SimDisk | None = None) -> tuple[LogFixture, DeferredTasks]:
    """A log whose background flushes wait for the test."""
    fixture = LogFixture(path, disk=disk, config=CONFIG)
    tasks = DeferredTasks(fixture.clock)
    fixture.services = replace(fixture.services, tasks=tasks)
    return fixture, tasks


@pytest.fixture
def fixture(tmp_path: Path) -> Iterator[LogFixture]:
    fixture, tasks = deferred(tmp_path)
    with fixture:
        yield fixture
        tasks.run()  # Closes its descriptors.


@pytest.fixture
def tasks(fixture: LogFixture) -> DeferredTasks:
    tasks = fixture.services.tasks
    assert isinstance(tasks, DeferredTasks)
    return tasks


def two_segments(fixture: LogFixture) -> Log:
    """Offsets 0 to 4 and 5 to 9, neither on disk."""
    log = fixture.open()
    fixture.append(5, size=1_000)
    log.roll()
    fixture.append(5, size=1_000)
    return log


def shorten_first_segment(fixture: LogFixture, batches: int) -> None:
    """What a crash may leave of it: a file that ends between two batches."""
    os.truncate(fixture.path(f"{0:020d}.log"), batches * 1_000)


class TestCrashes:
    @pytest.mark.slow
    def test_no_crash_leaves_a_hole(self, tmp_path: Path) -> None:
        """Of 300 crashes 30 did without the witness."""
        lengths = set()
        for seed in range(300):
            path = tmp_path / str(seed)
            path.mkdir()
            disk = SimDisk(path)
            fixture, _ = deferred(path, disk)
            with fixture:
                two_segments(fixture)
                fixture.abandon()
                disk.crash(Random(seed), mode="torn")

                log = fixture.open()

                found = offsets(read_all(log))
                assert found == list(range(len(found))), seed
                assert log.log_end_offset == len(found)
                lengths.add(len(found))
        assert {0, 1, 4, 5, 10} <= lengths

    @pytest.mark.slow
    def test_nor_does_a_second_crash(self, tmp_path: Path) -> None:
        """A recovery does not sync: the witness is needed until a flush."""
        lengths = set()
        for seed in range(60):
            path = tmp_path / str(seed)
            path.mkdir()
            disk = SimDisk(path)
            fixture, _ = deferred(path, disk)
            with fixture:
                two_segments(fixture)
                disk.fsync_dir(fixture.directory)
                fixture.abandon()
                disk.kill()
                assert offsets(read_all(fixture.open())) == list(range(10))
                fixture.abandon()
                disk.crash(Random(seed), mode="torn")

                found = offsets(read_all(fixture.open()))

                assert found == list(range(len(found))), seed
                lengths.add(len(found))
        assert len(lengths) > 3

    def test_nor_does_a_crash_while_the_later_segments_are_dropped(self, tmp_path: Path) -> None:
        for step in itertools.count():
            path = tmp_path / str(step)
            path.mkdir()
            disk = SimDisk(path)
            fixture, _ = deferred(path, disk)
            with fixture:
                log = two_segments(fixture)
                log.roll()
                fixture.append(1)
                fixture.abandon()
                disk.kill()
                shorten_first_segment(fixture, 3)
                disk.settle()
                disk.crash_at(step)
                try:
                    fixture.open()
                except SimulatedCrash:
                    is_done = False
                else:
                    is_done = True
                    disk.heal()
                fixture.abandon()
                disk.crash(Random(step), mode="torn")

                assert offsets(read_all(fixture.open())) == [0, 1, 2]
                assert bases(fixture.open()) == [0]
            if is_done:
                break


class TestLife:
    def test_a_roll_leaves_one_until_the_flush_is_done(
        self, fixture: LogFixture, tasks: DeferredTasks
    ) -> None:
        two_segments(fixture)
        assert witnesses(fixture) == [witness(5, 5)]

        tasks.run()

        assert witnesses(fixture) == []

    def test_it_is_there_before_the_new_segment(self, tmp_path: Path) -> None:
        """Names become durable in order, so this is what makes a sync needless."""
        disk = SimDisk(tmp_path)
        fixture, _ = deferred(tmp_path, disk)
        with fixture:
            log = fixture.open()
            fixture.append(2)
            disk.operations.clear()
            log.roll()

            made = [path for operation, path in disk.operations if operation == "open"]
            new = [Path(path).name for path in made if Path(path).name.startswith(f"{2:020d}.")]
            assert new[0] == witness(2, 2)
            assert f"{2:020d}.log" in new[1:]
            fixture.abandon()
            disk.kill()

    def test_any_flush_that_passes_it_will_do(self, fixture: LogFixture) -> None:
        log = two_segments(fixture)
        log.flush(4)
        assert witnesses(fixture) == [witness(5, 5)]

        log.flush(5)

        assert witnesses(fixture) == []

    def test_what_was_flushed_needs_none(self, fixture: LogFixture) -> None:
        log = fixture.open()
        fixture.append(3)
        log.flush()
        log.roll()

        assert witnesses(fixture) == []

    def test_a_gap_in_front_of_the_new_segment(
        self, fixture: LogFixture, tasks: DeferredTasks
    ) -> None:
        """A follower's offsets may jump; the flush up to the end of the records counts."""
        log = fixture.open()
        append_follower(log, (0, 9))
        log.roll(12)
        assert witnesses(fixture) == [witness(12, 10)]

        tasks.run()

        assert log.recovery_point == 10
        assert witnesses(fixture) == []

    def test_a_log_end_in_a_gap_is_not_the_end_of_the_records(self, fixture: LogFixture) -> None:
        log = fixture.open()
        append_follower(log, (0, 4), (8, 9))
        log.truncate_to(7)
        log.roll()
        append_follower(log, (7, 7))
        assert witnesses(fixture) == [witness(7, 5)]
        fixture.abandon()

        log = fixture.open()

        assert offsets(read_all(log)) == [0, 1, 2, 3, 4, 7]

    def test_it_goes_with_its_segment(self, fixture: LogFixture, tasks: DeferredTasks) -> None:
        log = two_segments(fixture)
        log.truncate_to(7)
        assert witnesses(fixture) == [witness(5, 5)]

        log.truncate_to(4)

        assert witnesses(fixture) == []
        fixture.append(1)
        log.roll()
        assert witnesses(fixture) == [witness(5, 5)]
        tasks.submitted[0][0]()
        tasks.submitted.pop(0)[1](None)  # The flush of what is not there any more.
        assert witnesses(fixture) == [witness(5, 5)]
        tasks.run()
        assert witnesses(fixture) == []

    def test_it_goes_with_the_whole_log(self, fixture: LogFixture) -> None:
        log = two_segments(fixture)
        log.truncate_fully_and_start_at(5)

        assert witnesses(fixture) == []

    def test_it_stays_when_its_empty_segment_is_made_again(self, fixture: LogFixture) -> None:
        log = fixture.open()
        fixture.append(5)
        log.roll()
        log.roll()

        assert bases(log) == [0, 5]
        assert witnesses(fixture) == [witness(5, 5)]

    def test_it_follows_its_directory(self, fixture: LogFixture, tasks: DeferredTasks) -> None:
        log = two_segments(fixture)
        rename_directory(log, "t-0.0123456789abcdef0123456789abcdef-stray")
        log.flush()

        assert not any(name.endswith(".rolled") for name in os.listdir(log.directory))

    @pytest.mark.parametrize("in_background", [True, False])
    def test_one_that_cannot_be_removed_is_a_failure_of_the_disk(
        self, tmp_path: Path, in_background: bool
    ) -> None:
        disk = SimDisk(tmp_path)
        fixture, tasks = deferred(tmp_path, disk)
        with fixture:
            log = two_segments(fixture)
            disk.fail("unlink", path_contains=".rolled", error=errno.EIO)
            if in_background:
                tasks.run()
            else:
                with pytest.raises(StorageError):
                    log.flush()

            assert not log.log_directory.is_online
            disk.kill()

    def test_one_that_was_removed_by_hand_is_not_missed(self, fixture: LogFixture) -> None:
        log = two_segments(fixture)
        fixture.path(witness(5, 5)).unlink()
        log.flush()

        assert log.recovery_point == 10


class TestReplacement:
    """A replacement is synced, and may rightly end before what it replaces did."""

    def test_it_makes_the_witness_behind_it_needless(self, fixture: LogFixture) -> None:
        log = two_segments(fixture)
        old = log.segments.first
        assert old is not None
        swap_segments(
            log.segments,
            [log.new_segment(0, stage=".cleaned")],
            [old],
            witnesses=log.witnesses,
            disk=fixture.disk,
            directory=log.directory,
        )
        old.delete_if_exists()
        assert witnesses(fixture) == []
        fixture.abandon()

        log = fixture.open()

        assert offsets(read_all(log)) == [5, 6, 7, 8, 9]

    def test_one_of_a_segment_that_was_merged_goes_too(self, fixture: LogFixture) -> None:
        log = two_segments(fixture)
        log.roll()
        assert witnesses(fixture) == [witness(5, 5), witness(10, 10)]
        old = list(log.segments)[:2]
        new = log.new_segment(0, stage=".cleaned")
        for segment in swap_segments(
            log.segments,
            [new],
            old,
            witnesses=log.witnesses,
            disk=fixture.disk,
            directory=log.directory,
        ):
            segment.delete_if_exists()

        assert witnesses(fixture) == []

    def test_so_does_one_that_a_start_completes(self, fixture: LogFixture) -> None:
        two_segments(fixture)
        fixture.abandon()
        fixture.path(f"{0:020d}.log.swap").write_bytes(batch(base_offset=2))

        log = fixture.open()

        assert witnesses(fixture) == []
        assert offsets(read_all(log)) == [2, 5, 6, 7, 8, 9]


class TestLoading:
    def test_a_segment_that_lost_its_end_ends_the_log(
        self, fixture: LogFixture, caplog: pytest.LogCaptureFixture
    ) -> None:
        two_segments(fixture)
        fixture.abandon()
        shorten_first_segment(fixture, 3)

        with caplog.at_level(logging.WARNING):
            log = fixture.open()

        assert (bases(log), log.log_end_offset) == ([0], 3)
        assert [record.message.partition(".log: ")[2] for record in caplog.records] == [
            "ends at offset 3, but the roll to 5 left it at 5: dropped 1 later segments,"
            " the log would have a hole"
        ]
        assert {name for name in fixture.names() if name.startswith(f"{5:020d}")} == set()

    def test_so_does_one_that_lost_everything(self, fixture: LogFixture) -> None:
        two_segments(fixture)
        fixture.abandon()
        shorten_first_segment(fixture, 0)

        log = fixture.open()

        assert (bases(log), log.log_end_offset) == ([0], 0)

    def test_a_whole_one_keeps_its_witness_until_a_flush(self, fixture: LogFixture) -> None:
        two_segments(fixture)
        fixture.abandon()
        log = fixture.open()
        assert log.log_end_offset == 10
        assert witnesses(fixture) == [witness(5, 5)]

        log.flush()

        assert witnesses(fixture) == []

    @pytest.mark.parametrize(
        ("recovery_point", "log_start_offset"), [(5, 0), (2, 5)], ids=["recovery point", "start"]
    )
    def test_what_must_be_kept_or_is_not_seen_ends_nothing(
        self, fixture: LogFixture, recovery_point: int, log_start_offset: int
    ) -> None:
        two_segments(fixture)
        fixture.abandon()
        shorten_first_segment(fixture, 3)

        log = fixture.open(recovery_point=recovery_point, log_start_offset=log_start_offset)

        assert bases(log) == [0, 5]
        assert log.log_end_offset == 10

    def test_after_a_clean_stop_all_go(self, fixture: LogFixture) -> None:
        two_segments(fixture)
        recovery_point = fixture.close()
        assert witnesses(fixture) == []
        fixture.path(witness(5, 99)).touch()

        log = fixture.open(clean=True, recovery_point=recovery_point)

        assert witnesses(fixture) == []
        assert log.log_end_offset == 10

    def test_one_without_a_segment_goes(self, fixture: LogFixture) -> None:
        """A crash came between the witness and the segment."""
        fixture.open()
        fixture.append(2)
        fixture.abandon()
        fixture.path(witness(2, 2)).touch()

        assert fixture.open().log_end_offset == 2
        assert witnesses(fixture) == []

    def test_of_two_the_later_counts(self, fixture: LogFixture) -> None:
        two_segments(fixture)
        fixture.abandon()
        fixture.path(witness(5, 4)).touch()

        fixture.open()

        assert witnesses(fixture) == [witness(5, 5)]

    def test_other_names_are_left_alone(self, fixture: LogFixture) -> None:
        two_segments(fixture)
        fixture.abandon()
        names = ["5.5.rolled", f"{5:020d}.rolled", f"{5:020d}.{9:020d}.rolled.old"]
        for name in names:
            fixture.path(name).touch()
        found = RollWitnesses(fixture.directory, disk=fixture.disk)

        found.load(fixture.names())

        assert found.end_before(5) == 5
        assert set(names) <= fixture.names()
