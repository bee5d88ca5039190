"""Markers are judged by the end of their own transaction, whatever others have open."""

from odradek.client.range_reader import FetchedBatches
from odradek.records.builder import build_batch
from odradek.records.control import (
    ControlType,
    EndTransactionMarker,
    build_end_transaction_marker,
)
from odradek.spark.transactional.commits import KnownMarkers, _Reading
from odradek.spark.transactional.marker import Marker

KEY = b"ours"


def marker_of(batch: int) -> Marker:
    return Marker(batch=batch, digest="d", rows=1, transactional_id="t")


def written(
    offset: int, producer_id: int, batch: int, key: bytes = KEY, *, is_transactional: bool = True
) -> bytes:
    records = [(0, key, marker_of(batch).encode(), ())]
    return bytes(
        build_batch(
            records,
            base_offset=offset,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=is_transactional,
        )
    )


def ended(offset: int, producer_id: int, *, commits: bool) -> bytes:
    kind = ControlType.COMMIT if commits else ControlType.ABORT
    return bytes(
        build_end_transaction_marker(
            EndTransactionMarker(kind, 0),
            producer_id=producer_id,
            producer_epoch=0,
            timestamp_ms=0,
            base_offset=offset,
        )
    )


def read(*batches: bytes, last_stable_offset: int = 0) -> KnownMarkers:
    reading = _Reading(KEY)
    for batch in batches:
        reading.take(FetchedBatches(memoryview(batch), 0, 0, 0, 1, 1, -1, ()))
    return reading.end(last_stable_offset)


def test_commits_and_aborts_count_by_producer() -> None:
    """12:SP-24: others' open transactions block nobody."""
    found = read(
        written(0, 7, 99, b"a stranger"),
        written(1, 1, 4),
        ended(2, 1, commits=True),
        written(3, 1, 5),
        ended(4, 2, commits=True),
        ended(5, 1, commits=False),
    )
    assert found == KnownMarkers(marker_of(4), None)


def test_several_batches_in_one_answer() -> None:
    found = read(written(0, 1, 4) + ended(1, 1, commits=True) + written(2, 1, 5))
    assert found == KnownMarkers(marker_of(4), marker_of(5))


def test_without_a_control_batch_the_last_stable_offset_decides() -> None:
    """Compaction removes the end of a transaction, and keeps the last record of the key."""
    assert read(written(8, 1, 4), last_stable_offset=9).committed == marker_of(4)
    assert read(written(8, 1, 4), last_stable_offset=8) == KnownMarkers(None, marker_of(4))


def test_a_copy_of_the_topic_has_no_transactions() -> None:
    found = read(written(0, -1, 4, is_transactional=False))
    assert found.committed == marker_of(4)
    assert read() == KnownMarkers(None, None)
