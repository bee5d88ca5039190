"""Partitions as coordinators see them: those of their internal topic, and where others end."""

from collections.abc import Callable, Mapping
from typing import Protocol

from odradek.errors import ApiError, ErrorCode
from odradek.metadata.delta import LocalDelta
from odradek.model import AppendOrigin, TopicPartition
from odradek.replication import ProduceResult, ReplicaManager
from odradek.storage.log.log import FetchIsolation, Log

__all__ = ["InternalPartitions", "LeadingAndResigning", "follow_leadership", "led_high_watermark"]


class LeadingAndResigning(Protocol):
    """A coordinator of an internal topic."""

    def lead(self, partition: int, leader_epoch: int) -> object: ...

    def resign(self, partition: int, leader_epoch: int | None) -> object: ...


def follow_leadership(
    coordinator: LeadingAndResigning, delta: LocalDelta, topic: str, broker_id: int
) -> None:
    """Makes a coordinator lead what this broker leads of its topic, and resign from the rest."""
    for hosted in delta.hosted:
        state = hosted.state
        if state.tp.topic != topic:
            continue
        if hosted.is_new:
            coordinator.resign(state.tp.partition, None)
        if state.leader == broker_id:
            coordinator.lead(state.tp.partition, state.leader_epoch)
        else:
            coordinator.resign(state.tp.partition, state.leader_epoch)
    for stopped in delta.stopped:
        if stopped.tp.topic == topic:
            is_gone = stopped.deletes_log or stopped.leader_epoch < 0
            epoch = None if is_gone else stopped.leader_epoch
            coordinator.resign(stopped.tp.partition, epoch)


def led_high_watermark(replicas: ReplicaManager, topic: str, partition: int) -> int | None:
    """The high watermark of any partition, if it is led here."""
    try:
        found = replicas.find_partition(TopicPartition(topic, partition))
    except ApiError:
        return None
    return found.log.high_watermark if found.is_leader and found.log is not None else None


class InternalPartitions:
    """One internal topic.

    Args:
        topic: Its name.
        replicas: Where its partitions are hosted, as far as they are.
        timeout_ms: How long an append may wait for other replicas.
        required_acks: What it waits for, as a producer's.
    """

    def __init__(
        self, topic: str, replicas: ReplicaManager, *, timeout_ms: int, required_acks: int = -1
    ) -> None:
        self._topic = topic
        self._replicas = replicas
        self._timeout_ms = timeout_ms
        self._required_acks = required_acks

    def try_append(self, partition: int, batch: bytearray) -> tuple[ErrorCode, int] | None:
        """Appends a batch if no other replica has to be waited for: (error, first offset)."""
        tp = TopicPartition(self._topic, partition)
        result = self._replicas.try_append_lone(tp, batch, AppendOrigin.COORDINATOR)
        return None if result is None else result[:2]

    def append(
        self, partition: int, batch: bytearray, respond: Callable[[ErrorCode, int], None]
    ) -> None:
        """Appends a batch; answers (error, first offset) when it is committed."""
        tp = TopicPartition(self._topic, partition)

        def on_appended(results: Mapping[TopicPartition, ProduceResult]) -> None:
            result = results[tp]
            respond(result.error, result.base_offset)

        self._replicas.append_records(
            timeout_ms=self._timeout_ms,
            required_acks=self._required_acks,
            internal_topics_allowed=True,
            origin=AppendOrigin.COORDINATOR,
            entries={tp: batch},
            respond=on_appended,
        )

    def start_offset(self, partition: int) -> int:
        """Raises:
        ApiError: there is no log here.
        """
        return self._find(partition).log_start_offset

    def end_offset(self, partition: int, leader_epoch: int) -> int:
        """The log's end; -1 unless this broker leads in that epoch."""
        try:
            found = self._replicas.find_partition(TopicPartition(self._topic, partition))
        except ApiError:
            return -1
        if found.log is None or not found.is_leader or found.leader_epoch != leader_epoch:
            return -1
        return found.log.log_end_offset

    def read(self, partition: int, offset: int, max_bytes: int) -> bytes:
        """Batches from the one with the offset on; at least one, whole.

        Raises:
            ApiError: there is no log here, or no such offset.
            StorageError: the disk failed.
        """
        log = self._find(partition)
        found = log.read(offset, max_bytes, FetchIsolation.LOG_END, min_one_message=True)
        try:
            return found.read()
        except OSError as error:
            raise log.fail("read", error) from error

    def _find(self, partition: int) -> Log:
        tp = TopicPartition(self._topic, partition)
        log = self._replicas.find_partition(tp).log
        if log is None:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{tp} has no log here")
        return log
