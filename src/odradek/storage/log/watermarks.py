"""The offsets of a log, and how a change of one moves the others.

::

    log_start_offset <= last_stable_offset <= high_watermark <= end
    recovery_point <= end

| a change of              | also changes                                                          |
|--------------------------|-----------------------------------------------------------------------|
| the end, down            | high watermark and recovery point                                     |
| the log start, up        | high watermark                                                        |
| high watermark           | producer state, which may then drop decided transactions              |

Only a flush raises the recovery point (`flushing`): the log start may pass records that are not
synced yet, and after a crash the records behind them must still count as unsynced. So the recovery
point may lie below the log start.

The place of an offset (segment and byte position) is looked up once, when a reader needs it.
"""

from odradek.errors import OffsetOutOfRangeError
from odradek.model import TopicPartition
from odradek.storage.log.offsets import LogOffsetMetadata, LogOffsetSnapshot
from odradek.storage.producers.state import ProducerStateManager
from odradek.storage.segments.segments import LogSegments

__all__ = ["Watermarks"]


class Watermarks:
    """The offsets of one log.

    Attributes:
        log_start_offset: First offset that clients may read.
        end: The next offset, with its place.
        high_watermark: End of the committed records, with its place where known.
        recovery_point: First offset that is not known to be on disk.
    """

    __slots__ = (
        "_producer_state",
        "_segments",
        "_stable_place",
        "_topic_partition",
        "end",
        "high_watermark",
        "log_start_offset",
        "recovery_point",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        segments: LogSegments,
        producer_state: ProducerStateManager,
        *,
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
    ) -> None:
        self._topic_partition = topic_partition
        self._segments = segments
        self._producer_state = producer_state
        active = segments.active
        assert active is not None
        self.end = LogOffsetMetadata(log_end_offset, active.base_offset, active.size)
        self.recovery_point = min(recovery_point, log_end_offset)
        self.log_start_offset = log_start_offset
        self.high_watermark = LogOffsetMetadata(log_start_offset)
        # Place of the last stable offset while a transaction holds it back; resolved on demand.
        self._stable_place: LogOffsetMetadata | None = None
        self.update_log_start_offset(log_start_offset)

    def snapshot(self) -> LogOffsetSnapshot:
        """The four offsets at this moment."""
        return LogOffsetSnapshot(
            self.log_start_offset,
            self.end.message_offset,
            self.high_watermark.message_offset,
            self.last_stable_offset,
        )

    # High watermark

    def set_high_watermark(self, metadata: LogOffsetMetadata) -> None:
        """Stores the high watermark as given.

        Raises:
            ValueError: It is negative.
        """
        if metadata.message_offset < 0:
            raise ValueError(f"high watermark {metadata.message_offset} is negative")
        self.high_watermark = metadata
        self._producer_state.on_high_watermark_updated(metadata.message_offset)

    def update_high_watermark(self, offset: int) -> int:
        """Sets the high watermark to the leader's, within this log; returns the new one."""
        if offset >= self.end.message_offset:
            self.set_high_watermark(self.end)
        else:
            self.set_high_watermark(LogOffsetMetadata(max(offset, self.log_start_offset)))
        return self.high_watermark.message_offset

    def maybe_increment_high_watermark(
        self, metadata: LogOffsetMetadata
    ) -> LogOffsetMetadata | None:
        """Raises the high watermark, never lowers it; returns the old one if it changed.

        Raises:
            ValueError: It lies beyond the end.
        """
        if metadata.message_offset > self.end.message_offset:
            raise ValueError(
                f"high watermark {metadata.message_offset} is beyond the log end"
                f" {self.end.message_offset} of {self._topic_partition}"
            )
        old = self.resolve_high_watermark()
        if old.message_offset < metadata.message_offset or (
            # Same offset on a newer segment: the log rolled, so its position changed.
            old.message_offset == metadata.message_offset and old.is_on_older_segment(metadata)
        ):
            self.set_high_watermark(metadata)
            return old
        return None

    def commit_end(self) -> None:
        """Sets the high watermark to the end: there is no other replica to wait for."""
        self.high_watermark = end = self.end
        state = self._producer_state
        if not state.is_stable:
            state.on_high_watermark_updated(end.message_offset)

    def resolve_high_watermark(self) -> LogOffsetMetadata:
        """The high watermark with its place."""
        if self.high_watermark.is_message_offset_only:
            self.high_watermark = self.resolve(self.high_watermark.message_offset)
        return self.high_watermark

    # Last stable offset

    @property
    def last_stable_offset(self) -> int:
        """Below it every transaction is decided."""
        unstable = self._producer_state.first_unstable_offset
        high_watermark = self.high_watermark.message_offset
        if unstable is None or unstable >= high_watermark:
            return high_watermark
        return max(unstable, self.log_start_offset)

    def resolve_last_stable(self) -> LogOffsetMetadata:
        """The last stable offset with its place."""
        offset = self.last_stable_offset
        if offset == self.high_watermark.message_offset:
            return self.resolve_high_watermark()
        if self._stable_place is None or self._stable_place.message_offset != offset:
            self._stable_place = self.resolve(offset)
        return self._stable_place

    def resolve(self, offset: int) -> LogOffsetMetadata:
        """An offset with its place: that of its batch, or of the next one if it lies in a gap.

        Raises:
            OffsetOutOfRangeError: It lies outside the log.
        """
        if not self.log_start_offset <= offset <= self.end.message_offset:
            raise self.out_of_range(offset)
        if offset == self.end.message_offset:
            return self.end
        for segment in self._segments.from_offset(offset):
            if (place := segment.translate_offset(offset)) is not None:
                return LogOffsetMetadata(offset, segment.base_offset, place.position)
        # In a gap at the end the place is that of the log end; the offset stays the given one.
        return LogOffsetMetadata(offset, self.end.segment_base_offset, self.end.relative_position)

    def out_of_range(self, offset: int) -> OffsetOutOfRangeError:
        """The error for an offset that is not in the log."""
        return OffsetOutOfRangeError(
            f"{self._topic_partition}: offset {offset} is outside"
            f" [{self.log_start_offset}, {self.end.message_offset}]"
        )

    # Both ends

    def update_end(self, offset: int) -> None:
        """Moves the end, to the end of the active segment."""
        active = self._segments.active
        assert active is not None
        self.end = end = LogOffsetMetadata(offset, active.base_offset, active.size)
        if self.high_watermark.message_offset >= offset:
            self.set_high_watermark(end)
        self.lower_recovery_point(offset)

    def update_log_start_offset(self, offset: int) -> None:
        """Sets the log start."""
        self.log_start_offset = offset
        if self.high_watermark.message_offset < offset:
            self.update_high_watermark(offset)

    def lower_recovery_point(self, offset: int) -> bool:
        """Lowers the recovery point to `offset`; returns whether it was higher."""
        if self.recovery_point <= offset:
            return False
        self.recovery_point = offset
        return True

    def truncate(self, offset: int) -> None:
        """Applies a truncation of the files, which may reach below the log start."""
        self._stable_place = None
        self.update_end(offset)
        self.log_start_offset = min(offset, self.log_start_offset)

    def restart_at(self, offset: int) -> None:
        """Applies the removal of all records: an empty log at `offset`."""
        self._stable_place = None
        self.update_end(offset)
        self.log_start_offset = offset
        self.set_high_watermark(self.end)
        self.recovery_point = offset
