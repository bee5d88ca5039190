"""Bringing a request-side cache up to date without a broker."""

from odradek.metadata.cache import MetadataCache
from odradek.metadata.delta import ClusterDelta, ImageDelta, apply_delta
from odradek.model import TopicPartition


def update_cache(
    cache: MetadataCache, correlation_id: int, delta: ClusterDelta
) -> list[TopicPartition]:
    """Publishes the next image, as the publisher does; returns the partitions that were deleted."""
    applied = apply_delta(cache.image, ImageDelta(cluster=delta))
    cache.publish(applied, delta, correlation_id)
    return applied.deleted
