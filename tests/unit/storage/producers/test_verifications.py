"""The first batch of a transaction needs its coordinator's word (10 sections 8.2 and 9.9)."""

from pathlib import Path

import pytest

from odradek.errors import ApiError, ErrorCode
from odradek.files import Disk
from odradek.model import AppendOrigin, TopicPartition
from odradek.records.batch import BatchHeader
from odradek.storage.producers.state import ProducerStateManager
from odradek.storage.producers.verifications import (
    MAX_VERIFICATIONS,
    Verification,
    VerificationSwitch,
)
from tests.support.producer_batches import (
    T,
    append,
    append_marker,
    data_batch,
    end_marker,
    marker_batch,
)


@pytest.fixture
def state(tmp_path: Path) -> ProducerStateManager:
    return ProducerStateManager(
        TopicPartition("t", 0),
        str(tmp_path),
        disk=Disk(),
        expiration_ms=1000,
        verification_switch=VerificationSwitch(is_on=True),
    )


def batch_of(sequence: int, *, epoch: int = 0, producer_id: int = 4000) -> BatchHeader:
    return data_batch(sequence, epoch=epoch, producer_id=producer_id, transactional=True)


def begin(
    state: ProducerStateManager, header: BatchHeader, *, begins_at_zero: bool = False
) -> Verification:
    return state.verifications.begin(header, T, begins_at_zero=begins_at_zero)


def confirm(state: ProducerStateManager, header: BatchHeader, verification: Verification) -> None:
    state.verifications.confirm(header.producer_id, header.producer_epoch, verification)


def error_of(
    state: ProducerStateManager, header: BatchHeader, origin: AppendOrigin = AppendOrigin.CLIENT
) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        append(state, header, origin)
    return caught.value.code


@pytest.mark.parametrize("origin", [AppendOrigin.CLIENT, AppendOrigin.COORDINATOR])
def test_a_batch_that_is_not_verified_opens_nothing(
    state: ProducerStateManager, origin: AppendOrigin
) -> None:
    """10:TX-11, 15:KAFKA-12671: nor one whose answer has not come."""
    header = batch_of(0)
    assert state.needs_verification(header)
    assert error_of(state, header, origin) is ErrorCode.INVALID_TXN_STATE
    verification = begin(state, header)
    assert error_of(state, header, origin) is ErrorCode.INVALID_TXN_STATE
    confirm(state, header, verification)
    assert append(state, header, origin) == 0
    assert state.first_unstable_offset == 0


def test_later_batches_of_the_transaction_need_none(state: ProducerStateManager) -> None:
    """10 section 9.9: (a), an open transaction."""
    confirm(state, batch_of(0), begin(state, batch_of(0)))
    append(state, batch_of(0))
    assert len(state.verifications) == 0
    assert not state.needs_verification(batch_of(1))
    assert append(state, batch_of(1)) == 1
    # One of a later epoch needs its own: the open transaction is not its.
    assert state.needs_verification(batch_of(0, epoch=1))
    assert error_of(state, batch_of(0, epoch=1)) is ErrorCode.INVALID_TXN_STATE


def test_a_repeated_batch_is_answered_after_its_transaction(state: ProducerStateManager) -> None:
    """10 section 8.2: row 1 comes before the verification."""
    confirm(state, batch_of(0), begin(state, batch_of(0)))
    append(state, batch_of(0))
    append_marker(state)
    assert not state.needs_verification(batch_of(0))
    duplicate = append(state, batch_of(0))
    assert not isinstance(duplicate, int)
    assert duplicate.first_offset == 0
    assert state.needs_verification(batch_of(1))


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_ends_a_verification_that_was_answered_before(
    state: ProducerStateManager, commit: bool
) -> None:
    """15:KAFKA-12671: the late batch behind the marker, verified or about to be."""
    header = batch_of(0)
    verification = begin(state, header)
    confirm(state, header, verification)
    append_marker(state, commit=commit)
    assert error_of(state, header) is ErrorCode.INVALID_TXN_STATE
    confirm(state, header, verification)
    assert error_of(state, header) is ErrorCode.INVALID_TXN_STATE


def test_an_answer_about_the_transaction_before_does_not_count(
    state: ProducerStateManager,
) -> None:
    """10 section 9.9: the verification is another one after a marker, also of the same epoch."""
    header = batch_of(0)
    earlier = begin(state, header)
    append_marker(state)
    later = begin(state, header)
    confirm(state, header, earlier)
    assert error_of(state, header) is ErrorCode.INVALID_TXN_STATE
    confirm(state, header, later)
    assert append(state, header) == 1


def test_an_answer_for_an_earlier_epoch_does_not_count(state: ProducerStateManager) -> None:
    old, new = batch_of(0), batch_of(0, epoch=1)
    earlier = begin(state, old)
    later = begin(state, new)
    confirm(state, old, earlier)
    assert error_of(state, old) is ErrorCode.INVALID_TXN_STATE
    assert error_of(state, new) is ErrorCode.INVALID_TXN_STATE
    # A batch of the earlier epoch does not take the later one's.
    assert begin(state, old) is later
    confirm(state, old, later)
    assert error_of(state, new) is ErrorCode.INVALID_TXN_STATE
    confirm(state, new, later)
    assert append(state, new) == 0


def test_no_batch_passes_an_earlier_one_that_could_not_be_verified(
    state: ProducerStateManager,
) -> None:
    """10 section 8.2, 15:KAFKA-14920: the lowest sequence that waits comes first."""
    first, second = batch_of(3), batch_of(4)
    verification = begin(state, first)
    begin(state, second)
    state.verifications.refuse(4000, verification, is_final=False)
    confirm(state, second, verification)
    assert error_of(state, second) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append(state, first) == 0
    assert append(state, second) == 1


def test_a_refused_batch_holds_up_no_other_one(state: ProducerStateManager) -> None:
    """Anybody can send a batch with the id of another producer."""
    forged, honest = batch_of(0), batch_of(7)
    state.verifications.refuse(4000, begin(state, forged), is_final=True)
    assert len(state.verifications) == 0
    confirm(state, honest, begin(state, honest))
    assert append(state, honest) == 0


def test_with_epochs_of_transactions_a_producer_begins_at_zero(
    state: ProducerStateManager,
) -> None:
    """10 section 9.9: Produce 12 of a producer that is unknown in the partition."""
    gap = batch_of(5)
    confirm(state, gap, begin(state, gap, begins_at_zero=True))
    assert error_of(state, gap) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    first = batch_of(0)
    confirm(state, first, begin(state, first, begins_at_zero=True))
    assert append(state, first) == 0


def test_without_such_epochs_it_may_continue(state: ProducerStateManager) -> None:
    """10:PR-7: its state may have expired."""
    header = batch_of(17)
    confirm(state, header, begin(state, header))
    assert append(state, header) == 0


def test_a_coordinators_batch_has_no_sequence(state: ProducerStateManager) -> None:
    """10 section 8.2: groups commit without one."""
    header = batch_of(0)._replace(base_sequence=-1)
    confirm(state, header, begin(state, header, begins_at_zero=True))
    for offset in range(2):
        assert append(state, header, AppendOrigin.COORDINATOR) == offset
    append_marker(state)
    assert state.needs_verification(header)
    # What is in the log counts from 0, in each batch: it repeats nothing.
    written = batch_of(0)
    confirm(state, header, begin(state, header))
    append(state, written, AppendOrigin.COORDINATOR)
    append_marker(state)
    assert error_of(state, written, AppendOrigin.COORDINATOR) is ErrorCode.INVALID_TXN_STATE


def test_followers_accept_what_their_leader_did(state: ProducerStateManager) -> None:
    """10 section 8.2: and what it replicates ends a verification of an earlier leadership."""
    header = batch_of(0)
    verification = begin(state, header)
    assert append(state, header, AppendOrigin.REPLICATION) == 0
    append_marker(state)
    confirm(state, header, verification)
    assert error_of(state, batch_of(1)) is ErrorCode.INVALID_TXN_STATE


def test_switched_off(state: ProducerStateManager) -> None:
    """transaction.partition.verification.enable"""
    state.verification_switch.is_on = False
    assert not state.needs_verification(batch_of(0))
    assert append(state, batch_of(0)) == 0


def test_switched_off_the_coordinator_is_still_told_of_the_partition(
    state: ProducerStateManager,
) -> None:
    """10 section 9.9: from Produce 12 on no other request tells it, and no marker would come."""
    state.verification_switch.is_on = False
    assert state.needs_verification(batch_of(0), adds=True)
    assert append(state, batch_of(0)) == 0
    assert not state.needs_verification(batch_of(1), adds=True)


def test_a_higher_epoch_that_is_only_claimed_does_not_keep_the_producer_out(
    state: ProducerStateManager,
) -> None:
    claimed = batch_of(0, epoch=32767)
    verification = begin(state, claimed)
    state.verifications.refuse(claimed.producer_id, verification, is_final=False)
    header = batch_of(0)
    confirm(state, header, begin(state, header))
    assert append(state, header) == 0


def test_questions_under_way_count_for_the_log_that_replaces_this_one(
    state: ProducerStateManager, tmp_path: Path
) -> None:
    """05 section 11: a move between directories ends while a coordinator is asked."""
    header = batch_of(0)
    verification = begin(state, header)
    replacement = ProducerStateManager(
        TopicPartition("t", 0),
        str(tmp_path),
        disk=Disk(),
        expiration_ms=1000,
        verification_switch=VerificationSwitch(is_on=True),
    )
    replacement.adopt(state)
    confirm(state, header, verification)
    assert append(replacement, header) == 0


def test_plain_batches_are_not_affected(state: ProducerStateManager) -> None:
    assert append(state, data_batch(0)) == 0
    assert append(state, data_batch(1)) == 1


def test_there_is_a_limit_to_them(state: ProducerStateManager) -> None:
    """Bounded memory: the oldest is dropped, and its batch is verified again."""
    oldest = begin(state, batch_of(0, producer_id=1))
    for producer_id in range(2, MAX_VERIFICATIONS + 2):
        begin(state, batch_of(0, producer_id=producer_id))
    assert len(state.verifications) == MAX_VERIFICATIONS
    confirm(state, batch_of(0, producer_id=1), oldest)
    assert error_of(state, batch_of(0, producer_id=1)) is ErrorCode.INVALID_TXN_STATE


def test_idle_ones_expire_with_their_producers(state: ProducerStateManager) -> None:
    """10 section 8.5."""
    begin(state, batch_of(0))
    state.remove_expired(T + 1000)
    assert len(state.verifications) == 1
    state.remove_expired(T + 1001)
    assert len(state.verifications) == 0


def test_the_version_of_a_transaction_decides_about_its_markers(
    state: ProducerStateManager,
) -> None:
    """10 section 16: under version 2 above the stored epoch, or equal with nothing open."""
    state.verification_switch.is_on = False
    append(state, batch_of(0, epoch=3))
    for version, epoch, is_refused in [(2, 3, True), (1, 2, True), (1, 3, False), (2, 4, False)]:
        header = marker_batch(epoch=epoch)
        if is_refused:
            with pytest.raises(ApiError) as caught:
                state.check_marker(header, end_marker(), transaction_version=version)
            assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
        else:
            state.check_marker(header, end_marker(), transaction_version=version)
    append_marker(state, epoch=4)
    state.check_marker(marker_batch(epoch=4), end_marker(), transaction_version=2)
