"""Which log is compacted next and how far; which segments become one; how fast."""

import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from odradek.clock import SystemClock
from odradek.storage.cleaning.config import CleanerConfig
from odradek.storage.cleaning.plan import (
    Cleanable,
    SourceSegment,
    choose,
    find_cleanable,
    group_sources,
    list_sources,
)
from odradek.storage.cleaning.throttle import Throttle
from odradek.storage.cleaning.work import CleaningPass, PassPlan
from odradek.storage.log.config import INT32_MAX
from odradek.storage.log.log import Log
from odradek.testing import ManualClock
from tests.support.cleaning import COMPACTED, CleaningFixture
from tests.support.log_scenarios import append_leader
from tests.support.logs import T0, batch

SIZE = 200


def rolled(fixture: CleaningFixture, *timestamps: int) -> Log:
    """Segments 0, 1, 2, … of one batch at each of these times, and an empty active one."""
    log = fixture.open()
    for timestamp in timestamps:
        append_leader(log, batch(size=SIZE, timestamp=timestamp))
        fixture.roll()
    return log


def look(log: Log, checkpointed: int | None, now_ms: int = T0) -> tuple[int, int, int, int]:
    found = find_cleanable(log, checkpointed, now_ms)
    return (
        found.first_dirty_offset,
        found.first_uncleanable_offset,
        found.clean_bytes,
        found.cleanable_bytes,
    )


def test_the_dirty_part_lies_between_the_checkpoint_and_the_active_segment(tmp_path: Path) -> None:
    with CleaningFixture(tmp_path) as fixture:
        log = rolled(fixture, T0, T0, T0, T0)
        append_leader(log, batch(size=SIZE))
        assert look(log, None) == (0, 4, 0, 4 * SIZE)
        assert look(log, 3) == (3, 4, 3 * SIZE, SIZE)
        assert look(log, 4) == (4, 4, 4 * SIZE, 0)
        assert look(log, 5) == (5, 5, 5 * SIZE, 0), "in the active segment: nothing to do"


def test_a_checkpoint_outside_of_the_log_counts_for_nothing(tmp_path: Path) -> None:
    with CleaningFixture(tmp_path) as fixture:
        log = rolled(fixture, T0, T0, T0, T0)
        log.maybe_increment_log_start_offset(2)
        assert look(log, 1)[:2] == (2, 4)
        assert look(log, 99)[:2] == (2, 4)


@pytest.mark.parametrize(("high_watermark", "end"), [(0, 0), (1, 1), (3, 3), (4, 4)])
def test_it_ends_where_the_last_stable_offset_is(
    high_watermark: int, end: int, tmp_path: Path
) -> None:
    with CleaningFixture(tmp_path) as fixture:
        log = rolled(fixture, T0, T0, T0, T0)
        log.update_high_watermark(high_watermark)
        assert look(log, None)[:2] == (0, end)


def test_young_records_are_left_alone(tmp_path: Path) -> None:
    with CleaningFixture(tmp_path, config=replace(COMPACTED, min_compaction_lag_ms=100)) as fixture:
        log = rolled(fixture, T0, T0 + 50, T0 - 1_000, T0 + 60)
        assert look(log, None, T0 + 99)[:2] == (0, 0)
        assert look(log, None, T0 + 100)[:2] == (0, 1), "not the third: it lies behind the second"
        assert look(log, None, T0 + 150)[:2] == (0, 3)
        assert look(log, None, T0 + 160)[:2] == (0, 4)
        assert look(log, 2, T0 + 99)[:2] == (2, 3)


def test_old_records_are_due_however_little_is_dirty(tmp_path: Path) -> None:
    config = replace(COMPACTED, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=100)
    with CleaningFixture(tmp_path, config=config) as fixture:
        log = rolled(fixture, T0, T0 + 50, T0 + 20)
        assert not find_cleanable(log, None, T0 + 100).is_due
        assert find_cleanable(log, None, T0 + 101).is_due
        assert find_cleanable(log, None, T0 + 130).compaction_delay_ms == 30
        assert find_cleanable(log, 1, T0 + 130).compaction_delay_ms == 10
        assert not find_cleanable(log, 3, T0 + 999).is_due, "nothing is dirty"


def test_the_dirty_ratio_has_to_be_exceeded(tmp_path: Path) -> None:
    config = replace(COMPACTED, min_cleanable_dirty_ratio=0.5)
    with CleaningFixture(tmp_path, config=config) as fixture:
        log = rolled(fixture, T0, T0, T0, T0)
        assert [find_cleanable(log, dirty, T0).dirty_ratio for dirty in (0, 1, 2, 4)] == [
            1.0, 0.75, 0.5, 0.0,
        ]  # fmt: skip
        due = [dirty for dirty in range(5) if find_cleanable(log, dirty, T0).is_due]
        assert due == [0, 1]


def test_the_dirtiest_goes_first(tmp_path: Path) -> None:
    config = replace(COMPACTED, min_cleanable_dirty_ratio=0.5)
    with CleaningFixture(tmp_path, config=config) as fixture:
        log = rolled(fixture, T0)

        def cleanable(clean: int, dirty: int, delay_ms: int = 0) -> Cleanable:
            return Cleanable(
                log=log,
                first_dirty_offset=0,
                first_uncleanable_offset=1,
                clean_bytes=clean,
                cleanable_bytes=dirty,
                compaction_delay_ms=delay_ms,
            )

        found = [cleanable(10, 20), cleanable(10, 90), cleanable(10, 30), cleanable(0, 0, 5)]
        assert choose(found) is found[1]
        assert choose([cleanable(10, 10), cleanable(10, 9)]) is None
        late = cleanable(10, 1, delay_ms=1)
        assert choose([cleanable(10, 10), late]) is late


def test_sources_lie_below_the_end_as_a_whole(tmp_path: Path) -> None:
    with CleaningFixture(tmp_path) as fixture:
        log = rolled(fixture, T0, T0, T0)
        assert [s.base_offset for s in list_sources(log, 3)] == [0, 1, 2]
        assert [(s.base_offset, s.end_offset, s.size) for s in list_sources(log, 1)] == [
            (0, 1, SIZE)
        ]
        assert list_sources(log, 0) == []


def source(
    base: int, end: int, size: int = 10, index: int = 1, time_index: int = 1
) -> SourceSegment:
    nothing: Any = None
    return SourceSegment(nothing, "", base, end, size, index, time_index)


@pytest.mark.parametrize(
    ("sources", "groups"),
    [
        ([], []),
        ([source(0, 5)], [[0]]),
        ([source(0, 5), source(5, 9), source(9, 12)], [[0, 5, 9]]),
        ([source(0, 5, 60), source(5, 9, 40), source(9, 12)], [[0, 5], [9]]),
        ([source(0, 5, 60), source(5, 9, 41), source(9, 12)], [[0], [5, 9]]),
        ([source(0, 5, 500), source(5, 9)], [[0], [5]]),
        ([source(0, 5, index=15), source(5, 9, index=6)], [[0], [5]]),
        ([source(0, 5, time_index=15), source(5, 9, time_index=6)], [[0], [5]]),
        ([source(0, 5, time_index=15), source(5, 9, time_index=5)], [[0, 5]]),
        ([source(7, 9), source(9, 8 + INT32_MAX)], [[7, 9]]),
        ([source(7, 9), source(9, 9 + INT32_MAX)], [[7], [9]]),
        ([source(0, 5), source(5, 900), source(900, 2000)], [[0, 5]]),
    ],
)
def test_neighbours_become_one_as_far_as_they_fit(
    sources: list[SourceSegment], groups: list[list[int]]
) -> None:
    """The last case: what begins behind the end of the pass is no part of it."""
    end = 900 if len(sources) == 3 and sources[-1].base_offset == 900 else 2**62
    found = group_sources(sources, end_offset=end, max_bytes=100, max_index_bytes=20)
    assert [[s.base_offset for s in group] for group in found] == groups


def test_a_throttle_keeps_its_rate() -> None:
    clock = ManualClock()
    throttle = Throttle(clock, 1_000)
    assert throttle.spend(500) == 500
    clock.advance(500)
    assert throttle.spend(200) == 200
    assert throttle.spend(100) == 300, "another thread has to wait for both"
    clock.advance(5_000)
    assert throttle.spend(100) == 100, "what was not used is not saved up"
    throttle.bytes_per_second = CleanerConfig().io_max_bytes_per_second
    clock.advance(100)
    assert throttle.spend(10**9) == 0


def test_a_changed_rate_counts_for_what_is_still_to_be_waited() -> None:
    clock = ManualClock()
    throttle = Throttle(clock, 1)
    assert throttle.spend(1_000) == 1_000_000
    clock.advance(400_000)
    throttle.bytes_per_second = 10
    assert throttle.left_ms() == 60_000
    throttle.bytes_per_second = 1
    assert throttle.left_ms() == 600_000
    throttle.bytes_per_second = CleanerConfig().io_max_bytes_per_second
    assert throttle.left_ms() == 0


def test_a_pass_that_waits_goes_on_when_the_rate_is_raised(tmp_path: Path) -> None:
    """log.cleaner.io.max.bytes.per.second is dynamic; at 1 B/s the pass would take days."""
    throttle = Throttle(SystemClock(), 1)
    with CleaningFixture(tmp_path) as fixture:
        log = rolled(fixture, T0, T0)
        end = log.active.base_offset
        plan = PassPlan(
            name="t-0",
            directory=log.directory,
            config=log.config,
            sources=list_sources(log, end),
            first_dirty_offset=0,
            first_uncleanable_offset=end,
            aborted=(),
            last_records={},
            now_ms=T0,
            secret=bytes(16),
        )
        cleaning = CleaningPass(plan, log.services.disk, CleanerConfig(), throttle)
        cleaning._owed_bytes = 1 << 20
        ended = threading.Event()

        def read() -> None:
            cleaning.read_keys()
            ended.set()

        thread = threading.Thread(target=read)
        thread.start()
        try:
            while throttle.left_ms() == 0:
                time.sleep(0.001)
            assert not ended.is_set()
            throttle.bytes_per_second = CleanerConfig().io_max_bytes_per_second
            assert ended.wait(60)
        finally:
            cleaning.cancelled.set()
            thread.join()
