"""Producers of a partition: checks and updates, 10 §8.2, §8.3, §8.5, §10."""

import logging
from pathlib import Path

import pytest

from odradek.errors import ApiError, ErrorCode
from odradek.files import Disk
from odradek.model import AppendOrigin, TopicPartition
from odradek.records.batch import MAX_SEQUENCE
from odradek.storage.producers.entry import ProducerEntry
from odradek.storage.producers.state import (
    CachedBatch,
    CompletedTransaction,
    ProducerStateManager,
)
from tests.support.producer_batches import (
    T,
    append,
    append_marker,
    data_batch,
    end_marker,
    marker_batch,
)

EXPIRATION_MS = 86_400_000
CLIENT = AppendOrigin.CLIENT
COORDINATOR = AppendOrigin.COORDINATOR
REPLICATION = AppendOrigin.REPLICATION


@pytest.fixture
def state(tmp_path: Path) -> ProducerStateManager:
    return ProducerStateManager(
        TopicPartition("t", 0), str(tmp_path), disk=Disk(), expiration_ms=EXPIRATION_MS
    )


def refused(code: ErrorCode) -> "pytest.RaisesExc[ApiError]":
    return pytest.raises(ApiError, check=lambda error: error.code is code)


OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


# Sequences.


def test_last_five_batches_sent_again_are_answered_with_their_offsets(
    state: ProducerStateManager,
) -> None:
    """10:PR-1; 15:redpanda#3039: each of them, in any order, never as out of order."""
    state.update_map_end_offset(100)
    for sequence in range(0, 30, 5):
        append(state, data_batch(sequence, 5, timestamp=T + sequence))
    end = state.map_end_offset

    answers = [append(state, data_batch(sequence, 5)) for sequence in (25, 5, 15, 10, 20, 5)]

    assert answers == [
        CachedBatch(sequence + 4, 100 + sequence + 4, 4, T + sequence)
        for sequence in (25, 5, 15, 10, 20, 5)
    ]
    assert isinstance(answers[0], CachedBatch)
    assert (answers[0].first_sequence, answers[0].first_offset) == (25, 125)
    assert state.map_end_offset == end  # Nothing written.


@pytest.mark.parametrize("sequence", [-1, 0, 7, 2**31 - 3])
def test_plain_batches_of_a_recovery_are_folded_in_as_appends_are(
    state: ProducerStateManager, tmp_path: Path, sequence: int
) -> None:
    """Also where the sequence begins again at 0, and in a new epoch, which forgets the last one."""
    twin = ProducerStateManager(
        TopicPartition("t", 0), str(tmp_path), disk=Disk(), expiration_ms=EXPIRATION_MS
    )
    for number, epoch in enumerate((0, 0, 1, 1, 1)):
        header = data_batch(sequence, 5, epoch=epoch, timestamp=T + number)._replace(
            base_offset=10 * number
        )
        state.apply_append(header, first_offset=header.base_offset, last_offset=header.last_offset)
        twin.apply_plain(
            header.base_offset,
            header.last_offset_delta,
            header.max_timestamp,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
        )
    assert repr(twin.producers) == repr(state.producers)
    assert twin.map_end_offset == state.map_end_offset


def test_batch_older_than_the_last_five_is_out_of_order(state: ProducerStateManager) -> None:
    """10:PR-2."""
    for sequence in range(0, 30, 5):
        append(state, data_batch(sequence, 5))

    with refused(OUT_OF_ORDER):
        append(state, data_batch(0, 5))


@pytest.mark.parametrize(("sequence", "count"), [(5, 4), (6, 4), (5, 6), (4, 6)])
def test_batch_that_only_overlaps_a_cached_one_is_no_duplicate(
    state: ProducerStateManager, sequence: int, count: int
) -> None:
    for first in range(0, 15, 5):
        append(state, data_batch(first, 5))

    with refused(OUT_OF_ORDER):
        append(state, data_batch(sequence, count))


def test_gap_is_refused_and_the_right_batch_accepted_afterwards(
    state: ProducerStateManager,
) -> None:
    """10:PR-3."""
    append(state, data_batch(0, 5))

    with refused(OUT_OF_ORDER) as caught:
        append(state, data_batch(6, 5))

    assert append(state, data_batch(5, 5)) == 5
    assert "t-0: expected sequence 5 of producer 4000 epoch 0, found 6" in str(caught.value)


def test_new_epoch_begins_at_sequence_zero(state: ProducerStateManager) -> None:
    """10:PR-4."""
    append(state, data_batch(0, 5))

    with refused(OUT_OF_ORDER):
        append(state, data_batch(3, 5, epoch=1))
    with refused(OUT_OF_ORDER):  # Not even the one that would follow in the old epoch.
        append(state, data_batch(5, 5, epoch=1))

    assert append(state, data_batch(0, 5, epoch=1)) == 5
    assert [batch.last_offset for batch in state.producers[4000].batches] == [9]


def test_old_epoch_is_fenced(state: ProducerStateManager) -> None:
    """10:PR-5; also for what would be a duplicate within its own epoch."""
    append(state, data_batch(0, 5, epoch=3))
    append(state, data_batch(0, 5, epoch=4))

    for sequence in (0, 5):
        with refused(ErrorCode.INVALID_PRODUCER_EPOCH) as caught:
            append(state, data_batch(sequence, 5, epoch=3))

    assert "t-0: expected epoch 4 or later of producer 4000, found 3" in str(caught.value)


def test_sequence_wraps_within_a_batch(state: ProducerStateManager) -> None:
    """10:PR-6."""
    append(state, data_batch(MAX_SEQUENCE - 1))
    assert state.producers[4000].batches[-1].last_sequence == 2147483646

    append(state, data_batch(MAX_SEQUENCE, 3))
    batch = state.producers[4000].batches[-1]
    assert (batch.first_sequence, batch.last_sequence) == (MAX_SEQUENCE, 1)
    assert append(state, data_batch(MAX_SEQUENCE, 3)) == batch
    with refused(OUT_OF_ORDER):
        append(state, data_batch(3))
    assert append(state, data_batch(2)) == 4


def test_sequence_wraps_between_batches(state: ProducerStateManager) -> None:
    append(state, data_batch(MAX_SEQUENCE - 1, 2))

    with refused(OUT_OF_ORDER):
        append(state, data_batch(1))
    assert append(state, data_batch(0)) == 2


def test_unknown_producer_may_begin_anywhere(state: ProducerStateManager) -> None:
    """10:PR-7 (KIP-360)."""
    assert append(state, data_batch(17)) == 0
    with refused(OUT_OF_ORDER):
        append(state, data_batch(19))


def test_entry_without_an_epoch_accepts_any_sequence(state: ProducerStateManager) -> None:
    state.producers[4000] = ProducerEntry(4000, -1)
    assert state.check_append(data_batch(17, epoch=2), CLIENT) is None
    assert state.check_append(data_batch(17, epoch=-1), CLIENT) is None


def test_producer_known_by_a_marker_only_begins_at_zero(state: ProducerStateManager) -> None:
    append_marker(state, epoch=2)

    with refused(OUT_OF_ORDER):
        append(state, data_batch(1, epoch=2))
    assert append(state, data_batch(0, epoch=2)) == 1


def test_marker_of_a_new_epoch_forgets_the_batches(state: ProducerStateManager) -> None:
    append(state, data_batch(0, transactional=True))
    append_marker(state, epoch=1, commit=False)

    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        append(state, data_batch(1, transactional=True))
    assert append(state, data_batch(0, epoch=1, transactional=True)) == 2


def test_marker_of_the_same_epoch_keeps_the_batches(state: ProducerStateManager) -> None:
    append(state, data_batch(0, transactional=True))
    append_marker(state)

    assert isinstance(append(state, data_batch(0, transactional=True)), CachedBatch)
    assert append(state, data_batch(1, transactional=True)) == 2


# Other origins.


def test_coordinator_is_checked_for_its_epoch_only(state: ProducerStateManager) -> None:
    append(state, data_batch(-1, 3, epoch=2, transactional=True), COORDINATOR)

    assert append(state, data_batch(-1, 3, epoch=2, transactional=True), COORDINATOR) == 3
    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        append(state, data_batch(-1, 3, epoch=1, transactional=True), COORDINATOR)
    with refused(ErrorCode.INVALID_TXN_STATE):
        append(state, data_batch(-1, 3, epoch=2), COORDINATOR)


def test_follower_takes_what_the_leader_accepted(
    state: ProducerStateManager, caplog: pytest.LogCaptureFixture
) -> None:
    append(state, data_batch(0, epoch=2, transactional=True), REPLICATION)
    append_marker(state, epoch=2, coordinator_epoch=5)
    caplog.set_level(logging.INFO)

    assert append(state, data_batch(7, epoch=2), REPLICATION) == 2
    assert caplog.messages == []
    assert append(state, data_batch(3, epoch=1), REPLICATION) == 3
    assert state.producers[4000].producer_epoch == 1  # As the log has it.
    state.check_marker(marker_batch(epoch=0), end_marker(coordinator_epoch=4), REPLICATION)
    assert [message.split(": ")[2] for message in caplog.messages] == [
        "expected epoch 2 or later of producer 4000, found 1",
        "expected epoch 1 or later of producer 4000, found 0",
        "expected a marker of coordinator epoch 5 or later for producer 4000, found 4",
    ]


def test_checks_change_nothing(state: ProducerStateManager) -> None:
    append(state, data_batch(0, 5))
    before = repr(state.producers[4000])

    state.check_append(data_batch(5, 5, transactional=True), CLIENT)
    state.check_append(data_batch(0, epoch=1), CLIENT)
    state.check_append(data_batch(0, producer_id=1), CLIENT)
    state.check_marker(marker_batch(epoch=3), end_marker(coordinator_epoch=9))
    state.check_marker(marker_batch(producer_id=1), end_marker())

    assert repr(state.producers[4000]) == before
    assert list(state.producers) == [4000]
    assert state.first_unstable_offset is None


# Transactions.


def test_batch_outside_of_the_open_transaction_is_refused(state: ProducerStateManager) -> None:
    append(state, data_batch(0, transactional=True))

    with refused(ErrorCode.INVALID_TXN_STATE) as caught:
        append(state, data_batch(1))

    assert "producer 4000, whose transaction is open since offset 0" in str(caught.value)
    append_marker(state)
    assert append(state, data_batch(1)) == 2


def test_duplicate_is_answered_before_all_other_checks(state: ProducerStateManager) -> None:
    append(state, data_batch(0))
    append(state, data_batch(1, transactional=True))
    assert isinstance(append(state, data_batch(0)), CachedBatch)


def test_wrong_sequence_is_told_before_the_wrong_transaction_state(
    state: ProducerStateManager,
) -> None:
    append(state, data_batch(0, transactional=True))
    with refused(OUT_OF_ORDER):
        append(state, data_batch(5))


@pytest.mark.parametrize("commit", [True, False])
def test_marker_ends_the_transaction(state: ProducerStateManager, commit: bool) -> None:
    state.update_map_end_offset(10)
    append(state, data_batch(0, 5, transactional=True))
    append(state, data_batch(5, 5, transactional=True))
    assert state.producers[4000].current_transaction_first_offset == 10

    completed = append_marker(state, commit=commit, coordinator_epoch=7)

    assert completed == CompletedTransaction(4000, 10, 20, is_aborted=not commit)
    entry = state.producers[4000]
    assert (entry.current_transaction_first_offset, entry.coordinator_epoch) == (None, 7)
    assert state.map_end_offset == 21


def test_marker_without_a_transaction_changes_epochs_only(state: ProducerStateManager) -> None:
    assert append_marker(state, epoch=3, coordinator_epoch=2) is None
    assert append_marker(state, epoch=4, coordinator_epoch=2) is None

    entry = state.producers[4000]
    assert (entry.producer_epoch, entry.coordinator_epoch) == (4, 2)
    assert state.first_unstable_offset is None
    assert state.map_end_offset == 2


def test_old_coordinator_is_fenced(state: ProducerStateManager) -> None:
    append(state, data_batch(0, transactional=True))
    append_marker(state, coordinator_epoch=5)

    with refused(ErrorCode.TRANSACTION_COORDINATOR_FENCED) as caught:
        append_marker(state, coordinator_epoch=4)

    assert "expected a marker of coordinator epoch 5 or later" in str(caught.value)
    assert append_marker(state, coordinator_epoch=5) is None


def test_marker_of_an_old_producer_epoch_is_fenced(state: ProducerStateManager) -> None:
    append(state, data_batch(0, epoch=2, transactional=True))
    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        append_marker(state, epoch=1)
    assert state.producers[4000].current_transaction_first_offset == 0


def test_emptied_control_batch_is_ignored(state: ProducerStateManager) -> None:
    append(state, data_batch(0, transactional=True))
    header = marker_batch(epoch=9, count=0)

    assert state.apply_append(header, first_offset=1, last_offset=1) is None

    entry = state.producers[4000]
    assert (entry.producer_epoch, entry.current_transaction_first_offset) == (0, 0)
    assert state.map_end_offset == 2


def test_unstable_offset_with_interleaved_producers(state: ProducerStateManager) -> None:
    """Two transactions, the second one ends first; high watermark behind all the time."""
    append(state, data_batch(0, 5, producer_id=1, transactional=True))  # 0-4
    append(state, data_batch(0, 5, producer_id=2, transactional=True))  # 5-9
    append(state, data_batch(5, 5, producer_id=1, transactional=True))  # 10-14
    assert state.first_unstable_offset == 0

    second = append_marker(state, producer_id=2, commit=False)  # 15
    assert second == CompletedTransaction(2, 5, 15, is_aborted=True)
    assert state.last_stable_offset_for(second) == 0
    state.complete_transaction(second)
    assert state.first_unstable_offset == 0

    first = append_marker(state, producer_id=1)  # 16
    assert first == CompletedTransaction(1, 0, 16, is_aborted=False)
    assert state.last_stable_offset_for(first) == 17
    assert state.first_unstable_offset == 0
    state.complete_transaction(first)
    assert state.first_unstable_offset == 0

    state.on_high_watermark_updated(16)  # The second one's marker is replicated, not the first's.
    assert state.first_unstable_offset == 0
    state.on_high_watermark_updated(17)
    assert state.first_unstable_offset is None


def test_transaction_is_unstable_until_it_is_completed(state: ProducerStateManager) -> None:
    """The marker alone does not do: its index entry comes first, and may fail."""
    append(state, data_batch(0, transactional=True))
    completed = append_marker(state, commit=False)
    assert completed is not None
    state.on_high_watermark_updated(2)
    assert state.first_unstable_offset == 0
    state.complete_transaction(completed)
    state.on_high_watermark_updated(2)
    assert state.first_unstable_offset is None


# Expiry and log start.


def test_idle_producer_expires_and_continues_as_an_unknown_one(
    state: ProducerStateManager,
) -> None:
    """10:PR-10."""
    append(state, data_batch(0, 5))

    assert state.remove_expired(T + EXPIRATION_MS - 1) == 0
    assert state.remove_expired(T + EXPIRATION_MS) == 1

    assert state.is_empty
    assert append(state, data_batch(5, 5)) == 5


def test_open_transaction_never_expires(state: ProducerStateManager) -> None:
    append(state, data_batch(0, transactional=True))
    assert state.remove_expired(T + 10 * EXPIRATION_MS) == 0
    append_marker(state)
    assert state.remove_expired(T + EXPIRATION_MS) == 1


def test_marker_keeps_a_producer_alive(state: ProducerStateManager) -> None:
    """15:KAFKA-9144: the coordinator epoch is still known when only the data is old."""
    append(state, data_batch(0, transactional=True))
    append_marker(state, coordinator_epoch=5, timestamp=T + EXPIRATION_MS - 1)

    assert state.remove_expired(T + EXPIRATION_MS) == 0

    with refused(ErrorCode.TRANSACTION_COORDINATOR_FENCED):
        append_marker(state, coordinator_epoch=4)


def test_log_start_leaves_producers_alone(state: ProducerStateManager) -> None:
    """15:KAFKA-7190: all records are deleted, next batch and duplicates are still known."""
    append(state, data_batch(0, 5))
    append(state, data_batch(5, 5))

    state.on_log_start_offset_incremented(10)

    assert isinstance(append(state, data_batch(5, 5)), CachedBatch)
    with refused(OUT_OF_ORDER):
        append(state, data_batch(11))
    assert append(state, data_batch(10)) == 10


def test_log_start_beyond_the_state_moves_its_end(state: ProducerStateManager) -> None:
    state.on_log_start_offset_incremented(50)
    assert state.map_end_offset == 50
    assert state.take_snapshot() is None  # It would never be loaded.


def test_the_state_of_a_replaced_log_is_richer_if_it_knows_more_producers(
    state: ProducerStateManager, tmp_path: Path
) -> None:
    """Then the records alone do not show it, and it is written to the disk."""
    copies = [
        ProducerStateManager(
            TopicPartition("t", 0), str(tmp_path), disk=Disk(), expiration_ms=86_400_000
        )
        for _ in range(2)
    ]
    append(state, data_batch(0, producer_id=1))
    append(copies[0], data_batch(0, producer_id=1))
    assert not copies[0].adopt(state)
    assert copies[1].adopt(state)
    assert copies[1].producers.keys() == {1}
