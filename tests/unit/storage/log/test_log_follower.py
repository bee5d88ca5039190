"""Appending what a leader sent (01 sections 10.2 and 10.3, follower side)."""

import logging
import zlib
from collections.abc import Iterator
from pathlib import Path
from struct import pack

import pytest

from odradek.errors import (
    CorruptRecordError,
    OffsetsOutOfOrderError,
    RecordBatchTooLargeError,
    UnexpectedAppendOffsetError,
)
from odradek.model import AppendOrigin
from odradek.storage.log.append_analysis import analyze_records
from odradek.storage.log.config import LogConfig
from odradek.storage.log.log import Log
from odradek.storage.log.reader import FetchIsolation
from tests.support.log_scenarios import (
    UnsyncedDisk,
    append_follower,
    append_leader,
    bases,
    epochs,
    found_offsets,
    idempotent,
    log_of_spec,
    patched,
    transactional,
)
from tests.support.logs import T0, LogFixture, batch, marker, offsets, read_all


@pytest.fixture
def fixture(tmp_path: Path) -> Iterator[LogFixture]:
    with LogFixture(tmp_path, disk=UnsyncedDisk()) as fixture:
        yield fixture


@pytest.fixture
def log(fixture: LogFixture) -> Log:
    """Log start 3, high watermark 8, log end 15."""
    return log_of_spec(fixture.open())


def message_v1(offset: int, timestamp: int = T0) -> bytes:
    """An uncompressed message of magic 1."""
    body = pack(">bbqi", 1, 0, timestamp, -1) + pack(">i", 1) + b"v"
    return pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


# Offsets


def test_offsets_are_kept(log: Log) -> None:
    info = append_follower(log, (15, 19), (20, 20))

    assert (info.first_offset, info.last_offset, info.log_start_offset) == (15, 20, 3)
    assert (info.shallow_count, info.last_offset_of_first_batch) == (2, 19)
    assert (log.log_end_offset, log.high_watermark) == (21, 8)
    assert offsets(read_all(log)) == list(range(3, 21))


def test_bytes_are_kept(fixture: LogFixture) -> None:
    log = fixture.open(config=LogConfig(compression_type="gzip", timestamp_type="LogAppendTime"))
    sent = bytes(batch(3, base_offset=7, leader_epoch=5))

    info = log.append_as_follower(sent)

    assert read_all(log) == sent
    assert info.log_append_time == -1


def test_set_that_starts_below_the_log_end(log: Log) -> None:
    """01:AP-3"""
    ranges = [(offset, offset) for offset in range(14, 30)]

    with pytest.raises(UnexpectedAppendOffsetError, match="starts at 14, expected 15") as e:
        append_follower(log, *ranges)
    assert (e.value.first_offset, e.value.last_offset) == (14, 29)
    assert str(list(range(14, 24))) in str(e.value)  # The first ten offsets, no more.
    assert log.log_end_offset == 15


def test_gap_upwards(log: Log) -> None:
    """01:AP-3"""
    append_follower(log, (30, 30))

    assert log.log_end_offset == 31
    assert found_offsets(log.read(20, 1000, FetchIsolation.LOG_END)) == [30]


def test_offsets_that_fall(log: Log) -> None:
    """01:AP-4"""
    with pytest.raises(OffsetsOutOfOrderError, match=r"\(20, 20\), \(18, 18\)"):
        append_follower(log, (20, 20), (18, 18))
    assert log.log_end_offset == 15


@pytest.mark.parametrize(
    "records",
    [
        pytest.param(batch(5, base_offset=15) + batch(5, base_offset=17), id="overlap"),
        pytest.param(batch(5, base_offset=15) * 2, id="repeated"),
        pytest.param(patched(batch(base_offset=20), last_offset_delta=-4), id="ends before start"),
    ],
)
def test_batches_that_overlap(log: Log, records: bytes) -> None:
    """Recovery would cut them, so they must not get in."""
    with pytest.raises(OffsetsOutOfOrderError):
        log.append_as_follower(records)
    assert log.log_end_offset == 15


def test_corrupt_batch(log: Log) -> None:
    records = batch(base_offset=15) + batch(base_offset=16)
    records[-1] ^= 1
    size = log.size_in_bytes

    with pytest.raises(CorruptRecordError):
        log.append_as_follower(records)
    assert (log.log_end_offset, log.size_in_bytes) == (15, size)


def test_torn_batch_at_the_end_is_left_out(log: Log) -> None:
    whole, torn = batch(base_offset=15), batch(base_offset=16)[:-1]

    info = log.append_as_follower(whole + torn)

    assert (info.last_offset, info.valid_bytes) == (15, len(whole))
    append_follower(log, (16, 16))
    assert offsets(read_all(log))[-2:] == [15, 16]


def test_empty_set(log: Log) -> None:
    info = log.append_as_follower(b"")

    assert (info.shallow_count, info.log_start_offset, log.log_end_offset) == (0, 3, 15)


def test_compacted_batch(log: Log) -> None:
    """Fewer records than offsets: what counts is the last offset."""
    log.append_as_follower(
        batch(2, base_offset=20, offset_deltas=[1, 4], last_offset_delta=9, leader_epoch=0)
    )

    assert log.log_end_offset == 30


def test_limit_of_clients_does_not_hold(fixture: LogFixture) -> None:
    """01 section 10.2, rule 4: a lowered max.message.bytes must not stop a follower."""
    log = fixture.open(config=LogConfig(max_message_bytes=100))

    log.append_as_follower(batch(size=500, leader_epoch=0))

    assert log.log_end_offset == 1


def test_set_too_large(fixture: LogFixture) -> None:
    """01:AP-6"""
    log = fixture.open(config=LogConfig(segment_bytes=300))

    with pytest.raises(RecordBatchTooLargeError):
        append_follower(log, *((i, i) for i in range(10)))
    assert log.log_end_offset == 0


# Leader epochs


def test_epochs_of_the_batches(fixture: LogFixture) -> None:
    log = fixture.open()

    log.append_as_follower(
        b"".join(
            batch(base_offset=offset, leader_epoch=epoch)
            for offset, epoch in enumerate([0, 0, 2, 2, 2, 5])
        )
    )

    assert epochs(log) == [(0, 0), (2, 2), (5, 5)]


def test_batches_of_an_epoch_not_met_yet(
    fixture: LogFixture, caplog: pytest.LogCaptureFixture
) -> None:
    """01 section 10.2, rule 0"""
    log = fixture.open()
    records = b"".join(
        batch(base_offset=offset, leader_epoch=epoch)
        for offset, epoch in enumerate([3, 4, 5, 4, 5])
    )

    with caplog.at_level(logging.INFO, "odradek.storage.log.append_analysis"):
        info = log.append_as_follower(records, fetch_leader_epoch=4)

    assert (info.shallow_count, info.last_offset, log.log_end_offset) == (2, 1, 2)
    assert epochs(log) == [(3, 0), (4, 1)]
    assert len(caplog.records) == 1
    info = log.append_as_follower(records[info.valid_bytes :], fetch_leader_epoch=4)
    assert (info.shallow_count, log.log_end_offset) == (0, 2)
    log.append_as_follower(batch(base_offset=2, leader_epoch=5), fetch_leader_epoch=5)
    assert epochs(log) == [(3, 0), (4, 1), (5, 2)]


def test_epoch_is_not_checked_without_one() -> None:
    records = batch(leader_epoch=9)

    analyzed = analyze_records(records, AppendOrigin.REPLICATION, max_message_bytes=1000)

    assert analyzed.info.shallow_count == 1


# Old formats


def test_old_format_ends_the_epochs(fixture: LogFixture, caplog: pytest.LogCaptureFixture) -> None:
    """01 section 10.3, step 5"""
    log = fixture.open()
    append_follower(log, (0, 4), epoch=3)

    info = log.append_as_follower(message_v1(5) + message_v1(6))

    assert info.first_offset is None
    assert (info.last_offset, info.last_offset_of_first_batch, info.message_count) == (6, 5, 0)
    assert epochs(log) == []
    assert "epochs are cleared" in caplog.text
    assert (log.log_end_offset, offsets(read_all(log))) == (7, list(range(7)))


def test_old_format_below_the_log_end(log: Log) -> None:
    """Only the last offset of its first batch is known."""
    with pytest.raises(UnexpectedAppendOffsetError) as e:
        log.append_as_follower(message_v1(14))
    assert (e.value.first_offset, e.value.last_offset) == (14, 14)


def test_old_format_rolls(fixture: LogFixture) -> None:
    """01 section 9.6: the first offset is unknown, so the log end will do."""
    log = fixture.open(config=LogConfig(segment_bytes=100))
    for offset in (0, 1, 5):
        log.append_as_follower(message_v1(offset))

    assert bases(log) == [0, 2]
    assert offsets(read_all(log)) == [0, 1, 5]


# Rolling


def test_far_offset_rolls(fixture: LogFixture) -> None:
    """A relative offset must fit in 32 bits."""
    log = fixture.open()
    append_follower(log, (0, 0))
    far = 2**31 + 10

    append_follower(log, (far, far))

    assert bases(log) == [0, far]
    assert offsets(read_all(log)) == [0, far]
    assert offsets(read_all(fixture.reopen(clean=True))) == [0, far]


def test_roll_at_a_gap_starts_at_the_first_offset(fixture: LogFixture) -> None:
    log = fixture.open(config=LogConfig(segment_bytes=100))
    append_follower(log, (0, 0))

    append_follower(log, (30, 30))

    assert bases(log) == [0, 30]


# Producers


def test_several_producers_in_one_set(fixture: LogFixture) -> None:
    log = fixture.open()
    records = [
        idempotent(0, 2, producer_id=1, base_offset=0),
        batch(base_offset=2),
        idempotent(7, 1, producer_id=2, base_offset=3),
        idempotent(2, 1, producer_id=1, base_offset=4),
        transactional(0, 3, producer_id=3, base_offset=5),
        idempotent(3, 2, producer_id=1, epoch=1, base_offset=8),
    ]

    log.append_as_follower(b"".join(records))

    producers = log.producer_state.producers
    assert {
        producer_id: (
            entry.producer_epoch,
            [(b.last_sequence, b.last_offset) for b in entry.batches],
        )
        for producer_id, entry in producers.items()
    } == {1: (1, [(4, 9)]), 2: (0, [(7, 3)]), 3: (0, [(2, 7)])}
    assert producers[3].current_transaction_first_offset == 5
    log.update_high_watermark(10)
    assert log.last_stable_offset == 5
    assert log.producer_state.map_end_offset == 10


def test_sequences_are_the_leaders_matter(fixture: LogFixture) -> None:
    """10 section 8.2: a follower takes gaps, repetitions and old epochs."""
    log = fixture.open()
    for offset, (sequence, epoch) in enumerate([(0, 1), (9, 1), (9, 1), (3, 0)]):
        log.append_as_follower(idempotent(sequence, epoch=epoch, base_offset=offset))

    assert log.log_end_offset == 4


def test_transaction_and_its_marker_in_one_set(fixture: LogFixture) -> None:
    log = fixture.open()
    records = b"".join(
        [
            transactional(0, 2, producer_id=1, base_offset=0),
            transactional(0, 2, producer_id=2, base_offset=2),
            marker(commit=False, producer_id=1, base_offset=4),
            transactional(2, 1, producer_id=1, base_offset=5),
            marker(commit=True, producer_id=1, base_offset=6),
        ]
    )

    log.append_as_follower(records)
    log.update_high_watermark(7)

    assert log.last_stable_offset == 2
    aborted = log.active.transaction_index.all_entries()
    assert [tuple(entry) for entry in aborted] == [(1, 0, 4, 2)]


def test_leader_and_follower_end_with_the_same_bytes(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=1000, index_interval_bytes=200)
    with (
        LogFixture(tmp_path / "leader", config=config) as leader,
        LogFixture(tmp_path / "follower", config=config) as follower,
    ):
        source, copy = leader.open(), follower.open()
        for number in range(30):
            append_leader(source, idempotent(3 * number, 3, timestamp=T0 + 5 * number))
            copy.append_as_follower(
                source.read(copy.log_end_offset, 1 << 20, FetchIsolation.LOG_END).read()
            )

        assert read_all(copy) == read_all(source)
        assert bases(copy) == bases(source)
        assert epochs(copy) == epochs(source)
        assert copy.producer_state.producers.keys() == source.producer_state.producers.keys()
        leader.close()
        follower.close()
        assert leader.names() == follower.names()
        for name in leader.names():
            assert leader.path(name).read_bytes() == follower.path(name).read_bytes(), name
