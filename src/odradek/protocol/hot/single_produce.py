"""Produce for one partition, as a client that does not batch sends it: fewer steps, same bytes.

The lane is for a request of version 5 or later, without a transactional id, with records for one
partition and nothing else, and for the answer without an error. For any other request, also a
malformed one, `parse_single_produce` returns None, and `odradek.protocol.hot.produce` reads it.
"""

from struct import Struct
from struct import error as struct_error
from typing import Final

from odradek.errors import DecodeError
from odradek.protocol.primitives import parse_uvarint_tail

__all__ = ["FIRST_SINGLE_VERSION", "SingleProduce", "encode_single_success", "parse_single_produce"]

FIRST_SINGLE_VERSION: Final = 5  # The layouts of 5 and 6 are those of 7.

# (acks, timeout in ms, topic's name, or id from version 13 on; partition, its records)
SingleProduce = tuple[int, int, str | bytes, int, memoryview]

# Length of the transactional id, acks, timeout, number of topics, length of the name.
_PLAIN_START: Final = Struct(">hhiih").unpack_from
# Number of partitions, partition, size of its records.
_PLAIN_PARTITION: Final = Struct(">iii").unpack_from
# The same of flexible versions: lengths and counts are one more, in a byte if they are small.
_FLEXIBLE_START: Final = Struct(">BhiB").unpack_from
_FLEXIBLE_PARTITION: Final = Struct(">BiB").unpack_from
_TAGS: Final = Struct("BBB").unpack_from
_LARGEST_BYTE: Final = 0x7F


def parse_single_produce(view: memoryview, position: int, version: int) -> SingleProduce | None:
    """Reads the body of a Produce request for this lane; returns None for any other."""
    try:
        if version >= 9:
            return _parse_flexible(view, position, by_id=version >= 13)
        if version < FIRST_SINGLE_VERSION:
            return None
        id_length, acks, timeout_ms, topics, length = _PLAIN_START(view, position)
        if id_length != -1 or topics != 1 or length < 0:
            return None
        start = position + 14
        end = start + length
        partitions, index, size = _PLAIN_PARTITION(view, end)
        if partitions != 1 or size < 0 or end + 12 + size != len(view):
            return None
        return acks, timeout_ms, str(view[start:end], "utf-8"), index, view[end + 12 :]
    except (struct_error, IndexError, UnicodeDecodeError, DecodeError):
        return None


def _parse_flexible(view: memoryview, position: int, *, by_id: bool) -> SingleProduce | None:
    id_length, acks, timeout_ms, topics = _FLEXIBLE_START(view, position)
    if id_length or topics != 2:
        return None
    position += 8
    topic: str | bytes
    if by_id:
        topic = bytes(view[position : position + 16])
        position += 16
    else:
        length = view[position]
        if not 0 < length <= _LARGEST_BYTE:
            return None
        topic = str(view[position + 1 : position + length], "utf-8")
        position += length
    partitions, index, size = _FLEXIBLE_PARTITION(view, position)
    position += 6
    if size > _LARGEST_BYTE:
        size, position = parse_uvarint_tail(view, position, size)
    end = position + size - 1
    # The tags of partition, topic and request, none each, end it.
    if partitions != 2 or not size or end + 3 != len(view) or _TAGS(view, end) != (0, 0, 0):
        return None
    return acks, timeout_ms, topic, index, view[position:end]


# By version and length of the name. Invariant: names of topics that exist, so at most 249 each.
_LAYOUTS: Final[dict[tuple[int, int], Struct]] = {}
# No record errors, no message, no tags of the partition; no tags of the topic.
_NO_EXTRAS: Final = b"\x01\x00\x00\x00"


def encode_single_success(
    version: int,
    correlation_id: int,
    topic: str | bytes,
    index: int,
    base_offset: int,
    log_append_time_ms: int,
    log_start_offset: int,
    throttle_time_ms: int,
) -> bytes:
    """Writes header and body of the response to a `SingleProduce` that was stored."""
    name = topic.encode() if isinstance(topic, str) else topic
    length = len(name)
    layout = _LAYOUTS.get((version, length))
    if layout is None:
        layout = _LAYOUTS[version, length] = Struct(_layout(version, length))
    numbers = index, 0, base_offset, log_append_time_ms, log_start_offset
    if version >= 13:
        return layout.pack(correlation_id, 0, 2, name, 2, *numbers, _NO_EXTRAS, throttle_time_ms, 0)
    if version >= 9:
        return layout.pack(
            correlation_id, 0, 2, length + 1, name, 2, *numbers, _NO_EXTRAS, throttle_time_ms, 0
        )
    if version >= 8:
        return layout.pack(correlation_id, 1, length, name, 1, *numbers, 0, -1, throttle_time_ms)
    return layout.pack(correlation_id, 1, length, name, 1, *numbers, throttle_time_ms)


def _layout(version: int, length: int) -> str:
    """The response as a layout: of these versions only lengths and counts differ."""
    if version >= 9:
        # Correlation id, tags of the header, number of topics; the name has a length, an id none.
        start = ">iBB" + ("" if version >= 13 else "B")
        return f"{start}{length}sBihqqq4siB"
    extras = "ih" if version >= 8 else ""  # Number of record errors, length of the message.
    return f">iih{length}siihqqq{extras}i"
