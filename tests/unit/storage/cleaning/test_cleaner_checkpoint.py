"""The cleaner's checkpoint: never above the end of a log that grows later, whatever crashes."""

import itertools
from pathlib import Path
from typing import Literal

import pytest

from odradek.model import TopicPartition
from odradek.storage.cleaning.checkpoint import CLEANER_OFFSET_FILE
from odradek.storage.cleaning.config import CleanerConfig
from odradek.storage.directories.checkpoints import OffsetCheckpointFile
from odradek.storage.directories.log_manager import LogManager
from odradek.storage.log.config import LogManagerConfig
from odradek.testing import SimDisk, SimulatedCrash
from tests.support.cleaning import COMPACTED, CleaningFixture
from tests.support.log_scenarios import append_leader
from tests.support.logs import PARTITION, batch, make_services


def on_disk(fixture: CleaningFixture) -> dict[TopicPartition, int]:
    path = Path(fixture.log_directory.path, CLEANER_OFFSET_FILE)
    return OffsetCheckpointFile(str(path), fixture.disk).read()


def cleaned(fixture: CleaningFixture, segments: int = 3) -> None:
    """Segments of two records, all but the active one clean."""
    for number in range(segments):
        fixture.produce((b"a", b"%d" % number), (b"%d" % number, b"x"))
        fixture.roll()
    fixture.clean()


def grow(fixture: CleaningFixture) -> None:
    """A key whose last record is where the log was clean once, then another one."""
    for number in range(8):
        append_leader(fixture.opened, batch(key=b"same" if number < 3 else b"other"))
        fixture.roll()


def test_a_pass_raises_it_and_a_start_reads_it(tmp_path: Path) -> None:
    with CleaningFixture(tmp_path) as fixture:
        fixture.open()
        cleaned(fixture)
        assert on_disk(fixture) == {PARTITION: 6}
        log = fixture.reopen(clean=False)
        assert fixture.cleaner.first_dirty.get(log) == 6
        fixture.commit()
        fixture.clean()
        assert fixture.cleaner.stats.passes == 0


def test_a_truncation_lowers_it(tmp_path: Path) -> None:
    with CleaningFixture(tmp_path) as fixture:
        log = fixture.open()
        cleaned(fixture)
        log.truncate_to(6)
        assert on_disk(fixture) == {PARTITION: 6}, "nothing to truncate"
        log.truncate_to(5)
        assert on_disk(fixture) == {PARTITION: 5}
        log.truncate_fully_and_start_at(2)
        assert on_disk(fixture) == {PARTITION: 2}
        log.truncate_fully_and_start_at(90)
        assert on_disk(fixture) == {PARTITION: 2}, "below the log start: it counts for nothing"


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["drop", "keep"])
@pytest.mark.parametrize("how", ["truncate", "restart"])
def test_a_log_that_grows_again_after_a_crash_is_dirty_from_there(
    mode: Literal["drop", "keep"], how: str, tmp_path: Path
) -> None:
    """At whatever operation of the truncation, or of the start after it, the machine stops."""
    for point in itertools.count():
        path = tmp_path / f"{point}"
        path.mkdir()
        disk = SimDisk(path)
        with CleaningFixture(path, disk=disk) as fixture:
            log = fixture.open()
            cleaned(fixture)
            log.flush()
            disk.crash_at(point)
            try:
                if how == "truncate":
                    log.truncate_to(3)
                else:
                    log.truncate_fully_and_start_at(3)
            except SimulatedCrash:
                is_over = False
            else:
                is_over = True
            disk.heal()
            fixture.abandon()
            disk.crash(mode=mode)
            # A start that crashes at its own first operations, then one that does not.
            for start_point in (0, 3, None):
                if start_point is not None:
                    disk.crash_at(start_point)
                try:
                    log = fixture.open()
                except SimulatedCrash:
                    fixture.log_directory.logs.clear()
                    disk.crash(mode=mode)
            end = log.log_end_offset
            is_truncated = end <= 3
            fixture.commit()
            grow(fixture)
            log = fixture.reopen(clean=False)
            fixture.commit()
            first_dirty = fixture.cleaner.first_dirty.get(log)
            assert first_dirty is None or first_dirty <= end
            fixture.clean()
            kept = [offset for offset, key, _ in fixture.records() if key == b"same"]
            assert kept == [end + 2], f"crash point {point}"
            if is_over:
                assert is_truncated
                assert point > 3
                return


@pytest.mark.parametrize("mode", ["drop", "keep"])
def test_a_log_that_grew_before_the_crash_is_dirty_from_there(
    mode: Literal["drop", "keep"], tmp_path: Path
) -> None:
    """The log is longer than the checkpoint was high: nothing else gives the truncation away."""
    disk = SimDisk(tmp_path)
    with CleaningFixture(tmp_path, disk=disk) as fixture:
        log = fixture.open()
        cleaned(fixture)
        log.truncate_to(3)
        grow(fixture)
        log.flush()
        fixture.abandon()
        disk.crash(mode=mode)
        log = fixture.open()
        assert log.log_end_offset == 11
        fixture.commit()
        fixture.clean()
        assert [offset for offset, key, _ in fixture.records() if key == b"same"] == [5]


def test_entries_that_no_log_can_have_are_struck_at_the_start(tmp_path: Path) -> None:
    """Before the first append: a log that grew past them would hide records from compaction."""
    with CleaningFixture(tmp_path) as fixture:
        fixture.open()
        cleaned(fixture)
        path = Path(fixture.log_directory.path, CLEANER_OFFSET_FILE)
        path.write_text("0\n2\nother 3 17\nt 0 7\n")
        log = fixture.reopen(clean=False)
        assert fixture.cleaner.first_dirty.get(log) is None
        assert path.read_text() == "0\n0\n"


def test_a_spoilt_file_means_that_everything_is_dirty(tmp_path: Path) -> None:
    with CleaningFixture(tmp_path) as fixture:
        fixture.open()
        cleaned(fixture)
        path = Path(fixture.log_directory.path, CLEANER_OFFSET_FILE)
        path.write_text("1\nnonsense\n")
        log = fixture.reopen(clean=False)
        assert fixture.cleaner.first_dirty.get(log) is None
        assert path.read_text() == "0\n0\n"


def test_an_older_write_that_comes_late_changes_nothing(tmp_path: Path) -> None:
    with CleaningFixture(tmp_path) as fixture:
        log = fixture.open()
        cleaned(fixture)
        late = fixture.cleaner.first_dirty.raise_to(log, 6)
        log.truncate_to(5)
        late()
        assert on_disk(fixture) == {PARTITION: 5}


def test_a_deleted_partition_takes_its_entry_along(tmp_path: Path) -> None:
    """And the manager compacts what it loads, creates and is told to."""
    services = make_services()
    config = LogManagerConfig(cleaner=CleanerConfig(dedupe_buffer_bytes=2_400))
    manager = LogManager(
        [str(tmp_path)], services=services, config=config, default_log_config=COMPACTED
    )
    manager.startup()
    try:
        log = manager.get_or_create_log(PARTITION)
        for _ in range(2):
            append_leader(log, batch(2))
            log.roll()
            log.update_high_watermark(log.log_end_offset)
        manager.cleaner.run()
        assert log.size_in_bytes < len(batch(2))
        path = tmp_path / CLEANER_OFFSET_FILE
        assert path.read_text() == "0\n1\nt 0 4\n"
        log.truncate_to(3)
        assert path.read_text() == "0\n1\nt 0 3\n"
        manager.delete_log(PARTITION)
        assert path.read_text() == "0\n0\n"
        log = manager.get_or_create_log(PARTITION)
        assert manager.cleaner.first_dirty.get(log) is None
    finally:
        manager.shutdown()
