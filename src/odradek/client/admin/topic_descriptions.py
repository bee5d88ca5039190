"""Topics described by their ids, and page by page; metadata by name offers neither.

A page holds a number of partitions and says where the next one begins. With a limit of 2, topics a
(3 partitions) and b (1) come as a-0 and a-1, next a-2; then a-2 and b-0, and nothing is next. So a
cluster of any size is described in bounded memory.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from odradek.client.client import Client
from odradek.client.cluster import Cluster, TopicView
from odradek.client.leaders import api_error
from odradek.client.retry import Deadline
from odradek.errors import ApiError, ErrorCode
from odradek.model import TopicPartition
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    TopicRequest,
)
from odradek.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from odradek.protocol.versions import VersionRange
from odradek.security.operations import Operation, parse_operation_bits

__all__ = [
    "PartitionDescription",
    "TopicDescription",
    "TopicPage",
    "describe_topic_partitions",
    "describe_topics_by_id",
]

# Metadata names topics by id from this version on.
_METADATA_BY_ID: Final = VersionRange(12, 32767)


class PartitionDescription(NamedTuple):
    """One partition, with the replicas that may lead it though they are not in sync (KIP-966)."""

    partition: int
    leader: int  # -1 when there is none.
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]
    eligible_leader_replicas: tuple[int, ...]
    last_known_eligible_leader_replicas: tuple[int, ...]


class TopicDescription(NamedTuple):
    """A topic with those of its partitions that are on this page."""

    name: str
    topic_id: bytes
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]
    # The operations that the caller's principal may do; None from brokers that do not report them.
    authorized_operations: frozenset[Operation] | None


class TopicPage(NamedTuple):
    """Topics in order of their names, and the first partition that had no place, if any."""

    topics: dict[str, TopicDescription | ApiError]
    next: TopicPartition | None


async def describe_topics_by_id(
    client: Client, topic_ids: Iterable[bytes], *, deadline: Deadline
) -> dict[bytes, TopicView | ApiError]:
    """Topics with their partitions; one that does not exist is UNKNOWN_TOPIC_ID.

    Raises:
        ValueError: An id is not of 16 bytes, or is all zeros.
        UnsupportedVersionError: The broker does not know topics by id.
    """
    wanted = [check_topic_id(one) for one in dict.fromkeys(topic_ids)]
    if not wanted:
        return {}  # No topic at all would ask for none, and still cost a request.
    request = MetadataRequest(
        topics=[MetadataRequestTopic(topic_id=one, name=None) for one in wanted],
        allow_auto_topic_creation=False,
    )

    async def attempt() -> MetadataResponse:
        return await client.ask(
            await client.any_connection(deadline),
            ApiKey.METADATA,
            request,
            MetadataResponse,
            deadline,
            within=_METADATA_BY_ID,
        )

    response = await client.retry("METADATA", attempt, deadline)
    picture, _ = Cluster().merged(response, ())
    found: dict[bytes, TopicView | ApiError] = {
        topic.topic_id: topic for topic in picture.topics.values()
    }
    for told in response.topics:
        if told.error_code != ErrorCode.NONE:
            topic_id = bytes(told.topic_id)
            found[topic_id] = api_error(told.error_code, None, f"topic id {topic_id.hex()}")
    missing = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the broker left it out of its answer")
    return {one: found.get(one, missing) for one in wanted}


def check_topic_id(topic_id: bytes) -> bytes:
    """Checks an id.

    Raises:
        ValueError: No topic can have this id.
    """
    if len(topic_id) != 16 or not any(topic_id):
        raise ValueError(
            f"topic id {topic_id!r}: expected 16 bytes, not all zeros, as `describe_topics` returns"
        )
    return bytes(topic_id)


async def describe_topic_partitions(
    client: Client,
    names: Iterable[str] | None,
    *,
    start: TopicPartition | None,
    limit: int,
    deadline: Deadline,
) -> TopicPage:
    """One page of topics, of all of them if none is named.

    Args:
        start: Where the page begins: `next` of the page before.
        limit: Partitions of the page; a broker may send fewer.

    Raises:
        ValueError: The limit is not positive.
        ApiError: The broker refuses.
    """
    if limit < 1:
        raise ValueError(f"limit={limit}: expected at least 1 partition")
    wanted = None if names is None else list(dict.fromkeys(names))
    if wanted is not None and not wanted:
        return TopicPage({}, None)  # The request would mean all of them.
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in wanted or ()],
        response_partition_limit=limit,
        cursor=None
        if start is None
        else Cursor(topic_name=start.topic, partition_index=start.partition),
    )
    response = await client.ask_any(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS, request, DescribeTopicPartitionsResponse, deadline
    )
    topics: dict[str, TopicDescription | ApiError] = {}
    for told in response.topics:
        name = told.name or ""
        is_told = told.error_code == ErrorCode.NONE
        topics[name] = (
            _topic(told, name) if is_told else api_error(told.error_code, None, f"topic {name!r}")
        )
    cursor = response.next_cursor
    return TopicPage(
        dict(sorted(topics.items())),
        None if cursor is None else TopicPartition(cursor.topic_name, cursor.partition_index),
    )


def _topic(told: DescribeTopicPartitionsResponseTopic, name: str) -> TopicDescription:
    return TopicDescription(
        name,
        bytes(told.topic_id),
        told.is_internal,
        tuple(sorted(map(_partition, told.partitions))),
        parse_operation_bits(told.topic_authorized_operations),
    )


def _partition(told: DescribeTopicPartitionsResponsePartition) -> PartitionDescription:
    return PartitionDescription(
        told.partition_index,
        told.leader_id,
        told.leader_epoch,
        tuple(told.replica_nodes),
        tuple(told.isr_nodes),
        tuple(told.offline_replicas),
        tuple(told.eligible_leader_replicas or ()),
        tuple(told.last_known_elr or ()),
    )
