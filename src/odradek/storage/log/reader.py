"""Reading a log: finds the bytes of a fetch, and the aborted transactions in them.

A read finds bytes, it does not copy them: its result is a slice of a segment file. The isolation
level sets the limit of a read; a read at the limit gets nothing, a read beyond the log end or
before its start an error.
"""

from enum import Enum
from typing import Final

from odradek.storage.indexes.transaction_index import AbortedTransaction
from odradek.storage.log.offsets import LogOffsetMetadata
from odradek.storage.log.watermarks import Watermarks
from odradek.storage.segments.file_slice import FileSlice
from odradek.storage.segments.segment import FetchDataInfo, LogSegment
from odradek.storage.segments.segments import LogSegments

__all__ = ["FetchIsolation", "LogReader"]

# The most bytes of a read that lists aborted transactions, unless its first batch is larger: even
# if they consist of the smallest transactions, to find and list those takes a few milliseconds.
_MAX_WITH_ABORTED: Final = 1 << 20


class FetchIsolation(Enum):
    """The limit of a read, which is exclusive."""

    LOG_END = "log-end"  # Followers.
    HIGH_WATERMARK = "high-watermark"  # Ordinary consumers.
    TXN_COMMITTED = "txn-committed"  # read_committed consumers; aborted transactions are listed.


class LogReader:
    """Finds records in the segments of one log, within its watermarks."""

    __slots__ = ("_segments", "_watermarks")

    def __init__(self, segments: LogSegments, watermarks: Watermarks) -> None:
        self._segments = segments
        self._watermarks = watermarks

    def read(
        self, start_offset: int, max_length: int, isolation: FetchIsolation, min_one_message: bool
    ) -> FetchDataInfo:
        """Finds the bytes from the batch that contains `start_offset` on.

        Raises:
            OffsetOutOfRangeError: It lies outside [log start, log end].
            OSError: The disk refused.
        """
        watermarks = self._watermarks
        end = watermarks.end
        is_committed_only = isolation is FetchIsolation.TXN_COMMITTED
        if start_offset == end.message_offset:
            return _nothing(end, is_committed_only)
        if not watermarks.log_start_offset <= start_offset < end.message_offset:
            raise watermarks.out_of_range(start_offset)
        if isolation is FetchIsolation.LOG_END:
            limit = end
        elif is_committed_only:
            limit = watermarks.resolve_last_stable()
        else:
            limit = watermarks.resolve_high_watermark()
        if start_offset >= limit.message_offset:
            is_limit = start_offset == limit.message_offset
            place = limit if is_limit else watermarks.resolve(start_offset)
            return _nothing(place, is_committed_only)
        has_aborted = is_committed_only and self._has_aborted(start_offset)
        if has_aborted:
            max_length = min(max_length, _MAX_WITH_ABORTED)
        segment = self._segments.floor(start_offset) or self._segments.first
        while segment is not None:
            if limit.segment_base_offset == segment.base_offset:
                # The cleaner may have made the file shorter since the limit was set.
                max_position = min(limit.relative_position, segment.size)
            elif limit.segment_base_offset > segment.base_offset:
                max_position = segment.size
            else:
                break
            found = segment.read(
                start_offset,
                max_length,
                max_position=max_position,
                min_one_message=min_one_message,
            )
            if found is not None:
                place, records = found.offset_metadata, found.records
                assert records is not None, "a segment has a place for its answer"
                if records.length == 0 and place.relative_position >= max_position:
                    break  # The next batch lies at or beyond the limit.
                if is_committed_only:
                    found.aborted_transactions = (
                        self._aborted_in(start_offset, segment, records) if has_aborted else []
                    )
                return found
            segment = self._segments.higher(segment.base_offset)
        return _nothing(end if segment is None else limit, is_committed_only)

    def _has_aborted(self, start_offset: int) -> bool:
        """Whether aborted transactions end behind an offset; nearly always there are none."""
        behind = self._segments.from_offset(start_offset)
        return any(one.transaction_index.has_entries_from(start_offset) for one in behind)

    def _aborted_in(
        self, start_offset: int, segment: LogSegment, records: FileSlice
    ) -> list[AbortedTransaction]:
        """Aborted transactions that overlap the fetched range."""
        upper = segment.offset_behind(records.position + records.length)
        if upper is None:
            following = self._segments.higher(segment.base_offset)
            upper = following.base_offset if following else self._watermarks.end.message_offset
        return self.collect_aborted_transactions(start_offset, upper)

    def collect_aborted_transactions(
        self, start_offset: int, upper_offset: int
    ) -> list[AbortedTransaction]:
        """Aborted transactions that touch [start_offset, upper_offset)."""
        aborted: list[AbortedTransaction] = []
        for segment in self._segments.from_offset(start_offset):
            found, complete = segment.transaction_index.collect_aborted(start_offset, upper_offset)
            aborted.extend(found)
            if complete:
                break
        return aborted


def _nothing(place: LogOffsetMetadata, is_committed_only: bool) -> FetchDataInfo:
    return FetchDataInfo(place, None, aborted_transactions=[] if is_committed_only else None)
