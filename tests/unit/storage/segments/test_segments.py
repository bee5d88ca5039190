"""The ordered map of a log's segments."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.storage.log.config import LogConfig
from odradek.storage.segments.segment import LogSegment
from odradek.storage.segments.segments import LogSegments
from tests.support.logs import T0, batch, make_services


@pytest.fixture
def made(tmp_path: Path) -> Iterator[dict[int, LogSegment]]:
    """Segments with bases 10, 20 and 30; not in a map yet."""
    disk = make_services().disk
    config = LogConfig()
    found = {
        base: LogSegment(str(tmp_path), base, config=config, disk=disk, now_ms=T0, create=True)
        for base in (10, 20, 30)
    }
    yield found
    for segment in found.values():
        segment.close_handles()


@pytest.fixture
def segments(made: dict[int, LogSegment]) -> LogSegments:
    """All three, put in out of order."""
    segments = LogSegments()
    for base in (20, 30, 10):
        assert segments.add(made[base]) is None
    return segments


def bases(found: list[LogSegment] | LogSegments) -> list[int]:
    return [segment.base_offset for segment in found]


def test_nothing_in_an_empty_map() -> None:
    segments = LogSegments()
    assert len(segments) == 0
    assert segments.active is None
    assert segments.first is None
    assert segments.floor(5) is None
    assert segments.higher(5) is None
    assert segments.from_offset(5) == []
    assert segments.between(0, 10) == []
    assert segments.size_in_bytes() == 0


def test_order_and_ends(segments: LogSegments, made: dict[int, LogSegment]) -> None:
    assert bases(segments) == [10, 20, 30]
    assert segments.first is made[10]
    assert segments.active is made[30]
    assert segments.get(20) is made[20]
    assert segments.get(21) is None


@pytest.mark.parametrize(
    ("offset", "floor", "higher"),
    [
        (9, None, 10),
        (10, 10, 20),
        (19, 10, 20),
        (20, 20, 30),  # Strictly above: at or above would make reads loop for ever.
        (30, 30, None),
        (10**12, 30, None),
    ],
)
def test_neighbours(
    offset: int, floor: int | None, higher: int | None, segments: LogSegments
) -> None:
    """01 §9.5, ruling 002:1313"""
    below, above = segments.floor(offset), segments.higher(offset)
    assert (below.base_offset if below else None) == floor
    assert (above.base_offset if above else None) == higher


@pytest.mark.parametrize(
    ("offset", "expected"),
    [(0, [10, 20, 30]), (10, [10, 20, 30]), (25, [20, 30]), (30, [30]), (99, [30])],
)
def test_from_an_offset_on(offset: int, expected: list[int], segments: LogSegments) -> None:
    assert bases(segments.from_offset(offset)) == expected


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (10, 30, [10, 20]),
        (10, 31, [10, 20, 30]),
        (0, 15, [10]),
        (25, 30, [20]),
        (25, 20, []),
        (0, 5, []),
        (40, 50, [30]),
    ],
)
def test_between_two_offsets(
    start: int, end: int, expected: list[int], segments: LogSegments
) -> None:
    """01 §9.5: from the floor of the start up to bases below the end"""
    assert bases(segments.between(start, end)) == expected


def test_a_range_that_ends_before_it_starts_is_refused(segments: LogSegments) -> None:
    with pytest.raises(ValueError, match="15 is below the segment of 25"):
        segments.between(25, 15)


def test_a_segment_takes_the_place_of_another(
    segments: LogSegments, made: dict[int, LogSegment], tmp_path: Path
) -> None:
    other = LogSegment(
        str(tmp_path),
        30,
        config=LogConfig(),
        disk=make_services().disk,
        now_ms=T0,
        stage=".swap",
        create=True,
    )
    assert other not in segments
    assert segments.add(other) is made[30]
    assert segments.active is other
    assert other in segments
    assert made[30] not in segments
    assert len(segments) == 3
    other.close_handles()


def test_removal_moves_the_active_segment(
    segments: LogSegments, made: dict[int, LogSegment]
) -> None:
    segments.remove(made[30])
    assert segments.active is made[20]
    segments.remove(made[10])
    assert bases(segments) == [20]
    segments.remove(made[20])
    assert len(segments) == 0
    segments.add(made[10])
    segments.clear()
    assert bases(segments) == []
    assert segments.first is None


def test_iteration_does_not_mind_changes(
    segments: LogSegments, made: dict[int, LogSegment]
) -> None:
    seen = []
    for segment in segments:
        seen.append(segment.base_offset)
        segments.remove(segment)
    assert seen == [10, 20, 30]
    assert len(segments) == 0


def test_size_is_that_of_all_log_files(segments: LogSegments, made: dict[int, LogSegment]) -> None:
    for base, size in ((10, 100), (20, 300)):
        made[base].append(
            batch(size=size, base_offset=base),
            [(base, T0, size)],
            largest_offset=base,
            largest_timestamp=T0,
        )
    assert segments.size_in_bytes() == 400
