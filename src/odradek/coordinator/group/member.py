"""One member of a group, and the topics that it is subscribed to. Pure.

A member's metadata is opaque to the coordinator, with one exception: offsets of topics that a group
is subscribed to do not expire. For the protocol type `consumer` it begins in every version with::

    version int16, topics: int32 count, each an int16 length and UTF-8
"""

from collections.abc import Collection, Iterable, Sequence
from struct import Struct
from struct import error as struct_error
from typing import Final, NamedTuple

from odradek.coordinator.group.decisions import Ticket
from odradek.errors import InvariantViolation

__all__ = [
    "CONSUMER_PROTOCOL_TYPE",
    "Member",
    "MemberSummary",
    "parse_subscribed_topics",
    "protocol_names",
    "subscribed_topics",
]

CONSUMER_PROTOCOL_TYPE: Final = "consumer"

_HEAD: Final = Struct(">hi")
_INT16: Final = Struct(">h")


class MemberSummary(NamedTuple):
    """A member in the result of `describe`."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


def protocol_names(protocols: Iterable[tuple[str, bytes]]) -> dict[str, None]:
    """The names of protocols, each once, in their order."""
    return dict.fromkeys(name for name, _ in protocols)


class Member:
    """State of one member; edited by the functions of this package only."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "deadline_ms",
        "instance_id",
        "is_new",
        "join_ticket",
        "member_id",
        "protocol_type",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync_ticket",
        "timer_due_ms",
    )

    def __init__(
        self,
        member_id: str,
        *,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocol_type: str,
        protocols: Sequence[tuple[str, bytes]],
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id  # `group.instance.id` of a static member.
        self.client_id = client_id
        self.client_host = client_host
        # How long a rebalance waits for it; both timeouts follow its newest JoinGroup.
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocol_type = protocol_type
        self.protocols = tuple(protocols)  # Name and opaque metadata, its favourite first.
        self.assignment = b""
        self.join_ticket: Ticket = None  # Of its parked JoinGroup.
        self.sync_ticket: Ticket = None  # Of its parked SyncGroup.
        # Joined, and its first JoinGroup has not been answered: it cannot send heartbeats yet.
        self.is_new = False
        # When the member is removed for silence, in timer time; not while a request of it is
        # parked, unless the member is new.
        self.deadline_ms = 0
        # When its earliest timer fires. None: no timer is armed.
        self.timer_due_ms: int | None = None

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    @property
    def is_awaiting_join(self) -> bool:
        return self.join_ticket is not None

    @property
    def is_awaiting_sync(self) -> bool:
        return self.sync_ticket is not None

    def metadata(self, protocol_name: str) -> bytes:
        """The metadata that the member sent for `protocol_name`.

        Raises:
            InvariantViolation: It does not support that protocol.
        """
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        raise InvariantViolation(
            f"member {self.member_id!r} does not support protocol {protocol_name!r}, "
            f"only {', '.join(protocol_names(self.protocols))}"
        )

    def vote(self, candidates: Collection[str]) -> str:
        """The candidate that comes first in the member's list.

        Raises:
            InvariantViolation: It supports none of them.
        """
        for name, _ in self.protocols:
            if name in candidates:
                return name
        raise InvariantViolation(
            f"member {self.member_id!r} supports none of {sorted(candidates)}, "
            f"only {', '.join(protocol_names(self.protocols))}"
        )

    def matches(self, protocols: Sequence[tuple[str, bytes]]) -> bool:
        """Whether these are its protocols, in the same order with the same metadata."""
        return self.protocols == tuple(protocols)

    def summary(self, protocol_name: str | None) -> MemberSummary:
        """The member for `describe`; without a protocol, subscription and assignment are empty."""
        return MemberSummary(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            b"" if protocol_name is None else self.metadata(protocol_name),
            b"" if protocol_name is None else self.assignment,
        )


def parse_subscribed_topics(metadata: bytes) -> list[str] | None:
    """The topics of a subscription; None if the bytes are malformed."""
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
