"""Codecs: round trips, every framing of other clients, bombs and damage."""

import gzip
import random
import zlib
from struct import pack

import cramjam
import pytest

from odradek.errors import InvalidRecordError
from odradek.records.compression import Codec, compress, decompress, parse_codec
from tests.unit.records.vectors import VEC_7B, VECTORS

MIB = 1024 * 1024
REGION = VECTORS["VEC-4"][61:]
CODECS = list(Codec)[1:]
DATA = {
    "empty": b"",
    "one byte": b"x",
    "region": REGION,
    "compressible": b"0123456789abcdef" * 40_000,
    "random": random.Random(7).randbytes(300_000),
    "mixed": random.Random(8).randbytes(70_000) + bytes(200_000),
}


def unpack(
    codec: Codec, data: bytes, max_size: int = 4 * MIB, magic: int = 2, strict: bool = False
) -> bytes:
    return bytes(decompress(codec, data, max_size=max_size, magic=magic, strict=strict))


def lz4_frame(data: bytes, *, linked: bool = False, content_checksum: bool = False) -> bytes:
    compressor = cramjam.lz4.Compressor(
        level=1, content_checksum=content_checksum, block_linked=linked
    )
    compressor.compress(data)
    return bytes(compressor.finish())


def test_codec_numbers() -> None:
    assert [codec.name for codec in Codec] == ["NONE", "GZIP", "SNAPPY", "LZ4", "ZSTD"]
    assert [parse_codec(codec) for codec in Codec] == [0, 1, 2, 3, 4]
    for codec_id, magic in ((5, 2), (6, 2), (7, 2), (4, 1), (4, 0), (5, 0)):
        with pytest.raises(InvalidRecordError, match=f"codec {codec_id}"):
            parse_codec(codec_id, magic=magic)


@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize("codec", list(Codec))
def test_round_trip(codec: Codec, name: str) -> None:
    data = DATA[name]
    packed = compress(codec, memoryview(data))
    for strict in (False, True):
        assert unpack(codec, packed, strict=strict) == data
        # A view into something larger, as it lies in a batch; and the cap to the byte.
        view = memoryview(b"ab" + packed + b"cd")[2:-2]
        assert bytes(decompress(codec, view, max_size=len(data), strict=strict)) == data


@pytest.mark.parametrize(
    ("codec", "levels"),
    [
        (Codec.GZIP, [-1, 1, 6, 9]),
        (Codec.LZ4, [1, 3, 9, 12, 17]),
        (Codec.ZSTD, [-131072, -1, 1, 3, 19]),
        (Codec.SNAPPY, [1]),
    ],
)
def test_levels(codec: Codec, levels: list[int]) -> None:
    for level in levels:
        assert unpack(codec, compress(codec, DATA["mixed"], level), strict=True) == DATA["mixed"]


@pytest.mark.parametrize(
    ("codec", "vector"),
    [
        pytest.param(Codec.GZIP, "VEC-5", id="10:VEC-5"),
        pytest.param(Codec.SNAPPY, "VEC-6", id="10:VEC-6"),
        pytest.param(Codec.SNAPPY, "VEC-7", id="10:VEC-7"),
        pytest.param(Codec.LZ4, "VEC-8", id="10:VEC-8"),
        pytest.param(Codec.LZ4, "VEC-8b", id="10:VEC-8b"),
        pytest.param(Codec.LZ4, "VEC-8c", id="10:VEC-8c"),
        pytest.param(Codec.ZSTD, "VEC-9", id="10:VEC-9"),
        pytest.param(Codec.ZSTD, "VEC-10", id="10:VEC-10"),
    ],
)
def test_what_clients_send_passes_the_strict_decoder(codec: Codec, vector: str) -> None:
    stored = VECTORS[vector][61:]
    assert unpack(codec, stored, strict=True) == REGION
    assert unpack(codec, stored, max_size=len(REGION)) == REGION
    with pytest.raises(InvalidRecordError):
        unpack(codec, stored, max_size=len(REGION) - 1)
    for cut in range(len(stored)):
        if stored[:cut] == TestSnappy.HEADER:
            continue  # A stream without chunks; that records are missing shows later.
        with pytest.raises(InvalidRecordError):
            unpack(codec, stored[:cut])


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_is_refused(codec: Codec) -> None:
    bomb = compress(codec, bytes(8 * MIB))
    with pytest.raises(InvalidRecordError, match=r"\d+ bytes"):
        unpack(codec, bomb, max_size=MIB)
    assert len(unpack(codec, bomb, max_size=8 * MIB)) == 8 * MIB


@pytest.mark.parametrize("codec", CODECS)
def test_no_bytes_are_no_stream(codec: Codec) -> None:
    with pytest.raises(InvalidRecordError):
        unpack(codec, b"")


class TestGzip:
    def test_several_members_are_one_stream(self) -> None:
        data = compress(Codec.GZIP, b"one") + gzip.compress(b"two") + gzip.compress(b"")
        assert unpack(Codec.GZIP, data, strict=True) == b"onetwo"
        with pytest.raises(InvalidRecordError, match="gzip stream holds 6 bytes or more"):
            unpack(Codec.GZIP, data, max_size=5)

    def test_large_members_in_steps(self) -> None:
        data = gzip.compress(DATA["mixed"]) * 2 + b"junk"
        assert unpack(Codec.GZIP, data) == DATA["mixed"] * 2

    @pytest.mark.parametrize("junk", [b"x", b"\0" * 8, b"\x1f\x8b\x08", b"junk" * 9])
    def test_bytes_behind_the_stream(self, junk: bytes) -> None:
        data = gzip.compress(b"one") + junk
        assert unpack(Codec.GZIP, data) == b"one"
        with pytest.raises(InvalidRecordError, match=f"{len(junk)} bytes follow the gzip stream"):
            unpack(Codec.GZIP, data, strict=True)

    def test_size_in_the_trailer_is_a_hint_only(self) -> None:
        for claimed in (0, 2, 2**32 - 1):
            lie = gzip.compress(b"one")[:-4] + claimed.to_bytes(4, "little")
            with pytest.raises(InvalidRecordError):
                unpack(Codec.GZIP, lie)

    def test_checksum(self) -> None:
        data = bytearray(gzip.compress(b"one"))
        data[-5] ^= 1
        with pytest.raises(InvalidRecordError, match="gzip cannot be decompressed"):
            unpack(Codec.GZIP, bytes(data))

    def test_header_with_a_file_name_and_time(self) -> None:
        compressor = zlib.compressobj(9, wbits=-15)
        body = compressor.compress(b"one") + compressor.flush()
        header = b"\x1f\x8b\x08\x08\x12\x34\x56\x78\x02\x03name\0"
        data = header + body + pack("<II", zlib.crc32(b"one"), 3)
        assert unpack(Codec.GZIP, data, strict=True) == b"one"


class TestSnappy:
    HEADER = b"\x82SNAPPY\x00\0\0\0\x01\0\0\0\x01"

    @classmethod
    def chunk(cls, data: bytes) -> bytes:
        block = bytes(cramjam.snappy.compress_raw(data))
        return pack(">i", len(block)) + block

    def test_framing_written(self) -> None:
        packed = compress(Codec.SNAPPY, bytes(100_000))
        assert packed[:16] == self.HEADER
        first = int.from_bytes(packed[16:20], "big")
        assert cramjam.snappy.decompress_raw_len(packed[20 : 20 + first]) == 32 * 1024

    def test_two_chunks(self) -> None:
        """10:VEC-7b"""
        assert unpack(Codec.SNAPPY, VEC_7B, strict=True) == REGION

    def test_concatenated_streams(self) -> None:
        data = self.HEADER + self.chunk(b"one") + self.HEADER + self.chunk(b"two") + self.HEADER
        assert unpack(Codec.SNAPPY, data, strict=True) == b"onetwo"

    @pytest.mark.parametrize(
        "data",
        [
            HEADER[:12],
            HEADER + b"\0\0\0",
            HEADER + pack(">i", -1) + b"xx",
            HEADER + pack(">i", 0),
            HEADER + pack(">i", 3) + b"xx",
            HEADER + HEADER[:15],
            HEADER[:8] + pack(">ii", 0, 0),
            b"\xff\x06\x00\x00sNaPpY",
            bytes(cramjam.snappy.compress_raw(b"one")) + b"x",
            b"\xff\xff\xff\xff\x0f" + b"x" * 8,
            b"\xff" * 12,
        ],
    )
    @pytest.mark.parametrize("strict", [False, True])
    def test_refused(self, data: bytes, strict: bool) -> None:
        with pytest.raises(InvalidRecordError):
            unpack(Codec.SNAPPY, data, strict=strict)

    def test_chunks_count_together(self) -> None:
        data = self.HEADER + self.chunk(bytes(600)) + self.chunk(bytes(600))
        with pytest.raises(InvalidRecordError, match="snappy stream holds 1200 bytes"):
            unpack(Codec.SNAPPY, data, max_size=1199)


class TestLz4:
    @pytest.mark.parametrize("name", DATA)
    @pytest.mark.parametrize("magic", [0, 1, 2])
    def test_written_frames_have_independent_blocks(self, magic: int, name: str) -> None:
        """Java readers refuse linked blocks, so FLG bit 5 is set on whatever we write."""
        for level in (None, 1, 9, 12):
            frame = compress(Codec.LZ4, DATA[name], level, magic=magic)
            assert frame[:4] == b"\x04\x22\x4d\x18"
            assert frame[4] & 0x20
            assert frame[4] >> 6 == 1
            assert frame[5] == 0x40
            assert unpack(Codec.LZ4, frame, magic=magic, strict=True) == DATA[name]

    def test_broken_header_checksum_of_magic_0(self) -> None:
        """10:VEC-19"""
        broken = VECTORS["VEC-19"][26:]
        assert broken[:7].hex() == "04224d1860401a"
        content = unpack(Codec.LZ4, broken, magic=0)
        repaired = broken[:6] + b"\x82" + broken[7:]
        for magic in (0, 1, 2):
            assert unpack(Codec.LZ4, repaired, magic=magic) == content
        for magic in (1, 2):
            with pytest.raises(InvalidRecordError, match="headerChecksum"):
                unpack(Codec.LZ4, broken, magic=magic)

    def test_header_checksum_written(self) -> None:
        """10:VEC-20: the right one; in magic 0 the wrong one, over the frame's magic as well."""
        assert VECTORS["VEC-20"][34:41].hex() == "04224d18604082"
        new, old = (compress(Codec.LZ4, b"one", magic=magic) for magic in (1, 0))
        assert new[:6] == old[:6]
        assert new[7:] == old[7:]
        assert new[6] == 0xAD
        assert old[6] != new[6]

    def test_any_header_checksum_of_magic_0_with_content_size(self) -> None:
        frame = bytearray(VECTORS["VEC-8b"][61:])
        frame[14] ^= 0xFF
        assert unpack(Codec.LZ4, bytes(frame), magic=0) == REGION
        with pytest.raises(InvalidRecordError):
            unpack(Codec.LZ4, bytes(frame), magic=2)

    def test_block_checksum_is_honoured(self) -> None:
        frame = bytearray(VECTORS["VEC-8c"][61:])
        frame[-5] ^= 1
        with pytest.raises(InvalidRecordError, match="blockChecksum"):
            unpack(Codec.LZ4, bytes(frame))

    def test_content_checksum(self) -> None:
        frame = lz4_frame(DATA["mixed"], content_checksum=True)
        assert frame[4] & 0x04
        assert unpack(Codec.LZ4, frame, strict=True) == DATA["mixed"]
        with pytest.raises(InvalidRecordError, match="does not end within"):
            unpack(Codec.LZ4, frame[:-1])

    def test_linked_blocks_are_refused_on_produce_only(self) -> None:
        frame = lz4_frame(DATA["compressible"], linked=True)
        assert not frame[4] & 0x20
        assert unpack(Codec.LZ4, frame) == DATA["compressible"]
        with pytest.raises(InvalidRecordError, match="linked blocks"):
            unpack(Codec.LZ4, frame, strict=True)

    @pytest.mark.parametrize("tail", [b"x", b"junkjunk", lz4_frame(b"two")])
    def test_bytes_behind_the_frame(self, tail: bytes) -> None:
        """A second frame counts as junk, too: Java readers stop at the first."""
        data = lz4_frame(b"one") + tail
        assert unpack(Codec.LZ4, data) == b"one"
        with pytest.raises(InvalidRecordError, match=f"{len(tail)} bytes follow the lz4 frame"):
            unpack(Codec.LZ4, data, strict=True)

    @pytest.mark.parametrize(
        ("position", "value", "why"),
        [
            (0, 0x05, "no lz4 frame"),
            (4, 0xA0, "unknown"),
            (4, 0x62, "unknown"),
            (4, 0x61, "dictionary"),
            (5, 0x30, "unknown"),
            (5, 0xC0, "unknown"),
            (5, 0x41, "unknown"),
            (6, 0x00, "headerChecksum"),
            (9, 0x01, "lz4 block of .* at most 65536"),
        ],
    )
    def test_refused_headers(self, position: int, value: int, why: str) -> None:
        frame = bytearray(VECTORS["VEC-8"][61:])
        frame[position] = value
        with pytest.raises(InvalidRecordError, match=why):
            unpack(Codec.LZ4, bytes(frame))

    def test_stored_block(self) -> None:
        data = b"\x04\x22\x4d\x18\x60\x40\x82" + pack("<I", 0x8000_0003) + b"one" + bytes(4)
        assert unpack(Codec.LZ4, data, strict=True) == b"one"

    @pytest.mark.parametrize("block_code", [4, 5, 6, 7])
    def test_block_sizes(self, block_code: int) -> None:
        descriptor = {4: 0x82, 5: 0xFB, 6: 0x51, 7: 0x73}[block_code]
        size = 1 << (8 + 2 * block_code)
        frame = b"\x04\x22\x4d\x18\x60" + bytes((block_code << 4, descriptor))
        frame += pack("<I", 0x8000_0000 | size) + bytes(size) + bytes(4)
        assert unpack(Codec.LZ4, frame, max_size=size, strict=True) == bytes(size)
        assert unpack(Codec.LZ4, frame, max_size=size, magic=0) == bytes(size)


class TestZstd:
    def test_several_and_skippable_frames(self) -> None:
        frames = compress(Codec.ZSTD, b"one") + pack("<II", 0x184D2A53, 5) + b"skip!"
        frames += compress(Codec.ZSTD, DATA["mixed"])
        assert unpack(Codec.ZSTD, frames, strict=True) == b"one" + DATA["mixed"]

    def test_without_content_size_and_with_an_empty_last_block(self) -> None:
        """10:VEC-9"""
        frame = VECTORS["VEC-9"][61:]
        assert frame[4:6] == b"\x00\x58"
        assert frame[-3:] == b"\x01\x00\x00"
        assert unpack(Codec.ZSTD, frame, strict=True) == REGION

    @pytest.mark.parametrize("strict", [False, True])
    @pytest.mark.parametrize("junk", [b"x", b"junk", b"junkjunk"])
    def test_bytes_behind_the_stream(self, junk: bytes, strict: bool) -> None:
        with pytest.raises(InvalidRecordError):
            unpack(Codec.ZSTD, compress(Codec.ZSTD, b"one") + junk, strict=strict)

    def test_content_size_that_lies(self) -> None:
        frame = b"\x28\xb5\x2f\xfd\xa0" + pack("<I", 1 << 31) + b"\x01\0\0"
        with pytest.raises(InvalidRecordError, match="zstd stream holds 2147483648 bytes or more"):
            unpack(Codec.ZSTD, frame)

    def test_repeated_bytes_bomb_without_content_size(self) -> None:
        block = pack("<I", (128 * 1024) << 3 | 1 << 1)[:3] + b"x"
        last = b"\x01\0\0"
        frame = b"\x28\xb5\x2f\xfd\x00\x58" + block * 100 + last
        assert unpack(Codec.ZSTD, frame, max_size=100 * 128 * 1024) == b"x" * (100 * 128 * 1024)
        with pytest.raises(InvalidRecordError, match="cannot be decompressed into at most 1048576"):
            unpack(Codec.ZSTD, frame, max_size=MIB)

    def test_dictionary(self) -> None:
        with pytest.raises(InvalidRecordError):
            unpack(Codec.ZSTD, b"\x28\xb5\x2f\xfd\x01\x58\x07\x01\0\0")
