"""Metadata into this broker: one delta at a time, in one order, then visible to clients.

Steps of a publish; the later see what the earlier made:

1. the next image is made (an older controller's delta is refused here);
2. changed configs and quotas take effect (`on_settings`): a log that is made in the next step
   must have its topic's own;
3. replicas take their roles, with brokers and topic configs of the *next* image;
4. coordinators of internal partitions follow (`on_roles`);
5. the request-side cache shows the image, and whoever waits for metadata looks again.

Nothing here awaits, so a publish is one step for everybody else on the loop.
"""

import logging
from collections.abc import Callable, Mapping

from odradek.errors import ErrorCode
from odradek.metadata.cache import MetadataCache
from odradek.metadata.delta import ClusterDelta, ImageDelta, LocalDelta, apply_delta
from odradek.metadata.image import ClusterImage
from odradek.model import TopicPartition
from odradek.replication import ReplicaManager

__all__ = ["Publisher"]

logger = logging.getLogger(__name__)


class Publisher:
    """Applies deltas to the parts of one broker.

    Args:
        cache: What clients are told from.
        replicas: Takes roles.
        on_settings: Called with a delta that changes configs or quotas and the image it gave.
        on_roles: Called with a delta that changed roles.
        on_published: Called after each publish.
    """

    def __init__(
        self,
        cache: MetadataCache,
        replicas: ReplicaManager,
        *,
        on_settings: Callable[[ClusterDelta, ClusterImage], None],
        on_roles: Callable[[LocalDelta], None],
        on_published: Callable[[], None],
    ) -> None:
        self._cache = cache
        self._replicas = replicas
        self._on_settings = on_settings
        self._on_roles = on_roles
        self._on_published = on_published
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
        if delta.cluster is not None and (delta.cluster.configs or delta.cluster.quotas):
            self._on_settings(delta.cluster, applied.image)
        if delta.local is not None:
            results = self._replicas.apply_local(delta.local)
            self._on_roles(delta.local)
        self._cache.publish(applied, delta.cluster or ClusterDelta(), correlation_id)
        self._on_published()
        return results
