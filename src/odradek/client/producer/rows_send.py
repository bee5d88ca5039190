"""Puts rows into batches: `send_rows` and `send_arrow`, except for the waiting.

1. Everything is checked before the first row is put into the buffer: types, sizes, partitions.
2. The partition column chooses the partition of a row, or its key does; rows without either are
   distributed as the producer's records without a key, a batch to each partition in turn. Then rows
   are grouped by partition, and keep their order within one.
3. Batches are encoded one by one, when the one before has found room in the buffer, partition by
   partition in turn: a request takes one batch of each.

Interceptors and partitioners of the application get single records. For them a table is split into
records, which costs as much as sending these one by one.
"""

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

from odradek.client.pieces import Piece
from odradek.client.producer.accumulator import Accumulator, Headers, Ticket, TopicQueues
from odradek.client.producer.config import ProducerOptions
from odradek.client.producer.encoded_records import EncodedRecords, encode_rows
from odradek.client.producer.rows_delivery import Share
from odradek.errors import RecordTooLargeError
from odradek.records.batch import HEADER_SIZE, Buffer
from odradek.records.rows import Rows, group_rows

__all__ = ["RowsSend"]

_NO_PARTITION: Final = -1
_MAX_INT32: Final = 2**31 - 1
# Rows that are split into records at once.
_RECORDS_AT_ONCE: Final = 1_000

# Topic, value, key, headers, partition, timestamp: the arguments of `Accumulator.append`.
Fields: TypeAlias = tuple[str, Any, Any, Headers, int | None, int | None]
# Puts a batch or a record into the buffer, given a ticket if it has waited; None: not yet.
Attempt: TypeAlias = Callable[[Ticket | None], Share | None]


class _Group(NamedTuple):
    """Rows of one partition."""

    topic: str
    partition: int
    rows: Rows
    numbers: memoryview
    first: int  # A place in `numbers`.
    end: int
    max_bytes: int  # Of a batch.


class RowsSend:
    """Rows that are to be sent.

    Args:
        pieces: All of them.
        intercept: Called with every record; returns it or another one.
    """

    def __init__(
        self,
        pieces: list[Piece],
        accumulator: Accumulator,
        options: ProducerOptions,
        *,
        intercept: Callable[..., Fields] | None,
    ) -> None:
        self._accumulator = accumulator
        self._options = options
        self._intercept = intercept
        self._pieces = pieces
        # As they were when `knows` found them: the producer forgets unused topics, maybe while it
        # asks about another one of these.
        self._known: dict[str, TopicQueues] = {}

    @property
    def topics(self) -> list[str]:
        """Every topic that has rows, once. `knows` has to be true of each before `placements`."""
        return list(dict.fromkeys(name for piece in self._pieces for name, _ in piece.topics))

    def knows(self, topic: str) -> bool:
        """Whether the partitions of a topic are known; once they are, they stay known."""
        if topic not in self._known:
            known = self._accumulator.topics.get(topic)
            if known is None:
                return False
            self._known[topic] = known
        return True

    def placements(self) -> Iterator[tuple[str, Attempt]]:
        """The attempts to make, in this order, each with its topic.

        Raises:
            RecordTooLargeError: A row can never be sent.
            ValueError: A row is malformed, or has a header without a key.
            ApiError: INVALID_PARTITIONS, a row names a partition that does not exist.
        """
        self._check_sizes()
        if self._intercept is not None or self._accumulator.has_partitioner:
            for fields in self._records():
                if self._intercept is not None:
                    fields = self._intercept(*fields)
                yield fields[0], partial(self._place_record, fields)
            return
        for groups in [self._groups_of(piece) for piece in self._pieces]:
            for group, rows in self._batches(groups):
                yield group.topic, partial(self._place_rows, group, rows)

    def _place_record(self, fields: Fields, ticket: Ticket | None) -> Share | None:
        delivery = self._accumulator.append(*fields, ticket)
        return None if delivery is None else Share(delivery[0], delivery[1], 1)

    def _place_rows(
        self, group: "_Group", rows: EncodedRecords, ticket: Ticket | None
    ) -> Share | None:
        batch = self._accumulator.append_rows(group.topic, group.partition, rows, ticket)
        return None if batch is None else Share(batch, 0, rows.record_count)

    def _check_sizes(self) -> None:
        max_bytes = self._accumulator.max_record_bytes
        for piece in self._pieces:
            row, size = piece.rows.largest()
            if HEADER_SIZE + size > max_bytes:
                raise RecordTooLargeError(
                    f"row {row} has {HEADER_SIZE + size} bytes as a record; at most {max_bytes} "
                    "(max.request.size, buffer.memory) can be sent"
                )

    def _groups_of(self, piece: Piece) -> "list[_Group]":
        groups: list[_Group] = []
        for topic, numbers in piece.topics:
            known = self._known[topic]
            partitions = piece.rows.choose_partitions(
                len(known.queues),
                numbers=numbers,
                partitions=piece.partitions,
                ignores_keys=self._options.ignores_keys,
            )
            undecided_bytes = piece.rows.undecided_bytes(partitions, numbers)
            if undecided_bytes:
                shares = self._accumulator.share_out(known, undecided_bytes)
                piece.rows.spread(partitions, shares, numbers)
            # Those of removed partitions as well: the count may have changed since, up or down.
            queues = list(known.every)
            ordered, ends = group_rows(partitions, len(queues), numbers)
            view = memoryview(ordered)
            first = 0
            for queue, end in zip(queues, ends, strict=False):
                # Rows wait together, so they may be sent together.
                max_bytes = max(self._options.batch_size, queue.max_batch_bytes)
                if end > first:
                    place = (topic, queue.partition)
                    groups.append(_Group(*place, piece.rows, view, first, end, max_bytes))
                first = end
        return groups

    def _batches(self, groups: "list[_Group]") -> "Iterator[tuple[_Group, EncodedRecords]]":
        options = self._options
        waiting = deque(groups)
        while waiting:
            group = waiting.popleft()
            encoded = encode_rows(
                group.rows,
                group.numbers,
                group.first,
                group.end,
                max_bytes=group.max_bytes,
                codec=options.codec,
                level=options.level,
            )
            yield group, encoded
            first = group.first + encoded.record_count
            if first < group.end:
                waiting.append(group._replace(first=first))

    def _records(self) -> Iterator[Fields]:
        for piece in self._pieces:
            for topic, numbers in piece.topics:
                yield from _records(piece, topic, numbers)


def _records(piece: Piece, topic: str, numbers: Buffer | None) -> Iterator[Fields]:
    count = piece.rows.count if numbers is None else len(numbers) // 4
    view = None if numbers is None else memoryview(numbers)
    partitions = None
    if piece.partitions is not None:
        # The largest count: whether a partition exists is checked when its record is sent.
        chosen = piece.rows.choose_partitions(
            _MAX_INT32, numbers=numbers, partitions=piece.partitions, ignores_keys=True
        )
        partitions = memoryview(chosen).cast("i")
    for first in range(0, count, _RECORDS_AT_ONCE):
        end = min(first + _RECORDS_AT_ONCE, count)
        place = first
        while place < end:
            some = encode_rows(piece.rows, view, place, end, max_bytes=_MAX_INT32)
            for timestamp, key, value, headers in some.records:
                partition = _NO_PARTITION if partitions is None else partitions[place]
                yield (
                    topic,
                    value,
                    key,
                    headers,
                    None if partition == _NO_PARTITION else partition,
                    timestamp,
                )
                place += 1
