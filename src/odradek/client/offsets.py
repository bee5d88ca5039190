"""Offsets by time, and the two ends of a partition."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import NamedTuple

from odradek.client.client import Client
from odradek.client.cluster import Cluster
from odradek.client.errors import CallTimeoutError
from odradek.client.leaders import LeaderCall, api_error, ask_leaders, by_topic
from odradek.client.retry import Deadline
from odradek.errors import ApiError, ErrorCode
from odradek.model import TopicPartition
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.enums import EARLIEST, LATEST, MAX_TIMESTAMP, IsolationLevel
from odradek.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from odradek.protocol.schema import Message

__all__ = ["EARLIEST", "LATEST", "MAX_TIMESTAMP", "FoundOffset", "find_offsets", "list_offsets"]


class FoundOffset(NamedTuple):
    """The answer for one partition; -1 and -1 if no record is that late."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


async def list_offsets(
    client: Client,
    timestamps: Mapping[TopicPartition, int],
    deadline: Deadline | None = None,
    *,
    isolation_level: int = IsolationLevel.READ_UNCOMMITTED,
    repeats: bool = True,
) -> dict[TopicPartition, FoundOffset | ApiError]:
    """The first offset at or after a time, or the place that a negative one names.

    Args:
        isolation_level: READ_COMMITTED takes the last stable offset for the end.
        repeats: As of `ask_leaders`.
    """
    call: LeaderCall[int, FoundOffset] = LeaderCall(
        api_key=ApiKey.LIST_OFFSETS,
        answer_type=ListOffsetsResponse,
        build=partial(_build, isolation_level=isolation_level),
        read=_read,
    )
    return await ask_leaders(
        client, call, timestamps, deadline or client.deadline(), repeats=repeats
    )


async def find_offsets(
    client: Client,
    timestamps: Mapping[TopicPartition, int],
    deadline: Deadline,
    *,
    isolation_level: int,
) -> dict[TopicPartition, FoundOffset]:
    """As `list_offsets`, for a caller that needs the answer for every partition.

    Raises:
        CallTimeoutError: An offset was not found in time.
        ApiError: A broker refuses to tell one.
    """
    answers = await list_offsets(client, timestamps, deadline, isolation_level=isolation_level)
    found = {}
    for tp, answer in answers.items():
        if isinstance(answer, ApiError):
            raise CallTimeoutError(str(answer), answer) if answer.code.retriable else answer
        found[tp] = answer
    return found


def _build(
    timestamps: Mapping[TopicPartition, int], _cluster: Cluster, *, isolation_level: int
) -> Message:
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[
            ListOffsetsTopic(
                name=name,
                partitions=[
                    ListOffsetsPartition(partition_index=index, timestamp=timestamp)
                    for index, timestamp in partitions.items()
                ],
            )
            for name, partitions in by_topic(timestamps).items()
        ],
    )


def _read(
    response: Message, _cluster: Cluster
) -> Iterator[tuple[TopicPartition, FoundOffset | ApiError]]:
    assert isinstance(response, ListOffsetsResponse)
    for topic in response.topics:
        for answer in topic.partitions:
            tp = TopicPartition(topic.name, answer.partition_index)
            if answer.error_code != ErrorCode.NONE:
                yield tp, api_error(answer.error_code, None, tp)
            else:
                yield tp, FoundOffset(answer.offset, answer.timestamp, answer.leader_epoch)
