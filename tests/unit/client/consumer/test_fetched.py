"""Records out of an answer: order, positions, transactions, bad bytes."""

import pytest

from odradek.client.consumer.fetched import FetchedData
from odradek.client.consumer.partition_state import AssignedPartition, Stage
from odradek.errors import CorruptRecordError, InvalidRecordError, RecordTooLargeError
from odradek.model import TopicPartition
from odradek.records.builder import build_batch
from odradek.records.columns import ColumnBuilder
from odradek.records.control import ControlType, EndTransactionMarker, build_end_transaction_marker


def batch(base_offset: int, *values: bytes, producer_id: int = -1, epoch: int = 3) -> bytes:
    return bytes(
        build_batch(
            [(1000 + index, None, value, ()) for index, value in enumerate(values)],
            base_offset=base_offset,
            leader_epoch=epoch,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=0 if producer_id >= 0 else -1,
            is_transactional=producer_id >= 0,
        )
    )


def marker(offset: int, producer_id: int, kind: ControlType) -> bytes:
    return bytes(
        build_end_transaction_marker(
            EndTransactionMarker(kind, 0),
            producer_id=producer_id,
            producer_epoch=0,
            timestamp_ms=0,
            base_offset=offset,
        )
    )


def fetched(
    data: bytes, offset: int = 0, aborted: list[tuple[int, int]] | None = None
) -> FetchedData:
    state = AssignedPartition(TopicPartition("t", 2))
    state.seek(offset)
    return FetchedData(state, data, offset, aborted=aborted)


def values(data: FetchedData, count: int = 1000) -> list[bytes | None]:
    return [record.value for record in data.take(count)]


def test_records_come_in_pieces_and_the_position_follows_what_was_handed_out() -> None:
    """09:CL-21."""
    data = fetched(batch(10, b"a", b"b", b"c") + batch(13, b"d", epoch=4), offset=10)
    assert data.state.position == 10
    assert values(data, 2) == [b"a", b"b"]
    assert (data.state.position, data.state.position_epoch) == (12, 3)
    assert values(data, 5) == [b"c", b"d"]
    assert (data.state.position, data.state.position_epoch) == (14, 4)
    assert data.is_drained
    assert values(data) == []


def test_records_before_the_position_are_left_out() -> None:
    data = fetched(batch(10, b"a", b"b", b"c"), offset=12)
    [record] = data.take(10)
    assert (record.topic, record.partition, record.offset, record.value) == ("t", 2, 12, b"c")


def test_a_batch_that_is_cut_short_is_left_for_the_next_answer() -> None:
    whole = batch(0, b"a")
    data = fetched(whole + batch(1, b"b")[:-1])
    assert data.end_offset() == 1
    assert values(data) == [b"a"]
    assert data.state.position == 1


def test_an_answer_without_one_whole_batch_is_an_error() -> None:
    data = fetched(batch(0, b"a")[:-1])
    with pytest.raises(RecordTooLargeError, match="t-2: no whole batch at offset 0"):
        data.check_first()
    fetched(b"").check_first()


def test_aborted_transactions_are_passed_over_until_their_marker() -> None:
    """09:CL-25."""
    data = fetched(
        batch(0, b"plain")
        + batch(1, b"aborted", producer_id=7)
        + batch(2, b"committed", producer_id=8)
        + marker(3, 7, ControlType.ABORT)
        + batch(4, b"later", producer_id=7)
        + marker(5, 7, ControlType.COMMIT)
        + marker(6, 8, ControlType.COMMIT),
        aborted=[(7, 1)],
    )
    assert values(data) == [b"plain", b"committed", b"later"]
    assert data.state.position == 7


def test_without_read_committed_only_markers_are_passed_over() -> None:
    """09:CL-25."""
    data = fetched(batch(0, b"aborted", producer_id=7) + marker(1, 7, ControlType.ABORT))
    assert values(data) == [b"aborted"]
    assert data.take(1) == []
    assert data.state.position == 2


def test_a_damaged_batch_is_met_after_what_comes_before_it() -> None:
    good, bad = batch(0, b"a"), bytearray(batch(1, b"b"))
    bad[-2] ^= 0xFF
    data = fetched(good + bytes(bad))
    assert values(data, 1) == [b"a"]
    with pytest.raises(CorruptRecordError, match="t-2: the batch at offset 1"):
        data.take(1)
    assert data.state.position == 1


def test_checksums_are_not_looked_at_if_nobody_wants_it() -> None:
    bad = bytearray(batch(0, b"bbbb"))
    bad[-3] ^= 0x01
    state = AssignedPartition(TopicPartition("t", 0))
    data = FetchedData(state, bytes(bad), 0, check_crcs=False)
    assert values(data) != [b"bbbb"]


def test_malformed_records_are_an_error() -> None:
    bad = bytearray(batch(0, b"bbbb"))
    bad[61] = 0x7E  # The length of the first record.
    data = FetchedData(AssignedPartition(TopicPartition("t", 0)), bytes(bad), 0, check_crcs=False)
    with pytest.raises(InvalidRecordError):
        data.take(1)


def test_columns_take_whole_batches_and_move_the_same_position() -> None:
    """09:CL-28."""
    data = fetched(
        batch(0, b"a", b"b") + marker(2, 7, ControlType.COMMIT) + batch(3, b"c"), offset=1
    )
    builder = ColumnBuilder()
    assert data.take_columns(builder, max_bytes=1) > 0
    assert builder.count == 1
    assert data.state.position == 2
    data.take_columns(builder, max_bytes=1 << 20)
    assert builder.count == 2
    assert data.state.position == 4
    assert bytes(builder.finish().value.data) == b"bc"
    assert data.is_drained


def test_both_ways_may_be_mixed() -> None:
    """09:CL-28."""
    data = fetched(batch(0, b"a", b"b") + batch(2, b"c"))
    assert values(data, 1) == [b"a"]
    assert data.rest_count == 1
    assert values(data, data.rest_count) == [b"b"]
    builder = ColumnBuilder()
    data.take_columns(builder, max_bytes=1 << 20)
    assert bytes(builder.finish().value.data) == b"c"


def test_a_seek_makes_a_state_ready_and_what_was_fetched_stale() -> None:
    """09:CL-21."""
    state = AssignedPartition(TopicPartition("t", 0))
    is_fetchable = [state.is_fetchable]
    before = state.version
    state.seek(4)
    is_fetchable.append(state.is_fetchable)
    assert (state.stage, state.position) == (Stage.READY, 4)
    assert state.version != before
    state.is_paused = True
    is_fetchable.append(state.is_fetchable)
    assert is_fetchable == [False, True, False]
    state.reset()
    assert (state.stage, state.position) == (Stage.AWAIT_RESET, None)
