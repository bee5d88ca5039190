"""Batch headers: vectors, partial and corrupt batches, CRC, patching."""

import pytest

from odradek.errors import CorruptRecordError
from odradek.records.batch import (
    CRC_POSITION,
    HEADER,
    HEADER_SIZE,
    LENGTH_POSITION,
    MAGIC_POSITION,
    BatchHeader,
    compute_crc,
    increment_sequence,
    is_crc_valid,
    iter_headers,
    parse_header,
    patch_max_timestamp,
    patch_offset_and_epoch,
    peek_header,
)
from tests.unit.records.vectors import VECTORS, T

MAX = 2**31 - 1


def header_of(name: str) -> BatchHeader:
    header = parse_header(VECTORS[name])
    assert header is not None
    return header


def with_field(batch: bytes, position: int, value: bytes) -> bytes:
    return batch[:position] + value + batch[position + len(value) :]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param(
            "VEC-1",
            BatchHeader(0, 78, -1, 2, 0x4CE36FEB, 0, 1, T, T + 5, -1, -1, -1, 2),
            id="10:VEC-1",
        ),
        pytest.param(
            "VEC-11",
            BatchHeader(100, 66, 12, 2, 0x15BD7C72, 0x10, 1, T, T, 4000, 3, 7, 2),
            id="10:VEC-11",
        ),
        pytest.param(
            "VEC-11b",
            BatchHeader(0, 67, 0, 2, 0xB1C851D3, 0x10, 1, T, T, 4000, 3, 7, 2),
            id="10:VEC-11b",
        ),
        pytest.param(
            "VEC-12",
            BatchHeader(102, 66, 12, 2, 0xD906EC9C, 0x30, 0, T + 10, T + 10, 4000, 3, -1, 1),
            id="10:VEC-12",
        ),
        pytest.param(
            "VEC-13",
            BatchHeader(100, 49, 12, 2, 0x407C1A64, 0x10, 1, -1, T, 4000, 3, 7, 0),
            id="10:VEC-13",
        ),
        pytest.param(
            "VEC-16",
            BatchHeader(0, 24, -1, 1, 0x39268C33, 0, 0, T, T, -1, -1, -1, 1),
            id="10:VEC-16",
        ),
        pytest.param(
            "VEC-17",
            BatchHeader(0, 16, -1, 0, 0x1FECD70A, 0, 0, -1, -1, -1, -1, -1, 1),
            id="10:VEC-17",
        ),
        pytest.param(
            "VEC-18",
            BatchHeader(1, 87, -1, 1, 0x31ADDE52, 1, 0, T + 1, T + 1, -1, -1, -1, -1),
            id="10:VEC-18",
        ),
    ],
)
def test_header_fields(name: str, expected: BatchHeader) -> None:
    assert parse_header(VECTORS[name]) == expected


@pytest.mark.parametrize("name", [pytest.param(name, id=f"10:{name}") for name in VECTORS])
def test_vector_has_a_valid_crc_in_any_buffer(name: str) -> None:
    data = VECTORS[name]
    shifted = memoryview(b"xyz" + data + b"tail")
    for position, header in iter_headers(data):
        assert is_crc_valid(data, position, header.size)
        assert is_crc_valid(bytearray(data), position, header.size)
        assert is_crc_valid(shifted, position + 3, header.size)
        assert parse_header(shifted, position + 3) == header
        last = position + header.size - 1
        broken = with_field(data, last, bytes((data[last] ^ 1,)))
        assert not is_crc_valid(broken, position, header.size)


def test_crc_32c_check_value() -> None:
    """The check value of the Castagnoli polynomial, through the batch code."""
    batch = bytearray(21) + b"123456789"
    batch[MAGIC_POSITION] = 2
    assert compute_crc(batch, 0, len(batch)) == 0xE3069283


def test_crc_of_too_few_bytes_is_invalid() -> None:
    data = VECTORS["VEC-1"]
    assert not is_crc_valid(data, 0, 16)
    assert not is_crc_valid(data, 0, 60)
    assert not is_crc_valid(data, 0, len(data) + 1)


def test_header_properties() -> None:
    plain = header_of("VEC-2")
    assert (plain.size, plain.last_offset, plain.next_offset) == (90, 101, 102)
    assert not plain.is_transactional
    assert not plain.is_control
    assert not plain.has_producer_id
    assert not plain.is_compressed
    assert not plain.is_log_append_time
    assert plain.delete_horizon_ms is None
    assert plain.last_sequence == -1
    transactional = header_of("VEC-11")
    assert transactional.is_transactional
    assert transactional.has_producer_id
    assert transactional.last_sequence == 8
    assert header_of("VEC-3").is_log_append_time
    assert header_of("VEC-12").is_control
    assert header_of("VEC-12").last_sequence == -1
    assert header_of("VEC-14").delete_horizon_ms == T + 86_400_000
    assert (header_of("VEC-9").codec_id, header_of("VEC-9").is_compressed) == (4, True)
    assert plain._replace(attributes=0x0F).codec_id == 7


@pytest.mark.parametrize(
    ("sequence", "delta", "expected"),
    [(0, 0, 0), (7, 1, 8), (MAX - 1, 1, MAX), (MAX, 1, 0), (MAX - 1, 3, 1), (MAX, MAX, MAX - 1)],
)
def test_sequence_wraps_after_the_largest(sequence: int, delta: int, expected: int) -> None:
    """10:PR-6 in part: what the batch of three from 2147483646 ends with."""
    assert increment_sequence(sequence, delta) == expected
    header = header_of("VEC-11")._replace(base_sequence=sequence, last_offset_delta=delta)
    assert header.last_sequence == expected


def test_undefined_legacy_attributes_are_not_flags() -> None:
    v0 = parse_header(with_field(VECTORS["VEC-17"], 17, b"\x78"))
    assert v0 is not None
    assert v0.attributes == 0
    v1 = parse_header(with_field(VECTORS["VEC-16"], 17, b"\x78"))
    assert v1 is not None
    assert v1.attributes == 0x08
    assert v1.is_log_append_time


def test_iter_headers_steps_and_stops_at_a_partial_batch() -> None:
    data = VECTORS["VEC-1"] + VECTORS["VEC-18"] + VECTORS["VEC-17"] + VECTORS["VEC-4"][:80]
    found = [(position, header.magic) for position, header in iter_headers(data)]
    assert found == [(0, 2), (90, 1), (189, 0), (217, 0)]
    assert [position for position, _ in iter_headers(data, 90, 217)] == [90, 189]
    assert list(iter_headers(data, 90, 188)) == []
    assert list(iter_headers(b"")) == []


class TestPartial:
    def test_negative_vector_cut_to_80_bytes(self) -> None:
        """10:VEC-1 cut: a partial batch is the end, not an error."""
        assert parse_header(VECTORS["VEC-1"][:80]) is None
        assert parse_header(VECTORS["VEC-1"], 0, 80) is None

    @pytest.mark.parametrize("name", ["VEC-1", "VEC-13", "VEC-18", "VEC-19"])
    def test_every_cut(self, name: str) -> None:
        data = VECTORS[name]
        assert all(parse_header(data[:size]) is None for size in range(len(data)))
        assert parse_header(data) is not None

    @pytest.mark.parametrize(
        ("name", "needed"), [("VEC-1", HEADER_SIZE), ("VEC-18", 34), ("VEC-19", 26)]
    )
    def test_peek_needs_the_header_only(self, name: str, needed: int) -> None:
        data = VECTORS[name]
        assert all(peek_header(data[:size]) is None for size in range(needed))
        whole = parse_header(data)
        assert peek_header(data[:needed]) == whole
        assert peek_header(b"xx" + data, 2, needed + 2) == whole

    def test_partial_comes_before_the_magic(self) -> None:
        data = with_field(VECTORS["VEC-1"], MAGIC_POSITION, b"\x03")
        assert parse_header(data[:80]) is None


class TestCorrupt:
    @pytest.mark.parametrize(
        ("name", "length"),
        [("VEC-1", 10), ("VEC-1", -1), ("VEC-1", 48), ("VEC-16", 21), ("VEC-17", 13)],
    )
    def test_impossible_length(self, name: str, length: int) -> None:
        data = with_field(VECTORS[name], LENGTH_POSITION, length.to_bytes(4, "big", signed=True))
        for parse in (parse_header, peek_header):
            with pytest.raises(CorruptRecordError, match=f"position 0: length {length} with magic"):
                parse(data)

    @pytest.mark.parametrize("magic", [3, 127, 0xFF])
    def test_unknown_magic(self, magic: int) -> None:
        data = with_field(VECTORS["VEC-1"], MAGIC_POSITION, bytes((magic,)))
        for parse in (parse_header, peek_header):
            with pytest.raises(CorruptRecordError, match=r"magic .*, expected 0, 1 or 2"):
                parse(data)

    def test_iteration_names_the_position(self) -> None:
        with pytest.raises(CorruptRecordError, match="position 90"):
            list(iter_headers(VECTORS["VEC-1"] + bytes(100)))

    def test_a_short_length_is_corrupt_even_at_the_end(self) -> None:
        data = with_field(VECTORS["VEC-1"], LENGTH_POSITION, b"\0\0\0\x0a")
        with pytest.raises(CorruptRecordError):
            parse_header(data[:17])


class TestPatch:
    def test_offset_and_epoch_leave_the_crc(self) -> None:
        """10:VEC-2"""
        batch = bytearray(b"##" + VECTORS["VEC-1"])
        patch_offset_and_epoch(batch, 2, 100, 12)
        assert batch[2:] == VECTORS["VEC-2"]
        view = memoryview(bytearray(VECTORS["VEC-1"]))
        patch_offset_and_epoch(view, 0, 100, 12)
        assert view == VECTORS["VEC-2"]

    def test_append_time(self) -> None:
        """10:VEC-3"""
        batch = bytearray(b"##" + VECTORS["VEC-2"] + b"##")
        assert patch_max_timestamp(batch, 2, log_append_time=True, max_timestamp=T + 9999)
        assert batch[2:-2] == VECTORS["VEC-3"]

    def test_back_to_create_time(self) -> None:
        batch = bytearray(VECTORS["VEC-3"])
        assert patch_max_timestamp(batch, 0, log_append_time=False, max_timestamp=T + 5)
        assert batch == VECTORS["VEC-2"]

    def test_what_is_there_is_not_written(self) -> None:
        batch = bytearray(VECTORS["VEC-3"])
        batch[CRC_POSITION] ^= 1
        assert not patch_max_timestamp(batch, 0, log_append_time=True, max_timestamp=T + 9999)
        assert batch[CRC_POSITION] != VECTORS["VEC-3"][CRC_POSITION]

    def test_other_attributes_stay(self) -> None:
        batch = bytearray(VECTORS["VEC-11"])
        patch_max_timestamp(batch, 0, log_append_time=True, max_timestamp=T)
        header = parse_header(batch)
        assert header is not None
        assert header.attributes == 0x18
        assert is_crc_valid(batch, 0, len(batch))


def test_header_struct_is_61_bytes() -> None:
    assert HEADER.size == HEADER_SIZE == 61
