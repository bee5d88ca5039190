"""DescribeLogDirs: the partitions in each data directory, and the space of its volume."""

import os
from collections.abc import Generator, Iterable

from odradek.broker.authorization import is_allowed
from odradek.broker.context import BrokerContext, reply_throttled
from odradek.broker.slices import Steps, body_of, in_slices, reply_in_slices
from odradek.errors import ErrorCode, StorageError
from odradek.model import TopicPartition
from odradek.network.request import Request
from odradek.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from odradek.security.operations import Operation
from odradek.storage.directories.log_directory import LogDirectory
from odradek.storage.directories.log_manager import LogManager
from odradek.storage.log.log import Log

__all__ = ["handle_describe_log_dirs"]

_UNKNOWN_BYTES = -1


@in_slices
def handle_describe_log_dirs(request: Request, context: BrokerContext) -> Steps:
    """Describes every directory, with those of the requested partitions it has."""
    message = body_of(DescribeLogDirsRequest, request)
    if not is_allowed(context.authorizer, request, Operation.DESCRIBE):
        denied = DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return reply_throttled(request, denied, context)
    wanted: set[TopicPartition] | None = None
    if message.topics is not None:
        wanted = set()
        for topic in message.topics:
            for partition in topic.partitions:
                wanted.add(TopicPartition(topic.topic, partition))
                yield
            yield
    manager = context.replicas.log_manager
    logs: dict[LogDirectory, list[Log]] = {directory: [] for directory in manager.directories}
    for log in manager.all_logs():
        if wanted is None or log.topic_partition in wanted:
            logs[log.log_directory].append(log)
        yield
    results: list[DescribeLogDirsResult] = []
    for directory, found in logs.items():
        results.append((yield from _describe(directory, found, manager)))
    response = DescribeLogDirsResponse(results=results)
    return (yield from reply_in_slices(request, response, context))


def _describe(
    directory: LogDirectory, logs: Iterable[Log], manager: LogManager
) -> Generator[None, None, DescribeLogDirsResult]:
    if not directory.is_online:
        return DescribeLogDirsResult(
            error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=directory.path
        )
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for log in sorted(logs, key=lambda log: log.topic_partition):
        tp = log.topic_partition
        topics.setdefault(tp.topic, []).append(_partition(log, manager))
        yield
    total_bytes, usable_bytes = _volume(directory.path)
    return DescribeLogDirsResult(
        error_code=ErrorCode.NONE,
        log_dir=directory.path,
        topics=[
            DescribeLogDirsTopic(name=topic, partitions=rows) for topic, rows in topics.items()
        ],
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
    )


def _partition(log: Log, manager: LogManager) -> DescribeLogDirsPartition:
    """The row of a log; a copy lags behind the log it will replace, a log behind its watermark."""
    tp = log.topic_partition
    is_future = manager.get_future_log(tp) is log
    target = log.high_watermark
    if is_future:
        target = _end_of_current(tp, manager, log.log_end_offset)
    return DescribeLogDirsPartition(
        partition_index=tp.partition,
        partition_size=log.size_in_bytes,
        offset_lag=max(target - log.log_end_offset, 0),
        is_future_key=is_future,
    )


def _end_of_current(tp: TopicPartition, manager: LogManager, otherwise: int) -> int:
    """The end of the log that a copy will replace, unless that log is not there or offline."""
    try:
        current = manager.get_log(tp)
    except StorageError:
        return otherwise
    return otherwise if current is None else current.log_end_offset


def _volume(path: str) -> tuple[int, int]:
    """(Total, usable) bytes of the volume a directory is on."""
    try:
        volume = os.statvfs(path)
    except OSError:
        return _UNKNOWN_BYTES, _UNKNOWN_BYTES
    return volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize
