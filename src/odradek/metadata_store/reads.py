"""Reads of the controller's state from a coordination store, and hints when it changes.

Every read leaves a watch, so a change after it becomes a hint; the handler of the hint reads again
and leaves the next watch. A watch fires for any change, our own writes included, and does not say
which.

A topic that was read stays in a cache until its watch fires: until then the node is unchanged. So a
search for new topics reads only the new ones, however many topics exist.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from odradek.coordination.nodes import (
    BrokerNode,
    PartitionStateNode,
    parse_config,
    parse_log_dir_event,
    parse_partitions,
    parse_reassignments,
)
from odradek.coordination.paths import (
    BROKER_IDS,
    BROKER_TOPICS,
    DELETE_TOPICS,
    ISR_CHANGES,
    LOG_DIR_EVENTS,
    PREFERRED_REPLICA_ELECTION,
    REASSIGN_PARTITIONS,
    ConfigNodeType,
    broker_path,
    config_path,
    partition_state_path,
    topic_path,
)
from odradek.coordination.store import ANY_VERSION, CoordinationStore, Watch, WatchEvent
from odradek.errors import BadNodeData, NoNode
from odradek.metadata.image import LiveBroker
from odradek.metadata.ports import (
    ControllerState,
    Fence,
    Hint,
    HintKind,
    PartitionRecord,
    RegisteredBroker,
    TopicRecord,
)
from odradek.metadata_store.writes import topic_record
from odradek.model import TopicPartition

__all__ = ["StoreReader"]

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

MAX_PIPELINED = 200  # Reads in flight at a time.


class StoreReader:
    """Reads the state a controller needs, and arms the watches.

    Args:
        store: The session.
        on_hint: Called with what may have changed; it only enqueues.
    """

    def __init__(self, store: CoordinationStore, on_hint: Callable[[Hint], None]) -> None:
        self._store = store
        self._on_hint = on_hint
        # One function per hint: armed twice before it fires, a watch counts once.
        self._watches: dict[Hint, Watch] = {}
        self._topics: dict[str, TopicRecord] = {}  # Whose watch has not fired.

    def forget(self) -> None:
        """Drops the cache, which relies on watches of a session that is over."""
        self._topics.clear()
        self._watches.clear()

    async def load_all(self, fence: Fence) -> ControllerState:
        """Reads all state. Pending notifications are deleted unread: this read covers them."""
        await self._consume(ISR_CHANGES, HintKind.ISR_CHANGES, fence)
        await self._consume(LOG_DIR_EVENTS, HintKind.LOG_DIR_FAILURES, fence)
        brokers = await self._brokers()
        topics = await self._all_topics()
        partitions = await self._partitions(
            TopicPartition(topic, partition)
            for topic, record in topics.items()
            for partition in record.assignment
        )
        return ControllerState(
            brokers=brokers,
            topics=topics,
            partitions=partitions,
            deletions=await self._deletions(),
            reassignments=await self._reassignments(),
            preferred_elections=await self._preferred_elections(fence),
        )

    async def load(self, hint: Hint, fence: Fence) -> ControllerState:
        """Reads the part of the state that a hint is about."""
        match hint.kind:
            case HintKind.BROKERS:
                return ControllerState(brokers=await self._brokers())
            case HintKind.BROKER:
                assert hint.broker_id is not None
                return ControllerState(brokers=await self._some_brokers([hint.broker_id]))
            case HintKind.TOPICS:
                return ControllerState(topics=await self._all_topics())
            case HintKind.TOPIC:
                assert hint.topic is not None
                return await self._one_topic(hint.topic)
            case HintKind.PARTITION:
                assert hint.topic is not None
                assert hint.partition is not None
                tp = TopicPartition(hint.topic, hint.partition)
                return ControllerState(partitions=await self._watched_partition(tp, hint))
            case HintKind.DELETIONS:
                return ControllerState(deletions=await self._deletions())
            case HintKind.REASSIGNMENTS:
                return ControllerState(reassignments=await self._reassignments())
            case HintKind.PREFERRED_ELECTION:
                elections = await self._preferred_elections(fence)
                return ControllerState(preferred_elections=elections)
            case HintKind.ISR_CHANGES:
                return await self._isr_changes(fence)
            case HintKind.LOG_DIR_FAILURES:
                return await self._log_dir_failures(fence)

    # Brokers

    async def _brokers(self) -> dict[int, RegisteredBroker]:
        names, _ = await self._store.children(BROKER_IDS, self._watch(Hint(HintKind.BROKERS)))
        return await self._some_brokers(sorted(int(name) for name in names if name.isdecimal()))

    async def _some_brokers(self, broker_ids: Iterable[int]) -> dict[int, RegisteredBroker]:
        found = await self._pipelined(broker_ids, self._broker)
        return {item.broker.id: item for item in found if item is not None}

    async def _broker(self, broker_id: int) -> RegisteredBroker | None:
        path = broker_path(broker_id)
        try:
            data, stat = await self._store.get(
                path, self._watch(Hint(HintKind.BROKER, broker_id=broker_id))
            )
            node = BrokerNode.parse(data)
        except NoNode:
            return None
        except BadNodeData as error:
            logger.warning("%s is ignored: %s", path, error)
            return None
        return RegisteredBroker(LiveBroker(broker_id, node.endpoints, node.rack), stat.czxid)

    # Topics and partitions

    async def _all_topics(self) -> dict[str, TopicRecord]:
        names, _ = await self._store.children(BROKER_TOPICS, self._watch(Hint(HintKind.TOPICS)))
        unread = [name for name in names if name not in self._topics]
        await self._pipelined(unread, self._topic)
        return {name: self._topics[name] for name in names if name in self._topics}

    async def _one_topic(self, topic: str) -> ControllerState:
        self._topics.pop(topic, None)
        record = await self._topic(topic)
        if record is None:
            return ControllerState()
        return ControllerState(topics={topic: record}, topic_configs=await self._configs(topic))

    async def _topic(self, topic: str) -> TopicRecord | None:
        path = topic_path(topic)
        try:
            data, stat = await self._store.get(path, self._watch(Hint(HintKind.TOPIC, topic=topic)))
            record = self._topics[topic] = topic_record(data, stat)
        except NoNode:
            return None
        except BadNodeData as error:
            logger.warning("%s is ignored: %s", path, error)
            return None
        return record

    async def _configs(self, topic: str) -> dict[str, dict[str, str]]:
        path = config_path(ConfigNodeType.TOPIC, topic)
        try:
            data, _ = await self._store.get(path)
            return {topic: parse_config(data)}
        except NoNode:
            return {topic: {}}
        except BadNodeData as error:
            logger.warning("%s is ignored: %s", path, error)
            return {}

    async def _partitions(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, PartitionRecord]:
        wanted = list(partitions)
        found = await self._pipelined(wanted, self._partition)
        records = zip(wanted, found, strict=True)
        return {tp: record for tp, record in records if record is not None}

    async def _watched_partition(
        self, tp: TopicPartition, hint: Hint
    ) -> dict[TopicPartition, PartitionRecord]:
        record = await self._partition(tp, self._watch(hint))
        return {} if record is None else {tp: record}

    async def _partition(
        self, tp: TopicPartition, watch: Watch | None = None
    ) -> PartitionRecord | None:
        path = partition_state_path(tp)
        try:
            data, stat = await self._store.get(path, watch)
            node = PartitionStateNode.parse(data, stat.version)
        except NoNode:
            return None
        except BadNodeData as error:
            logger.warning("%s is ignored: %s", path, error)
            return None
        return PartitionRecord(node.leader_and_isr, node.controller_epoch)

    # Requests that stand in nodes

    async def _deletions(self) -> frozenset[str]:
        names, _ = await self._store.children(DELETE_TOPICS, self._watch(Hint(HintKind.DELETIONS)))
        return frozenset(names)

    async def _reassignments(self) -> dict[TopicPartition, tuple[int, ...]]:
        data = await self._request(REASSIGN_PARTITIONS, HintKind.REASSIGNMENTS)
        try:
            return {} if data is None else parse_reassignments(data)
        except BadNodeData as error:
            logger.warning("%s is ignored: %s", REASSIGN_PARTITIONS, error)
            return {}

    async def _preferred_elections(self, fence: Fence) -> frozenset[TopicPartition]:
        data = await self._request(PREFERRED_REPLICA_ELECTION, HintKind.PREFERRED_ELECTION)
        if data is None:
            return frozenset()
        try:
            partitions = frozenset(parse_partitions(data))
        except BadNodeData as error:
            logger.warning("%s is ignored: %s", PREFERRED_REPLICA_ELECTION, error)
            partitions = frozenset()
        await self._delete(PREFERRED_REPLICA_ELECTION, fence)
        return partitions

    async def _request(self, path: str, kind: HintKind) -> bytes | None:
        """The data of a node that exists only while a request is pending; None: there is none."""
        if await self._store.exists(path, self._watch(Hint(kind))) is None:
            return None
        try:
            data, _ = await self._store.get(path)
        except NoNode:
            return None
        return data

    # Notifications

    async def _isr_changes(self, fence: Fence) -> ControllerState:
        changed: set[TopicPartition] = set()
        for path, data in await self._consume(ISR_CHANGES, HintKind.ISR_CHANGES, fence):
            try:
                changed.update(parse_partitions(data))
            except BadNodeData as error:
                logger.warning("%s is ignored: %s", path, error)
        partitions = await self._partitions(sorted(changed))
        return ControllerState(isr_changes=frozenset(changed), partitions=partitions)

    async def _log_dir_failures(self, fence: Fence) -> ControllerState:
        brokers: set[int] = set()
        for path, data in await self._consume(LOG_DIR_EVENTS, HintKind.LOG_DIR_FAILURES, fence):
            try:
                brokers.add(parse_log_dir_event(data))
            except BadNodeData as error:
                logger.warning("%s is ignored: %s", path, error)
        return ControllerState(log_dir_failures=frozenset(brokers))

    async def _consume(
        self, parent: str, kind: HintKind, fence: Fence
    ) -> list[tuple[str, bytes | None]]:
        """Reads all notifications, then deletes them, malformed ones included.

        All are read before the first is deleted: a failure leaves all of them, or has read all.
        """
        names, _ = await self._store.children(parent, self._watch(Hint(kind)))
        paths = [f"{parent}/{name}" for name in names]
        found = await self._pipelined(paths, self._notification)
        await self._pipelined(paths, lambda path: self._delete(path, fence))
        return [item for item in found if item is not None]

    async def _notification(self, path: str) -> tuple[str, bytes | None] | None:
        try:
            data, _ = await self._store.get(path)
        except NoNode:
            return None
        return path, data

    async def _delete(self, path: str, fence: Fence) -> None:
        try:
            await self._store.delete(path, ANY_VERSION, fence=fence)
        except NoNode:
            return

    # Watches

    def _watch(self, hint: Hint) -> Watch:
        watch = self._watches.get(hint)
        if watch is None:

            def fired(_event: WatchEvent) -> None:
                if hint.kind is HintKind.TOPIC and hint.topic is not None:
                    self._topics.pop(hint.topic, None)
                self._watches.pop(hint, None)
                self._on_hint(hint)

            watch = self._watches[hint] = fired
        return watch

    async def _pipelined(
        self, items: Iterable[TopicPartition | str | int], read: Callable[..., Awaitable[_T]]
    ) -> list[_T]:
        wanted: Sequence[TopicPartition | str | int] = list(items)
        results: list[_T] = []
        for start in range(0, len(wanted), MAX_PIPELINED):
            portion = wanted[start : start + MAX_PIPELINED]
            # All end before the first error is raised: none goes on beside the next event.
            outcomes = await asyncio.gather(
                *(read(item) for item in portion), return_exceptions=True
            )
            for outcome in outcomes:
                if isinstance(outcome, BaseException):
                    raise outcome
                results.append(outcome)
        return results
