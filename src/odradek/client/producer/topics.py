"""The topics that a producer knows: their partitions and leaders.

A topic is known from the first record for it until it is unused for `metadata.max.idle.ms`.
Meanwhile the cluster is asked about it when its metadata is old, when a leader is missing, and when
a broker says that it is not the leader. New partitions get a queue; a partition that is gone keeps
its queue, which gets no more records and has no leader.

The numbers of a topic's partitions are forgotten with it. If it is used again, it needs an epoch
that it never had: `on_numbers_lost` is called. A topic with numbers that must not be lost stays.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final

from odradek.client.client import Client
from odradek.client.producer.accumulator import Accumulator, TopicQueues
from odradek.client.producer.availability import Availability
from odradek.client.producer.batch import PartitionQueue
from odradek.client.producer.config import ProducerOptions
from odradek.client.retry import Deadline
from odradek.errors import ApiError
from odradek.model import NO_LEADER, TopicPartition

__all__ = ["KnownTopics"]

logger = logging.getLogger(__name__)

_FOREVER_S: Final = float("inf")


class KnownTopics:
    """See the module's docstring. All methods are called on the loop.

    Args:
        lock: The producer's, which guards the state that `send` reads.
        start: Runs a coroutine as a task.
        look_soon: Called when a batch may be sent that could not be sent before.
        on_numbers_lost: Called when partitions that had numbers are forgotten.
        holds_numbers: Whether a partition has numbers that must not be lost.
    """

    def __init__(
        self,
        client: Client,
        options: ProducerOptions,
        accumulator: Accumulator,
        availability: Availability,
        *,
        lock: threading.Lock,
        start: Callable[[Coroutine[Any, Any, None]], object],
        look_soon: Callable[[], None],
        on_numbers_lost: Callable[[], None],
        holds_numbers: Callable[[PartitionQueue], bool],
    ) -> None:
        self._client = client
        self._options = options
        self._accumulator = accumulator
        self._availability = availability
        self._lock = lock
        self._start = start
        self._look_soon = look_soon
        self._on_numbers_lost = on_numbers_lost
        self._holds_numbers = holds_numbers
        self._loop = asyncio.get_running_loop()
        # Every topic that was used lately; the accumulator's are those open to `send`.
        self._topics: dict[str, TopicQueues] = {}
        self._is_refreshing = False
        self._due_s = self._loop.time() + options.metadata_max_age_ms / 1000

    # Look-ups

    def topic_id(self, name: str) -> bytes:
        """The id of a known topic; `NO_TOPIC_ID` if the brokers have none."""
        return self._topics[name].topic_id

    def leaders(self) -> list[int]:
        """Brokers that lead partitions of the topics in use."""
        return sorted(
            {
                queue.leader
                for topic in self._topics.values()
                for queue in topic.queues
                if queue.leader != NO_LEADER
            }
        )

    def spread_anew(self) -> None:
        """Lets records without a key use the partitions that `availability` allows now."""
        availability = self._availability
        with self._lock:
            for topic in self._topics.values():
                topic.available = availability.among(topic.queues)
                if topic.sticky is not None and topic.sticky.leader in availability.avoided:
                    topic.sticky = None  # The rest of its share goes to another partition.

    def open_all(self) -> None:
        """Opens the known topics to `send` again, after `Accumulator.hold`."""
        with self._lock:
            if not self._accumulator.is_closed:
                self._accumulator.is_held = False
                known = {name: topic for name, topic in self._topics.items() if topic.queues}
                self._accumulator.topics = known

    # Metadata requests

    async def know(self, name: str, deadline: Deadline) -> None:
        """Opens a topic to `send`.

        Raises:
            ApiError: No broker answers, or there is no such topic.
        """
        await self._client.topic(name, create=True, deadline=deadline)
        if name not in self._topics:
            self._topics[name] = TopicQueues(name, self._client.cluster.topic_id(name))
        self._topics[name].used_s = self._loop.time()
        self._learn()

    def look_at_age(self, now_s: float) -> float:
        """Forgets unused topics, and asks about the others in time; returns when to look again."""
        if now_s < self._due_s:
            return self._due_s if self._topics else _FOREVER_S
        self._due_s = now_s + self._options.metadata_max_age_ms / 1000
        self._forget_idle(now_s)
        if self._topics:
            self.refresh_soon()
        return self._due_s

    def _forget_idle(self, now_s: float) -> None:
        idle_s = self._options.metadata_max_idle_ms / 1000
        has_lost_numbers = False
        with self._lock:
            busy = {queue.topic for queue in self._accumulator.active}
            for name, topic in list(self._topics.items()):
                if name in busy or any(map(self._holds_numbers, topic.every)):
                    continue
                if now_s - topic.used_s >= idle_s:
                    self._accumulator.topics.pop(name, None)
                    del self._topics[name]
                    has_lost_numbers |= any(one.producer_id >= 0 for one in topic.every)
        if has_lost_numbers:
            self._on_numbers_lost()

    def forget_leader(self, queue: PartitionQueue, leader: int) -> None:
        """Asks for the leader of a partition that the broker does not lead."""
        self._client.forget_leader(TopicPartition(queue.topic, queue.partition), leader)
        queue.leader = NO_LEADER
        self.refresh_soon()

    def refresh_soon(self) -> None:
        """Asks until every partition that has something to send has a leader."""
        if not self._is_refreshing:
            self._is_refreshing = True
            self._start(self._refresh_until_led())

    async def _refresh_until_led(self) -> None:
        try:
            for pause_ms in self._client.pauses_ms():
                await self.refresh()
                self._look_soon()
                queues = list(self._accumulator.active)  # Concurrent calls of `send` add to it.
                if not any(queue.next_batch and queue.leader == NO_LEADER for queue in queues):
                    return
                await asyncio.sleep(pause_ms / 1000)
        finally:
            self._is_refreshing = False

    async def refresh(self) -> None:
        """Asks about every known topic once; a failure is logged."""
        deadline = self._client.deadline(self._options.request_timeout_ms)
        try:
            await self._client.refresh(sorted(self._topics), deadline)
        except ApiError as error:
            logger.warning("no metadata: %s", error)
        self._due_s = self._loop.time() + self._options.metadata_max_age_ms / 1000
        self._learn()

    # Metadata answers

    def _learn(self) -> None:
        cluster = self._client.cluster
        nodes = cluster.nodes
        has_moved = False
        for name, topic in self._topics.items():
            told = cluster.topics.get(name)
            if told is None:
                continue
            with self._lock:
                count = max(len(told.partitions), len(topic.queues))
                if topic.topic_id != told.topic_id:
                    _begin_anew(topic)
                    topic.topic_id = told.topic_id
                    count = len(told.partitions)
                self._set_partition_count(topic, count)
                queues = topic.queues
                for queue, view in zip(queues, told.partitions, strict=False):
                    leader = view.leader if view.leader in nodes else NO_LEADER
                    has_moved = has_moved or leader != queue.leader
                    queue.leader = leader
                topic.available = self._availability.among(queues)
                if not (self._accumulator.is_closed or self._accumulator.is_held):
                    self._accumulator.topics[name] = topic
        if has_moved:
            self._look_soon()  # The new leader may take batches that the old one could not.

    def _set_partition_count(self, topic: TopicQueues, count: int) -> None:
        every = topic.every
        for partition in range(len(every), count):
            queue = PartitionQueue(topic.topic, partition, self._options.max_batch_bytes)
            every.append(queue)
        if count != len(topic.queues):
            topic.queues = every[:count]
            if topic.sticky is not None and topic.sticky.partition >= count:
                topic.sticky = None
        for queue in every[count:]:  # Their remaining batches are given up when their time is over.
            queue.leader = NO_LEADER


def _begin_anew(topic: TopicQueues) -> None:
    """Handles another topic of the same name: no batch that was sent can be in it."""
    for queue in topic.every:
        queue.is_broken = True
        for batch in queue.unanswered:
            batch.is_maybe_stored = False
