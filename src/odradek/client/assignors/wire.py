"""The bytes that members and the leader of a consumer group exchange: subscription, assignment.

The coordinator passes both on without reading them. Both begin with an int16 version; a reader
takes any higher one for the newest it knows and ignores the bytes behind it. A version lacks
nothing but its last fields, so every reader understands the newest.
"""

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final

from odradek.client.assignors.interface import Subscription
from odradek.errors import DecodeError
from odradek.model import TopicPartition
from odradek.protocol.codec import encode_message, parse_message
from odradek.protocol.primitives import BYTES, INT32, STRING, Buffer
from odradek.protocol.schema import Message, array, wire

__all__ = [
    "encode_assignment",
    "encode_sticky_data",
    "encode_subscription",
    "parse_assignment",
    "parse_sticky_data",
    "parse_subscription",
]

_VERSION: Final = Struct(">h")
_LAST_SUBSCRIPTION: Final = 3
_LAST_ASSIGNMENT: Final = 3


class _Partitions(Message):
    topic: str = wire(STRING)
    partitions: Sequence[int] = wire(array(INT32))


class _Subscription(Message, versions="0-3", flexible="none"):
    # 1: owned partitions. 2: their generation. 3: the rack.
    topics: Sequence[str] = wire(array(STRING))
    user_data: bytes | None = wire(BYTES, nullable="0+", default=None)
    owned_partitions: Sequence[_Partitions] = wire(array(_Partitions), "1+", ignorable=True)
    generation_id: int = wire(INT32, "2+", default=-1, ignorable=True)
    rack_id: str | None = wire(STRING, "3+", nullable="3+", default=None, ignorable=True)


class _Assignment(Message, versions="0-3", flexible="none"):
    # All versions are alike.
    assigned_partitions: Sequence[_Partitions] = wire(array(_Partitions))
    user_data: bytes | None = wire(BYTES, nullable="0+", default=None)


class _StickyData(Message, versions="0-1", flexible="none"):
    # No version is written before it: the older form just ends earlier.
    previous_assignment: Sequence[_Partitions] = wire(array(_Partitions))
    generation: int = wire(INT32, "1+", default=-1)


def encode_subscription(subscription: Subscription, version: int = _LAST_SUBSCRIPTION) -> bytes:
    """Encodes the subscription of a member, without the instance id."""
    message = _Subscription(
        topics=sorted(subscription.topics),
        user_data=subscription.user_data,
        owned_partitions=_grouped(subscription.owned),
        generation_id=subscription.generation,
        rack_id=subscription.rack,
    )
    return _VERSION.pack(version) + encode_message(message, version)


def parse_subscription(buffer: Buffer, instance_id: str | None = None) -> Subscription:
    """Parses the subscription of a member.

    Raises:
        DecodeError: The bytes are no subscription.
    """
    version = _parse_version(buffer, _LAST_SUBSCRIPTION)
    message, _ = parse_message(_Subscription, buffer, version, _VERSION.size)
    return Subscription(
        topics=tuple(message.topics),
        user_data=message.user_data,
        owned=_flat(message.owned_partitions),
        generation=message.generation_id,
        rack=message.rack_id,
        instance_id=instance_id,
    )


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """Encodes the assignment of a member."""
    message = _Assignment(assigned_partitions=_grouped(partitions))
    return _VERSION.pack(_LAST_ASSIGNMENT) + encode_message(message, _LAST_ASSIGNMENT)


def parse_assignment(buffer: Buffer) -> tuple[TopicPartition, ...]:
    """Parses the assignment of a member; no bytes at all are an empty one.

    Raises:
        DecodeError: The bytes are no assignment.
    """
    if not len(buffer):
        return ()
    version = _parse_version(buffer, _LAST_ASSIGNMENT)
    message, _ = parse_message(_Assignment, buffer, version, _VERSION.size)
    return _flat(message.assigned_partitions)


def encode_sticky_data(owned: Iterable[TopicPartition], generation: int) -> bytes:
    """Writes the user data of `sticky`."""
    message = _StickyData(previous_assignment=_grouped(owned), generation=generation)
    return encode_message(message, 1)


def parse_sticky_data(buffer: Buffer) -> tuple[tuple[TopicPartition, ...], int]:
    """Reads the user data of `sticky`, the older form too: owned partitions and generation.

    Raises:
        DecodeError: It is neither.
    """
    try:
        message, _ = parse_message(_StickyData, buffer, 1)
    except DecodeError:
        message, _ = parse_message(_StickyData, buffer, 0)
    return _flat(message.previous_assignment), message.generation


def _parse_version(buffer: Buffer, newest: int) -> int:
    if len(buffer) < _VERSION.size:
        raise DecodeError(f"{len(buffer)} bytes are too few for a version")
    version: int = _VERSION.unpack_from(buffer)[0]
    if version < 0:
        raise DecodeError(f"version {version}, expected 0 or more")
    return min(version, newest)


def _grouped(partitions: Iterable[TopicPartition]) -> list[_Partitions]:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)
    return [_Partitions(topic=topic, partitions=found) for topic, found in by_topic.items()]


def _flat(topics: Iterable[_Partitions]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(one.topic, index) for one in topics for index in one.partitions)
