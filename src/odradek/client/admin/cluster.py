"""The cluster itself: its brokers, their disks, leaders."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from odradek.client.client import Client
from odradek.client.cluster import Node
from odradek.client.leaders import api_error, by_topic
from odradek.client.retry import Deadline
from odradek.errors import ApiError, ErrorCode
from odradek.model import ReplicaId, TopicPartition
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.enums import ElectionType
from odradek.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from odradek.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from odradek.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from odradek.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from odradek.security.operations import Operation, parse_operation_bits

__all__ = [
    "ClusterDescription",
    "LogDir",
    "Replica",
    "alter_replica_log_dirs",
    "describe_cluster",
    "describe_log_dirs",
    "elect_leaders",
]


class ClusterDescription(NamedTuple):
    """A cluster as a broker describes it."""

    cluster_id: str
    controller: Node | None
    nodes: tuple[Node, ...]
    # The operations that the caller's principal may do; None unless asked for.
    authorized_operations: frozenset[Operation] | None = None


class Replica(NamedTuple):
    """A replica on a disk."""

    size: int
    offset_lag: int  # Behind the high watermark, or behind the current replica if it is future.
    is_future: bool  # Whether it is to replace the current one.


class LogDir(NamedTuple):
    """A data directory of a broker; -1 from brokers that do not report it."""

    replicas: dict[TopicPartition, Replica]
    total_bytes: int
    usable_bytes: int


async def describe_cluster(
    client: Client, *, include_authorized_operations: bool = False, deadline: Deadline
) -> ClusterDescription:
    """The brokers of the cluster and its controller.

    Raises:
        ApiError: No broker answers.
    """

    async def attempt() -> DescribeClusterResponse:
        response = await client.ask_any(
            ApiKey.DESCRIBE_CLUSTER,
            DescribeClusterRequest(
                include_cluster_authorized_operations=include_authorized_operations
            ),
            DescribeClusterResponse,
            deadline,
        )
        _check(response.error_code, response.error_message, "the cluster")
        return response

    told = await client.retry("DESCRIBE_CLUSTER", attempt, deadline)
    nodes = {
        one.broker_id: Node(one.broker_id, one.host, one.port, one.rack) for one in told.brokers
    }
    return ClusterDescription(
        told.cluster_id,
        nodes.get(told.controller_id),
        tuple(nodes[node_id] for node_id in sorted(nodes)),
        parse_operation_bits(told.cluster_authorized_operations),
    )


async def describe_log_dirs(
    client: Client,
    brokers: Iterable[int] | None,
    *,
    partitions: Iterable[TopicPartition] | None = None,
    deadline: Deadline,
) -> dict[int, dict[str, LogDir | ApiError] | ApiError]:
    """The data directories of brokers and their replicas, of all brokers if none is named.

    Args:
        partitions: Those whose replicas to return; all of them if None.
    """
    if brokers is None:
        brokers = [node.id for node in (await describe_cluster(client, deadline=deadline)).nodes]
    wanted = sorted(set(brokers))
    nested = None if partitions is None else by_topic(dict.fromkeys(partitions))
    topics = None
    if nested is not None:
        topics = [
            DescribableLogDirTopic(topic=name, partitions=list(some))
            for name, some in nested.items()
        ]
    request = DescribeLogDirsRequest(topics=topics)
    answers = await asyncio.gather(*(_log_dirs(client, one, request, deadline) for one in wanted))
    return dict(zip(wanted, answers, strict=True))


async def _log_dirs(
    client: Client, node_id: int, request: DescribeLogDirsRequest, deadline: Deadline
) -> dict[str, LogDir | ApiError] | ApiError:
    try:
        response = await client.ask_broker(
            node_id,
            ApiKey.DESCRIBE_LOG_DIRS,
            request,
            DescribeLogDirsResponse,
            deadline,
        )
        _check(response.error_code, None, f"broker {node_id}")
    except ApiError as error:
        return error
    return {result.log_dir: _log_dir(result) for result in response.results}


def _log_dir(result: DescribeLogDirsResult) -> LogDir | ApiError:
    if result.error_code != ErrorCode.NONE:
        return api_error(result.error_code, None, result.log_dir)
    return LogDir(
        {
            TopicPartition(topic.name, one.partition_index): Replica(
                one.partition_size, one.offset_lag, one.is_future_key
            )
            for topic in result.topics
            for one in topic.partitions
        },
        result.total_bytes,
        result.usable_bytes,
    )


async def alter_replica_log_dirs(
    client: Client, targets: Mapping[ReplicaId, str], *, deadline: Deadline
) -> dict[ReplicaId, ApiError | None]:
    """Begins to move replicas to other data directories; None for each that has begun, or is there.

    REPLICA_NOT_AVAILABLE is the error of a replica that its broker does not have; the broker will
    create it in that directory.
    """
    by_broker: dict[int, dict[TopicPartition, str]] = {}
    for (tp, broker), path in targets.items():
        by_broker.setdefault(broker, {})[tp] = path
    answers = await asyncio.gather(
        *(_alter_log_dirs(client, broker, some, deadline) for broker, some in by_broker.items())
    )
    results: dict[ReplicaId, ApiError | None] = {}
    for broker, told in zip(by_broker, answers, strict=True):
        results |= {ReplicaId(tp, broker): error for tp, error in told.items()}
    return results


async def _alter_log_dirs(
    client: Client, node_id: int, targets: Mapping[TopicPartition, str], deadline: Deadline
) -> dict[TopicPartition, ApiError | None]:
    directories: dict[str, list[TopicPartition]] = {}
    for tp, path in targets.items():
        directories.setdefault(path, []).append(tp)
    request = AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(
                path=path,
                topics=[
                    AlterReplicaLogDirTopic(name=name, partitions=list(some))
                    for name, some in by_topic(dict.fromkeys(partitions)).items()
                ],
            )
            for path, partitions in directories.items()
        ]
    )
    try:
        response = await client.ask_broker(
            node_id,
            ApiKey.ALTER_REPLICA_LOG_DIRS,
            request,
            AlterReplicaLogDirsResponse,
            deadline,
        )
    except ApiError as error:
        return dict.fromkeys(targets, error)
    results: dict[TopicPartition, ApiError | None] = {}
    for topic in response.results:
        for one in topic.partitions:
            tp = TopicPartition(topic.topic_name, one.partition_index)
            is_done = one.error_code == ErrorCode.NONE
            where = f"{tp} on broker {node_id}, {targets.get(tp)}"
            results[tp] = None if is_done else api_error(one.error_code, None, where)
    return results


async def elect_leaders(
    client: Client,
    election_type: ElectionType,
    partitions: Iterable[TopicPartition] | None,
    *,
    deadline: Deadline,
) -> dict[TopicPartition, ApiError | None]:
    """Elects leaders; None for each that leads now. Of all partitions if none is named.

    Raises:
        ApiError: The whole request was refused.
    """
    nested = None if partitions is None else by_topic(dict.fromkeys(partitions))
    request = ElectLeadersRequest(
        election_type=election_type,
        topic_partitions=None
        if nested is None
        else [TopicPartitions(topic=name, partitions=list(some)) for name, some in nested.items()],
        timeout_ms=deadline.left_ms(),
    )

    async def attempt() -> ElectLeadersResponse:
        response = await client.ask_controller(
            ApiKey.ELECT_LEADERS, request, ElectLeadersResponse, deadline, repeatable=True
        )
        _check(response.error_code, None, "the election")
        return response

    response = await client.retry("ELECT_LEADERS", attempt, deadline)
    results: dict[TopicPartition, ApiError | None] = {}
    for topic in response.replica_election_results:
        for one in topic.partition_result:
            tp = TopicPartition(topic.topic, one.partition_id)
            is_done = one.error_code == ErrorCode.NONE
            results[tp] = None if is_done else api_error(one.error_code, one.error_message, tp)
    return results


def _check(code: int, message: str | None, what: str) -> None:
    if code != ErrorCode.NONE:
        raise api_error(code, message, what)
