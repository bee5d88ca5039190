"""Fetch as a follower speaks it: writes the request, reads the response, from 15 on.

A follower names topics by their ids, and its answers have neither aborted transactions nor, nearly
always, tags. Answers with any of these are left to the generated codec.

Partition of a request and of a response::

    index, leader epoch, offset                             int32 int32 int64
    last epoch, log start, max bytes                        int32 int64 int32
    tags                                                    one zero byte

    index, error                                            int32 int16
    high watermark, last stable offset, log start           int64 int64 int64
    aborted transactions                                    one byte: null or empty
    preferred read replica                                  int32
    records                                                 compact bytes
    tags                                                    one zero byte
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final

from odradek.protocol.hot.border import decoding
from odradek.protocol.hot.parts import parse_compact_count
from odradek.protocol.primitives import encode_uvarint, fail_length, parse_uvarint

__all__ = [
    "FIRST_FOLLOWER_VERSION",
    "LAST_FOLLOWER_VERSION",
    "FollowerFetch",
    "FollowerRow",
    "WantedRow",
    "encode_follower_fetch",
    "parse_follower_answer",
]

# The replica is named in a tag; what later versions add are tags that a follower leaves out.
FIRST_FOLLOWER_VERSION: Final = 15
LAST_FOLLOWER_VERSION: Final = 17

_START: Final = Struct(">iiibii").pack
_WANTED: Final = Struct(">iiqiqix").pack
_INT32: Final = Struct(">i").pack
# No rack; one tag, number 1, of 13 bytes: replica, its epoch, no tags.
_END: Final = Struct(">BBBBiqx").pack
_HEAD: Final = Struct(">ihi").unpack_from
_ROW: Final = Struct(">ihqqqBi")
_ROW_FIELDS: Final = _ROW.unpack_from
_ROW_BYTES: Final = _ROW.size
_ID_BYTES: Final = 16

# index, current leader epoch, fetch offset, last fetched epoch, log start offset
WantedRow = tuple[int, int, int, int, int]
# topic id, index, error code, high watermark, log start offset, records
FollowerRow = tuple[bytes, int, int, int, int, memoryview]
# throttle time, error code, session id, rows
FollowerFetch = tuple[int, int, int, list[FollowerRow]]


def encode_follower_fetch(
    topics: Sequence[tuple[bytes, Sequence[WantedRow]]],
    forgotten: Sequence[tuple[bytes, Sequence[int]]],
    *,
    replica_id: int,
    replica_epoch: int,
    max_wait_ms: int,
    min_bytes: int,
    max_bytes: int,
    partition_max_bytes: int,
    session_id: int,
    session_epoch: int,
) -> bytes:
    """Writes the body of a request."""
    parts = [_START(max_wait_ms, min_bytes, max_bytes, 0, session_id, session_epoch)]
    parts.append(encode_uvarint(len(topics) + 1))
    for topic_id, rows in topics:
        parts += (topic_id, encode_uvarint(len(rows) + 1))
        for index, leader_epoch, offset, last_epoch, log_start in rows:
            parts.append(
                _WANTED(index, leader_epoch, offset, last_epoch, log_start, partition_max_bytes)
            )
        parts.append(b"\0")
    parts.append(encode_uvarint(len(forgotten) + 1))
    for topic_id, indexes in forgotten:
        parts += (topic_id, encode_uvarint(len(indexes) + 1))
        parts += [_INT32(index) for index in indexes]
        parts.append(b"\0")
    parts.append(_END(1, 1, 1, 13, replica_id, replica_epoch))
    return b"".join(parts)


@decoding("FetchResponse")
def parse_follower_answer(view: memoryview, position: int, _version: int) -> FollowerFetch | None:
    """Reads the body of a response; None if the generated codec has to read it.

    Raises:
        DecodeError: The bytes are no such response.
    """
    throttle_ms, error_code, session_id = _HEAD(view, position)
    topic_count, position = parse_compact_count(view, position + 10, "responses", _ID_BYTES + 2)
    rows: list[FollowerRow] = []
    for _ in range(topic_count):
        topic_id = bytes(view[position : position + _ID_BYTES])
        row_count, position = parse_compact_count(
            view, position + _ID_BYTES, "partitions", _ROW_BYTES + 2
        )
        for _ in range(row_count):
            index, row_error, high_watermark, _, log_start, aborted, _ = _ROW_FIELDS(view, position)
            if aborted > 1:
                return None
            length, position = parse_uvarint(view, position + _ROW_BYTES)
            end = position + length - 1 if length else position
            if end > len(view):
                fail_length("records", length - 1, position, len(view))
            records = view[position:end]
            if view[end]:
                return None
            rows.append((topic_id, index, row_error, high_watermark, log_start, records))
            position = end + 1
        if view[position]:
            return None
        position += 1
    return None if view[position] else (throttle_ms, error_code, session_id, rows)
