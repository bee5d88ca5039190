"""The controller's events and the coarse states they belong to. Pure.

Everything that happens to the controller is an event in its queue: hints that the stored metadata
changed, answers of brokers, requests of administrators, timers. A state is a class of events; it
names the timer that measures them. Operators read the table backwards: an abnormal rate points to
the events that can cause it.

=======================================  =============================================
ControllerActivity                       events
=======================================  =============================================
CONTROLLER_CHANGE                        Elected, Expire
BROKER_CHANGE                            BrokerChange, BrokerModifications
TOPIC_CHANGE                             TopicChange, PartitionModifications,
                                         CreateTopics, CreatePartitions
TOPIC_DELETION                           TopicDeletion, DeleteTopics,
                                         TopicDeletionStopReplicaResponseReceived
AUTO_LEADER_BALANCE                      AutoPreferredReplicaLeaderElection
MANUAL_LEADER_BALANCE                    ReplicaLeaderElection,
                                         PreferredReplicaElectionRequested
CONTROLLED_SHUTDOWN                      ControlledShutdown
ISR_CHANGE                               IsrChangeNotification, AlterIsrs
LEADER_AND_ISR_RESPONSE_RECEIVED         LeaderAndIsrResponseReceived
LOG_DIR_CHANGE                           LogDirEventNotification
CONTROLLER_SHUTDOWN                      ShutdownEventThread
UNCLEAN_LEADER_ELECTION_ENABLE           UncleanLeaderElectionEnable
TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE     TopicUncleanLeaderElectionEnable
LIST_PARTITION_REASSIGNMENT              ListPartitionReassignments
UPDATE_METADATA_RESPONSE_RECEIVED        UpdateMetadataResponseReceived
=======================================  =============================================

The persistence engine elects and registers; its outcomes are the events Elected and Expire.
"""

import uuid
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, IntEnum
from typing import ClassVar, Generic, TypeAlias, TypeVar

from odradek.errors import ErrorCode
from odradek.lazy_dataclass import dataclass
from odradek.metadata.admin_requests import (
    CreatePartitionsResult,
    DeletedTopic,
    ElectionOutcome,
    NewPartitions,
    NewTopic,
    TopicResult,
)
from odradek.metadata.isr_requests import IsrResult, WantedIsr
from odradek.metadata.ports import Fence
from odradek.model import ReplicaAssignment, TopicPartition
from odradek.protocol.enums import ElectionType
from odradek.protocol.messages.leader_and_isr import LeaderAndIsrResponse
from odradek.protocol.messages.update_metadata import UpdateMetadataResponse

__all__ = [
    "AlterIsrs",
    "AutoPreferredReplicaLeaderElection",
    "BrokerChange",
    "BrokerModifications",
    "ControlledShutdown",
    "ControllerActivity",
    "ControllerEvent",
    "ControllerResignation",
    "CreatePartitions",
    "CreateTopics",
    "DeleteTopics",
    "Elected",
    "ElectionTrigger",
    "Expire",
    "IsrChangeNotification",
    "LeaderAndIsrResponseReceived",
    "ListPartitionReassignments",
    "LogDirEventNotification",
    "PartitionModifications",
    "PreferredReplicaElectionRequested",
    "ReplicaLeaderElection",
    "Reply",
    "ShutdownEventThread",
    "TopicChange",
    "TopicDeletion",
    "TopicDeletionStopReplicaResponseReceived",
    "TopicUncleanLeaderElectionEnable",
    "UncleanLeaderElectionEnable",
    "UpdateMetadataResponseReceived",
]

_T = TypeVar("_T")


class ControllerActivity(IntEnum):
    """The controller's current activity; the value is that of the gauge `ControllerState`."""

    IDLE = 0
    CONTROLLER_CHANGE = 1
    BROKER_CHANGE = 2
    TOPIC_CHANGE = 3
    TOPIC_DELETION = 4
    ALTER_PARTITION_REASSIGNMENT = 5
    AUTO_LEADER_BALANCE = 6
    MANUAL_LEADER_BALANCE = 7
    CONTROLLED_SHUTDOWN = 8
    ISR_CHANGE = 9
    LEADER_AND_ISR_RESPONSE_RECEIVED = 10
    LOG_DIR_CHANGE = 11
    CONTROLLER_SHUTDOWN = 12
    UNCLEAN_LEADER_ELECTION_ENABLE = 13
    TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE = 14
    LIST_PARTITION_REASSIGNMENT = 15
    UPDATE_METADATA_RESPONSE_RECEIVED = 16

    @property
    def metric_name(self) -> str | None:
        """Name of the timer of these events; two names are historic, two states have none."""
        if self in (ControllerActivity.IDLE, ControllerActivity.UPDATE_METADATA_RESPONSE_RECEIVED):
            return None
        historic = {
            ControllerActivity.BROKER_CHANGE: "LeaderElection",
            ControllerActivity.ALTER_PARTITION_REASSIGNMENT: "PartitionReassignment",
        }
        words = self.name.split("_")
        name = historic.get(self) or "".join(word.capitalize() for word in words)
        return f"{name}RateAndTimeMs"


@dataclass(frozen=True, slots=True)
class Reply(Generic[_T]):
    """The callbacks of a request; exactly one of the two is called, once."""

    complete: Callable[[_T], None]
    fail: Callable[[Exception], None]


class ElectionTrigger(Enum):
    """The origin of an election."""

    ADMIN_CLIENT = "admin client"
    STORE = "store"
    AUTO = "auto"


# Leadership


@dataclass(frozen=True, slots=True)
class Elected:
    state: ClassVar = ControllerActivity.CONTROLLER_CHANGE
    controller_epoch: int
    fence: Fence


@dataclass(frozen=True, slots=True)
class Expire:
    """Leadership is lost; the events still queued are obsolete."""

    state: ClassVar = ControllerActivity.CONTROLLER_CHANGE


@dataclass(frozen=True, slots=True)
class ShutdownEventThread:
    state: ClassVar = ControllerActivity.CONTROLLER_SHUTDOWN


# Hints: something was changed, perhaps by us


@dataclass(frozen=True, slots=True)
class BrokerChange:
    state: ClassVar = ControllerActivity.BROKER_CHANGE


@dataclass(frozen=True, slots=True)
class BrokerModifications:
    state: ClassVar = ControllerActivity.BROKER_CHANGE
    broker_id: int


@dataclass(frozen=True, slots=True)
class TopicChange:
    state: ClassVar = ControllerActivity.TOPIC_CHANGE


@dataclass(frozen=True, slots=True)
class PartitionModifications:
    state: ClassVar = ControllerActivity.TOPIC_CHANGE
    topic: str


@dataclass(frozen=True, slots=True)
class TopicDeletion:
    state: ClassVar = ControllerActivity.TOPIC_DELETION


@dataclass(frozen=True, slots=True)
class PreferredReplicaElectionRequested:
    """A tool requested preferred elections by writing a node."""

    state: ClassVar = ControllerActivity.MANUAL_LEADER_BALANCE


@dataclass(frozen=True, slots=True)
class IsrChangeNotification:
    state: ClassVar = ControllerActivity.ISR_CHANGE


@dataclass(frozen=True, slots=True)
class LogDirEventNotification:
    state: ClassVar = ControllerActivity.LOG_DIR_CHANGE


# Answers of brokers


@dataclass(frozen=True, slots=True)
class LeaderAndIsrResponseReceived:
    state: ClassVar = ControllerActivity.LEADER_AND_ISR_RESPONSE_RECEIVED
    response: LeaderAndIsrResponse
    broker_id: int


@dataclass(frozen=True, slots=True)
class UpdateMetadataResponseReceived:
    state: ClassVar = ControllerActivity.UPDATE_METADATA_RESPONSE_RECEIVED
    response: UpdateMetadataResponse
    broker_id: int


@dataclass(frozen=True, slots=True)
class TopicDeletionStopReplicaResponseReceived:
    state: ClassVar = ControllerActivity.TOPIC_DELETION
    broker_id: int
    request_error: ErrorCode
    partition_errors: Mapping[TopicPartition, ErrorCode]


# Requests of administrators and brokers


@dataclass(frozen=True, slots=True)
class CreateTopics:
    state: ClassVar = ControllerActivity.TOPIC_CHANGE
    topics: Sequence[NewTopic]
    validate_only: bool
    reply: Reply[list[TopicResult]]


@dataclass(frozen=True, slots=True)
class CreatePartitions:
    state: ClassVar = ControllerActivity.TOPIC_CHANGE
    topics: Sequence[NewPartitions]
    validate_only: bool
    reply: Reply[list[CreatePartitionsResult]]


@dataclass(frozen=True, slots=True)
class DeleteTopics:
    state: ClassVar = ControllerActivity.TOPIC_DELETION
    topics: Sequence[str]
    # The id that a topic must have to be deleted, if its client named it by id.
    ids: Mapping[str, uuid.UUID]
    reply: Reply[list[DeletedTopic]]


@dataclass(frozen=True, slots=True)
class ListPartitionReassignments:
    state: ClassVar = ControllerActivity.LIST_PARTITION_REASSIGNMENT
    partitions: Sequence[TopicPartition] | None
    reply: Reply[dict[TopicPartition, ReplicaAssignment]]


@dataclass(frozen=True, slots=True)
class ReplicaLeaderElection:
    state: ClassVar = ControllerActivity.MANUAL_LEADER_BALANCE
    partitions: Sequence[TopicPartition] | None  # None: all.
    election_type: ElectionType
    trigger: ElectionTrigger
    reply: Reply[dict[TopicPartition, ElectionOutcome]]


@dataclass(frozen=True, slots=True)
class ControlledShutdown:
    state: ClassVar = ControllerActivity.CONTROLLED_SHUTDOWN
    broker_id: int
    broker_epoch: int
    reply: Reply[frozenset[TopicPartition]]


@dataclass(frozen=True, slots=True)
class AlterIsrs:
    """A leader wants other ISRs for its partitions."""

    state: ClassVar = ControllerActivity.ISR_CHANGE
    broker_id: int
    broker_epoch: int
    wanted: Sequence[WantedIsr]
    reply: Reply[list[IsrResult]]


@dataclass(frozen=True, slots=True)
class ControllerResignation:
    """An operator wants another election; the reply is the epoch that ended."""

    state: ClassVar = ControllerActivity.CONTROLLER_CHANGE
    reply: Reply[int]


@dataclass(frozen=True, slots=True)
class UncleanLeaderElectionEnable:
    state: ClassVar = ControllerActivity.UNCLEAN_LEADER_ELECTION_ENABLE


@dataclass(frozen=True, slots=True)
class TopicUncleanLeaderElectionEnable:
    state: ClassVar = ControllerActivity.TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE
    topic: str


# Timers


@dataclass(frozen=True, slots=True)
class AutoPreferredReplicaLeaderElection:
    state: ClassVar = ControllerActivity.AUTO_LEADER_BALANCE


ControllerEvent: TypeAlias = (
    Elected
    | Expire
    | ShutdownEventThread
    | BrokerChange
    | BrokerModifications
    | TopicChange
    | PartitionModifications
    | TopicDeletion
    | PreferredReplicaElectionRequested
    | IsrChangeNotification
    | LogDirEventNotification
    | LeaderAndIsrResponseReceived
    | UpdateMetadataResponseReceived
    | TopicDeletionStopReplicaResponseReceived
    | CreateTopics
    | CreatePartitions
    | DeleteTopics
    | ListPartitionReassignments
    | ReplicaLeaderElection
    | ControlledShutdown
    | AlterIsrs
    | ControllerResignation
    | UncleanLeaderElectionEnable
    | TopicUncleanLeaderElectionEnable
    | AutoPreferredReplicaLeaderElection
)
