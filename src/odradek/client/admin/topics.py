"""Topics are created, grown and deleted by the controller.

A controller that has just resigned says so per topic; those topics are asked for once more at the
new one.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from odradek.client.admin.topic_descriptions import check_topic_id
from odradek.client.client import Client
from odradek.client.leaders import api_error
from odradek.client.retry import Deadline
from odradek.errors import ApiError, ErrorCode
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from odradek.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

__all__ = [
    "CreatedTopic",
    "NewPartitions",
    "NewTopic",
    "create_partitions",
    "create_topics",
    "delete_topics",
    "delete_topics_by_id",
]

R = TypeVar("R")
K = TypeVar("K", str, bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to create; -1 is the broker's default.

    Raises:
        ValueError: Counts are given besides assignments, which imply them.
    """

    name: str
    partition_count: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)
    # Brokers by partition, the preferred leader first; instead of the two counts.
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.assignments and (self.partition_count, self.replication_factor) != (-1, -1):
            raise ValueError(
                f"topic {self.name!r}: give assignments, or partition_count and "
                "replication_factor, not both"
            )


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """A new total of partitions, and the brokers of the added ones, if the caller chooses them."""

    total: int
    # One list for each new partition, the preferred leader first.
    assignments: Sequence[Sequence[int]] | None = None


class CreatedTopic(NamedTuple):
    """A topic that was created; -1 from brokers that do not report the counts."""

    topic_id: bytes
    partition_count: int
    replication_factor: int


async def create_topics(
    client: Client,
    topics: Sequence[NewTopic],
    *,
    validate_only: bool = False,
    deadline: Deadline | None = None,
) -> dict[str, CreatedTopic | ApiError]:
    """Creates topics; with `validate_only`, only checks whether that is possible."""
    deadline = deadline or client.deadline()
    by_name = {topic.name: topic for topic in topics}

    async def attempt(names: Iterable[str]) -> dict[str, CreatedTopic | ApiError]:
        request = CreateTopicsRequest(
            topics=[_creatable(by_name[name]) for name in names],
            timeout_ms=deadline.left_ms(),
            validate_only=validate_only,
        )
        response = await client.ask_controller(
            ApiKey.CREATE_TOPICS, request, CreateTopicsResponse, deadline
        )
        return {
            result.name: api_error(result.error_code, result.error_message, _topic(result.name))
            if result.error_code != ErrorCode.NONE
            else CreatedTopic(
                bytes(result.topic_id), result.num_partitions, result.replication_factor
            )
            for result in response.topics
        }

    return await _again_at_new_controller(client, by_name, attempt, deadline)


async def create_partitions(
    client: Client,
    totals: Mapping[str, int | NewPartitions],
    *,
    validate_only: bool = False,
    deadline: Deadline | None = None,
) -> dict[str, int | ApiError]:
    """Grows topics to new totals of partitions; the result is the total."""
    deadline = deadline or client.deadline()
    wanted = {
        name: NewPartitions(one) if isinstance(one, int) else one for name, one in totals.items()
    }

    async def attempt(names: Iterable[str]) -> dict[str, int | ApiError]:
        request = CreatePartitionsRequest(
            topics=[_grown(name, wanted[name]) for name in names],
            timeout_ms=deadline.left_ms(),
            validate_only=validate_only,
        )
        response = await client.ask_controller(
            ApiKey.CREATE_PARTITIONS, request, CreatePartitionsResponse, deadline
        )
        return {
            result.name: api_error(result.error_code, result.error_message, _topic(result.name))
            if result.error_code != ErrorCode.NONE
            else wanted[result.name].total
            for result in response.results
        }

    return await _again_at_new_controller(client, totals, attempt, deadline)


async def delete_topics(
    client: Client, names: Iterable[str], *, deadline: Deadline | None = None
) -> dict[str, ApiError | None]:
    """Deletes topics; None for each that is gone."""
    deadline = deadline or client.deadline()

    async def attempt(names: Iterable[str]) -> dict[str, ApiError | None]:
        topics = [DeleteTopicState(name=name) for name in names]
        return {
            result.name: _gone_or_error(result, _topic(result.name))
            for result in await _delete(client, topics, deadline)
            if result.name is not None
        }

    return await _again_at_new_controller(client, names, attempt, deadline)


async def delete_topics_by_id(
    client: Client, topic_ids: Iterable[bytes], *, deadline: Deadline
) -> dict[bytes, ApiError | None]:
    """Deletes topics by their ids, so that another topic that has the name by now is kept.

    Raises:
        ValueError: An id is not of 16 bytes, or is all zeros.
    """

    async def attempt(topic_ids: Iterable[bytes]) -> dict[bytes, ApiError | None]:
        topics = [DeleteTopicState(name=None, topic_id=one) for one in topic_ids]
        return {
            (topic_id := bytes(result.topic_id)): _gone_or_error(
                result, f"topic id {topic_id.hex()}"
            )
            for result in await _delete(client, topics, deadline)
        }

    wanted = [check_topic_id(one) for one in topic_ids]
    return await _again_at_new_controller(client, wanted, attempt, deadline)


async def _delete(
    client: Client, topics: Sequence[DeleteTopicState], deadline: Deadline
) -> Sequence[DeletableTopicResult]:
    request = DeleteTopicsRequest(topics=topics, timeout_ms=deadline.left_ms())
    response = await client.ask_controller(
        ApiKey.DELETE_TOPICS, request, DeleteTopicsResponse, deadline
    )
    return response.responses


def _gone_or_error(result: DeletableTopicResult, what: str) -> ApiError | None:
    if result.error_code == ErrorCode.NONE:
        return None
    return api_error(result.error_code, result.error_message, what)


async def _again_at_new_controller(
    client: Client,
    names: Iterable[K],
    attempt: Callable[[Iterable[K]], Awaitable[dict[K, R | ApiError]]],
    deadline: Deadline,
) -> dict[K, R | ApiError]:
    wanted = list(dict.fromkeys(names))
    results = await attempt(wanted)
    moved = [
        name
        for name, result in results.items()
        if isinstance(result, ApiError) and result.code is ErrorCode.NOT_CONTROLLER
    ]
    if moved:
        await client.refresh((), deadline)
        results |= await attempt(moved)
    missing = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the controller left it out of its answer")
    return {name: results.get(name, missing) for name in wanted}


def _creatable(topic: NewTopic) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.partition_count,
        replication_factor=topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
            for index, brokers in topic.assignments.items()
        ],
        configs=[
            CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()
        ],
    )


def _grown(name: str, new: NewPartitions) -> CreatePartitionsTopic:
    assignments = None
    if new.assignments is not None:
        assignments = [
            CreatePartitionsAssignment(broker_ids=list(brokers)) for brokers in new.assignments
        ]
    return CreatePartitionsTopic(name=name, count=new.total, assignments=assignments)


def _topic(name: str | None) -> str:
    return f"topic {name!r}"
