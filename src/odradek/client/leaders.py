"""Work that belongs to partitions: sent to their leaders, repeated where the leader has moved.

One request per leader carries all its partitions; all leaders are asked at once. Each partition has
its own result: after a retriable error that partition is asked for again, with new metadata and
after a pause, until the deadline; the other partitions keep their results.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from odradek.client.client import Client
from odradek.client.cluster import NO_TOPIC_ID, Cluster
from odradek.client.retry import Deadline
from odradek.errors import ApiError, ErrorCode, RequestTimedOutError
from odradek.model import TopicPartition
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.schema import Message
from odradek.protocol.versions import VersionRange

__all__ = ["LeaderCall", "api_error", "ask_leaders", "by_topic", "topic_name", "version_limit"]

W = TypeVar("W")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderCall(Generic[W, R]):
    """How work on partitions becomes a request, and an answer becomes results."""

    api_key: ApiKey
    answer_type: type[Message]
    build: Callable[[Mapping[TopicPartition, W], Cluster], Message]
    read: Callable[[Message, Cluster], Iterable[tuple[TopicPartition, R | ApiError]]]
    # Oldest and newest version to use, for the given topics.
    versions: Callable[[Iterable[TopicPartition], Cluster], VersionRange | None] = (
        lambda _partitions, _cluster: None
    )
    # Whether doing it twice is harmless; if not, a lost answer is the result.
    repeatable: bool = True


async def ask_leaders(
    client: Client,
    call: LeaderCall[W, R],
    work: Mapping[TopicPartition, W],
    deadline: Deadline,
    *,
    repeats: bool = True,
) -> dict[TopicPartition, R | ApiError]:
    """Does the work; every partition gets a result or its own error.

    Args:
        repeats: Whether to try again here; a caller that does so itself gets failures at once.
    """
    results: dict[TopicPartition, R | ApiError] = {}
    pending = dict(work)
    await _learn_topics(client, pending, deadline)
    for pause_ms in client.pauses_ms():
        before = dict(results)
        failed = await _ask_once(client, call, pending, results, deadline)
        pending = {tp: pending[tp] for tp in failed}
        if not repeats or not pending or deadline.left_ms() <= pause_ms:
            # The failure before it explains more than the end of the time does.
            for tp in pending:
                if tp in before and isinstance(results[tp], RequestTimedOutError):
                    results[tp] = before[tp]
            break
        await asyncio.sleep(pause_ms / 1000)
        await client.refresh(sorted({tp.topic for tp in pending}), deadline)
    return {tp: results[tp] for tp in work}


async def _learn_topics(
    client: Client, partitions: Iterable[TopicPartition], deadline: Deadline
) -> None:
    # An unknown partition may have been added since.
    unknown = sorted({tp.topic for tp in partitions if client.cluster.partition(tp) is None})
    if unknown:
        await client.topics(unknown, deadline)


async def _ask_once(
    client: Client,
    call: LeaderCall[W, R],
    work: Mapping[TopicPartition, W],
    results: dict[TopicPartition, R | ApiError],
    deadline: Deadline,
) -> list[TopicPartition]:
    """Asks every leader once, fills `results`, returns the partitions worth another attempt."""
    by_leader: dict[int, dict[TopicPartition, W]] = {}
    failed = []
    for tp, item in work.items():
        leader = client.cluster.leader(tp)
        if leader is not None:
            by_leader.setdefault(leader.id, {})[tp] = item
        elif (error := _why_leaderless(client.cluster, tp)).code.retriable:
            results[tp] = error
            failed.append(tp)
        else:
            results[tp] = error
    async with asyncio.TaskGroup() as group:
        tasks = {
            node_id: group.create_task(_ask_leader(client, call, node_id, part, deadline))
            for node_id, part in by_leader.items()
        }
    for node_id, task in tasks.items():
        for tp, result in task.result().items():
            results[tp] = result
            if isinstance(result, ApiError) and result.code.retriable:
                if result.code.refresh_metadata:
                    client.forget_leader(tp, node_id)
                failed.append(tp)
    return failed


async def _ask_leader(
    client: Client,
    call: LeaderCall[W, R],
    node_id: int,
    work: Mapping[TopicPartition, W],
    deadline: Deadline,
) -> dict[TopicPartition, R | ApiError]:
    cluster = client.cluster
    is_sent = False
    try:
        connection = await client.connection_to(node_id, deadline)
        is_sent = True
        response = await client.ask(
            connection,
            call.api_key,
            call.build(work, cluster),
            call.answer_type,
            deadline,
            within=call.versions(work, cluster),
        )
    except ApiError as error:
        if is_sent and error.code.retriable and not call.repeatable:
            error = ApiError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"{call.api_key.name}: whether it was done is unknown: {error}",
            )
        return dict.fromkeys(work, error)
    results = {tp: result for tp, result in call.read(response, cluster) if tp in work}
    for tp in work:
        if tp not in results:
            results[tp] = ApiError(
                ErrorCode.UNKNOWN_SERVER_ERROR, f"{connection} left {tp} out of its answer"
            )
    return results


def _why_leaderless(cluster: Cluster, tp: TopicPartition) -> ApiError:
    topic = cluster.topics.get(tp.topic)
    if topic is None:
        return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {tp.topic!r} does not exist")
    if not 0 <= tp.partition < len(topic.partitions):
        return ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {tp.topic!r} has {len(topic.partitions)} partitions, "
            f"numbered from 0, so no {tp.partition}",
        )
    return ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"{tp} has no leader at the moment")


def by_topic(work: Mapping[TopicPartition, W]) -> dict[str, dict[int, W]]:
    """The same work, nested as requests nest it: topic, then partition."""
    nested: dict[str, dict[int, W]] = {}
    for tp, item in work.items():
        nested.setdefault(tp.topic, {})[tp.partition] = item
    return nested


def topic_name(name: str, topic_id: bytes, cluster: Cluster) -> str:
    """The topic of an answer, which has its name, or from some version on only its id."""
    return name or cluster.name_of(bytes(topic_id)) or ""


def version_limit(
    partitions: Iterable[TopicPartition], cluster: Cluster, *, first: int, last_by_name: int
) -> VersionRange:
    """Versions to use of an API that names topics by id above `last_by_name`."""
    has_ids = all(cluster.topic_id(tp.topic) != NO_TOPIC_ID for tp in partitions)
    return VersionRange(first, 32767 if has_ids else last_by_name)


def api_error(code: int, message: str | None, what: object) -> ApiError:
    """The error of an answer, with its subject in the message."""
    try:
        known = ErrorCode(code)
    except ValueError:
        return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{what}: error code {code}")
    return ApiError(known, f"{what}: {message or known.name}")
