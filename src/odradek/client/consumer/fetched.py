"""The records of one answer for one partition, taken piece by piece. Pure.

Rules:

1. Records are returned in order, none below the position that was asked for.
2. Control batches are never returned, but the position moves over them.
3. Under read_committed, a batch of a transaction that the answer's list calls aborted is skipped,
   up to the marker that aborted it (CL-25). The broker sends nothing at or above the last stable
   offset, so all other transactions of the answer are decided.
4. A batch is checked and decoded when its turn comes: an application that reads few records pays
   for few.

Bad bytes raise an error at their batch; everything before it was returned.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

from odradek.client.consumer.partition_state import AssignedPartition
from odradek.errors import CorruptRecordError, RecordTooLargeError
from odradek.records.batch import (
    LOG_OVERHEAD,
    BatchHeader,
    Buffer,
    is_crc_valid,
    parse_header,
)
from odradek.records.codec import ConsumerRecord, decode_batch
from odradek.records.columns import ColumnBuilder
from odradek.records.control import ControlType, parse_end_transaction_marker

__all__ = ["FetchedData"]

_CONTROL: Final = 0x20
_TRANSACTIONAL: Final = 0x10


class FetchedData:
    """See the module's docstring."""

    __slots__ = (
        "_aborted",
        "_aborted_producers",
        "_at",
        "_buffer",
        "_check_crcs",
        "_rest",
        "_rest_at",
        "_rest_epoch",
        "_rest_next",
        "next_offset",
        "size_bytes",
        "state",
        "version",
    )

    def __init__(
        self,
        state: AssignedPartition,
        buffer: Buffer,
        offset: int,
        *,
        aborted: Sequence[tuple[int, int]] | None = None,
        check_crcs: bool = True,
    ) -> None:
        """Begins at the first batch.

        Args:
            offset: The one that was asked for.
            aborted: (producer id, first offset) of aborted transactions under read_committed.
        """
        self.state = state
        self.version = state.version
        # The offset after the last record that was returned.
        self.next_offset = offset
        self.size_bytes = len(buffer)
        self._buffer: Buffer = buffer
        self._at = 0
        self._check_crcs = check_crcs
        self._aborted = None if aborted is None else deque(sorted(aborted, key=lambda one: one[1]))
        self._aborted_producers: set[int] = set()
        # The batch that is being returned: its records, the next of them, the offset behind it.
        self._rest: list[ConsumerRecord] = []
        self._rest_at = 0
        self._rest_epoch = -1
        self._rest_next = offset

    def check_first(self) -> None:
        """Checks that the answer has a whole batch.

        Raises:
            RecordTooLargeError: The answer has bytes, but not one whole batch.
        """
        if self.size_bytes and parse_header(self._buffer, self._at) is None:
            raise RecordTooLargeError(
                f"{self.state.tp}: no whole batch at offset {self.next_offset} in "
                f"{self.size_bytes} bytes"
            )

    def take(self, max_count: int) -> list[ConsumerRecord]:
        """Takes the next records, at most so many; none: the end. Moves the position behind them.

        Raises:
            CorruptRecordError: The next batch is damaged.
            InvalidRecordError: Its records are malformed.
        """
        taken: list[ConsumerRecord] = []
        left = max_count
        while left > 0:
            if self._rest_at == len(self._rest) and not self._next_batch():
                break
            start = self._rest_at
            end = min(start + left, len(self._rest))
            if start == 0 and end == len(self._rest):
                taken += self._rest
            else:
                taken += self._rest[start:end]
            left -= end - start
            self._rest_at = end
            if end == len(self._rest):
                self._move(self._rest_next)
            else:
                self._move(self._rest[end].offset)
        return taken

    def take_columns(self, builder: ColumnBuilder, max_bytes: int) -> int:
        """Adds whole batches to a builder, up to so many bytes; returns the number of bytes.

        A batch that `take` has begun must be finished with `take` first, see `rest_count`.

        Raises:
            CorruptRecordError, InvalidRecordError: As `take`.
        """
        assert not self.rest_count, "a batch is handed out in part"
        added = 0
        while added < max_bytes and (found := self._next_header()) is not None:
            at, header = found
            is_added = builder.add_batch(
                self._buffer, position=at, header=header, from_offset=self.next_offset
            )
            if not is_added:
                break
            self._at = at + header.length + LOG_OVERHEAD
            added += header.length
            self._rest_epoch = header.leader_epoch
            self._move(max(self.next_offset, header.next_offset))
        return added

    @property
    def rest_count(self) -> int:
        """Records left of a batch that was returned in part."""
        return len(self._rest) - self._rest_at

    @property
    def is_drained(self) -> bool:
        """Whether nothing is left, as far as is known without decoding."""
        return not self.rest_count and parse_header(self._buffer, self._at) is None

    def end_offset(self) -> int:
        """The offset to fetch next after this answer: behind its last whole batch.

        Raises:
            CorruptRecordError: A batch in it is of no known form.
        """
        end, at = self.next_offset, self._at
        while (header := parse_header(self._buffer, at)) is not None:
            end = max(end, header.next_offset)
            at += header.length + LOG_OVERHEAD
        return end

    def _next_batch(self) -> bool:
        """Decodes the next batch that has records to return."""
        while (found := self._next_header()) is not None:
            at, header = found
            tp = self.state.tp
            records = decode_batch(
                self._buffer,
                position=at,
                header=header,
                topic=tp.topic,
                partition=tp.partition,
                from_offset=self.next_offset,
            )
            self._at = at + header.length + LOG_OVERHEAD
            self._rest_epoch = header.leader_epoch
            self._rest_next = max(self.next_offset, header.next_offset)
            if records:
                self._rest, self._rest_at = records, 0
                return True
            self._move(self._rest_next)
        self._rest, self._rest_at = [], 0
        return False

    def _next_header(self) -> tuple[int, BatchHeader] | None:
        """The next batch of data, checked; control and aborted batches are skipped."""
        while (header := parse_header(self._buffer, self._at)) is not None:
            at = self._at
            size = header.length + LOG_OVERHEAD
            if self._check_crcs and not is_crc_valid(self._buffer, at, size):
                raise CorruptRecordError(
                    f"{self.state.tp}: the batch at offset {header.base_offset} is corrupt"
                )
            if not header.attributes & (_CONTROL | _TRANSACTIONAL) or not self._is_skipped(
                at, header
            ):
                return at, header
            self._at = at + size
            self._rest_epoch = header.leader_epoch
            self._move(max(self.next_offset, header.next_offset))
        return None

    def _is_skipped(self, at: int, header: BatchHeader) -> bool:
        if self._aborted is not None:
            while self._aborted and self._aborted[0][1] <= header.last_offset:
                self._aborted_producers.add(self._aborted.popleft()[0])
        if header.is_control:
            marker = parse_end_transaction_marker(self._buffer, position=at, header=header)
            if marker is not None and marker.control_type is ControlType.ABORT:
                self._aborted_producers.discard(header.producer_id)
            return True
        return header.producer_id in self._aborted_producers

    def _move(self, offset: int) -> None:
        self.next_offset = offset
        self.state.position = offset
        self.state.position_epoch = self._rest_epoch
