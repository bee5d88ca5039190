"""The topics in the metadata of a member of type `consumer`.

The metadata is the members' own business, with one exception: offsets of topics that a group is
subscribed to do not expire. It begins in every version with::

    version int16, topics: int32 count, each an int16 length and UTF-8
"""

from collections.abc import Iterable
from struct import Struct
from struct import error as struct_error
from typing import Final

__all__ = ["CONSUMER_PROTOCOL_TYPE", "parse_subscribed_topics", "subscribed_topics"]

CONSUMER_PROTOCOL_TYPE: Final = "consumer"

_HEAD: Final = Struct(">hi")
_INT16: Final = Struct(">h")


def parse_subscribed_topics(metadata: bytes) -> list[str] | None:
    """The topics; None if the bytes are nothing a consumer would send."""
    try:
        version, count = _HEAD.unpack_from(metadata)
        if version < 0 or not 0 <= count <= len(metadata):
            return None
        position = _HEAD.size
        topics = []
        for _ in range(count):
            (length,) = _INT16.unpack_from(metadata, position)
            position += 2
            if length < 0 or position + length > len(metadata):
                return None
            topics.append(metadata[position : position + length].decode())
            position += length
    except (struct_error, UnicodeDecodeError):
        return None
    return topics


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """All topics of all members; None, which protects every topic, if one cannot be read."""
    union: set[str] = set()
    for metadata in subscriptions:
        topics = parse_subscribed_topics(metadata)
        if topics is None:
            return None
        union.update(topics)
    return frozenset(union)
