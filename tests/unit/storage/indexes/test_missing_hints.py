"""Files that can be made again are removed behind a running log: no failure of its disk.

01 §8.7: a missing optional file is not an error. Only the `.log` files cannot be made again.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.files import Disk
from odradek.records.builder import build_batch
from odradek.storage.directories.partition_directories import remove_directory
from odradek.storage.log.config import LogConfig
from odradek.storage.log.log import Log
from odradek.storage.log.retention import delete_old_segments
from tests.support.logs import T0, LogFixture, offsets, read_all

CONFIG = LogConfig(
    segment_bytes=2_000, index_interval_bytes=100, segment_index_bytes=4_800, retention_bytes=3_000
)


def append(log: Log, count: int, first_sequence: int) -> None:
    """Batches of one producer, so that there are snapshots."""
    for number in range(first_sequence, first_sequence + count):
        log.append_as_leader(
            build_batch(
                [(T0, b"k", b"v" * 100, ())],
                producer_id=7,
                producer_epoch=0,
                base_sequence=number,
            ),
            leader_epoch=0,
        )
    log.update_high_watermark(log.log_end_offset)


def roll(log: Log) -> None:
    log.roll()


def apply_retention(log: Log) -> None:
    assert delete_old_segments(log) > 0
    append(log, 40, 60)


def truncate(log: Log) -> None:
    log.truncate_to(55)


def close(log: Log) -> None:
    log.close()


@pytest.mark.parametrize("act", [Log.flush, roll, apply_retention, truncate, close])
@pytest.mark.parametrize(
    "suffixes",
    [(".index",), (".timeindex",), (".snapshot",), (".index", ".timeindex", ".snapshot")],
    ids="+".join,
)
@pytest.mark.parametrize("is_loaded", [True, False], ids=["open", "not-open"])
def test_a_hint_that_is_gone_takes_no_directory_offline(
    act: Callable[[Log], None], suffixes: tuple[str, ...], is_loaded: bool, tmp_path: Path
) -> None:
    with LogFixture(tmp_path, config=CONFIG) as fixture:
        log = fixture.open()
        append(log, 60, 0)
        if not is_loaded:  # Indexes are opened by the first look-up.
            log = fixture.reopen(clean=True)
            log.update_high_watermark(log.log_end_offset)
        for name in fixture.names():
            if name.endswith(suffixes):
                fixture.path(name).unlink()
        act(log)
        assert fixture.log_directory.is_online
        end = log.log_end_offset
        assert fixture.reopen(clean=True).log_end_offset == end
        assert fixture.log is not None
        assert offsets(read_all(fixture.log)) == list(range(fixture.log.log_start_offset, end))


def test_a_directory_is_removed_although_its_files_vanish_meanwhile(tmp_path: Path) -> None:
    """A segment's own delayed removal may come first."""

    class Racing(Disk):
        def unlink(self, path: str) -> None:
            os.unlink(path)
            super().unlink(path)

        def rmdir(self, path: str) -> None:
            os.rmdir(path)
            super().rmdir(path)

    directory = tmp_path / "t-0"
    directory.mkdir()
    (directory / "x.log.deleted").touch()
    remove_directory(Racing(), str(directory))
    assert not directory.exists()
