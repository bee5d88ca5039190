"""Headers of producers' batches, and a manager fed with them as a log would."""

from odradek.model import AppendOrigin
from odradek.records.batch import CONTROL_MASK, TRANSACTIONAL_MASK, BatchHeader
from odradek.records.control import ControlType, EndTransactionMarker
from odradek.storage.producers.state import (
    CachedBatch,
    CompletedTransaction,
    ProducerStateManager,
)

__all__ = ["T", "append", "append_marker", "data_batch", "end_marker", "marker_batch"]

T = 1_700_000_000_000


def data_batch(
    sequence: int,
    count: int = 1,
    *,
    producer_id: int = 4000,
    epoch: int = 0,
    timestamp: int = T,
    transactional: bool = False,
) -> BatchHeader:
    return BatchHeader(
        base_offset=0,
        length=100,
        leader_epoch=0,
        magic=2,
        crc=0,
        attributes=TRANSACTIONAL_MASK if transactional else 0,
        last_offset_delta=count - 1,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        record_count=count,
    )


def marker_batch(
    *, producer_id: int = 4000, epoch: int = 0, timestamp: int = T, count: int = 1
) -> BatchHeader:
    return data_batch(-1, producer_id=producer_id, epoch=epoch, timestamp=timestamp)._replace(
        attributes=TRANSACTIONAL_MASK | CONTROL_MASK, record_count=count
    )


def end_marker(*, commit: bool = True, coordinator_epoch: int = 0) -> EndTransactionMarker:
    return EndTransactionMarker(
        ControlType.COMMIT if commit else ControlType.ABORT, coordinator_epoch
    )


def append(
    state: ProducerStateManager,
    header: BatchHeader,
    origin: AppendOrigin = AppendOrigin.CLIENT,
) -> CachedBatch | int:
    """Checks a batch and, unless it is a duplicate, applies it at the end of the log.

    Returns the duplicate, or the offset the batch was given.
    """
    duplicate = state.check_append(header, origin)
    if duplicate is not None:
        return duplicate
    first_offset = state.map_end_offset
    state.apply_append(
        header, first_offset=first_offset, last_offset=first_offset + header.last_offset_delta
    )
    return first_offset


def append_marker(
    state: ProducerStateManager,
    *,
    producer_id: int = 4000,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    commit: bool = True,
    timestamp: int = T,
) -> CompletedTransaction | None:
    """Checks and applies a marker at the end of the log; the transaction is not completed yet."""
    header = marker_batch(producer_id=producer_id, epoch=epoch, timestamp=timestamp)
    marker = end_marker(commit=commit, coordinator_epoch=coordinator_epoch)
    state.check_marker(header, marker)
    offset = state.map_end_offset
    return state.apply_append(header, first_offset=offset, last_offset=offset, marker=marker)
