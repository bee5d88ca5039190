"""A client of a cluster: metadata, producing, fetching, administration.

An asyncio core over `odradek.network.outbound`. It speaks to Odradek and to Apache Kafka alike.
"""

from odradek.client.client import Client
from odradek.client.cluster import Cluster, Node, PartitionView, TopicView
from odradek.client.fetch import Fetched, Fetcher, FetcherOptions
from odradek.client.offsets import EARLIEST, LATEST, MAX_TIMESTAMP, FoundOffset, list_offsets
from odradek.client.options import ClientOptions, parse_addresses
from odradek.client.produce import (
    ACKS_ALL,
    Produced,
    Producer,
    ProducerOptions,
    ProducerRecord,
)
from odradek.client.retry import Deadline

__all__ = [
    "ACKS_ALL",
    "EARLIEST",
    "LATEST",
    "MAX_TIMESTAMP",
    "Client",
    "ClientOptions",
    "Cluster",
    "Deadline",
    "Fetched",
    "Fetcher",
    "FetcherOptions",
    "FoundOffset",
    "Node",
    "PartitionView",
    "Produced",
    "Producer",
    "ProducerOptions",
    "ProducerRecord",
    "TopicView",
    "list_offsets",
    "parse_addresses",
]
