"""What a commit changes: plain values that decide makes and every engine renders.

One change is atomic. A list of changes is not, in store engines: each has its own outcome, and
every prefix of a list must be a state the next controller can continue from. `Atomic` makes a group
that is written as one.

A change that replaces something carries the version it was decided on; an engine that finds another
version reports a conflict and changes nothing. Versions are compared, never computed with.
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
    "TopicCreated",
    "TopicDeletionCancelled",
    "TopicDeletionRequested",
    "TopicRemoved",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicCreated:
    """A topic that was not there; a left-over config of its name is overwritten."""

    topic: str
    topic_id: uuid.UUID
    assignment: Mapping[int, ReplicaAssignment]
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsAdded:
    """More partitions for a topic."""

    topic: str
    topic_id: uuid.UUID
    assignment: Mapping[int, ReplicaAssignment]  # Of the whole topic, as it is to be.
    added: frozenset[int]  # The numbers that are new.
    version: int  # Of the topic, as decide knew it.


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentChanged:
    """Other replicas for partitions a topic has, or its id written back."""

    topic: str
    topic_id: uuid.UUID
    assignment: Mapping[int, ReplicaAssignment]  # Of the whole topic, as it is to be.
    version: int  # Of the topic, as decide knew it.


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionChanged:
    """Another leader, ISR or leader epoch of one partition."""

    tp: TopicPartition
    topic_id: uuid.UUID | None
    state: LeaderAndIsr  # As it is to be; its `partition_version` is the one decide knew.
    controller_epoch: int  # Of the controller that decides.
    is_first: bool  # The partition has no state yet; then the version says nothing.


@dataclass(frozen=True, slots=True)
class TopicDeletionRequested:
    """Marks a topic for deletion; that it is marked already is fine."""

    topic: str


@dataclass(frozen=True, slots=True)
class TopicDeletionCancelled:
    """Takes the mark away: the topic is unknown, or deletion is switched off."""

    topic: str


@dataclass(frozen=True, slots=True)
class TopicRemoved:
    """Removes a topic, its configs, then its mark; what is gone already is fine."""

    topic: str
    topic_id: uuid.UUID | None


@dataclass(frozen=True, slots=True)
class ConfigSet:
    """Sets single overrides of a resource; None removes one. Others stay."""

    resource: ConfigResource
    # By key. Some are passwords, and nobody here knows which: they are never shown.
    values: Mapping[str, str | None] = field(repr=False)

    def __str__(self) -> str:
        return f"ConfigSet of {', '.join(map(repr, self.values))} for {self.resource}"


@dataclass(frozen=True, slots=True)
class ConfigEdit:
    """Changes overrides of a resource by what is stored: an item more in a list, for example.

    `decide` gets what is stored and returns the keys to set, None for one to remove. It is called
    again when a foreign write came in between, so that no acknowledged change is overwritten. It
    raises `ApiError` if the result would not be allowed.
    """

    resource: ConfigResource
    # Not shown: it may be made of values that are secret.
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


SingleChange: TypeAlias = (
    TopicCreated
    | PartitionsAdded
    | AssignmentChanged
    | PartitionChanged
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
    """Changes that are written all together or not at all."""

    changes: tuple[SingleChange, ...]


Change: TypeAlias = SingleChange | Atomic
