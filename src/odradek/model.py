"""The nouns every layer shares: small immutable values without behaviour. Pure."""

import base64
import binascii
import uuid
from enum import Enum, IntEnum
from typing import NamedTuple

from odradek.lazy_dataclass import dataclass

__all__ = [
    "INITIAL_LEADER_EPOCH",
    "LEADER_DURING_DELETE",
    "NO_CONTROLLER",
    "NO_LEADER",
    "AppendOrigin",
    "Endpoint",
    "LeaderAndIsr",
    "ReplicaAssignment",
    "ReplicaId",
    "SecurityProtocol",
    "TopicPartition",
    "TransactionMarker",
    "parse_uuid",
    "uuid_text",
]

NO_CONTROLLER = -1
NO_LEADER = -1
LEADER_DURING_DELETE = -2  # In UpdateMetadata: the partition is being deleted.
INITIAL_LEADER_EPOCH = 0


class TopicPartition(NamedTuple):
    """One partition of one topic; hashable, ordered by name and number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class ReplicaId(NamedTuple):
    """One replica of a partition: that of one broker."""

    tp: TopicPartition
    broker: int


class AppendOrigin(Enum):
    """The writer of a batch, which decides which checks the batch must pass."""

    CLIENT = "client"  # A Produce request: everything is checked.
    COORDINATOR = "coordinator"  # Group or transaction coordinator: no sequence checks.
    REPLICATION = "replication"  # A follower's fetch: the leader checked it, structure only.
    RAFT_LEADER = "raft-leader"  # The metadata quorum's own log.


class SecurityProtocol(IntEnum):
    """How a listener protects its connections; the number is wire contract."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3

    @property
    def uses_tls(self) -> bool:
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def uses_sasl(self) -> bool:
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


class Endpoint(NamedTuple):
    """One listener of a broker: where it is bound or reached, and how it protects connections."""

    host: str  # Empty: every interface when bound, the machine's own name when published.
    port: int  # 0 before it is bound: any free one.
    listener: str  # Upper case; unique within a broker.
    security_protocol: SecurityProtocol

    @property
    def connection_string(self) -> str:
        """`NAME://host:port`, an IPv6 host in brackets."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener}://{host}:{self.port}"

    @property
    def is_wildcard(self) -> bool:
        """Whether it is bound on every interface: no peer can connect to such a host."""
        return self.host in ("", "0.0.0.0", "::")  # noqa: S104 - compared, not bound


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsr:
    """Leader and in-sync replicas of a partition, as one decision of the controller set them."""

    leader: int  # NO_LEADER when no replica can lead.
    leader_epoch: int
    isr: tuple[int, ...]  # Ordered. Invariant: contains the leader, if there is one.
    # Node version in store mode, partition epoch in quorum mode: compared, never computed with.
    partition_version: int = 0
    # Elected from outside of the ISR, and the leader has not written the ISR since (KIP-704).
    is_recovering: bool = False


@dataclass(frozen=True, slots=True)
class ReplicaAssignment:
    """The brokers with a replica of a partition, and the reassignment in progress."""

    replicas: tuple[int, ...]  # Ordered; the first is the preferred leader.
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def origin(self) -> tuple[int, ...]:
        """The replicas before the reassignment."""
        return tuple(r for r in self.replicas if r not in self.adding)

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas after the reassignment."""
        return tuple(r for r in self.replicas if r not in self.removing)

    @property
    def is_being_reassigned(self) -> bool:
        """Whether a reassignment is in progress."""
        return bool(self.adding or self.removing)

    def reassign_to(self, target: tuple[int, ...]) -> "ReplicaAssignment":
        """The assignment with old and new replicas, which lasts until the new ones caught up."""
        origin = self.origin
        replicas = tuple(dict.fromkeys(target + origin))
        return ReplicaAssignment(
            replicas,
            adding=tuple(r for r in replicas if r not in origin),
            removing=tuple(r for r in replicas if r not in target),
        )

    def remove_replica(self, replica: int) -> "ReplicaAssignment":
        """The assignment without `replica` in any of its lists."""
        return ReplicaAssignment(
            tuple(r for r in self.replicas if r != replica),
            adding=tuple(r for r in self.adding if r != replica),
            removing=tuple(r for r in self.removing if r != replica),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionMarker:
    """The end of a producer's transaction, to be written to the partitions it has changed."""

    producer_id: int
    producer_epoch: int  # Under transaction.version 2 one above that of the transaction's batches.
    coordinator_epoch: int  # The leader epoch of the coordinator's partition.
    is_commit: bool  # Otherwise the transaction is aborted.
    transaction_version: int  # Under which the producer has run the transaction: 0 to 2.
    partitions: tuple[TopicPartition, ...]


def uuid_text(value: uuid.UUID) -> str:
    """The 22 characters of base64url that files, nodes and tools write for an id."""
    return base64.urlsafe_b64encode(value.bytes).decode("ascii").rstrip("=")


def parse_uuid(text: str) -> uuid.UUID:
    """Reads what `uuid_text` writes.

    Raises:
        ValueError: `text` is not 22 characters of base64url.
    """
    if len(text) != 22 or not text.isascii() or "+" in text or "/" in text:
        raise ValueError(f"expected an id of 22 base64url characters, found {text!r}")
    try:
        data = base64.b64decode(text + "==", altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError(f"id {text!r} is not base64url: {error}") from None
    value = uuid.UUID(bytes=data)
    if uuid_text(value) != text:
        raise ValueError(f"id {text!r} has bits beyond its 16 bytes: expected {uuid_text(value)!r}")
    return value
