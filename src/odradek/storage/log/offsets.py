"""Where an offset lies: the offset itself and, where known, its segment and byte position."""

from typing import Final, NamedTuple, final

__all__ = ["UNKNOWN", "LogOffsetMetadata", "LogOffsetSnapshot"]

UNKNOWN: Final = -1  # Segment base or position of an offset that was not resolved.


@final
class LogOffsetMetadata:
    """An offset with its place in the log. Replaced, never edited: readers copy the reference once.

    Byte distances are defined within one segment only. Not a frozen dataclass, which takes longer
    to make: one is made for every append.
    """

    __slots__ = ("message_offset", "relative_position", "segment_base_offset")

    def __init__(
        self,
        message_offset: int,
        segment_base_offset: int = UNKNOWN,
        relative_position: int = UNKNOWN,
    ) -> None:
        self.message_offset = message_offset
        self.segment_base_offset = segment_base_offset
        self.relative_position = relative_position  # Bytes from the start of the segment's file.

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, LogOffsetMetadata)
            and self.message_offset == other.message_offset
            and self.segment_base_offset == other.segment_base_offset
            and self.relative_position == other.relative_position
        )

    def __hash__(self) -> int:
        return hash((self.message_offset, self.segment_base_offset, self.relative_position))

    def __repr__(self) -> str:
        return (
            f"LogOffsetMetadata({self.message_offset}, {self.segment_base_offset},"
            f" {self.relative_position})"
        )

    @property
    def is_message_offset_only(self) -> bool:
        return self.segment_base_offset == UNKNOWN and self.relative_position == UNKNOWN

    def is_on_same_segment(self, other: "LogOffsetMetadata") -> bool:
        """Whether both lie in one segment.

        Raises:
            ValueError: This one was not resolved.
        """
        self._require_resolved()
        return self.segment_base_offset == other.segment_base_offset

    def is_on_older_segment(self, other: "LogOffsetMetadata") -> bool:
        """Whether this one's segment comes before the other's.

        Raises:
            ValueError: This one was not resolved.
        """
        self._require_resolved()
        return self.segment_base_offset < other.segment_base_offset

    def position_difference(self, other: "LogOffsetMetadata") -> int:
        """Bytes from `other` to this one.

        Raises:
            ValueError: One was not resolved, or they lie in different segments.
        """
        if not self.is_on_same_segment(other) or other.is_message_offset_only:
            raise ValueError(f"{self} and {other} are not in one segment")
        return self.relative_position - other.relative_position

    def _require_resolved(self) -> None:
        if self.is_message_offset_only:
            raise ValueError(f"{self} has no segment: only its offset is known")


class LogOffsetSnapshot(NamedTuple):
    """The four offsets of a log at one moment: start <= stable <= high watermark <= end."""

    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    last_stable_offset: int
