"""The requests of administrators to the controller, and their results."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import NamedTuple

from odradek.errors import ErrorCode
from odradek.lazy_dataclass import dataclass
from odradek.model import ReplicaAssignment

__all__ = [
    "BROKER_DEFAULT",
    "CreatePartitionsResult",
    "DeletedTopic",
    "ElectionOutcome",
    "NewPartitions",
    "NewTopic",
    "ReassignmentOutcome",
    "TopicResult",
]

BROKER_DEFAULT = -1  # As a number of partitions or replicas: the default of the broker's settings.


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to create."""

    name: str
    partition_count: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    # Partition → replicas; then both counts must be left at BROKER_DEFAULT.
    assignment: Mapping[int, Sequence[int]] | None = None
    # Overrides; None asks for the default and is refused by Kafka's rules.
    configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicResult:
    """The result for one topic to create; id, assignment and configs are set on success only."""

    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    topic_id: uuid.UUID | None = None  # None also if the request only validates.
    assignment: Mapping[int, ReplicaAssignment] = field(default_factory=dict)
    configs: Mapping[str, str] = field(default_factory=dict)

    @property
    def partition_count(self) -> int:
        return len(self.assignment)

    @property
    def replication_factor(self) -> int:
        return len(self.assignment[0].replicas) if self.assignment else BROKER_DEFAULT


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPartitions:
    """A topic to enlarge."""

    name: str
    total_count: int
    # Replicas of each additional partition, in order.
    assignments: Sequence[Sequence[int]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePartitionsResult:
    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedTopic:
    """The result for one topic to delete; NONE: the deletion is stored and will be carried out."""

    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    topic_id: uuid.UUID | None = None


class ElectionOutcome(NamedTuple):
    """The result of one partition's election."""

    error: ErrorCode
    message: str | None = None
    leader: int | None = None


class ReassignmentOutcome(NamedTuple):
    """The result of one partition's reassignment; NONE: it has begun, and goes on by itself."""

    error: ErrorCode
    message: str | None = None
