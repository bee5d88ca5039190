"""A million commits to one partition of `__consumer_offsets`: it stays as large as its groups.

08:P-7.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from odradek.coordinator.group.records import (
    OffsetAndMetadata,
    encode_offset_key,
    encode_offset_value,
)
from odradek.records.builder import build_batch
from odradek.storage.cleaning.config import CleanerConfig
from tests.support.cleaning import COMPACTED, CleaningFixture
from tests.support.log_scenarios import append_leader, records_of
from tests.support.logs import T0, read_all

COMMITS = 1_000_000
PER_BATCH = 100
BATCHES_BETWEEN_PASSES = 500
SEGMENT_BYTES = 1 << 20


@pytest.mark.slow
def test_a_million_commits_take_no_more_room_than_their_groups(tmp_path: Path) -> None:
    keys = [encode_offset_key(f"group-{n % 50}", "topic", n // 50) for n in range(500)]
    values = [
        encode_offset_value(OffsetAndMetadata(offset, leader_epoch=1, metadata="", commit_ms=T0))
        for offset in range(1_000)
    ]
    config = replace(COMPACTED, segment_bytes=SEGMENT_BYTES, min_cleanable_dirty_ratio=0.5)
    cleaner = CleanerConfig(dedupe_buffer_bytes=1 << 20)
    last: dict[bytes | None, bytes | None] = {}
    largest = 0
    with CleaningFixture(tmp_path, config=config, cleaner_config=cleaner) as fixture:
        log = fixture.open()
        for number in range(COMMITS // PER_BATCH):
            first = number * PER_BATCH
            commits = [
                (keys[n * 7 % 500], values[n * 31 % 1_000]) for n in range(first, first + PER_BATCH)
            ]
            last.update(commits)
            records = [(T0, key, value, ()) for key, value in commits]
            append_leader(log, build_batch(records))
            if number % BATCHES_BETWEEN_PASSES == BATCHES_BETWEEN_PASSES - 1:
                fixture.commit()
                fixture.clean()
                largest = max(largest, log.size_in_bytes)
        found = {r.key: r.value for r in records_of(read_all(log))}
    assert log.log_end_offset == COMMITS
    assert found == last
    # What is live, the active segment, and what is dirty below half of all.
    live = sum(len(key or b"") + len(value or b"") + 80 for key, value in last.items())
    assert largest < 2 * live + 3 * SEGMENT_BYTES
