"""Offsets with a place (01 section 9.1)."""

import pytest

from odradek.storage.log.offsets import UNKNOWN, LogOffsetMetadata

PLACED = LogOffsetMetadata(50, 40, 1000)
BARE = LogOffsetMetadata(50)


def test_place_is_unknown_unless_given() -> None:
    assert LogOffsetMetadata(50, UNKNOWN, UNKNOWN) == BARE
    assert BARE.is_message_offset_only
    assert not PLACED.is_message_offset_only


@pytest.mark.parametrize(
    ("other", "same", "older"),
    [
        (LogOffsetMetadata(60, 40, 3000), True, False),
        (LogOffsetMetadata(90, 80, 0), False, True),
        (LogOffsetMetadata(10, 0, 0), False, False),
        (BARE, False, False),
    ],
)
def test_segments_are_compared(other: LogOffsetMetadata, same: bool, older: bool) -> None:
    assert PLACED.is_on_same_segment(other) is same
    assert PLACED.is_on_older_segment(other) is older


def test_without_a_place_there_is_nothing_to_compare() -> None:
    with pytest.raises(ValueError, match="only its offset is known"):
        BARE.is_on_same_segment(PLACED)
    with pytest.raises(ValueError, match="only its offset is known"):
        BARE.is_on_older_segment(PLACED)
    with pytest.raises(ValueError, match="only its offset is known"):
        BARE.position_difference(PLACED)


def test_byte_distance_within_one_segment() -> None:
    later = LogOffsetMetadata(60, 40, 3500)

    assert later.position_difference(PLACED) == 2500
    assert PLACED.position_difference(later) == -2500


@pytest.mark.parametrize("other", [LogOffsetMetadata(90, 80, 0), BARE])
def test_no_byte_distance_between_segments(other: LogOffsetMetadata) -> None:
    with pytest.raises(ValueError, match="not in one segment"):
        PLACED.position_difference(other)
