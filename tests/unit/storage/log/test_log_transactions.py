"""Transactions in one log: last stable offset, aborted transactions (10 section 10, 01 10.4).

A transaction is open (its first batch is there), ended (its marker is there) and, once the marker
is below the high watermark, decided for readers.
"""

import errno
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.errors import ApiError, ErrorCode, StorageError
from odradek.model import AppendOrigin
from odradek.storage.indexes.transaction_index import AbortedTransaction
from odradek.storage.log.config import LogConfig
from odradek.storage.log.log import Log
from odradek.storage.log.offsets import LogOffsetMetadata
from odradek.storage.log.reader import FetchIsolation
from odradek.testing import SimDisk
from tests.support.log_scenarios import (
    UnsyncedDisk,
    abort,
    append_leader,
    bases,
    commit,
    found_offsets,
    idempotent,
    transactional,
    visible,
)
from tests.support.logs import T0, LogFixture, batch, marker, offsets, read_all

A, B, C = 1, 2, 3  # Producers.


@pytest.fixture
def fixture(tmp_path: Path) -> Iterator[LogFixture]:
    with LogFixture(tmp_path, disk=UnsyncedDisk()) as fixture:
        yield fixture


@pytest.fixture
def log(fixture: LogFixture) -> Log:
    return fixture.open()


def replicate(log: Log) -> None:
    """Everything is committed to all replicas."""
    log.update_high_watermark(log.log_end_offset)


def aborted(log: Log, start: int = 0, max_length: int = 1 << 20) -> list[tuple[int, int]]:
    """(producer, first offset) of each aborted transaction that a read lists."""
    result = log.read(start, max_length, FetchIsolation.TXN_COMMITTED)
    assert result.aborted_transactions is not None
    return [(t.producer_id, t.first_offset) for t in result.aborted_transactions]


# Last stable offset


def test_open_transaction_holds_it_back(log: Log) -> None:
    append_leader(log, batch(3))
    append_leader(log, transactional(0, 2, producer_id=A))
    append_leader(log, batch(3))
    replicate(log)

    assert log.offsets() == (0, 8, 8, 3)
    assert found_offsets(log.read(0, 1000, FetchIsolation.TXN_COMMITTED)) == [0, 1, 2]
    assert found_offsets(log.read(0, 1000, FetchIsolation.HIGH_WATERMARK)) == list(range(8))


def test_high_watermark_below_an_open_transaction(log: Log) -> None:
    append_leader(log, batch(3))
    append_leader(log, transactional(0, 2, producer_id=A))
    log.update_high_watermark(2)

    assert log.last_stable_offset == 2


def test_commit_counts_once_its_marker_is_replicated(log: Log) -> None:
    """Not when it is appended: a marker that is lost again must not have shown anything."""
    append_leader(log, transactional(0, 2, producer_id=A))
    replicate(log)
    commit(log, A)
    assert (log.high_watermark, log.last_stable_offset) == (2, 0)
    assert visible(log) == []

    replicate(log)

    assert log.last_stable_offset == 3
    assert visible(log) == [0, 1]


def test_abort_is_never_visible(log: Log) -> None:
    append_leader(log, batch(2))
    append_leader(log, transactional(0, 3, producer_id=A))
    append_leader(log, batch(1))
    abort(log, A)
    replicate(log)

    assert log.last_stable_offset == 7
    assert visible(log) == [0, 1, 5]
    assert aborted(log) == [(A, 2)]
    plain = log.read(0, 1000, FetchIsolation.HIGH_WATERMARK)
    assert found_offsets(plain) == list(range(7))
    assert plain.aborted_transactions is None


def test_interleaved_producers(log: Log) -> None:
    """What one has committed stays hidden behind the other's open transaction."""
    append_leader(log, transactional(0, 2, producer_id=A))
    append_leader(log, transactional(0, 2, producer_id=B))
    append_leader(log, transactional(2, 1, producer_id=A))
    commit(log, B)
    replicate(log)
    assert log.last_stable_offset == 0
    assert visible(log) == []

    abort(log, A)
    replicate(log)

    assert log.last_stable_offset == 7
    assert visible(log) == [2, 3]
    assert aborted(log) == [(A, 0)]


def test_earliest_open_transaction_counts(log: Log) -> None:
    for producer in (A, B, C):
        append_leader(log, transactional(0, 2, producer_id=producer))
    replicate(log)
    seen = []
    for producer in (B, A, C):
        abort(log, producer)
        replicate(log)
        seen.append(log.last_stable_offset)

    assert seen == [0, 4, 9]


def test_place_of_the_last_stable_offset(fixture: LogFixture) -> None:
    """It is resolved anew when it moves, also into another segment."""
    log = fixture.open(config=LogConfig(segment_bytes=300))
    for number in range(3):
        append_leader(log, batch(size=100))
        append_leader(log, transactional(0, producer_id=number, size=100))
    replicate(log)
    assert bases(log) == [0, 3]
    places = []
    for number in range(3):
        places.append(log.fetch_last_stable_offset_metadata())
        assert visible(log) == [o for o in range(2 * number + 1) if o % 2 == 0]
        abort(log, number)
        replicate(log)

    assert places == [
        LogOffsetMetadata(1, 0, 100),
        LogOffsetMetadata(3, 3, 0),
        LogOffsetMetadata(5, 3, 200),
    ]


def test_empty_read_in_front_of_an_open_transaction(log: Log) -> None:
    append_leader(log, transactional(0, 2, producer_id=A))
    replicate(log)

    result = log.read(0, 1000, FetchIsolation.TXN_COMMITTED)

    assert (result.read(), result.aborted_transactions) == (b"", [])
    assert result.offset_metadata == LogOffsetMetadata(0, 0, 0)


# The list of aborted transactions


def test_list_names_transactions_that_began_before_the_fetch(log: Log) -> None:
    """Else a client that starts in the middle would take the rest for good."""
    append_leader(log, transactional(0, 2, producer_id=A))
    append_leader(log, batch(2))
    append_leader(log, transactional(2, 2, producer_id=A))
    abort(log, A)
    replicate(log)

    assert aborted(log, 4) == [(A, 0)]
    assert visible(log, 4) == []
    assert aborted(log, 6) == [(A, 0)]
    append_leader(log, batch())
    replicate(log)
    assert aborted(log, 7) == []


def test_marker_in_a_later_segment(fixture: LogFixture) -> None:
    """The index that lists a transaction is that of its marker."""
    log = fixture.open(config=LogConfig(segment_bytes=300))
    append_leader(log, transactional(0, producer_id=A, size=100))
    for _ in range(6):
        append_leader(log, batch(size=100))
    abort(log, A)
    append_leader(log, transactional(1, producer_id=A, size=100))
    commit(log, A)
    replicate(log)
    with_entries = [s.base_offset for s in log.segments if s.transaction_index.all_entries()]
    assert (bases(log), with_entries) == ([0, 3, 6, 9], [6])

    assert aborted(log, 0) == [(A, 0)]
    assert visible(log) == [1, 2, 3, 4, 5, 6, 8]


def test_index_entries_carry_the_last_stable_offset(log: Log) -> None:
    """10 section 10: that of the earliest other open transaction, or behind the marker."""
    append_leader(log, transactional(0, 2, producer_id=A))
    append_leader(log, transactional(0, 2, producer_id=B))
    abort(log, A)
    abort(log, B)

    assert log.active.transaction_index.all_entries() == (
        AbortedTransaction(A, 0, 4, 2),
        AbortedTransaction(B, 2, 5, 6),
    )


def test_read_that_ends_before_an_aborted_transaction(fixture: LogFixture) -> None:
    """A read of one batch does not list all that was ever aborted."""
    log = fixture.open(config=LogConfig(index_interval_bytes=0))
    for number in range(50):
        append_leader(log, transactional(0, producer_id=number))
        abort(log, number)
    replicate(log)

    assert aborted(log, 0, 1)[0] == (0, 0)
    assert len(aborted(log, 0, 1)) < 5
    assert len(aborted(log, 0)) == 50


@pytest.mark.parametrize("clean", [True, False])
def test_list_survives_a_restart(fixture: LogFixture, clean: bool) -> None:
    log = fixture.open(config=LogConfig(segment_bytes=400))
    for number in range(5):
        append_leader(log, transactional(0, producer_id=number, size=100))
        append_leader(log, batch(size=100))
        (abort if number % 2 else commit)(log, number)
    append_leader(log, transactional(0, producer_id=99))
    append_leader(log, batch())
    replicate(log)
    before = visible(log), aborted(log), log.last_stable_offset
    entries = [s.transaction_index.all_entries() for s in log.segments]

    log = fixture.reopen(clean=clean)
    replicate(log)

    assert (visible(log), aborted(log), log.last_stable_offset) == before
    assert [s.transaction_index.all_entries() for s in log.segments] == entries


def test_random_histories(fixture: LogFixture) -> None:
    """Any interleaving: consumers see exactly the committed and the plain records."""
    rng = random.Random(7)
    log = fixture.open(config=LogConfig(segment_bytes=900, index_interval_bytes=100))
    sequences = dict.fromkeys(range(6), 0)
    open_records: dict[int, list[int]] = {}
    good: set[int] = set()
    for _ in range(300):
        producer = rng.randrange(6)
        kind = rng.random()
        if kind < 0.2:
            info = append_leader(log, batch(2))
            good.update((info.last_offset - 1, info.last_offset))
        elif kind < 0.7:
            info = append_leader(log, transactional(sequences[producer], producer_id=producer))
            sequences[producer] += 1
            open_records.setdefault(producer, []).append(info.last_offset)
        elif kind < 0.85:
            commit(log, producer)
            good.update(open_records.pop(producer, ()))
        else:
            abort(log, producer)
            open_records.pop(producer, None)
        if rng.random() < 0.3:
            replicate(log)
    replicate(log)

    stable = min((records[0] for records in open_records.values()), default=log.log_end_offset)
    assert log.last_stable_offset == stable
    for start in (0, stable // 3, stable // 2):
        expected = [o for o in sorted(good) if start <= o < stable]
        assert visible(log, start) == expected
        assert len(set(expected)) == len(expected)


# Rules of markers


def test_marker_without_a_transaction(log: Log) -> None:
    """10 section 8.3: written, no index entry."""
    append_leader(log, batch())

    abort(log, A)
    abort(log, A)
    replicate(log)

    assert (log.log_end_offset, log.last_stable_offset) == (3, 3)
    assert log.active.transaction_index.all_entries() == ()


def test_delayed_marker_of_an_old_coordinator(log: Log) -> None:
    append_leader(log, transactional(0, producer_id=A))
    commit(log, A, coordinator_epoch=3)

    with pytest.raises(ApiError, match="coordinator epoch 3") as e:
        abort(log, A, coordinator_epoch=2)
    assert e.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert log.log_end_offset == 2


def test_marker_of_an_old_producer_epoch(log: Log) -> None:
    append_leader(log, transactional(0, producer_id=A, epoch=2))

    with pytest.raises(ApiError, match="epoch") as e:
        abort(log, A, producer_epoch=1)
    assert e.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    commit(log, A, producer_epoch=3)
    with pytest.raises(ApiError, match="expected epoch 3"):
        append_leader(log, transactional(1, producer_id=A, epoch=2))


def test_first_batch_after_a_fencing_marker(log: Log) -> None:
    append_leader(log, transactional(0, 3, producer_id=A))
    abort(log, A, producer_epoch=1)

    with pytest.raises(ApiError, match="expected sequence 0"):
        append_leader(log, transactional(3, producer_id=A, epoch=1))
    append_leader(log, transactional(0, producer_id=A, epoch=1))


def test_plain_batch_inside_a_transaction(log: Log) -> None:
    append_leader(log, transactional(0, producer_id=A))

    with pytest.raises(ApiError, match="expected a transactional batch") as e:
        append_leader(log, idempotent(1, producer_id=A))
    assert e.value.code is ErrorCode.INVALID_TXN_STATE
    assert log.log_end_offset == 1


def test_marker_keeps_its_producer_alive(fixture: LogFixture) -> None:
    """15:KAFKA-9144: counted from the marker; forgotten, an older coordinator could pass."""
    log = fixture.open()
    expiration_ms = fixture.services.producer_id_expiration_ms
    append_leader(log, transactional(0, producer_id=A, timestamp=T0))
    commit(log, A, coordinator_epoch=5, timestamp=T0 + expiration_ms)

    for state in (log.producer_state, fixture.reopen(clean=False).producer_state):
        assert state.remove_expired(T0 + expiration_ms + 1) == 0
    log = fixture.reopen(clean=True)
    with pytest.raises(ApiError, match="coordinator epoch 5"):
        abort(log, A, coordinator_epoch=4)
    assert log.producer_state.remove_expired(T0 + 2 * expiration_ms) == 1


def test_marker_on_a_log_append_time_topic(fixture: LogFixture) -> None:
    """15:KAFKA-9144: the time it was written at, not the coordinator's."""
    log = fixture.open(config=LogConfig(timestamp_type="LogAppendTime"))
    append_leader(log, transactional(0, producer_id=A))
    fixture.clock.advance(5000)

    commit(log, A, timestamp=T0 - 10**6)

    assert log.producer_state.producers[A].last_timestamp == T0 + 5000


def test_set_of_several_markers(log: Log) -> None:
    for producer in (A, B, C):
        append_leader(log, transactional(0, producer_id=producer))

    append_leader(
        log,
        b"".join(marker(commit=p == B, producer_id=p) for p in (C, B, A)),
        origin=AppendOrigin.COORDINATOR,
    )
    replicate(log)

    assert visible(log) == [1]
    assert aborted(log) == [(C, 2), (A, 0)]  # In the order of their markers.


# The transaction index cannot be written


@pytest.mark.parametrize(
    ("operation", "number"),
    [
        ("open", errno.EIO),
        ("write", errno.ENOSPC),
        pytest.param("open", errno.EMFILE, id="no descriptors: the data is there, no way back"),
    ],
)
def test_transaction_index_fails_behind_the_data(
    tmp_path: Path, operation: str, number: int
) -> None:
    """15:KAFKA-7866: the log end has moved, the last stable offset has not passed."""
    (tmp_path / "data").mkdir()
    disk = SimDisk(tmp_path)
    with LogFixture(tmp_path / "data", disk=disk) as fixture:
        log = fixture.open()
        append_leader(log, transactional(0, 2, producer_id=A))
        replicate(log)
        disk.fail(operation, path_contains=".txnindex", error=number)

        with pytest.raises(StorageError, match="transaction index"):
            abort(log, A)

        assert log.log_end_offset == 3
        replicate(log)
        assert log.last_stable_offset == 0
        assert not fixture.log_directory.is_online
        with pytest.raises(StorageError):
            append_leader(log, batch())
        log = fixture.reopen(clean=False)
        replicate(log)
        assert offsets(read_all(log)) == [0, 1, 2]
        assert (log.last_stable_offset, aborted(log), visible(log)) == (3, [(A, 0)], [])


def test_commit_needs_no_index(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    disk = SimDisk(tmp_path)
    with LogFixture(tmp_path / "data", disk=disk) as fixture:
        log = fixture.open()
        append_leader(log, transactional(0, 2, producer_id=A))
        disk.fail("open", path_contains=".txnindex", times=None)

        commit(log, A)

        assert log.log_end_offset == 3


def test_a_read_that_lists_aborted_transactions_is_short(log: Log) -> None:
    """02 section 12: of the largest read of small transactions hundreds of thousands are listed."""
    most = 1 << 20
    for sequence in range(30):
        append_leader(log, transactional(sequence, 1, producer_id=A, size=50_000))
        abort(log, A)
    replicate(log)
    result = log.read(0, 50 << 20, FetchIsolation.TXN_COMMITTED)
    assert result.records is not None
    assert most - 51_000 < result.records.length <= most
    assert result.aborted_transactions is not None
    assert len(result.aborted_transactions) < 25
    # Behind the last one no bound is needed.
    for _ in range(2):
        append_leader(log, batch(1, size=900_000))
    replicate(log)
    rest = log.read(60, 50 << 20, FetchIsolation.TXN_COMMITTED)
    assert rest.records is not None
    assert rest.records.length == 1_800_000
    assert rest.aborted_transactions == []
