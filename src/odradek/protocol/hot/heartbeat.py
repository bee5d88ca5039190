"""Heartbeat: reads the request, writes the response."""

from functools import lru_cache
from struct import Struct
from typing import Final, TypeAlias

from odradek.protocol.hot.border import decoding
from odradek.protocol.hot.parts import parse_compact_string, parse_string, pass_tags, present

__all__ = [
    "HeartbeatView",
    "encode_heartbeat_answer",
    "parse_heartbeat_request",
]

_UNPACK_INT32: Final = Struct(">i").unpack_from
# Longer requests are not remembered: with 4,096 of these it is a megabyte.
_MAX_KNOWN_BYTES: Final = 256
# Responses with their headers: correlation id, and tags from version 4 on.
_ANSWER_ERROR: Final = Struct(">ih").pack
_ANSWER_THROTTLE_ERROR: Final = Struct(">iih").pack
_ANSWER_THROTTLE_ERROR_TAGS: Final = Struct(">ixihx").pack


# (group id, generation id, member id, group instance id), any version.
HeartbeatView: TypeAlias = tuple[str, int, str, str | None]


def parse_heartbeat_request(view: memoryview, position: int, version: int) -> HeartbeatView:
    """Reads the body of a Heartbeat request.

    Raises:
        DecodeError: The bytes are no such request.
    """
    if version >= 4 and len(view) - position <= _MAX_KNOWN_BYTES:
        known = _parse_usual(view[position:].tobytes())
        if known is not None:
            return known
    return _parse_any(view, position, version)


# A member sends the same bytes every few seconds, as long as its generation lasts.
@lru_cache(4_096)
def _parse_usual(data: bytes) -> HeartbeatView | None:
    """A request with short strings, no instance id and no tags, as nearly always; or None.

    Lengths below 128 are one byte each: the length of a compact string is one less.
    """
    try:
        group_end = data[0]
        member_at = group_end + 4
        end = member_at + data[member_at]
        if (
            end + 2 == len(data)
            and not (data[end] or data[end + 1])
            and 0 < group_end < 0x80
            and member_at < end < member_at + 0x80
        ):
            (generation_id,) = _UNPACK_INT32(data, group_end)
            group_id = data[1:group_end].decode()
            return group_id, generation_id, data[member_at + 1 : end].decode(), None
    except (IndexError, UnicodeDecodeError):
        pass  # Refused by the caller.
    return None


@decoding("HeartbeatRequest")
def _parse_any(view: memoryview, position: int, version: int) -> HeartbeatView:
    read = parse_string if version < 4 else parse_compact_string
    group_id, position = read(view, position, "group_id")
    (generation_id,) = _UNPACK_INT32(view, position)
    member_id, position = read(view, position + 4, "member_id")
    group_instance_id = None
    if version >= 3:
        group_instance_id, position = read(view, position, "group_instance_id")
    if version >= 4:
        pass_tags(view, position)
    return (
        present(group_id, "group_id", position),
        generation_id,
        present(member_id, "member_id", position),
        group_instance_id,
    )


def encode_heartbeat_answer(
    version: int, correlation_id: int, error_code: int, throttle_time_ms: int
) -> bytes:
    """Writes header and body of a Heartbeat response."""
    if version >= 4:
        return _ANSWER_THROTTLE_ERROR_TAGS(correlation_id, throttle_time_ms, error_code)
    if version == 0:
        return _ANSWER_ERROR(correlation_id, error_code)
    return _ANSWER_THROTTLE_ERROR(correlation_id, throttle_time_ms, error_code)
