"""The cluster image, its deltas, the request-side view, and the ports of the engines. Pure."""

from odradek.metadata.cache import MetadataCache
from odradek.metadata.delta import ClusterDelta, ImageDelta, LocalDelta, apply_delta
from odradek.metadata.image import ClusterImage, LiveBroker, Node, PartitionState, TopicImage
from odradek.metadata.ports import ControllerPort, MetadataFeed, MetadataPersistence

__all__ = [
    "ClusterDelta",
    "ClusterImage",
    "ControllerPort",
    "ImageDelta",
    "LiveBroker",
    "LocalDelta",
    "MetadataCache",
    "MetadataFeed",
    "MetadataPersistence",
    "Node",
    "PartitionState",
    "TopicImage",
    "apply_delta",
]
