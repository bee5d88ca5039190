"""Deltas of the image, and their application.

A delta has two parts. The *cluster* part lists the changes of the cluster and makes the next image.
The *local* part orders role changes of this broker's replicas and does not change the image. In
store mode UpdateMetadata and the config feed give cluster parts, LeaderAndIsr and StopReplica local
ones; a LeaderAndIsr also gives a cluster part with the configs of topics that are new here.

The cost of applying a delta depends on its size, not on that of the image: the next image shares
with the previous one all unchanged topics, configs, quotas and credentials, and most of the maps
they are in (`odradek.metadata.persistent_map`). A topic in the delta is copied with all its
partitions; brokers are replaced as a whole, and so are access rules and features if any of them
changes.
"""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import Any, NamedTuple, TypeVar

from odradek.errors import ApiError, ErrorCode
from odradek.lazy_dataclass import dataclass
from odradek.metadata.image import (
    ClusterImage,
    ConfigResource,
    LiveBroker,
    PartitionState,
    QuotaEntity,
    ScramCredential,
    ScramKey,
    TopicImage,
)
from odradek.metadata.persistent_map import as_persistent
from odradek.model import LEADER_DURING_DELETE, TopicPartition
from odradek.protocol.enums import ConfigResourceType
from odradek.security.acls import AclBinding

__all__ = [
    "AppliedDelta",
    "ClusterDelta",
    "ClusterMembership",
    "HostedPartition",
    "ImageDelta",
    "LocalDelta",
    "StoppedPartition",
    "apply_delta",
]

_K = TypeVar("_K")
_V = TypeVar("_V")


@dataclass(frozen=True, slots=True)
class ClusterMembership:
    """The controller and the live brokers; always the whole set, never merged with the previous."""

    controller_id: int | None
    brokers: tuple[LiveBroker, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDelta:
    """The changes of the cluster. A part left at its default is unchanged."""

    # Epoch of the controller that sent it; None if it does not come from a controller.
    controller_epoch: int | None = None
    membership: ClusterMembership | None = None
    # In order; a leader of LEADER_DURING_DELETE removes the partition.
    partitions: tuple[PartitionState, ...] = ()
    # Ids of the topics in `partitions`, as far as the controller sends them.
    topic_ids: Mapping[str, uuid.UUID] = field(default_factory=dict)
    # All overrides of a resource; an empty map removes them.
    configs: Mapping[ConfigResource, Mapping[str, str]] = field(default_factory=dict, repr=False)
    # For which topic ids the topic configs above were read; see ClusterImage.holds_configs_of.
    config_owners: Mapping[str, uuid.UUID] = field(default_factory=dict)
    # All quotas of an entity; an empty map removes them.
    quotas: Mapping[QuotaEntity, Mapping[str, float]] = field(default_factory=dict)
    acls_added: frozenset[AclBinding] = frozenset()
    acls_removed: frozenset[AclBinding] = frozenset()
    scram: Mapping[ScramKey, ScramCredential | None] = field(default_factory=dict)
    features: Mapping[str, int] = field(default_factory=dict)  # Level 0 removes a feature.
    features_epoch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedPartition:
    """A partition this broker must lead, or follow if another broker leads."""

    state: PartitionState
    topic_id: uuid.UUID | None
    is_new: bool  # The controller has just made it: a log of the same name is of another topic.


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppedPartition:
    """A partition this broker must stop serving, and perhaps delete."""

    tp: TopicPartition
    leader_epoch: int  # -1 not known, -2 the topic is being deleted: always obeyed.
    deletes_log: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalDelta:
    """The role changes of this broker's replicas."""

    controller_id: int
    controller_epoch: int
    hosted: tuple[HostedPartition, ...] = ()
    stopped: tuple[StoppedPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageDelta:
    """One step of the metadata feed; both parts are published together."""

    cluster: ClusterDelta | None = None
    local: LocalDelta | None = None


class AppliedDelta(NamedTuple):
    """The next image, and the partitions that the delta deleted."""

    image: ClusterImage
    deleted: list[TopicPartition]


def apply_delta(image: ClusterImage, delta: ImageDelta) -> AppliedDelta:
    """Makes the next image; `image` itself stays as it is.

    Raises:
        ApiError: STALE_CONTROLLER_EPOCH, the image has a delta of a newer controller.
    """
    epoch = _controller_epoch(image, delta)
    cluster = delta.cluster
    if cluster is None:
        return AppliedDelta(replace(image, controller_epoch=epoch), [])
    topics, deleted = _apply_partitions(image.topics, cluster)
    configs, owners = _apply_configs(image, cluster, topics)
    controller_id, brokers = image.controller_id, image.brokers
    if cluster.membership is not None:
        controller_id = cluster.membership.controller_id
        brokers = {broker.id: broker for broker in cluster.membership.brokers}
    next_image = replace(
        image,
        controller_epoch=epoch,
        controller_id=controller_id,
        brokers=brokers,
        topics=topics,
        topic_names=_names_by_id(image, cluster, topics),
        configs=configs,
        config_owners=owners,
        quotas=_merge(image.quotas, cluster.quotas, order=_quota_order),
        acls=_apply_acls(image.acls, cluster),
        scram=_merge(image.scram, cluster.scram),
        features=_merge(image.features, cluster.features),
        features_epoch=(
            image.features_epoch if cluster.features_epoch is None else cluster.features_epoch
        ),
    )
    return AppliedDelta(next_image, deleted)


def _controller_epoch(image: ClusterImage, delta: ImageDelta) -> int:
    epochs = [part.controller_epoch for part in (delta.cluster, delta.local) if part is not None]
    known = [epoch for epoch in epochs if epoch is not None]
    for epoch in known:
        if epoch < image.controller_epoch:
            raise ApiError(
                ErrorCode.STALE_CONTROLLER_EPOCH,
                f"controller epoch {epoch} is older than {image.controller_epoch}",
            )
    return max(known, default=image.controller_epoch)


def _apply_acls(acls: frozenset[AclBinding], delta: ClusterDelta) -> frozenset[AclBinding]:
    if not delta.acls_added and not delta.acls_removed:
        return acls
    return (acls | delta.acls_added) - delta.acls_removed


def _apply_partitions(
    topics: Mapping[str, TopicImage], delta: ClusterDelta
) -> tuple[Mapping[str, TopicImage], list[TopicPartition]]:
    """The next topics, and the partitions the delta deletes."""
    deleted: list[TopicPartition] = []
    if not delta.partitions:
        return topics, deleted
    # Private copies of the inner maps this delta changes.
    changed: dict[str, dict[int, PartitionState]] = {}
    for state in delta.partitions:
        partitions = changed.get(state.topic)
        if partitions is None:
            old = topics.get(state.topic)
            # Another id means another topic of the same name: nothing of the old one is kept.
            is_kept = old is not None and _id_of(old.name, old, delta) == old.id
            partitions = changed[state.topic] = dict(old.partitions) if old and is_kept else {}
        if state.leader == LEADER_DURING_DELETE:
            partitions.pop(state.partition, None)
            deleted.append(state.tp)
        else:
            partitions[state.partition] = state
    images = {
        name: TopicImage(name, _id_of(name, topics.get(name), delta), partitions)
        for name, partitions in changed.items()
        if partitions
    }
    gone = [name for name, partitions in changed.items() if not partitions]
    return as_persistent(topics).edited(images, remove=gone), deleted


def _id_of(name: str, old: TopicImage | None, delta: ClusterDelta) -> uuid.UUID | None:
    """The id a topic has after the delta; it stays if the delta does not name it."""
    return delta.topic_ids.get(name, old.id if old is not None else None)


def _names_by_id(
    image: ClusterImage, delta: ClusterDelta, topics: Mapping[str, TopicImage]
) -> Mapping[uuid.UUID, str]:
    names = image.topic_names
    over: list[uuid.UUID] = []
    named: dict[uuid.UUID, str] = {}
    for name in dict.fromkeys(state.topic for state in delta.partitions):
        old, new = image.topics.get(name), topics.get(name)
        if old is not None and old.id is not None and names.get(old.id) == name:
            over.append(old.id)
        if new is not None and new.id is not None:
            named[new.id] = name
    return as_persistent(names).edited(named, remove=over) if over or named else names


def _apply_configs(
    image: ClusterImage, delta: ClusterDelta, topics: Mapping[str, TopicImage]
) -> tuple[Mapping[ConfigResource, Mapping[str, str]], Mapping[str, uuid.UUID]]:
    """The next configs; those of a removed topic go, unless they were read for its successor."""
    configs, owners = image.configs, image.config_owners
    over: list[str] = []
    for name in dict.fromkeys(state.topic for state in delta.partitions):
        old, new = image.topics.get(name), topics.get(name)
        is_over = old is not None and (new is None or new.id != old.id)
        if old is not None and is_over and owners.get(name, old.id) == old.id:
            over.append(name)
    if over:
        gone = [ConfigResource(ConfigResourceType.TOPIC, name) for name in over]
        configs = as_persistent(configs).edited(remove=gone)
    if over or delta.config_owners:
        owners = as_persistent(owners).edited(delta.config_owners, remove=over)
    return _merge(configs, delta.configs), owners


def _merge(
    values: Mapping[_K, _V],
    changes: Mapping[_K, _V | None],
    *,
    order: Callable[[_K], Any] | None = None,
) -> Mapping[_K, _V]:
    """`values` updated with `changes`; an empty or zero value or None removes a key."""
    if not changes:
        return values
    return as_persistent(values, order=order).edited(
        {key: value for key, value in changes.items() if value},
        remove=[key for key, value in changes.items() if not value],
    )


def _quota_order(entity: QuotaEntity) -> list[tuple[str, bool, str]]:
    """Defaults, which have no name, before the entities with one."""
    return [(kind, name is not None, name or "") for kind, name in entity.components]
