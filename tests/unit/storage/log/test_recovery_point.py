"""The recovery point is what was synced (01 §8.1), whatever else happens to the log.

Seeded machine crashes on a `SimDisk`: any part of what was not synced may have reached the disk.
"""

from pathlib import Path
from random import Random

import pytest

from odradek.storage.log.config import LogConfig
from odradek.storage.log.log import Log
from odradek.storage.log.retention import delete_old_segments
from odradek.testing import SimDisk
from tests.support.log_scenarios import DeferredTasks
from tests.support.logs import PARTITION, LogFixture, batch, offsets, read_all

# Pages of 4 KB are lost one by one, so a batch should be of that order.
CONFIG = LogConfig(
    segment_bytes=40_000, index_interval_bytes=4_096, segment_index_bytes=4_800, retention_bytes=-1
)


class Crashed:
    """A log that a machine crash ended, and what had been promised of it."""

    def __init__(self, path: Path, seed: int) -> None:
        path.mkdir()
        self._disk = SimDisk(path)
        self._random = Random(seed)
        self.fixture = LogFixture(path, disk=self._disk, config=CONFIG)
        self._tasks = DeferredTasks(self.fixture.clock)
        object.__setattr__(self.fixture.services, "tasks", self._tasks)
        self.synced = 0
        self.log = self.fixture.open()

    def append(self, batches: int) -> None:
        for _ in range(batches):
            size = self._random.choice([200, 3_000, 9_000])
            self.log.append_as_leader(batch(size=size), leader_epoch=0)
        self.log.update_high_watermark(self.log.log_end_offset)

    def flush(self) -> None:
        self.log.flush()
        self.synced = self.log.log_end_offset

    def delete_records(self) -> None:
        """Hides all but the newest batches, as DeleteRecords does, and lets retention see it."""
        self.log.maybe_increment_log_start_offset(self.log.log_end_offset - 3)
        if self._random.random() < 0.5:
            delete_old_segments(self.log)
        self.checkpoint()

    def checkpoint(self) -> None:
        self.fixture.log_directory.checkpoint_recovery_points()
        self.fixture.log_directory.checkpoint_log_starts()

    def crash(self) -> None:
        self.fixture.abandon()
        self._disk.crash(self._random, mode="torn")

    def load(self) -> Log:
        directory = self.fixture.log_directory
        recovery_point = directory.read_recovery_points().get(PARTITION, 0)
        assert recovery_point <= self.synced
        self.log = self.fixture.open(
            recovery_point=recovery_point,
            log_start_offset=directory.read_log_starts().get(PARTITION, 0),
        )
        assert self.log.recovery_point <= self.synced, "it rises by a flush, and only by a flush"
        return self.log

    def assert_no_hole(self) -> None:
        log = self.log
        found = offsets(read_all(log))
        assert found == list(range(log.log_start_offset, log.log_end_offset))
        assert log.log_end_offset >= self.synced


@pytest.mark.slow
@pytest.mark.parametrize("first_seed", range(0, 100, 50))
def test_no_crash_after_records_were_deleted_leaves_a_hole(first_seed: int, tmp_path: Path) -> None:
    for seed in range(first_seed, first_seed + 50):
        crashed = Crashed(tmp_path / str(seed), seed)
        with crashed.fixture:
            crashed.append(4)
            if seed % 2:
                crashed.flush()
                crashed.checkpoint()
            crashed.append(20)
            crashed.delete_records()
            crashed.append(6)
            crashed.crash()

            crashed.load()
            crashed.assert_no_hole()

            # What was found is not synced yet: another crash may take it, and must leave no hole.
            crashed.append(2)
            if seed % 3 == 0:
                crashed.checkpoint()
            crashed.crash()
            crashed.load()
            crashed.assert_no_hole()


def test_what_flush_returned_for_is_there_although_the_log_start_had_passed_it(
    tmp_path: Path,
) -> None:
    """The name of a segment is synced by the first flush that reaches it."""
    for seed in range(20):
        crashed = Crashed(tmp_path / str(seed), seed)
        with crashed.fixture:
            crashed.append(4)
            crashed.log.maybe_increment_log_start_offset(4)
            crashed.log.roll()
            crashed.append(2)
            crashed.log.maybe_increment_log_start_offset(5)
            crashed.flush()
            crashed.checkpoint()
            crashed.crash()

            assert offsets(read_all(crashed.load())) == [5]


def test_it_does_not_rise_while_a_log_is_loaded_after_an_unclean_stop(tmp_path: Path) -> None:
    """01:LOAD-11."""
    with LogFixture(tmp_path) as fixture:
        fixture.open()
        fixture.append(10)
        fixture.abandon()
        log = fixture.open(recovery_point=2, log_start_offset=7)
        assert (log.log_start_offset, log.recovery_point) == (7, 2)
