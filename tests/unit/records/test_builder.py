"""Building batches: the bytes of the Java client, recompression, compaction."""

from typing import Any

import pytest

from odradek.errors import InvalidRecordError
from odradek.records.batch import BatchHeader, Buffer, is_crc_valid, parse_header
from odradek.records.builder import (
    build_batch,
    build_compacted_batch,
    build_empty_batch,
    encode_record,
    rebuild_batch,
)
from odradek.records.compression import Codec
from odradek.records.record import Record, read_records
from tests.unit.records.vectors import EXPECTED, VECTORS, T

PRODUCER: dict[str, Any] = {"producer_id": 4000, "producer_epoch": 3, "base_sequence": 7}
THREE = [record[1:] for record in EXPECTED["VEC-4"]]


def header_of(batch: Buffer) -> BatchHeader:
    header = parse_header(batch)
    assert header is not None
    assert is_crc_valid(batch, 0, header.size)
    return header


@pytest.mark.parametrize(
    ("name", "records", "arguments"),
    [
        pytest.param("VEC-1", [r[1:] for r in EXPECTED["VEC-1"]], {}, id="10:VEC-1"),
        pytest.param(
            "VEC-2",
            [r[1:] for r in EXPECTED["VEC-1"]],
            {"base_offset": 100, "leader_epoch": 12},
            id="10:VEC-2",
        ),
        pytest.param(
            "VEC-3",
            [r[1:] for r in EXPECTED["VEC-1"]],
            {"base_offset": 100, "leader_epoch": 12, "log_append_time_ms": T + 9999},
            id="10:VEC-3",
        ),
        pytest.param("VEC-4", THREE, {}, id="10:VEC-4"),
        pytest.param("VEC-6", THREE, {"codec": Codec.SNAPPY}, id="10:VEC-6"),
        pytest.param("VEC-8c", THREE, {"codec": Codec.LZ4}, id="10:VEC-8c"),
        pytest.param("VEC-10", THREE, {"codec": Codec.ZSTD}, id="10:VEC-10"),
        pytest.param(
            "VEC-11",
            [(T, b"a", b"1", ()), (T, b"a", None, ())],
            {"base_offset": 100, "leader_epoch": 12, "is_transactional": True, **PRODUCER},
            id="10:VEC-11",
        ),
        pytest.param(
            "VEC-11b",
            [(T, b"a", b"1", ()), (T, b"a", b"2", ())],
            {"leader_epoch": 0, "is_transactional": True, **PRODUCER},
            id="10:VEC-11b",
        ),
        pytest.param(
            "VEC-14",
            [(T, b"a", None, ())],
            {"base_offset": 100, "leader_epoch": 12, "delete_horizon_ms": T + 86_400_000},
            id="10:VEC-14",
        ),
        pytest.param(
            "VEC-15",
            [(T, b"a", b"1", ()), (T + 1, b"b", b"2", ())],
            {"base_offset": 100, "leader_epoch": 12, "log_append_time_ms": T + 9999},
            id="10:VEC-15",
        ),
    ],
)
def test_bytes_of_other_clients(name: str, records: list[Any], arguments: dict[str, Any]) -> None:
    assert build_batch(iter(records), **arguments) == VECTORS[name]


@pytest.mark.parametrize(
    ("name", "codec"),
    [
        pytest.param("VEC-5", Codec.GZIP, id="10:VEC-5"),
        pytest.param("VEC-8", Codec.LZ4, id="10:VEC-8"),
        pytest.param("VEC-9", Codec.ZSTD, id="10:VEC-9"),
    ],
)
def test_same_records_where_the_compressed_bytes_may_differ(name: str, codec: Codec) -> None:
    batch = build_batch(THREE, codec=codec)
    assert tuple(read_records(batch)) == tuple(read_records(VECTORS[name]))
    ours, theirs = header_of(batch), header_of(VECTORS[name])
    assert ours._replace(length=0, crc=0) == theirs._replace(length=0, crc=0)


def test_encode_record() -> None:
    """The records of 10:VEC-1."""
    assert encode_record(0, 0, b"k1", b"v1", (("h1", b"x"), ("h2", None))).hex() == (
        "26000000046b3104763104046831027804683201"
    )
    assert encode_record(1, 5, None, b"v2").hex() == "10000a020104763200"


def test_largest_timestamp_need_not_be_the_last() -> None:
    header = header_of(
        build_batch([(T, None, b"", ()), (T + 9, None, b"", ()), (T - 9, b"", b"", ())])
    )
    assert (header.base_timestamp, header.max_timestamp) == (T, T + 9)
    header = header_of(build_batch([(-1, None, b"", ())]))
    assert (header.base_timestamp, header.max_timestamp) == (-1, -1)


def test_a_batch_has_records() -> None:
    with pytest.raises(AssertionError):
        build_batch([])


class TestRebuild:
    @pytest.mark.parametrize("target", list(Codec))
    @pytest.mark.parametrize("name", ["VEC-4", "VEC-5", "VEC-6", "VEC-7", "VEC-8b", "VEC-9"])
    def test_any_codec_to_any(self, name: str, target: Codec) -> None:
        source = VECTORS[name]
        rebuilt = rebuild_batch(source, header_of(source), codec=target)
        assert tuple(read_records(rebuilt)) == EXPECTED[name]
        assert header_of(rebuilt).codec_id == target
        if target is Codec.NONE:
            assert rebuilt[61:] == VECTORS["VEC-4"][61:]

    def test_producer_and_transaction_stay(self) -> None:
        source = VECTORS["VEC-11"]
        rebuilt = rebuild_batch(source, header_of(source), codec=Codec.ZSTD, level=1)
        old, new = header_of(source), header_of(rebuilt)
        assert new._replace(length=old.length, crc=old.crc, attributes=old.attributes) == old
        assert new.attributes == old.attributes | Codec.ZSTD
        back = rebuild_batch(rebuilt, new, codec=Codec.NONE)
        assert back == source

    def test_offset_deltas_start_from_0(self) -> None:
        records = [(T + i, b"k", bytes(i), (("h", b"v"),)) for i in range(200)]
        odd = build_batch(records, offset_deltas=range(7, 607, 3), base_offset=50, **PRODUCER)
        assert [r.offset for r in read_records(odd)][:3] == [57, 60, 63]
        rebuilt = rebuild_batch(odd, header_of(odd), codec=Codec.NONE)
        assert rebuilt == build_batch(records, base_offset=50, **PRODUCER)

    def test_largest_timestamp_is_found_again(self) -> None:
        source = build_batch(THREE, log_append_time_ms=T + 77)
        rebuilt = rebuild_batch(source, header_of(source), codec=Codec.GZIP)
        assert header_of(rebuilt).max_timestamp == T + 77
        lying = header_of(VECTORS["VEC-4"])._replace(max_timestamp=5)
        rebuilt = rebuild_batch(VECTORS["VEC-4"], lying, codec=Codec.NONE)
        assert rebuilt == VECTORS["VEC-4"]

    def test_within_a_larger_buffer(self) -> None:
        source = b"##" + VECTORS["VEC-6"] + b"##"
        rebuilt = rebuild_batch(source, header_of(VECTORS["VEC-6"]), codec=Codec.NONE, position=2)
        assert rebuilt == VECTORS["VEC-4"]

    def test_malformed_records(self) -> None:
        source = bytearray(VECTORS["VEC-4"])
        source[61] = 0x50
        header = parse_header(source)
        assert header is not None
        with pytest.raises(InvalidRecordError, match="record 0 at position 0"):
            rebuild_batch(source, header, codec=Codec.GZIP)

    def test_cap(self) -> None:
        with pytest.raises(InvalidRecordError):
            rebuild_batch(
                VECTORS["VEC-5"], header_of(VECTORS["VEC-5"]), codec=Codec.NONE, max_size=125
            )

    def test_empty_batch(self) -> None:
        source = VECTORS["VEC-13"]
        assert rebuild_batch(source, header_of(source), codec=Codec.GZIP) == source


class TestCompaction:
    def test_empty_batch_keeps_the_producer(self) -> None:
        """10:VEC-13"""
        header = header_of(VECTORS["VEC-11"])
        assert build_empty_batch(header) == VECTORS["VEC-13"]
        assert build_compacted_batch(header, []) == VECTORS["VEC-13"]
        assert build_empty_batch(header_of(VECTORS["VEC-13"])) == VECTORS["VEC-13"]

    def test_empty_batch_forgets_codec_and_horizon(self) -> None:
        header = header_of(VECTORS["VEC-14"])._replace(attributes=0x7C)
        assert header_of(build_empty_batch(header)).attributes == 0x38

    def test_records_that_stay_keep_their_offsets(self) -> None:
        records = [(T + i, b"k%d" % i, b"v", ()) for i in range(5)]
        source = build_batch(
            records, base_offset=100, leader_epoch=12, is_transactional=True, **PRODUCER
        )
        kept: list[Record] = [r for r in read_records(source) if r.offset in (101, 103)]
        for codec in Codec:
            left = build_compacted_batch(header_of(source), kept, codec=codec)
            assert list(read_records(left)) == kept
            old, new = header_of(source), header_of(left)
            assert (new.base_offset, new.last_offset) == (100, 104)
            assert (new.record_count, new.max_timestamp) == (2, T + 3)
            assert (new.last_sequence, new.leader_epoch) == (old.last_sequence, 12)
            assert new.is_transactional

    def test_delete_horizon(self) -> None:
        """10:VEC-14"""
        source = build_batch([(T, b"a", None, ())], base_offset=100, leader_epoch=12)
        kept = list(read_records(source))
        left = build_compacted_batch(header_of(source), kept, delete_horizon_ms=T + 86_400_000)
        assert left == VECTORS["VEC-14"]

    def test_append_time_stays(self) -> None:
        source = VECTORS["VEC-15"]
        kept = list(read_records(source))[1:]
        left = build_compacted_batch(header_of(source), kept)
        assert list(read_records(left)) == kept
        assert header_of(left).is_log_append_time
