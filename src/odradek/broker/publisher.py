"""Metadata into this broker: one delta at a time, in one order, then visible to clients.

Steps of a publish; the later see what the earlier made:

1. the next image is made (an older controller's delta is refused here);
2. changed configs, quotas, access rules and credentials take effect (`on_settings`): a log that is
   made in the next step must have its topic's own;
3. replicas take their roles, with brokers and topic configs of the *next* image;
4. coordinators of internal partitions follow (`on_roles`);
5. the request-side cache shows the image, and whoever waits for metadata looks again;
6. what was kept for topics that are gone is forgotten (`on_deleted`).

Nothing here awaits, so a publish is one step for everybody else on the loop.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from odradek.errors import ErrorCode
from odradek.metadata.cache import MetadataCache
from odradek.metadata.delta import ClusterDelta, ImageDelta, LocalDelta, apply_delta
from odradek.metadata.image import ClusterImage
from odradek.model import TopicPartition
from odradek.replication import ReplicaManager

__all__ = ["Publisher"]


class Publisher:
    """Applies deltas to the parts of one broker.

    Args:
        cache: What clients are told from.
        replicas: Takes roles.
        on_settings: Called with a delta that changes settings and the image it gave.
        on_roles: Called with what of a delta was obeyed: a role that was refused must not move a
            coordinator, either.
        on_published: Called after each publish.
        on_deleted: Called with the topics that a publish removed.
    """

    def __init__(
        self,
        cache: MetadataCache,
        replicas: ReplicaManager,
        *,
        on_settings: Callable[[ClusterDelta, ClusterImage], None],
        on_roles: Callable[[LocalDelta], None],
        on_published: Callable[[], None],
        on_deleted: Callable[[frozenset[str]], None] = lambda _topics: None,
    ) -> None:
        self._cache = cache
        self._replicas = replicas
        self._on_settings = on_settings
        self._on_roles = on_roles
        self._on_published = on_published
        self._on_deleted = on_deleted
        # Ahead of the cache while a delta is being published.
        self.image = cache.image

    def publish(
        self, delta: ImageDelta, *, correlation_id: int = -1
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Publishes a delta; returns the result of each partition of its local part.

        Raises:
            ApiError: STALE_CONTROLLER_EPOCH; nothing has changed.
        """
        applied = apply_delta(self.image, delta)
        self.image = applied.image
        results: Mapping[TopicPartition, ErrorCode] = {}
        if delta.cluster is not None and _changes_settings(delta.cluster):
            self._on_settings(delta.cluster, applied.image)
        if delta.local is not None:
            results = self._replicas.apply_local(delta.local)
            self._on_roles(_obeyed(delta.local, results))
        self._cache.publish(applied, delta.cluster or ClusterDelta(), correlation_id)
        self._on_published()
        if applied.deleted:
            topics = frozenset(tp.topic for tp in applied.deleted)
            self._on_deleted(frozenset(t for t in topics if t not in applied.image.topics))
        return results


def _obeyed(delta: LocalDelta, results: Mapping[TopicPartition, ErrorCode]) -> LocalDelta:
    """The roles that were taken, and the stops that were not fenced.

    A replica that could not be deleted has been stopped all the same.
    """
    return replace(
        delta,
        hosted=tuple(h for h in delta.hosted if results[h.state.tp] is ErrorCode.NONE),
        stopped=tuple(
            s for s in delta.stopped if results[s.tp] is not ErrorCode.FENCED_LEADER_EPOCH
        ),
    )


def _changes_settings(delta: ClusterDelta) -> bool:
    return bool(
        delta.configs or delta.quotas or delta.acls_added or delta.acls_removed or delta.scram
    )
