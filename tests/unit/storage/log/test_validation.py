"""What a leader checks and rewrites (10 sections 4 to 6)."""

import zlib
from collections.abc import Iterator
from pathlib import Path
from struct import pack

import pytest

from odradek.errors import (
    ApiError,
    CorruptRecordError,
    ErrorCode,
    InvalidRecordError,
    InvalidTimestampError,
    RecordsError,
)
from odradek.model import AppendOrigin
from odradek.records.batch import (
    APPEND_TIME_MASK,
    CONTROL_MASK,
    DELETE_HORIZON_MASK,
    BatchHeader,
    is_crc_valid,
    parse_header,
)
from odradek.records.builder import build_batch
from odradek.records.compression import Codec
from odradek.storage.log.config import INT64_MAX, LogConfig
from odradek.storage.log.log import Log
from odradek.testing import ManualClock
from tests.support.log_scenarios import (
    UnsyncedDisk,
    append_leader,
    commit,
    idempotent,
    patched,
    records_of,
    transactional,
)
from tests.support.logs import T0, LogFixture, batch, headers, marker, offsets, read_all

T = 1_700_000_000_000
VEC_1 = bytes.fromhex(
    "0000000000000000 0000004e ffffffff 02 4ce36feb 0000 00000001 0000018bcfe56800"
    "0000018bcfe56805 ffffffffffffffff ffff ffffffff 00000002"
    "26 00 00 00 04 6b31 04 7631 04 04 6831 02 78 04 6832 01"
    "10 00 0a 02 01 04 7632 00"
)
VEC_2 = bytes.fromhex(
    "00000000000000640000004e0000000c024ce36feb0000000000010000018bcfe568000000018bcfe56805ffffffffffff"
    "ffffffffffffffff0000000226000000046b310476310404683102780468320110000a020104763200"
)
VEC_3 = bytes.fromhex(
    "00000000000000640000004e0000000c02a0149aec0008000000010000018bcfe568000000018bcfe58f0fffffffffffff"
    "ffffffffffffffff0000000226000000046b310476310404683102780468320110000a020104763200"
)
CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
NAMES = ["uncompressed", "gzip", "snappy", "lz4", "zstd"]
TYPES = {False: "CreateTime", True: "LogAppendTime"}


@pytest.fixture
def fixture(tmp_path: Path) -> Iterator[LogFixture]:
    with LogFixture(tmp_path, disk=UnsyncedDisk()) as fixture:
        yield fixture


def stored(log: Log) -> bytes:
    """The last batch of the log."""
    records = read_all(log)
    return records[-headers(records)[-1].size :]


def header_of(records: bytes | bytearray) -> BatchHeader:
    header = parse_header(records)
    assert header is not None
    return header


def assert_refused(log: Log, records: bytes | bytearray, code: ErrorCode, match: str) -> ApiError:
    end, size = log.log_end_offset, log.size_in_bytes
    with pytest.raises(ApiError, match=match) as e:
        append_leader(log, records)
    assert e.value.code is code
    assert (log.log_end_offset, log.size_in_bytes) == (end, size)
    return e.value


# Bytes


@pytest.mark.parametrize(
    ("log_append_time", "expected"),
    [pytest.param(False, VEC_2, id="10:VEC-2"), pytest.param(True, VEC_3, id="10:VEC-3")],
)
def test_batch_of_the_java_client_as_it_is_stored(
    tmp_path: Path, log_append_time: bool, expected: bytes
) -> None:
    clock = ManualClock(now_ms=T + 9999)
    config = LogConfig(timestamp_type=TYPES[log_append_time])
    with LogFixture(tmp_path, disk=UnsyncedDisk(), clock=clock, config=config) as fixture:
        log = fixture.open(log_start_offset=100)

        info = append_leader(log, VEC_1, epoch=12)

        assert stored(log) == expected
        assert info.first_offset == 100
        assert info.log_append_time == (T + 9999 if log_append_time else -1)
        assert info.max_timestamp == (T + 9999 if log_append_time else T + 5)


def test_only_offset_and_epoch_change(fixture: LogFixture) -> None:
    """10 section 6.3, in place: the producer's compressed bytes are stored as sent."""
    log = fixture.open()
    for codec in CODECS:
        sent = bytes(idempotent(0, 3, producer_id=codec, codec=codec, leader_epoch=77))

        append_leader(log, sent, epoch=5)

        assert stored(log)[16:] == sent[16:]
        assert header_of(stored(log)).leader_epoch == 5


# Header checks


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        pytest.param({"base_offset": 5}, "base offset", id="base offset"),
        pytest.param({"record_count": 0}, "0 records", id="no records"),
        pytest.param({"record_count": -1}, "-1 records", id="negative count"),
        pytest.param({"last_offset_delta": -1}, "delta of -1", id="negative delta"),
        pytest.param({"last_offset_delta": 7}, "delta of 7", id="count and delta differ"),
        pytest.param({"attributes": CONTROL_MASK}, "control", id="control"),
        pytest.param({"attributes": DELETE_HORIZON_MASK}, "delete horizon", id="bit 6"),
        pytest.param({"producer_id": 7, "producer_epoch": 0}, "sequence -1", id="no sequence"),
        pytest.param({"attributes": 5}, "codec 5", id="codec 5"),
        pytest.param({"attributes": 7}, "codec 7", id="codec 7"),
    ],
)
@pytest.mark.parametrize("validate_compressed", [True, False])
def test_header_of_a_client(
    fixture: LogFixture, fields: dict[str, int], match: str, validate_compressed: bool
) -> None:
    """10 section 6.2: all of these are INVALID_RECORD, whether or not the payload is looked at."""
    log = fixture.open(config=LogConfig(validate_compressed=validate_compressed))

    assert_refused(log, patched(batch(2), **fields), ErrorCode.INVALID_RECORD, match)


def test_size_and_checksum_of_a_client(fixture: LogFixture) -> None:
    """10 section 6.2: codes that clients act on; the size comes before the checksum."""
    log = fixture.open(config=LogConfig(max_message_bytes=100))
    large = batch(size=101)
    large[-1] ^= 1
    broken = batch()
    broken[-1] ^= 1

    assert_refused(log, large, ErrorCode.MESSAGE_TOO_LARGE, "101 bytes")
    assert_refused(log, broken, ErrorCode.CORRUPT_MESSAGE, "checksum")


@pytest.mark.parametrize("magic", [0, 1])
def test_old_format_of_a_client(fixture: LogFixture, magic: int) -> None:
    """10 section 2.3"""
    body = pack(">bb", magic, 0) + (pack(">q", T0) if magic else b"") + pack(">iib", -1, 1, 0x76)
    message = pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body
    log = fixture.open()

    assert_refused(log, message, ErrorCode.INVALID_RECORD, f"format v{magic}, expected v2")


def test_coordinator_skips_count_control_and_sequence(fixture: LogFixture) -> None:
    log = fixture.open()
    sent = transactional(-1, 2, offset_deltas=[0, 1], last_offset_delta=4)

    append_leader(log, sent, origin=AppendOrigin.COORDINATOR)
    assert log.log_end_offset == 5
    commit(log)
    assert headers(read_all(log))[-1].is_control


def test_incoming_leader_epoch_is_ignored(fixture: LogFixture) -> None:
    log = fixture.open()
    for incoming in (-1, 0, 99):
        append_leader(log, batch(leader_epoch=incoming), epoch=3)

    assert {h.leader_epoch for h in headers(read_all(log))} == {3}


# Timestamps


def window(before: int = INT64_MAX, after: int = INT64_MAX) -> LogConfig:
    return LogConfig(timestamp_before_max_ms=before, timestamp_after_max_ms=after)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize(
    ("config", "timestamp", "accepted"),
    [
        (window(), 0, True),
        (window(), T0 + 10**15, True),
        (window(before=1000), T0 - 1000, True),
        (window(before=1000), T0 - 1001, False),
        (window(before=1000), T0 + 10**15, True),
        (window(after=1000), T0 + 1000, True),
        (window(after=1000), T0 + 1001, False),
        (window(after=1000), 0, True),
        (window(before=0, after=0), T0, True),
        (window(before=0, after=0), -1, True),
    ],
)
def test_create_time_window(
    fixture: LogFixture, config: LogConfig, timestamp: int, accepted: bool, codec: Codec
) -> None:
    """10 section 4: inclusive on both sides, and no timestamp at all is no wrong one."""
    log = fixture.open(config=config)
    sent = batch(timestamp=timestamp, codec=codec)

    if accepted:
        assert append_leader(log, sent).max_timestamp == timestamp
        assert stored(log)[16:] == sent[16:]
    else:
        error = assert_refused(log, sent, ErrorCode.INVALID_TIMESTAMP, "record 0: the timestamp")
        assert isinstance(error, InvalidTimestampError)
        assert [index for index, _ in error.record_errors] == [0]


def test_records_outside_the_window_are_named(fixture: LogFixture) -> None:
    log = fixture.open(config=window(before=1000, after=1000))
    times = [T0, T0 + 2000, T0 + 1, T0 - 2000]
    sent = build_batch([(time, b"k", b"v", ()) for time in times])

    error = assert_refused(log, sent, ErrorCode.INVALID_TIMESTAMP, "record 1")

    assert isinstance(error, RecordsError)
    assert [index for index, _ in error.record_errors] == [1, 3]


def test_window_is_not_asked_on_a_log_append_time_topic(fixture: LogFixture) -> None:
    log = fixture.open(
        config=LogConfig(
            timestamp_type="LogAppendTime", timestamp_before_max_ms=0, timestamp_after_max_ms=0
        )
    )

    append_leader(log, batch(timestamp=5))

    assert header_of(stored(log)).max_timestamp == T0


@pytest.mark.parametrize("codec", CODECS)
def test_wrong_largest_timestamp_is_corrected(fixture: LogFixture, codec: Codec) -> None:
    """10 section 4: maxTimestamp is the largest of the records; the checksum follows."""
    log = fixture.open()
    sent = batch(3, codec=codec)

    info = append_leader(log, patched(sent, max_timestamp=T0 + 10**9))

    assert info.max_timestamp == T0 + 2
    assert stored(log)[16:] == sent[16:]


@pytest.mark.parametrize("codec", CODECS)
def test_log_append_time(fixture: LogFixture, codec: Codec) -> None:
    """10 section 4: deltas and base stay, every record reads as of now."""
    log = fixture.open(config=LogConfig(timestamp_type="LogAppendTime"))
    fixture.clock.advance(1234)

    info = append_leader(log, batch(3, codec=codec, timestamp=T0 - 500))

    header = header_of(stored(log))
    assert info.log_append_time == info.max_timestamp == header.max_timestamp == T0 + 1234
    assert header.base_timestamp == T0 - 500
    assert header.is_log_append_time
    assert is_crc_valid(stored(log), 0, header.size)
    assert {record.timestamp for record in records_of(stored(log))} == {T0 + 1234}


@pytest.mark.parametrize("log_append_time", [False, True])
def test_offset_of_the_largest_timestamp_is_the_batchs_last(
    fixture: LogFixture, log_append_time: bool
) -> None:
    log = fixture.open(config=LogConfig(timestamp_type=TYPES[log_append_time]))
    sent = build_batch([(time, b"k", b"v", ()) for time in (T0 + 9, T0, T0)])

    assert append_leader(log, sent).offset_of_max_timestamp == 2


def flagged(config: LogConfig, fixture: LogFixture, max_timestamp: int) -> tuple[Log, bytearray]:
    """A log, and a batch whose producer says that the broker has stamped it."""
    sent = batch(2)
    attributes = header_of(sent).attributes | APPEND_TIME_MASK
    return fixture.open(config=config), patched(
        sent, attributes=attributes, max_timestamp=max_timestamp
    )


@pytest.mark.parametrize("config", [window(), window(before=1000, after=1000)])
def test_flag_of_a_producer_is_cleared(fixture: LogFixture, config: LogConfig) -> None:
    """10 section 4: a valid largest timestamp passes on a CreateTime topic."""
    log, sent = flagged(config, fixture, T0 + 500)

    info = append_leader(log, sent)

    header = header_of(stored(log))
    assert not header.is_log_append_time
    assert info.max_timestamp == header.max_timestamp == T0 + 500
    assert is_crc_valid(stored(log), 0, header.size)


@pytest.mark.parametrize(
    ("config", "max_timestamp"),
    [
        pytest.param(LogConfig(timestamp_type="LogAppendTime"), T0, id="LogAppendTime topic"),
        pytest.param(window(), -1, id="no timestamp"),
        pytest.param(window(after=1000), T0 + 1001, id="outside of the window"),
    ],
)
def test_flag_of_a_producer_is_refused(
    fixture: LogFixture, config: LogConfig, max_timestamp: int
) -> None:
    log, sent = flagged(config, fixture, max_timestamp)

    assert_refused(log, sent, ErrorCode.INVALID_TIMESTAMP, "timestamp")


# Rebuilding


@pytest.mark.parametrize("source", CODECS)
@pytest.mark.parametrize("target", NAMES)
@pytest.mark.parametrize("log_append_time", [False, True])
def test_recompression(
    fixture: LogFixture, source: Codec, target: str, log_append_time: bool
) -> None:
    """10 sections 3.6 and 6.3: another codec, the same records and identity."""
    log = fixture.open(
        config=LogConfig(compression_type=target, timestamp_type=TYPES[log_append_time])
    )
    fixture.append(3)
    sent = transactional(9, 50, producer_id=8, epoch=2, codec=source, value=b"text " * 10)
    expected = records_of(sent)

    info = append_leader(log, sent, epoch=6)

    kept = stored(log)
    header = header_of(kept)
    assert header.codec_id == CODECS[NAMES.index(target)]
    assert is_crc_valid(kept, 0, len(kept))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (8, 2, 9)
    assert header.is_transactional
    assert (header.base_offset, header.leader_epoch, header.record_count) == (3, 6, 50)
    assert (info.first_offset, info.last_offset) == (3, 52)
    time = T0 if log_append_time else None
    assert records_of(kept) == [
        r._replace(offset=r.offset + 3, timestamp=r.timestamp if time is None else time)
        for r in expected
    ]
    if header.codec_id == source and not log_append_time:
        assert kept[16:] == sent[16:]


def test_levels(fixture: LogFixture) -> None:
    value = bytes(i * i % 251 for i in range(20_000))
    sizes = []
    log = fixture.open()
    for level in (1, 9):
        log.config = LogConfig(compression_type="gzip", compression_gzip_level=level)
        append_leader(log, batch(value=value))
        sizes.append(len(stored(log)))

    assert sizes[1] <= sizes[0]


def test_set_with_rebuilt_and_untouched_batches(fixture: LogFixture) -> None:
    log = fixture.open(config=LogConfig(compression_type="gzip"))
    sent = batch(2, codec=Codec.GZIP) + batch(3) + batch(1, codec=Codec.GZIP) + batch(4)

    info = append_leader(log, sent)

    assert (info.first_offset, info.last_offset) == (0, 9)
    assert offsets(read_all(log)) == list(range(10))
    assert {h.codec_id for h in headers(read_all(log))} == {Codec.GZIP}
    assert [r.offset for r in records_of(read_all(log))] == list(range(10))


@pytest.mark.parametrize("target", ["producer", "zstd"])
def test_control_batches_are_never_compressed(fixture: LogFixture, target: str) -> None:
    log = fixture.open(config=LogConfig(compression_type=target))
    append_leader(log, transactional(0))
    # Behind a batch whose size changes, the marker has to be found all the same.
    append_leader(
        log,
        batch(size=3000) + marker(commit=True),
        origin=AppendOrigin.COORDINATOR,
    )

    last = headers(read_all(log))[-1]
    assert (last.codec_id, last.is_control) == (0, True)
    log.update_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == log.log_end_offset


@pytest.mark.parametrize("codec", CODECS)
def test_offset_deltas_that_are_not_consecutive(fixture: LogFixture, codec: Codec) -> None:
    """10 section 6.3: such a batch is rebuilt with 0, 1, 2, …"""
    log = fixture.open()
    fixture.append(1)
    sent = idempotent(0, 3, codec=codec, offset_deltas=[0, 5, 2], last_offset_delta=2)

    append_leader(log, sent)

    kept = stored(log)
    assert [record.offset for record in records_of(kept)] == [1, 2, 3]
    assert header_of(kept).codec_id == codec
    assert (header_of(kept).base_sequence, log.log_end_offset) == (0, 4)


# What is decompressed


@pytest.mark.parametrize("codec", CODECS)
def test_count_that_does_not_fit_the_records(fixture: LogFixture, codec: Codec) -> None:
    """10 section 6.4, first row"""
    log = fixture.open()
    sent = patched(batch(3, codec=codec), record_count=2, last_offset_delta=1)

    assert_refused(log, sent, ErrorCode.INVALID_RECORD, "record")


def test_payload_is_believed_when_validation_is_off(fixture: LogFixture) -> None:
    """10 section 6.4: produce.validate.compressed=false; plain batches are still walked."""
    log = fixture.open(config=LogConfig(validate_compressed=False))
    wrong = {"record_count": 2, "last_offset_delta": 1}

    append_leader(log, patched(batch(3, codec=Codec.ZSTD), **wrong))
    assert log.log_end_offset == 2
    assert_refused(log, patched(batch(3), **wrong), ErrorCode.INVALID_RECORD, "record")


@pytest.mark.parametrize(
    "config",
    [
        LogConfig(validate_compressed=False, cleanup_policy=("delete", "compact")),
        LogConfig(validate_compressed=False, timestamp_after_max_ms=1000),
        LogConfig(validate_compressed=False, timestamp_before_max_ms=1000),
        LogConfig(validate_compressed=False, compression_type="gzip"),
    ],
)
def test_other_reasons_to_look_hold_when_validation_is_off(
    fixture: LogFixture, config: LogConfig
) -> None:
    log = fixture.open(config=config)
    sent = patched(batch(3, codec=Codec.ZSTD), record_count=2, last_offset_delta=1)

    assert_refused(log, sent, ErrorCode.INVALID_RECORD, "record")


@pytest.mark.parametrize("validate_compressed", [True, False])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.SNAPPY])
def test_compacted_topic_needs_keys(
    fixture: LogFixture, codec: Codec, validate_compressed: bool
) -> None:
    """10 section 6.4 and 10 section 11.5, guarantee 9"""
    log = fixture.open(
        config=LogConfig(
            cleanup_policy=("delete", "compact"), validate_compressed=validate_compressed
        )
    )
    keys = [b"a", None, b"", None]
    sent = build_batch([(T0, key, b"v", ()) for key in keys], codec=codec)

    error = assert_refused(log, sent, ErrorCode.INVALID_RECORD, "record 1: .* needs a key")

    assert isinstance(error, InvalidRecordError)
    assert [index for index, _ in error.record_errors] == [1, 3]
    append_leader(log, batch(key=b"", value=None))
    append_leader(log, transactional(0))
    commit(log)


def test_mixed_errors_are_timestamp_errors(fixture: LogFixture) -> None:
    """10 section 6.5"""
    log = fixture.open(
        config=LogConfig(cleanup_policy=("delete", "compact"), timestamp_after_max_ms=1000)
    )
    sent = build_batch([(T0, None, b"v", ()), (T0 + 5000, b"k", b"v", ())])

    error = assert_refused(log, sent, ErrorCode.INVALID_TIMESTAMP, "record 0")

    assert isinstance(error, RecordsError)
    assert [index for index, _ in error.record_errors] == [0, 1]


def test_one_bad_batch_spoils_the_set(fixture: LogFixture) -> None:
    log = fixture.open(config=LogConfig(cleanup_policy=("delete", "compact")))

    assert_refused(log, batch() + batch(key=None), ErrorCode.INVALID_RECORD, "key")


def test_broken_stream(fixture: LogFixture) -> None:
    log = fixture.open()
    for codec in CODECS[1:]:
        sent = batch(5, codec=codec, value=b"x" * 100)
        shorter = sent[:-4]

        with pytest.raises((InvalidRecordError, CorruptRecordError)):
            append_leader(log, patched(shorter, length=len(shorter) - 12))
    assert log.log_end_offset == 0
