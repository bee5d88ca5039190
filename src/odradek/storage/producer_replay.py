"""Folding a stored batch into the producer state, and an aborted transaction into its index.

Appending, loading and recovering all come through here, so that they agree byte for byte.
"""

import logging
from collections.abc import Iterable

from odradek.errors import ApiError
from odradek.records.batch import BatchHeader, Buffer
from odradek.records.control import EndTransactionMarker, parse_end_transaction_marker
from odradek.storage.producer_state import CompletedTransaction, ProducerStateManager
from odradek.storage.segment import LogSegment
from odradek.storage.transaction_index import AbortedTransaction, TransactionIndex

__all__ = ["aborted_transaction", "apply_batch", "complete_transaction", "marker_of", "replay"]

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
    """Folds in a batch as it is stored; returns the transaction that its marker ended."""
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
    """Writes an aborted transaction to the index, then lets the stable offset pass it."""
    if completed.is_aborted and index is not None:
        index.append(aborted_transaction(state, completed))
    state.complete_transaction(completed)


def replay(
    state: ProducerStateManager, segments: Iterable[LogSegment], start: int, end: int
) -> None:
    """Brings the state from offset `start` to `end` by the headers of the batches between."""
    for segment in segments:
        place = segment.translate_offset(start)
        if place is not None:
            for _, header, view, _ in segment.scan(place.position):
                if header.base_offset >= end:
                    break
                if (completed := apply_batch(state, header, view)) is not None:
                    complete_transaction(state, completed, None)
    state.update_map_end_offset(end)
