"""AlterReplicaLogDirs: replicas of this broker move to other data directories of it."""

from collections.abc import Generator, Iterable
from typing import Final

from odradek.broker.authorization import is_allowed
from odradek.broker.context import BrokerContext, note_local_end
from odradek.broker.slices import Steps, body_of, finish_in_slices, portions, reply_in_slices
from odradek.errors import ErrorCode
from odradek.model import TopicPartition
from odradek.network.request import Request, Response
from odradek.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from odradek.security.operations import Operation

__all__ = ["handle_alter_replica_log_dirs"]

# Partitions in one turn of the loop; most take a few microseconds.
_AT_ONCE: Final = 50


async def handle_alter_replica_log_dirs(request: Request, context: BrokerContext) -> Response:
    """Answers when the moves have begun; of a partition named twice the last directory counts.

    A move goes on by itself afterwards, and DescribeLogDirs shows it until its end.
    """
    message = body_of(AlterReplicaLogDirsRequest, request)
    targets = await finish_in_slices(_targets(message), request, context)
    results: dict[TopicPartition, ErrorCode] = {}
    refusal: ErrorCode | None = None
    if not is_allowed(context.authorizer, request, Operation.ALTER):
        refusal = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    note_local_end(request, context)
    moves = context.replicas.moves
    for portion in portions(targets.items(), _AT_ONCE):
        if request.connection.is_closed:
            break
        for tp, path in portion:
            if refusal is not None or moves is None:
                results[tp] = refusal or ErrorCode.KAFKA_STORAGE_ERROR
            else:
                results[tp] = await moves.alter(tp, path)
        if moves is not None and len(targets) > _AT_ONCE:
            await moves.let_others_run()
    return await finish_in_slices(_answer(results.items(), request, context), request, context)


def _targets(
    message: AlterReplicaLogDirsRequest,
) -> Generator[None, None, dict[TopicPartition, str]]:
    targets: dict[TopicPartition, str] = {}
    for directory in message.dirs:
        for topic in directory.topics:
            for partition in topic.partitions:
                targets[TopicPartition(topic.name, partition)] = directory.path
                yield
            yield
        yield
    return targets


def _answer(
    results: Iterable[tuple[TopicPartition, ErrorCode]], request: Request, context: BrokerContext
) -> Steps:
    topics: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for tp, error in results:
        topics.setdefault(tp.topic, []).append(
            AlterReplicaLogDirPartitionResult(partition_index=tp.partition, error_code=error)
        )
        yield
    rows: list[AlterReplicaLogDirTopicResult] = []
    for name, partitions in topics.items():
        rows.append(AlterReplicaLogDirTopicResult(topic_name=name, partitions=partitions))
        yield
    response = AlterReplicaLogDirsResponse(results=rows)
    return (yield from reply_in_slices(request, response, context))
