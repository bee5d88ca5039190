"""Handlers of events about topics: requests of administrators, and nodes that tools wrote.

A topic made by request, written to the store by a foreign tool, or found by a new controller passes
through `on_new_partition_creation` once: the store is compared with the context after a hint, and
the changes of our own commits are in the context already.
"""

import logging
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from odradek.controller.config import ControllerConfig
from odradek.controller.context import ControllerContext
from odradek.controller.machine_driver import MachineDriver
from odradek.controller.topic_deletion_driver import TopicDeletions
from odradek.controller.topic_requests import ConfigCheck, decide_new_partitions, decide_new_topic
from odradek.errors import ApiError, ErrorCode
from odradek.lazy_dataclass import dataclass
from odradek.metadata.admin_requests import (
    CreatePartitionsResult,
    DeletedTopic,
    NewPartitions,
    NewTopic,
    TopicResult,
)
from odradek.metadata.changes import (
    AssignmentChanged,
    Change,
    PartitionsAdded,
    TopicCreated,
    TopicDeletionRequested,
)
from odradek.metadata.placement import RandomSource
from odradek.metadata.ports import (
    NO_IDS,
    Committed,
    Conflict,
    FailedChange,
    Hint,
    HintKind,
    TopicRecord,
)
from odradek.model import ReplicaAssignment, TopicPartition

__all__ = ["TopicHandlers", "TopicSources"]

logger = logging.getLogger(__name__)

# Attempts at a change whose node is changed by others meanwhile.
MAX_ATTEMPTS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSources:
    """The settings and sources that new topics are made from."""

    config: ControllerConfig
    check_configs: ConfigCheck
    random: RandomSource
    new_topic_id: Callable[[], uuid.UUID]


class TopicHandlers:
    """Creates and enlarges topics, and follows the changes that tools make in the store."""

    def __init__(
        self, machines: MachineDriver, deletion: TopicDeletions, sources: TopicSources
    ) -> None:
        self._machines = machines
        self._deletion = deletion
        self._context: ControllerContext = machines.context
        self._sources = sources

    # Requests

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool
    ) -> list[TopicResult]:
        """Creates topics; every one has its own outcome."""
        results: dict[int, TopicResult] = {}
        decided: dict[int, TopicCreated] = {}
        for index, topic in enumerate(topics):
            try:
                decided[index] = self._decide_topic(topic, decided.values())
            except ApiError as error:
                results[index] = TopicResult(name=topic.name, error=error.code, message=str(error))
        if validate_only:
            results.update((i, _created(change, None)) for i, change in decided.items())
        else:
            outcomes = await self._commit_each(list(decided.values()))
            for index, outcome in zip(decided, outcomes, strict=True):
                results[index] = self._topic_result(decided[index], outcome)
            await self._machines.on_new_partition_creation(
                TopicPartition(change.topic, partition)
                for index, change in decided.items()
                if results[index].error is ErrorCode.NONE
                for partition in change.assignment
            )
        return [results[index] for index in range(len(topics))]

    def _decide_topic(self, topic: NewTopic, decided: Iterable[TopicCreated]) -> TopicCreated:
        return decide_new_topic(
            self._context,
            topic,
            topic_id=self._sources.new_topic_id(),
            config=self._sources.config,
            check_configs=self._sources.check_configs,
            random=self._sources.random,
            also_taken=[change.topic for change in decided],
        )

    def _topic_result(
        self, change: TopicCreated, outcome: Committed | Conflict | FailedChange
    ) -> TopicResult:
        match outcome:
            case Committed():
                logger.info(
                    "topic %s is created with %d partitions",
                    change.topic,
                    len(change.assignment),
                    extra={"topic": change.topic, "partitions": len(change.assignment)},
                )
                return _created(change, change.topic_id)
            case Conflict():
                return TopicResult(
                    name=change.topic,
                    error=ErrorCode.TOPIC_ALREADY_EXISTS,
                    message=f"topic {change.topic!r} exists already",
                )
            case FailedChange(error=error):
                return TopicResult(name=change.topic, error=_code_of(error), message=str(error))

    async def create_partitions(
        self, topics: Sequence[NewPartitions], *, validate_only: bool
    ) -> list[CreatePartitionsResult]:
        """Enlarges topics; every one has its own outcome."""
        results = []
        created: list[TopicPartition] = []
        for topic in topics:
            try:
                if validate_only:
                    decide_new_partitions(self._context, topic)
                else:
                    created += await self._add_partitions(topic)
                results.append(CreatePartitionsResult(name=topic.name))
            except ApiError as error:
                results.append(
                    CreatePartitionsResult(name=topic.name, error=error.code, message=str(error))
                )
        await self._machines.on_new_partition_creation(created)
        return results

    async def _add_partitions(self, topic: NewPartitions) -> list[TopicPartition]:
        for _ in range(MAX_ATTEMPTS):
            change = decide_new_partitions(self._context, topic)
            [outcome] = await self._commit_each([change])
            match outcome:
                case Committed():
                    assert isinstance(change, PartitionsAdded)
                    return [TopicPartition(topic.name, p) for p in sorted(change.added)]
                case Conflict():
                    await self.process_partition_modifications(topic.name)
                case FailedChange(error=error):
                    raise ApiError(_code_of(error), str(error))
        raise ApiError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"topic {topic.name!r} was changed by others in each of {MAX_ATTEMPTS} attempts",
        )

    async def delete_topics(
        self, topics: Sequence[str], ids: Mapping[str, uuid.UUID] = NO_IDS
    ) -> list[DeletedTopic]:
        """Marks topics for deletion and begins to delete them.

        Args:
            topics: Their names.
            ids: The ids of those that were named by id: a topic that took the name since stays.
        """
        results: dict[str, DeletedTopic] = {}
        marked: list[str] = []
        for name in dict.fromkeys(topics):
            topic_id = self._context.topic_ids.get(name)
            if not self._deletion.is_enabled:
                results[name] = DeletedTopic(
                    name=name,
                    error=ErrorCode.TOPIC_DELETION_DISABLED,
                    message="delete.topic.enable is false",
                )
            elif name not in self._context.all_topics:
                results[name] = DeletedTopic(
                    name=name,
                    error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    message=f"topic {name!r} does not exist",
                )
            elif name in ids and ids[name] != topic_id:
                results[name] = DeletedTopic(
                    name=name,
                    error=ErrorCode.UNKNOWN_TOPIC_ID,
                    message=f"there is no topic with id {ids[name]} any more",
                )
            else:
                results[name] = DeletedTopic(name=name, topic_id=topic_id)
                marked.append(name)
        outcomes = await self._commit_each([TopicDeletionRequested(name) for name in marked])
        for name, outcome in zip(list(marked), outcomes, strict=True):
            if not isinstance(outcome, Committed):
                error = outcome.error if isinstance(outcome, FailedChange) else None
                code = ErrorCode.UNKNOWN_SERVER_ERROR if error is None else _code_of(error)
                results[name] = DeletedTopic(name=name, error=code, message=str(error or outcome))
                marked.remove(name)
        if marked:
            await self._deletion.enqueue(marked)
        return [results[name] for name in topics]

    async def _commit_each(
        self, changes: Sequence[Change]
    ) -> list[Committed | Conflict | FailedChange]:
        """Commits changes; one that was lost before it reached the store is sent again."""
        outcomes: dict[int, Committed | Conflict | FailedChange] = {}
        remaining = dict(enumerate(changes))
        for _ in range(MAX_ATTEMPTS):
            if not remaining:
                break
            commit = await self._machines.commit(list(remaining.values()))
            by_change: dict[int, Committed | Conflict | FailedChange] = {
                id(outcome.change): outcome
                for group in (commit.committed, commit.conflicts, commit.failed)
                for outcome in group
            }
            for index, change in list(remaining.items()):
                outcome = outcomes[index] = by_change[id(change)]
                is_lost = isinstance(outcome, Conflict) and outcome.found is None
                if not (is_lost and isinstance(change, TopicCreated | TopicDeletionRequested)):
                    del remaining[index]
        return [outcomes[index] for index in range(len(changes))]

    # Hints

    async def process_topic_change(self) -> None:
        """Handles the hint that topics were added or removed."""
        context = self._context
        state = await self._machines.persistence.load(Hint(HintKind.TOPICS))
        gone = sorted(context.all_topics - state.topics.keys())
        recreated = sorted(
            topic
            for topic, record in state.topics.items()
            if topic in context.all_topics and not self._is_same(topic, record)
        )
        if recreated:
            # The brokers have the old topic's logs under the names of the new one.
            replicas = [r for topic in recreated for r in context.replicas_for_topic(topic)]
            self._machines.send_stop_replicas(replicas, deletes=True)
        for topic in (*gone, *recreated):
            context.remove_topic(topic)
        new = {t: r for t, r in state.topics.items() if t not in context.all_topics}
        if gone or recreated or new:
            logger.info("topics new: %s, gone: %s, re-created: %s", sorted(new), gone, recreated)
        created: list[TopicPartition] = []
        for topic, record in sorted(new.items()):
            identified = await self.ensure_id(topic, record)
            if identified is not None:
                context.put_topic(topic, identified)
                created += context.partitions_for_topic(topic)
        await self._machines.on_new_partition_creation(created)

    async def process_partition_modifications(self, topic: str) -> None:
        """Handles the hint that a topic's node was written."""
        context = self._context
        state = await self._machines.persistence.load(Hint(HintKind.TOPIC, topic=topic))
        record = state.topics.get(topic)
        if record is None or topic not in context.all_topics:
            return  # Added or removed: process_topic_change handles that.
        if not self._is_same(topic, record):
            await self.process_topic_change()
            return
        context.topic_incarnations[topic] = record.incarnation
        if record.topic_id != context.topic_ids[topic]:
            identified = await self.ensure_id(topic, record)
            if identified is None:
                return
            record = identified
        context.topic_versions[topic] = record.version
        added = record.assignment.keys() - context.partition_assignments[topic].keys()
        if not added:
            return
        if context.is_topic_queued_for_deletion(topic):
            await self._restore_assignment(topic, record, added)
            return
        assignment = {**context.partition_assignments[topic]}
        assignment.update((partition, record.assignment[partition]) for partition in added)
        self._put_partitions(topic, assignment, record.version)
        await self._machines.on_new_partition_creation(TopicPartition(topic, p) for p in added)

    async def ensure_id(self, topic: str, record: TopicRecord) -> TopicRecord | None:
        """Gives an id to a topic that lost its id or never had one.

        Tools older than topic ids drop the field when they rewrite a node. The id known for the
        same node is written back, otherwise a new one. Returns None if the topic is gone.
        """
        known = self._context.topic_ids.get(topic)
        for _ in range(MAX_ATTEMPTS):
            if record.topic_id is not None and known in (None, record.topic_id):
                return record
            change = AssignmentChanged(
                topic=topic,
                topic_id=known or self._sources.new_topic_id(),
                assignment=record.assignment,
                version=record.version,
            )
            outcome = await self._machines.commit([change])
            if outcome.committed:
                version = outcome.committed[0].version
                return replace(record, topic_id=change.topic_id, version=version)
            found = outcome.conflicts[0].found if outcome.conflicts else None
            if not isinstance(found, TopicRecord):
                return None
            record = found
        return None

    async def _restore_assignment(
        self, topic: str, record: TopicRecord, added: Iterable[int]
    ) -> None:
        logger.warning("topic %s is being deleted: partitions %s are not made", topic, set(added))
        await self._machines.commit(
            [
                AssignmentChanged(
                    topic=topic,
                    topic_id=self._context.topic_ids[topic],
                    assignment=self._context.partition_assignments[topic],
                    version=record.version,
                )
            ]
        )

    def _is_same(self, topic: str, record: TopicRecord) -> bool:
        """Whether a stored topic is the one in the context, not a later one of the same name."""
        incarnation = self._context.topic_incarnations.get(topic)
        if incarnation is not None:
            return incarnation == record.incarnation
        is_same = record.topic_id in (None, self._context.topic_ids[topic])
        if is_same:
            self._context.topic_incarnations[topic] = record.incarnation
        return is_same

    def _put_partitions(
        self, topic: str, assignment: Mapping[int, ReplicaAssignment], version: int
    ) -> None:
        for partition, replicas in assignment.items():
            self._context.update_partition_assignment(TopicPartition(topic, partition), replicas)
        self._context.topic_versions[topic] = version


def _created(change: TopicCreated, topic_id: uuid.UUID | None) -> TopicResult:
    return TopicResult(
        name=change.topic,
        topic_id=topic_id,
        assignment=change.assignment,
        configs=change.configs,
    )


def _code_of(error: Exception) -> ErrorCode:
    return error.code if isinstance(error, ApiError) else ErrorCode.UNKNOWN_SERVER_ERROR
