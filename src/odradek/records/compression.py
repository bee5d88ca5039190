"""The four codecs of a record region, with every framing that clients send.

====== ================================================ ========================================
codec  written                                          read as well
====== ================================================ ========================================
gzip   one member                                       several members
snappy xerial framing, chunks of 32 KiB                 one raw block (librdkafka); any chunk
                                                        size; concatenated xerial streams
lz4    one frame, independent blocks, block checksums   content size, content checksum
zstd   one frame                                        several frames, no content size, an empty
                                                        last block, skippable frames
====== ================================================ ========================================

Decoding is bounded by `max_size`: the output buffer has the size that the stream announces, never
above `max_size` and never above the most that its compressed bytes could yield, and a stream that
does not fit is refused. So a few bytes cannot allocate much memory, and a bomb costs `max_size`.

`strict` is for batches of producers. It refuses bytes after the end of a gzip or lz4 stream and lz4
frames with linked blocks, since some consumers can read neither. Batches on disk are not refused
for that. Bytes after a snappy or zstd stream are always an error.

Magic 0 has a quirk: the header checksum of an lz4 frame also covers the frame's magic number.
"""

import zlib
from enum import IntEnum
from struct import Struct
from typing import Final

import cramjam
from cramjam import DecompressionError

from odradek.errors import InvalidRecordError
from odradek.records.batch import Buffer

__all__ = ["DEFAULT_MAX_DECOMPRESSED_SIZE", "Codec", "compress", "decompress", "parse_codec"]

# One bound for all: a leader accepts no batch that its readers (search by time, cleaner) would not
# expand. It does not depend on a topic's settings, which may change once a batch is stored.
DEFAULT_MAX_DECOMPRESSED_SIZE: Final = 256 * 1024 * 1024

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = Struct(">8sii")  # Magic, version, lowest compatible version.
_XERIAL_CHUNK: Final = 32 * 1024
_INT32: Final = Struct(">i")
# One snappy element of 3 bytes yields at most 64: no valid block expands more than this.
_SNAPPY_MAX_RATIO: Final = 22

_GZIP_MEMBER: Final = b"\x1f\x8b\x08"
_GZIP_MIN_MEMBER: Final = 18
_GZIP_DEFAULT_LEVEL: Final = 6
_DEFLATE_MAX_RATIO: Final = 1032
# Input per step of the bounded decoder; small, since each member's end copies the rest of it.
_GZIP_STEP: Final = 8 * 1024

_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
# Kafka's number for "the default", which is the fast compressor, not level 9 of the slow one.
_LZ4_DEFAULT_LEVEL: Final = 9
_LZ4_FAST_LEVEL: Final = 0
_LZ4_MAX_RATIO: Final = 255
_LZ4_INDEPENDENT: Final = 0x20
_LZ4_BLOCK_CHECKSUM: Final = 0x10
_LZ4_CONTENT_SIZE: Final = 0x08
_LZ4_CONTENT_CHECKSUM: Final = 0x04
_LZ4_RESERVED: Final = 0x02
_LZ4_DICTIONARY: Final = 0x01
_LZ4_STORED: Final = 0x8000_0000
_UINT32_LE: Final = Struct("<I")
_UINT64_LE: Final = Struct("<Q")

_ZSTD_MAGIC: Final = 0xFD2F_B528
_ZSTD_SKIPPABLE: Final = 0x184D_2A50  # And the fifteen numbers after it.
_ZSTD_MAX_BLOCK: Final = 128 * 1024
_ZSTD_DEFAULT_LEVEL: Final = 3

_XXH_PRIME_1: Final = 0x9E37_79B1
_XXH_PRIME_2: Final = 0x85EB_CA77
_XXH_PRIME_3: Final = 0xC2B2_AE3D
_XXH_PRIME_4: Final = 0x27D4_EB2F
_XXH_PRIME_5: Final = 0x1656_67B1


class Codec(IntEnum):
    """Codec numbers of the attributes; the lower-case name is the value of compression.type."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


_CODECS: Final = tuple(Codec)


def parse_codec(codec_id: int, *, magic: int = 2) -> Codec:
    """Returns the codec of a number found in a batch.

    Raises:
        InvalidRecordError: The number is not assigned, or is that of zstd in magic 0 or 1.
    """
    if codec_id >= len(_CODECS) or (codec_id == Codec.ZSTD and magic < 2):
        raise InvalidRecordError(f"codec {codec_id} does not exist in magic {magic}")
    return _CODECS[codec_id]


def compress(codec: Codec, data: Buffer, level: int | None = None, *, magic: int = 2) -> bytes:
    """Compresses a record region or the value of a legacy wrapper.

    Args:
        level: Of gzip 1 to 9 or -1, of lz4 1 to 17, of zstd -131072 to 22; None is the default.
    """
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            level = _GZIP_DEFAULT_LEVEL if level is None or level < 0 else level
            return bytes(cramjam.gzip.compress(data, level=level))
        case Codec.SNAPPY:
            return _compress_xerial(data)
        case Codec.LZ4:
            return _compress_lz4(data, level, magic)
        case Codec.ZSTD:
            assert magic == 2, "legacy messages cannot carry zstd"
            level = _ZSTD_DEFAULT_LEVEL if level is None else level
            return bytes(cramjam.zstd.compress(data, level=level))


def decompress(
    codec: Codec, data: Buffer, *, max_size: int, magic: int = 2, strict: bool = False
) -> bytes | memoryview:
    """Decompresses a record region or the value of a legacy wrapper.

    Args:
        max_size: Most bytes that may come out.
        strict: Whether to refuse streams that some consumers cannot read.

    Raises:
        InvalidRecordError: The data is damaged, too large, or has a framing that is refused.
    """
    view = memoryview(data)
    try:
        match codec:
            case Codec.NONE:
                return view
            case Codec.GZIP:
                return _decompress_gzip(view, max_size, strict)
            case Codec.SNAPPY:
                return _decompress_snappy(view, max_size)
            case Codec.LZ4:
                return _decompress_lz4(view, max_size, magic, strict)
            case Codec.ZSTD:
                return _decompress_zstd(view, max_size)
    except (DecompressionError, zlib.error) as error:
        raise InvalidRecordError(
            f"{len(data)} bytes of {codec.name.lower()} cannot be decompressed "
            f"into at most {max_size}: {error}"
        ) from None


def _too_large(codec: str, size: int, max_size: int) -> InvalidRecordError:
    return InvalidRecordError(f"{codec} stream holds {size} bytes or more, at most {max_size} may")


def _decompress_gzip(data: memoryview, max_size: int, strict: bool) -> memoryview:
    """Tries the size in the last member's trailer first, which is exact for one member."""
    claimed: int = _UINT32_LE.unpack(data[-4:])[0] if len(data) >= _GZIP_MIN_MEMBER else 0
    if claimed <= min(max_size, _DEFLATE_MAX_RATIO * len(data)):
        output = bytearray(claimed)
        try:
            size = cramjam.gzip.decompress_into(data, output)
        except DecompressionError:
            # Several members, bytes after the stream, or damage: the bounded decoder decides.
            return _decompress_gzip_members(data, max_size, strict)
        return memoryview(output)[:size]
    return _decompress_gzip_members(data, max_size, strict)


def _decompress_gzip_members(data: memoryview, max_size: int, strict: bool) -> memoryview:
    output = bytearray()
    position = 0
    while True:
        member = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        while not member.eof:
            step = data[position : position + _GZIP_STEP]
            if not step:
                raise InvalidRecordError(f"gzip stream does not end within {len(data)} bytes")
            output += member.decompress(step, max_size - len(output) + 1)
            if len(output) > max_size:
                raise _too_large("gzip", len(output), max_size)
            position += len(step) - len(member.unused_data)
        if position == len(data):
            return memoryview(output)
        is_member = bytes(data[position : position + 3]) == _GZIP_MEMBER
        if not is_member or len(data) - position < _GZIP_MIN_MEMBER:
            if strict:
                raise InvalidRecordError(f"{len(data) - position} bytes follow the gzip stream")
            return memoryview(output)


def _compress_xerial(data: Buffer) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_HEADER.pack(_XERIAL_MAGIC, 1, 1)]
    for start in range(0, len(view), _XERIAL_CHUNK):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_CHUNK]))
        parts += (_INT32.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: memoryview, max_size: int) -> memoryview:
    blocks = _xerial_blocks(data) if bytes(data[:8]) == _XERIAL_MAGIC else [data]
    sizes = []
    for block in blocks:
        size = cramjam.snappy.decompress_raw_len(block)
        if size > _SNAPPY_MAX_RATIO * len(block):
            raise InvalidRecordError(
                f"snappy block of {len(block)} bytes claims to hold {size}, which none can"
            )
        sizes.append(size)
    if sum(sizes) > max_size:
        raise _too_large("snappy", sum(sizes), max_size)
    output = memoryview(bytearray(sum(sizes)))
    position = 0
    for block, size in zip(blocks, sizes, strict=True):
        cramjam.snappy.decompress_raw_into(block, output[position : position + size])
        position += size
    return output


def _xerial_blocks(data: memoryview) -> list[memoryview]:
    blocks = []
    position = 0
    while position < len(data):
        if bytes(data[position : position + 8]) == _XERIAL_MAGIC:
            if len(data) - position < _XERIAL_HEADER.size:
                raise InvalidRecordError(f"xerial header at {position} is cut at {len(data)}")
            _, version, _ = _XERIAL_HEADER.unpack_from(data, position)
            if version < 1:
                raise InvalidRecordError(f"xerial version {version} at {position}, expected 1")
            position += _XERIAL_HEADER.size
            continue
        if len(data) - position < _INT32.size:
            raise InvalidRecordError(f"xerial chunk length at {position} is cut at {len(data)}")
        length: int = _INT32.unpack_from(data, position)[0]
        position += _INT32.size
        if not 0 < length <= len(data) - position:
            raise InvalidRecordError(
                f"xerial chunk of {length} bytes at {position}, {len(data) - position} are left"
            )
        blocks.append(data[position : position + length])
        position += length
    return blocks


def _compress_lz4(data: Buffer, level: int | None, magic: int) -> bytes:
    is_default = level is None or level == _LZ4_DEFAULT_LEVEL
    compressor = cramjam.lz4.Compressor(
        level=_LZ4_FAST_LEVEL if is_default else level,
        content_checksum=False,
        block_linked=False,  # Java refuses linked blocks.
    )
    compressor.compress(bytes(data))  # It takes nothing else.
    frame = bytes(compressor.finish())
    if magic > 0:
        return frame
    return frame[:6] + bytes((_lz4_header_checksum(frame[:6]),)) + frame[7:]


def _decompress_lz4(data: memoryview, max_size: int, magic: int, strict: bool) -> memoryview:
    if len(data) < 7 or bytes(data[:4]) != _LZ4_MAGIC:
        raise InvalidRecordError(f"no lz4 frame in {len(data)} bytes: {bytes(data[:7]).hex()}")
    flags, descriptor = data[4], data[5]
    if flags >> 6 != 1 or flags & _LZ4_RESERVED or descriptor & 0x8F or descriptor < 0x40:
        raise InvalidRecordError(f"lz4 frame with FLG {flags:02x} BD {descriptor:02x} is unknown")
    if flags & _LZ4_DICTIONARY:
        raise InvalidRecordError("lz4 frame needs a dictionary")
    if strict and not flags & _LZ4_INDEPENDENT:
        raise InvalidRecordError("lz4 frame has linked blocks, which Java consumers cannot read")
    checksum_position = 14 if flags & _LZ4_CONTENT_SIZE else 6
    end, bound = _scan_lz4_blocks(data, checksum_position + 1)
    if strict and end != len(data):
        raise InvalidRecordError(f"{len(data) - end} bytes follow the lz4 frame")
    if flags & _LZ4_CONTENT_SIZE:
        content_size: int = _UINT64_LE.unpack_from(data, 6)[0]
        if content_size > max_size:
            raise _too_large("lz4", content_size, max_size)
        bound = min(bound, content_size)
    frame: Buffer = data[:end]
    if magic == 0:
        frame = bytearray(frame)
        frame[checksum_position] = _lz4_header_checksum(frame[4:checksum_position])
    output = bytearray(min(bound, max_size))
    size = cramjam.lz4.decompress_into(frame, output)
    return memoryview(output)[:size]


def _scan_lz4_blocks(data: memoryview, position: int) -> tuple[int, int]:
    """Steps over the blocks of a frame; returns its end and the most bytes that it can yield."""
    flags = data[4]
    max_block = 1 << (8 + 2 * (data[5] >> 4))
    checksum_size = 4 if flags & _LZ4_BLOCK_CHECKSUM else 0
    bound = 0
    while position + 4 <= len(data):
        size: int = _UINT32_LE.unpack_from(data, position)[0]
        position += 4
        if size == 0:
            end = position + (4 if flags & _LZ4_CONTENT_CHECKSUM else 0)
            if end > len(data):
                break
            return end, bound
        if size & _LZ4_STORED:
            size &= ~_LZ4_STORED
            bound += size
        else:
            bound += min(max_block, size * _LZ4_MAX_RATIO)
        if size > max_block:
            raise InvalidRecordError(
                f"lz4 block of {size} bytes at {position}, at most {max_block} may be"
            )
        position += size + checksum_size
    raise InvalidRecordError(f"lz4 frame does not end within {len(data)} bytes")


def _lz4_header_checksum(descriptor: Buffer) -> int:
    """The second byte of xxHash32 with seed 0, for the fewer than 16 bytes a descriptor has."""
    assert len(descriptor) < 16
    value = _XXH_PRIME_5 + len(descriptor)
    whole = len(descriptor) & ~3
    for position in range(0, whole, 4):
        value += _UINT32_LE.unpack_from(descriptor, position)[0] * _XXH_PRIME_3
        value = _rotate_left(value, 17) * _XXH_PRIME_4
    for byte in descriptor[whole:]:
        value = _rotate_left(value + byte * _XXH_PRIME_5, 11) * _XXH_PRIME_1
    value &= 0xFFFF_FFFF
    value = (value ^ value >> 15) * _XXH_PRIME_2 & 0xFFFF_FFFF
    value = (value ^ value >> 13) * _XXH_PRIME_3 & 0xFFFF_FFFF
    return (value ^ value >> 16) >> 8 & 0xFF


def _rotate_left(value: int, count: int) -> int:
    value &= 0xFFFF_FFFF
    return value << count | value >> (32 - count)


def _decompress_zstd(data: memoryview, max_size: int) -> memoryview:
    output = bytearray(min(_bound_zstd(data, max_size), max_size))
    size = cramjam.zstd.decompress_into(data, output)
    return memoryview(output)[:size]


def _bound_zstd(data: memoryview, max_size: int) -> int:
    """The most bytes that the frames can yield, by their headers; the decoder finds any damage.

    Frame: magic(4), descriptor(1), window(0-1), dictionary(0-4), content size(0-8), blocks.
    Block: uint24 with bit 0 last, bits 1-2 type (0 stored, 1 one byte repeated, 2 compressed),
    the rest its size; a compressed block yields at most 128 KiB, and no more than the window.
    """
    bound = 0
    position = 0
    end = len(data)
    while position + 5 <= end:
        magic: int = _UINT32_LE.unpack_from(data, position)[0]
        if magic & 0xFFFF_FFF0 == _ZSTD_SKIPPABLE:
            position += 8 + int.from_bytes(data[position + 4 : position + 8], "little")
            continue
        if magic != _ZSTD_MAGIC:
            break
        descriptor = data[position + 4]
        is_single_segment = bool(descriptor & 0x20)
        position += 5
        max_block = _ZSTD_MAX_BLOCK
        if not is_single_segment and position < end:
            base = 1 << 10 + (data[position] >> 3)
            max_block = min(max_block, base + (base >> 3) * (data[position] & 7))
            position += 1
        position += (0, 1, 2, 4)[descriptor & 3]
        size_width = (int(is_single_segment), 2, 4, 8)[descriptor >> 6]
        frame_bound = None
        if size_width:
            frame_bound = int.from_bytes(data[position : position + size_width], "little")
            frame_bound += 256 if size_width == 2 else 0
            if frame_bound > max_size:
                raise _too_large("zstd", frame_bound, max_size)
            position += size_width
        position, blocks_bound = _scan_zstd_blocks(data, position, max_block)
        bound += blocks_bound if frame_bound is None else min(frame_bound, blocks_bound)
        if descriptor & 4:
            position += 4  # Content checksum.
    return bound


def _scan_zstd_blocks(data: memoryview, position: int, max_block: int) -> tuple[int, int]:
    bound = 0
    is_last = False
    while not is_last and position + 3 <= len(data):
        header = data[position] | data[position + 1] << 8 | data[position + 2] << 16
        is_last = bool(header & 1)
        block_type, size = header >> 1 & 3, header >> 3
        bound += max_block if block_type == 2 else size
        position += 3 + (1 if block_type == 1 else size)
    return position, bound
