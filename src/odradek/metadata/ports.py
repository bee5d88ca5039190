"""The three ports between the engines and everything above them.

=====================  ======================  ==================================================
Port                   Used by                 Direction
=====================  ======================  ==================================================
`MetadataPersistence`  the controller driver   controller → durable metadata, and what it hears
`MetadataFeed`         the broker's publisher  metadata → this broker
`ControllerPort`       ISR updates, producer   this broker → cluster
                       ids, handlers, start
=====================  ======================  ==================================================

The engines meet nowhere else. `odradek.metadata_store` implements all three over a coordination
store, and nothing above these ports sees that store. `ControllerApi` beside them is the controller
as handlers of administrators' requests see it, over any engine.
"""

import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import field
from enum import Enum
from typing import NamedTuple, NewType, Protocol, TypeAlias

from odradek.errors import ApiError, ErrorCode, OdradekError
from odradek.lazy_dataclass import dataclass
from odradek.metadata.admin_requests import (
    CreatePartitionsResult,
    DeletedTopic,
    ElectionOutcome,
    NewPartitions,
    NewTopic,
    TopicResult,
)
from odradek.metadata.changes import AclAdded, AclRemoved, Change, ConfigEdit, QuotaSet
from odradek.metadata.delta import ImageDelta
from odradek.metadata.image import LiveBroker
from odradek.model import LeaderAndIsr, ReplicaAssignment, TopicPartition
from odradek.protocol.enums import ElectionType

__all__ = [
    "AlterIsrOutcome",
    "CommitOutcome",
    "Committed",
    "Conflict",
    "ControllerApi",
    "ControllerPort",
    "ControllerState",
    "FailedChange",
    "FeedItem",
    "Fence",
    "Hint",
    "HintKind",
    "IsrAltered",
    "IsrConflict",
    "IsrOutcomeUnknown",
    "LeadershipLost",
    "LeadershipWon",
    "MetadataFeed",
    "MetadataPersistence",
    "PartitionRecord",
    "PersistenceEvent",
    "ProducerIds",
    "RegisteredBroker",
    "TopicRecord",
]

# What proves that a writer is still the controller: the version of the epoch node, or an epoch.
Fence = NewType("Fence", int)


# MetadataPersistence


class RegisteredBroker(NamedTuple):
    """A live broker; its epoch grows with every registration."""

    broker: LiveBroker
    broker_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRecord:
    """A topic as it is stored."""

    topic_id: uuid.UUID | None  # None: written by a tool that knows no ids; to be written back.
    assignment: Mapping[int, ReplicaAssignment]
    version: int  # For the next change of the topic.
    # Differs between two topics that had the same name one after the other.
    incarnation: int


class PartitionRecord(NamedTuple):
    """A partition's leadership, and the controller epoch that decided it."""

    leader_and_isr: LeaderAndIsr
    controller_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerState:
    """What a controller starts from, or the part of it that a hint is about."""

    brokers: Mapping[int, RegisteredBroker] = field(default_factory=dict)
    topics: Mapping[str, TopicRecord] = field(default_factory=dict)
    partitions: Mapping[TopicPartition, PartitionRecord] = field(default_factory=dict)
    topic_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    deletions: frozenset[str] = frozenset()  # Topics marked for deletion.
    reassignments: Mapping[TopicPartition, tuple[int, ...]] = field(default_factory=dict)
    preferred_elections: frozenset[TopicPartition] = frozenset()
    isr_changes: frozenset[TopicPartition] = frozenset()
    log_dir_failures: frozenset[int] = frozenset()  # Brokers.
    position: int | None = None  # Of the metadata log; None in store engines.


class Committed(NamedTuple):
    """A change that is durable. `version` is for the next change of the same thing."""

    change: Change
    version: int


class Conflict(NamedTuple):
    """A change that found another version, and what is stored now; None: nothing."""

    change: Change
    found: TopicRecord | PartitionRecord | None


class FailedChange(NamedTuple):
    """A change that was not made, and why."""

    change: Change
    error: OdradekError


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOutcome:
    """The outcome of each change of a list. Nothing is called committed without proof."""

    committed: tuple[Committed, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    failed: tuple[FailedChange, ...] = ()
    position: int | None = None  # Of the metadata log; None in store engines.


class LeadershipWon(NamedTuple):
    """This broker is controller now."""

    controller_epoch: int
    fence: Fence


class LeadershipLost(NamedTuple):
    """It is not any more; whatever it still commits will be refused."""


class HintKind(Enum):
    """What may have changed by another hand."""

    BROKERS = "brokers"
    BROKER = "broker"
    TOPICS = "topics"
    TOPIC = "topic"
    PARTITION = "partition"
    DELETIONS = "deletions"
    REASSIGNMENTS = "reassignments"
    PREFERRED_ELECTION = "preferred election"
    ISR_CHANGES = "isr changes"
    LOG_DIR_FAILURES = "log dir failures"


class Hint(NamedTuple):
    """Something may differ from what the controller knows: read it and compare."""

    kind: HintKind
    broker_id: int | None = None
    topic: str | None = None
    partition: int | None = None


PersistenceEvent: TypeAlias = LeadershipWon | LeadershipLost | Hint


class MetadataPersistence(Protocol):
    """Durable metadata as the controller sees it."""

    @property
    def raises_leader_epoch_on_isr_change(self) -> bool:
        """Whether decide raises the leader epoch when only the ISR changes; store engines do."""
        ...

    def events(self) -> AsyncIterator[PersistenceEvent]:
        """Leadership and hints, in order. Iterating it takes part in the election."""
        ...

    async def load(self, hint: Hint | None = None) -> ControllerState:
        """Reads everything, or what a hint is about, and asks for the next hint about it.

        Notifications (ISR changes, log directory failures) are consumed by being read.
        """
        ...

    async def commit(self, changes: Sequence[Change], fence: Fence) -> CommitOutcome:
        """Makes changes durable.

        Raises:
            ControllerMoved: The fence failed or the session is lost; what was written stands.
        """
        ...

    async def resign(self, fence: Fence) -> None:
        """Gives leadership up, so that another election starts."""
        ...


# MetadataFeed


class FeedItem(Protocol):
    """A delta, and a feeder that waits for its outcome. Exactly one of the two calls ends it."""

    @property
    def delta(self) -> ImageDelta:
        """What to publish."""
        ...

    def complete(self, results: Mapping[TopicPartition, ErrorCode]) -> None:
        """Tells the feeder the result of each partition of the local part."""
        ...

    def fail(self, error: Exception) -> None:
        """Tells the feeder why the delta was not published; raises it if no feeder can take it."""
        ...


class MetadataFeed(Protocol):
    """Metadata on its way into this broker."""

    def items(self) -> AsyncGenerator[FeedItem, None]:
        """Deltas in order; one is completed before the next is taken, and made only then.

        The first one has all dynamic settings there are, so that a broker can load its logs. When
        the iteration is closed, feeders that still wait are cancelled.
        """
        ...


# ControllerPort


class IsrAltered(NamedTuple):
    """The ISR is stored."""

    partition_version: int


class IsrConflict(NamedTuple):
    """Somebody else changed the partition: keep the old ISR and wait for the controller."""


class IsrOutcomeUnknown(NamedTuple):
    """The link broke and could not be asked yet: the change stays in flight."""


AlterIsrOutcome: TypeAlias = IsrAltered | IsrConflict | IsrOutcomeUnknown


class ProducerIds(NamedTuple):
    """A block of producer ids that belongs to this broker alone."""

    first_id: int
    last_id: int  # Inclusive.


class ControllerPort(Protocol):
    """What a broker asks of its cluster."""

    @property
    def broker_epoch(self) -> int:
        """Of the last registration; -1 before the first."""
        ...

    async def register(self, broker: LiveBroker) -> int:
        """Announces the broker; returns its epoch."""
        ...

    async def update_registration(self, broker: LiveBroker) -> None:
        """Announces other endpoints of a broker that is registered; its epoch stays."""
        ...

    async def alter_isr(
        self, tp: TopicPartition, state: LeaderAndIsr, *, controller_epoch: int
    ) -> AlterIsrOutcome:
        """Stores a new ISR if the partition still has `state.partition_version`."""
        ...

    async def notify_isr_changes(self, partitions: Iterable[TopicPartition]) -> None:
        """Tells the controller which partitions' ISR was changed, where it does not know."""
        ...

    async def allocate_producer_ids(self) -> ProducerIds:
        """Takes the next block of producer ids."""
        ...

    async def report_log_dir_failure(self) -> None:
        """Tells the controller that replicas of this broker went offline."""
        ...

    async def controlled_shutdown(self, broker_epoch: int) -> frozenset[TopicPartition]:
        """Asks to move leadership away; returns the partitions this broker still leads."""
        ...

    async def alter_configs(self, edits: Sequence[ConfigEdit]) -> list[ApiError | None]:
        """Changes overrides by what is stored, all in one write; of each why not, or None."""
        ...

    async def alter_quotas(self, changes: Sequence[QuotaSet]) -> list[ApiError | None]:
        """Writes client quotas, all in one write; of each why not, or None."""
        ...

    async def alter_acls(self, changes: Sequence[AclAdded | AclRemoved]) -> list[ErrorCode]:
        """Writes access rules; one result per change."""
        ...


# The controller itself


class ControllerApi(Protocol):
    """The controller of this broker, active or not, as administrators' requests need it.

    Every call raises `ApiError` with NOT_CONTROLLER if it is not active when its turn comes.
    """

    @property
    def is_active(self) -> bool:
        """Whether it is the cluster's controller now."""
        ...

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool
    ) -> Sequence[TopicResult]: ...

    async def delete_topics(self, topics: Sequence[str]) -> Sequence[DeletedTopic]: ...

    def is_deleting(self, topic: str) -> bool:
        """Whether the topic's name is still taken by one that is about to be gone."""
        ...

    async def create_partitions(
        self, topics: Sequence[NewPartitions], *, validate_only: bool
    ) -> Sequence[CreatePartitionsResult]: ...

    async def elect_leaders(
        self, partitions: Sequence[TopicPartition] | None, election_type: ElectionType
    ) -> Mapping[TopicPartition, ElectionOutcome]:
        """Elects; of all partitions, if None is given, only those in need are told about."""
        ...

    async def list_reassignments(
        self, partitions: Sequence[TopicPartition] | None
    ) -> Mapping[TopicPartition, ReplicaAssignment]:
        """Those of the partitions, or of all, whose replicas are being moved."""
        ...
