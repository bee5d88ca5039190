"""Applies stored batches to the producer state, and aborted transactions to their index.

Appending, loading and recovering all use this module, so that they agree byte for byte.
"""

import logging
from collections.abc import Iterable, Sequence

from odradek.errors import ApiError
from odradek.model import AppendOrigin
from odradek.records.batch import BatchHeader, Buffer
from odradek.records.control import EndTransactionMarker, parse_end_transaction_marker
from odradek.storage.indexes.transaction_index import AbortedTransaction, TransactionIndex
from odradek.storage.producers.state import (
    CachedBatch,
    CompletedTransaction,
    ProducerStateManager,
)
from odradek.storage.segments.segment import LogSegment
from odradek.storage.segments.segments import LogSegments

__all__ = [
    "aborted_transaction",
    "apply_batch",
    "apply_producers",
    "check_producers",
    "complete_transaction",
    "marker_of",
    "replay",
    "replay_start",
]

logger = logging.getLogger(__name__)


def marker_of(batch: Buffer, header: BatchHeader) -> EndTransactionMarker | None:
    """The transaction marker in a control batch; None for other kinds and emptied batches."""
    if not header.is_control or header.record_count <= 0:
        return None
    try:
        return parse_end_transaction_marker(batch)
    except ApiError as error:
        logger.warning("control batch at offset %d has no marker: %s", header.base_offset, error)
        return None


def apply_batch(
    state: ProducerStateManager, header: BatchHeader, batch: Buffer
) -> CompletedTransaction | None:
    """Applies a batch as it is stored; returns the transaction that its marker ended."""
    if header.producer_id < 0:
        return None
    return state.apply_append(
        header,
        first_offset=header.base_offset,
        last_offset=header.last_offset,
        marker=marker_of(batch, header),
    )


def aborted_transaction(
    state: ProducerStateManager, completed: CompletedTransaction
) -> AbortedTransaction:
    """The index entry of a transaction that was aborted and is not completed yet."""
    return AbortedTransaction(
        completed.producer_id,
        completed.first_offset,
        completed.last_offset,
        state.last_stable_offset_for(completed),
    )


def complete_transaction(
    state: ProducerStateManager, completed: CompletedTransaction, index: TransactionIndex | None
) -> None:
    """Adds an aborted transaction to the index, then lets the last stable offset pass it."""
    if completed.is_aborted and index is not None:
        index.append(aborted_transaction(state, completed))
    state.complete_transaction(completed)


def check_producers(
    state: ProducerStateManager,
    records: Buffer,
    batches: Sequence[tuple[int, BatchHeader]],
    written: Sequence[tuple[int, int, int]],
    origin: AppendOrigin,
) -> CachedBatch | None:
    """Checks that the producers of a set may write it; returns the batch that a retry repeats.

    Args:
        state: The producers before the append.
        records: The bytes of the set, as they will be written.
        batches: Position, as it was sent, and header of each batch.
        written: (last offset, max timestamp, size) of each, as it will be written.
        origin: The writer.

    Raises:
        ApiError: A batch is refused.
    """
    position = 0
    for (_, header), (_, _, size) in zip(batches, written, strict=True):
        if header.producer_id >= 0:
            if not header.is_control:
                duplicate = state.check_append(header, origin)
                if duplicate is not None:
                    return duplicate
            elif (marker := marker_of(memoryview(records)[position:], header)) is not None:
                state.check_marker(header, marker, origin)
        position += size
    return None


def apply_producers(
    state: ProducerStateManager,
    records: Buffer,
    batches: Sequence[tuple[int, BatchHeader]],
    written: Sequence[tuple[int, int, int]],
    *,
    first_offset: int,
    index: TransactionIndex,
) -> None:
    """Applies a set that was just written; arguments as of `check_producers`.

    `first_offset` is the leader's first assigned offset; -1 if the headers have their own.
    """
    position = 0
    for (_, header), (last_offset, max_timestamp, size) in zip(batches, written, strict=True):
        if header.producer_id >= 0:
            if header.max_timestamp != max_timestamp:
                header = header._replace(max_timestamp=max_timestamp)
            completed = state.apply_append(
                header,
                first_offset=header.base_offset if first_offset < 0 else first_offset,
                last_offset=last_offset,
                marker=marker_of(memoryview(records)[position : position + size], header)
                if header.is_control
                else None,
            )
            if completed is not None:
                complete_transaction(state, completed, index)
        position += size
        if first_offset >= 0:
            first_offset = last_offset + 1


def replay_start(state: ProducerStateManager, segments: LogSegments, log_start_offset: int) -> int:
    """The offset from which a state that was just reloaded has to be replayed.

    Without a snapshot not the log start, but the first batch in the files: the records below the
    log start are deleted, but their producers live, and their transactions may be open.
    """
    start, first = state.map_end_offset, segments.first
    if start > log_start_offset or first is None:
        return start
    return min(start, first.base_offset)


def replay(
    state: ProducerStateManager, segments: Iterable[LogSegment], start: int, end: int
) -> None:
    """Applies the sound batches from offset `start` to `end`."""
    for segment in segments:
        place = segment.translate_offset(start)
        if place is not None:
            lowest = min(start, place.header.base_offset)
            for _, header, view, _ in segment.walk(place.position, next_offset=lowest):
                if header.base_offset >= end:
                    break
                if (completed := apply_batch(state, header, view)) is not None:
                    complete_transaction(state, completed, None)
    state.update_map_end_offset(end)
