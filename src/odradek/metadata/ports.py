"""The three ports between the engines and everything above them.

=====================  ======================  ==================================================
Port                   Used by                 Direction
=====================  ======================  ==================================================
`MetadataPersistence`  the controller driver   controller ⇄ durable metadata, leadership, hints
`MetadataFeed`         the broker's publisher  metadata → this broker
`ControllerPort`       ISR updates, producer   this broker → cluster
                       ids, handlers, start
=====================  ======================  ==================================================

These ports are the only interface of the engines. `odradek.metadata_store` implements all three
over a coordination store, and nothing above the ports sees that store. A broker opens one engine
and holds its ports as a `MetadataEngine`. `ControllerApi` beside them is the controller as handlers
of administrators' requests see it, over any engine.
"""

import uuid
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from dataclasses import field
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple, NewType, Protocol, TypeAlias

from odradek.errors import ApiError, ErrorCode, OdradekError
from odradek.lazy_dataclass import dataclass
from odradek.metadata.admin_requests import (
    CreatePartitionsResult,
    DeletedTopic,
    ElectionOutcome,
    NewPartitions,
    NewTopic,
    ReassignmentOutcome,
    TopicResult,
)
from odradek.metadata.changes import AclAdded, AclRemoved, Change, ConfigEdit, FeatureSet, QuotaSet
from odradek.metadata.control_requests import ControlRequest, ControlResponse
from odradek.metadata.delta import ImageDelta
from odradek.metadata.image import LiveBroker
from odradek.metadata.isr_requests import IsrResult, WantedIsr
from odradek.model import LeaderAndIsr, ReplicaAssignment, TopicPartition
from odradek.protocol.enums import ElectionType

__all__ = [
    "NO_EPOCHS",
    "NO_IDS",
    "AlterIsrOutcome",
    "AskIsr",
    "AskProducerIds",
    "CommitOutcome",
    "Committed",
    "Conflict",
    "ControlledShutdownCall",
    "ControllerApi",
    "ControllerPort",
    "ControllerState",
    "EnginePort",
    "FailedChange",
    "FeedItem",
    "Fence",
    "Hint",
    "HintKind",
    "IsrAltered",
    "IsrConflict",
    "IsrOutcomeUnknown",
    "IsrRefused",
    "LeadershipLost",
    "LeadershipWon",
    "MetadataEngine",
    "MetadataFeed",
    "MetadataPersistence",
    "PartitionRecord",
    "PersistenceEvent",
    "ProducerIds",
    "RegisteredBroker",
    "TopicRecord",
]

# Proof that a writer is still the controller: the version of the epoch node, or an epoch.
Fence = NewType("Fence", int)


# MetadataPersistence


class RegisteredBroker(NamedTuple):
    """A live broker; its epoch grows with every registration."""

    broker: LiveBroker
    broker_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRecord:
    """A topic as it is stored."""

    topic_id: uuid.UUID | None  # None: written by a tool without ids; the controller restores it.
    assignment: Mapping[int, ReplicaAssignment]
    version: int  # For the next change of the topic.
    # Differs between two topics that had the same name in turn.
    incarnation: int


class PartitionRecord(NamedTuple):
    """A partition's leadership, and the controller epoch that decided it."""

    leader_and_isr: LeaderAndIsr
    controller_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerState:
    """The stored state of a cluster, or the part of it that a hint is about."""

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
    """A durable change. `version` is for the next change of the same object."""

    change: Change
    version: int


class Conflict(NamedTuple):
    """A change that found another version, and the record stored now; None: there is none."""

    change: Change
    found: TopicRecord | PartitionRecord | None


class FailedChange(NamedTuple):
    """A change that was not made, and why."""

    change: Change
    error: OdradekError


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOutcome:
    """The outcome of each change of a list. A change counts as committed only with proof."""

    committed: tuple[Committed, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    failed: tuple[FailedChange, ...] = ()
    position: int | None = None  # Of the metadata log; None in store engines.


class LeadershipWon(NamedTuple):
    """Leadership was won: this broker is controller now."""

    controller_epoch: int
    fence: Fence


class LeadershipLost(NamedTuple):
    """Leadership was lost; later commits of this broker will be refused."""


class HintKind(Enum):
    """The part of the stored state that may have been changed by others."""

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
    """A notice that stored state may differ from the context: the controller reads and compares."""

    kind: HintKind
    broker_id: int | None = None
    topic: str | None = None
    partition: int | None = None


PersistenceEvent: TypeAlias = LeadershipWon | LeadershipLost | Hint


class MetadataPersistence(Protocol):
    """Durable metadata as the controller sees it."""

    @property
    def raises_leader_epoch_on_isr_change(self) -> bool:
        """Whether a change of the ISR alone raises the leader epoch; in store engines it does."""
        ...

    def events(self) -> AsyncIterator[PersistenceEvent]:
        """Leadership and hints, in order. A broker is a candidate while it iterates."""
        ...

    async def load(self, hint: Hint | None = None) -> ControllerState:
        """Reads all state, or the part a hint is about, and arms the next hint about it.

        Reading a notification (ISR change, log directory failure) consumes it.
        """
        ...

    async def commit(self, changes: Sequence[Change], fence: Fence) -> CommitOutcome:
        """Makes changes durable.

        Raises:
            ControllerMoved: The fence failed or the session is lost; earlier writes remain.
        """
        ...

    async def resign(self, fence: Fence) -> None:
        """Gives leadership up, so that another election starts."""
        ...


# MetadataFeed


class FeedItem(Protocol):
    """A delta whose feeder waits for the outcome. Exactly one of the two calls ends it."""

    @property
    def delta(self) -> ImageDelta:
        """The delta to publish."""
        ...

    def complete(self, results: Mapping[TopicPartition, ErrorCode]) -> None:
        """Returns the result of each partition of the local part to the feeder."""
        ...

    def fail(self, error: Exception) -> None:
        """Passes the error to the feeder; raises it if no feeder waits."""
        ...


class MetadataFeed(Protocol):
    """The stream of metadata into this broker."""

    def items(self) -> AsyncGenerator[FeedItem, None]:
        """Deltas in order; the next is made only after the one before is completed.

        The first one has all dynamic settings, so that a broker can load its logs. When the
        iteration is closed, feeders that still wait are cancelled.
        """
        ...


# ControllerPort


class IsrAltered(NamedTuple):
    """The ISR is stored."""

    partition_version: int


class IsrConflict(NamedTuple):
    """Another writer changed the partition: keep the old ISR and wait for the controller."""


class IsrRefused(NamedTuple):
    """The controller refused the change, and stored nothing: the old ISR is in force."""

    # Whether because a member is dead, shuts down, or was registered anew since; the controller has
    # compared its registrations with those that the request names.
    is_by_registration: bool = False


class IsrNotAsked(NamedTuple):
    """No controller handled the request, so nothing was stored by it: it can be sent again."""


class IsrOutcomeUnknown(NamedTuple):
    """The link broke and the store could not be read since: the change stays in flight."""


AlterIsrOutcome: TypeAlias = IsrAltered | IsrConflict | IsrRefused | IsrNotAsked | IsrOutcomeUnknown


# No topic was named by its id.
NO_IDS: Mapping[str, uuid.UUID] = MappingProxyType({})

# The leader knows the registration of none of the members.
NO_EPOCHS: Mapping[int, int] = MappingProxyType({})


class ProducerIds(NamedTuple):
    """A block of producer ids that belongs to this broker alone."""

    first_id: int
    last_id: int  # Inclusive.


class ControllerPort(Protocol):
    """The requests of a broker to its cluster."""

    @property
    def broker_epoch(self) -> int:
        """The epoch of the last registration; -1 before the first."""
        ...

    async def register(self, broker: LiveBroker) -> int:
        """Announces the broker; returns its epoch."""
        ...

    async def update_registration(self, broker: LiveBroker) -> None:
        """Announces other endpoints of a broker that is registered; its epoch stays."""
        ...

    async def alter_isr(
        self,
        tp: TopicPartition,
        state: LeaderAndIsr,
        *,
        controller_epoch: int,
        broker_epochs: Mapping[int, int] = NO_EPOCHS,
    ) -> AlterIsrOutcome:
        """Stores a new ISR if the partition still has `state.partition_version`.

        Args:
            controller_epoch: Of the controller that made this broker the leader.
            broker_epochs: The registrations of members by which the leader knows them.
        """
        ...

    async def notify_isr_changes(self, partitions: Iterable[TopicPartition]) -> None:
        """Announces partitions whose ISR was changed, to a controller that did not store it."""
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
        """Edits stored overrides in one write; returns the error of each edit, or None."""
        ...

    async def alter_quotas(self, changes: Sequence[QuotaSet]) -> list[ApiError | None]:
        """Writes client quotas in one write; returns the error of each change, or None."""
        ...

    async def alter_features(
        self, changes: Sequence[FeatureSet], *, is_checked_only: bool = False
    ) -> list[ApiError | None]:
        """Finalizes features in one write; returns the error of each change, or None.

        Args:
            changes: At most one of each feature.
            is_checked_only: Whether nothing is written.
        """
        ...

    async def alter_acls(self, changes: Sequence[AclAdded | AclRemoved]) -> list[ErrorCode]:
        """Writes access rules; one result per change."""
        ...


# The engine

# Requests to the active controller: an ISR (partition, state, known epochs), a block of ids.
AskIsr: TypeAlias = Callable[
    [TopicPartition, LeaderAndIsr, Mapping[int, int]], Awaitable[AlterIsrOutcome]
]
AskProducerIds: TypeAlias = Callable[[], Awaitable[ProducerIds]]
# Asks the active controller to move leadership away: broker id, broker epoch.
ControlledShutdownCall: TypeAlias = Callable[[int, int], Awaitable[frozenset[TopicPartition]]]


class EnginePort(ControllerPort, Protocol):
    """The port as the broker that builds it sees it: it can lead to the active controller."""

    # Called when the session of this broker is over: it is no longer registered.
    on_session_lost: Callable[[], None]

    def use_controller(
        self, *, ask_isr: AskIsr | None, ask_producer_ids: AskProducerIds | None
    ) -> None:
        """Has the controller asked, instead of writing directly; None: the engine writes."""
        ...

    async def take_producer_ids(self, broker_id: int) -> ProducerIds:
        """Takes the next block of producer ids for any broker; the active controller calls it."""
        ...


class MetadataEngine(Protocol):
    """The engine that one broker has opened: its ports, and the cluster that they lead to."""

    @property
    def broker_id(self) -> int:
        """The id of this broker, which the cluster may have chosen."""
        ...

    @property
    def cluster_id(self) -> str:
        """The id of the cluster."""
        ...

    @property
    def persistence(self) -> MetadataPersistence:
        """The port of the controller."""
        ...

    @property
    def feed(self) -> MetadataFeed:
        """The port of the publisher."""
        ...

    @property
    def port(self) -> EnginePort:
        """The port of the broker itself."""
        ...

    async def handle(self, request: ControlRequest) -> ControlResponse:
        """Serves a request of the controller to this broker: it becomes an item of the feed.

        Raises:
            OdradekError: The request could not be served now: send it again.
            asyncio.CancelledError: The broker stops.
        """
        ...

    async def handle_remote(self, request: ControlRequest) -> ControlResponse:
        """As `handle`, for a request through a socket: its sender must be the controller.

        Raises:
            OdradekError: As `handle`, or the sender is not known as the controller.
            asyncio.CancelledError: The broker stops.
        """
        ...


# The controller itself


class ControllerApi(Protocol):
    """The controller of this broker, active or not, as administrators' requests need it.

    Every call raises `ApiError` with NOT_CONTROLLER if it is not active when the call is handled.
    """

    @property
    def is_active(self) -> bool:
        """Whether it is the cluster's controller now."""
        ...

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool
    ) -> Sequence[TopicResult]: ...

    async def delete_topics(
        self, topics: Sequence[str], ids: Mapping[str, uuid.UUID]
    ) -> Sequence[DeletedTopic]:
        """Begins to delete topics; one in `ids` only if it has that id."""
        ...

    def is_deleting(self, topic: str) -> bool:
        """Whether a topic of this name is being deleted, so that the name is still taken."""
        ...

    async def create_partitions(
        self, topics: Sequence[NewPartitions], *, validate_only: bool
    ) -> Sequence[CreatePartitionsResult]: ...

    async def elect_leaders(
        self, partitions: Sequence[TopicPartition] | None, election_type: ElectionType
    ) -> Mapping[TopicPartition, ElectionOutcome]:
        """Elects leaders. None means all partitions; then only those in need have a result."""
        ...

    async def alter_isrs(
        self, broker_id: int, broker_epoch: int, wanted: Sequence[WantedIsr]
    ) -> Sequence[IsrResult]:
        """Stores the ISRs that a leader wants; the results in the order of the request."""
        ...

    async def controlled_shutdown(
        self, broker_id: int, broker_epoch: int
    ) -> frozenset[TopicPartition]:
        """Moves leadership away from a broker; returns the partitions it still leads."""
        ...

    def check_registration(self, broker_id: int, broker_epoch: int) -> None:
        """Checks that a request comes from the present registration of a broker."""
        ...

    async def alter_reassignments(
        self,
        targets: Mapping[TopicPartition, tuple[int, ...] | None],
        *,
        allows_other_count: bool = True,
    ) -> Mapping[TopicPartition, ReassignmentOutcome]:
        """Begins, overrides and, where the target is None, cancels moves of replicas."""
        ...

    async def list_reassignments(
        self, partitions: Sequence[TopicPartition] | None
    ) -> Mapping[TopicPartition, ReplicaAssignment]:
        """The partitions, of those given or of all, whose replicas are being moved."""
        ...
