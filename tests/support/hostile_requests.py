"""Requests that ask for as much as a request can: repeated, numerous and long elements.

They are made of the declarations of messages, so that an API that is added is covered as soon as it
is in the table of handlers. What a field is to hold is guessed from its name (`_STRINGS`,
`_INTEGERS`); a name that nobody knows gets the declared default, or a name of its own.
"""

from collections.abc import Iterator
from enum import Enum
from typing import Any

from odradek.lazy_dataclass import dataclass
from odradek.protocol.primitives import BYTES, MAX_STRING_BYTES, RECORDS, STRING, UUID, WireType
from odradek.protocol.schema import ArrayOf, Field, Message, MessageType, default_of

__all__ = ["RequestBuilder", "Shape", "World", "hostile_request"]

_COUNT = 700
_LONG_COUNT = 4


class Shape(Enum):
    """What is too much of."""

    REPEATED = "the same element many times"
    REPEATED_INSIDE = "one element that repeats the innermost that it holds"
    UNKNOWN = "many different elements that do not exist"
    EVERYTHING = "all that exists, once"
    LONG = "the longest strings"
    EMPTY = "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What exists on the broker under test."""

    topics: tuple[str, ...]
    topic_ids: dict[str, bytes]
    partition_count: int
    groups: tuple[str, ...]
    # Transactional ids, initialised in this order on a fresh broker: the first one has the producer
    # id 0.
    transactional_ids: tuple[str, ...] = ()
    # Batches of records for one partition.
    records: bytes = b""


# By field, and where that is not enough by message and field.
_STRINGS = {
    "config_name": "retention.ms",
    "value": "86400000",
    "entity_type": "client-id",
    "key": "consumer_byte_rate",
    "protocol_type": "consumer",
    "mechanism": "PLAIN",
    "principal": "User:somebody",
    "host": "*",
    "client_software_version": "1.0",
}
_INTEGERS = {
    "acks": 1,
    "count": 5,
    "endpoint_type": 1,
    "generation_id": 1,
    "max_bytes": 1 << 30,
    "num_partitions": 1,
    "partition_max_bytes": 1 << 20,
    "rebalance_timeout_ms": 10_000,
    "replication_factor": 1,
    "resource_type": 2,
    "session_timeout_ms": 10_000,
    "timeout_ms": 5_000,
    "timestamp": 1,
    "transaction_timeout_ms": 60_000,
    "response_partition_limit": 2_000,
}
_TOPIC_FIELDS = frozenset({"topic", "name", "topic_name", "topic_names", "resource_name"})
_GROUP_FIELDS = frozenset({"group_id", "groups", "groups_names", "coordinator_keys"})
_TRANSACTION_FIELDS = frozenset(
    {"transactional_id", "transactional_ids", "v3_and_below_transactional_id"}
)
_PRODUCER_FIELDS = frozenset({"producer_id", "v3_and_below_producer_id"})
_PARTITION_FIELDS = frozenset(
    {"partition", "partition_index", "index", "partitions", "partition_indexes"}
)


def hostile_request(cls: type[Message], version: int, shape: Shape, world: World) -> Message:
    """A request of that class and shape."""
    made = RequestBuilder(version, shape, world).message(cls, 0, 0)
    assert isinstance(made, cls)
    return made


class RequestBuilder:
    """Builds a request, field by field."""

    def __init__(self, version: int, shape: Shape, world: World) -> None:
        self._version = version
        self._shape = shape
        self._world = world

    def message(self, cls: MessageType, depth: int, number: int) -> Any:
        values = {
            field.name: self._value(cls, field, depth, number)
            for field in cls.wire_fields
            if self._version in field.versions and self._version not in field.tagged
        }
        return cls(**values)

    def _value(self, cls: MessageType, field: Field, depth: int, number: int) -> Any:
        kind = field.type
        if isinstance(kind, ArrayOf):
            return [
                self._element(cls, field, kind.element, depth + 1, each)
                for each in self._numbers(field, kind, depth)
            ]
        if isinstance(kind, MessageType):
            if self._version in field.nullable:
                return None
            return self.message(kind, depth, number)
        return self._single(cls, field, kind, number)

    def _element(
        self, cls: MessageType, field: Field, kind: WireType | MessageType, depth: int, number: int
    ) -> Any:
        if isinstance(kind, MessageType):
            return self.message(kind, depth, number)
        return self._single(cls, field, kind, number)

    def _numbers(self, field: Field, kind: ArrayOf, depth: int) -> Iterator[int]:
        """The numbers of an array's elements; equal numbers make equal elements."""
        match self._shape:
            case Shape.EMPTY:
                return iter(())
            case Shape.REPEATED:
                return iter([0] * (_COUNT if depth == 0 else 1))
            case Shape.REPEATED_INSIDE:
                return iter([0] * (1 if self._has_arrays(kind.element) else _COUNT))
            case Shape.UNKNOWN:
                return iter(range(_COUNT if depth == 0 else 1))
            case Shape.LONG:
                return iter(range(_LONG_COUNT if depth == 0 else 1))
            case Shape.EVERYTHING:
                is_partitions = field.name in _PARTITION_FIELDS or "partition" in field.name
                if depth and is_partitions:
                    return iter(range(self._world.partition_count))
                return iter(range(len(self._world.topics) if depth == 0 else 1))

    def _has_arrays(self, kind: WireType | MessageType) -> bool:
        return isinstance(kind, MessageType) and any(
            isinstance(field.type, ArrayOf) and self._version in field.versions
            for field in kind.wire_fields
        )

    def _single(self, cls: MessageType, field: Field, kind: WireType, number: int) -> Any:
        name = field.name
        if kind is STRING:
            return self._string(cls, field, number)
        if kind is RECORDS:
            return self._world.records
        if kind is BYTES:
            return bytes(100_000 if self._shape is Shape.LONG else 10)
        if kind is UUID:
            return self._topic_id(number) if name == "topic_id" else bytes(16)
        if name in _PARTITION_FIELDS:
            return number
        if name in _PRODUCER_FIELDS and self._world.transactional_ids:
            return number % len(self._world.transactional_ids)
        if name == "resource_types":
            return 2
        if name in _INTEGERS:
            return _INTEGERS[name]
        return default_of(field) if not isinstance(field.type, ArrayOf) else kind.default

    def _string(self, cls: MessageType, field: Field, number: int) -> str | None:
        name = field.name
        if name == "name" and "Config" in cls.__name__:
            name = "config_name"
        if self._shape is Shape.LONG and name not in ("entity_type", "protocol_type"):
            # As long as a string can be, and different from the others in its last characters.
            return f"{'x' * (MAX_STRING_BYTES - 8)}{number:08d}"
        if name in ("group_instance_id", "cluster_id", "cursor") or (
            name == "transactional_id" and self._version in field.nullable
        ):
            return None if self._version in field.nullable else ""
        if name == "member_id":
            return ""
        if name in _STRINGS:
            return _STRINGS[name]
        known: tuple[str, ...] = ()
        if name in _GROUP_FIELDS:
            known = self._world.groups
        elif name in _TRANSACTION_FIELDS:
            known = self._world.transactional_ids
        elif name in _TOPIC_FIELDS:
            known = self._world.topics
        if known and self._shape is not Shape.UNKNOWN:
            return known[number % len(known)]
        return f"unknown-{name}-{number}"

    def _topic_id(self, number: int) -> bytes:
        if self._shape is Shape.UNKNOWN:
            return number.to_bytes(16, "big").replace(b"\0", b"\7")
        topics = self._world.topics
        return self._world.topic_ids[topics[number % len(topics)]]
