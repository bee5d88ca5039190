"""The changes of a commit: plain values that decide functions make and every engine writes.

One change is atomic. A list of changes is not, in store engines: each has its own outcome, and
every prefix of a list must be a state the next controller can continue from. `Atomic` makes a group
that is written as one.

A change that replaces something carries the version it was decided on; an engine that finds another
version reports a conflict and changes nothing. Versions are only compared, never computed with.
"""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TypeAlias

from odradek.lazy_dataclass import dataclass
from odradek.metadata.image import ConfigResource, QuotaEntity, ScramCredential, ScramKey
from odradek.model import LeaderAndIsr, ReplicaAssignment, TopicPartition
from odradek.security.acls import AclBinding

__all__ = [
    "AclAdded",
    "AclRemoved",
    "AssignmentChanged",
    "Atomic",
    "Change",
    "ConfigEdit",
    "ConfigSet",
    "FeatureSet",
    "PartitionChanged",
    "PartitionsAdded",
    "QuotaSet",
    "ScramRemoved",
    "ScramSet",
    "SingleChange",
    "StoredReassignmentsChanged",
    "TopicCreated",
    "TopicDeletionCancelled",
    "TopicDeletionRequested",
    "TopicRemoved",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicCreated:
    """Creates a topic that does not exist; a left-over config of its name is overwritten."""

    topic: str
    topic_id: uuid.UUID
    assignment: Mapping[int, ReplicaAssignment]
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsAdded:
    """Adds partitions to a topic."""

    topic: str
    topic_id: uuid.UUID
    assignment: Mapping[int, ReplicaAssignment]  # Of the whole topic, as it is to be.
    added: frozenset[int]  # The numbers of the new partitions.
    version: int  # Of the topic, as decide knew it.


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentChanged:
    """Changes the replicas of a topic's partitions, or writes its id back."""

    topic: str
    topic_id: uuid.UUID
    assignment: Mapping[int, ReplicaAssignment]  # Of the whole topic, as it is to be.
    version: int  # Of the topic, as decide knew it.


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionChanged:
    """Changes leader, ISR or leader epoch of one partition."""

    tp: TopicPartition
    topic_id: uuid.UUID | None
    state: LeaderAndIsr  # As it is to be; its `partition_version` is the one decide knew.
    controller_epoch: int  # Of the controller that decides.
    is_first: bool  # The partition has no state yet; then the version is not used.


@dataclass(frozen=True, slots=True)
class StoredReassignmentsChanged:
    """Replaces the reassignments that tools requested by a node; an empty map ends the request."""

    reassignments: Mapping[TopicPartition, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class TopicDeletionRequested:
    """Marks a topic for deletion; idempotent."""

    topic: str


@dataclass(frozen=True, slots=True)
class TopicDeletionCancelled:
    """Removes the mark: the topic is unknown, or deletion is disabled."""

    topic: str


@dataclass(frozen=True, slots=True)
class TopicRemoved:
    """Removes a topic, its configs, then its mark; idempotent."""

    topic: str
    topic_id: uuid.UUID | None


@dataclass(frozen=True, slots=True)
class ConfigSet:
    """Sets single overrides of a resource; None removes one. Others stay."""

    resource: ConfigResource
    # By key. Some values are passwords, and this module cannot tell which: none are shown.
    values: Mapping[str, str | None] = field(repr=False)

    def __str__(self) -> str:
        return f"ConfigSet of {', '.join(map(repr, self.values))} for {self.resource}"


@dataclass(frozen=True, slots=True)
class ConfigEdit:
    """Edits overrides of a resource depending on the stored ones: appends to a list, for example.

    `decide` gets the stored overrides and returns the keys to set, None for one to remove. It is
    called again when another write came in between, so that no acknowledged change is overwritten.
    It raises `ApiError` if the result would not be allowed.
    """

    resource: ConfigResource
    # Not shown: it may contain secret values.
    decide: Callable[[Mapping[str, str]], Mapping[str, str | None]] = field(repr=False)


@dataclass(frozen=True, slots=True)
class QuotaSet:
    """Sets single quotas of an entity; None removes one. Others stay."""

    entity: QuotaEntity
    values: Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class AclAdded:
    binding: AclBinding


@dataclass(frozen=True, slots=True)
class AclRemoved:
    binding: AclBinding


@dataclass(frozen=True, slots=True)
class ScramSet:
    key: ScramKey
    credential: ScramCredential


@dataclass(frozen=True, slots=True)
class ScramRemoved:
    key: ScramKey


@dataclass(frozen=True, slots=True)
class FeatureSet:
    """Finalizes a feature at a level; 0 removes it."""

    feature: str
    level: int
    may_lower: bool = False  # Otherwise a lower level than the present one is refused.


SingleChange: TypeAlias = (
    TopicCreated
    | PartitionsAdded
    | AssignmentChanged
    | PartitionChanged
    | StoredReassignmentsChanged
    | TopicDeletionRequested
    | TopicDeletionCancelled
    | TopicRemoved
    | ConfigSet
    | QuotaSet
    | AclAdded
    | AclRemoved
    | ScramSet
    | ScramRemoved
    | FeatureSet
)


@dataclass(frozen=True, slots=True)
class Atomic:
    """Changes that are written together or not at all."""

    changes: tuple[SingleChange, ...]


Change: TypeAlias = SingleChange | Atomic
