"""A client of a cluster: metadata, producing, fetching, administration.

An asyncio core over `odradek.network.outbound`. It speaks to Odradek and to Apache Kafka alike.
"""

from odradek.client.client import Client
from odradek.client.cluster import Cluster, Node, PartitionView, TopicView
from odradek.client.config import parse_addresses
from odradek.client.offsets import EARLIEST, LATEST, MAX_TIMESTAMP, FoundOffset, list_offsets
from odradek.client.options import ClientOptions
from odradek.client.retry import Deadline

__all__ = [
    "EARLIEST",
    "LATEST",
    "MAX_TIMESTAMP",
    "Client",
    "ClientOptions",
    "Cluster",
    "Deadline",
    "FoundOffset",
    "Node",
    "PartitionView",
    "TopicView",
    "list_offsets",
    "parse_addresses",
]
