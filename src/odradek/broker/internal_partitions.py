"""Partitions for coordinators: those of their internal topic, and the ends of others."""

from collections.abc import Mapping

from odradek.coordinator.writing import OnAppended, OnCommitted
from odradek.errors import ApiError, ErrorCode
from odradek.model import AppendOrigin, TopicPartition
from odradek.replication import ProduceResult, ReplicaManager
from odradek.storage.log.log import Log
from odradek.storage.log.reader import FetchIsolation

__all__ = ["InternalPartitions", "led_high_watermark"]


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
        replicas: Hosts its partitions.
        timeout_ms: How long an append may wait for other replicas.
        required_acks: The acks of an append, as a producer's.
    """

    def __init__(
        self, topic: str, replicas: ReplicaManager, *, timeout_ms: int, required_acks: int = -1
    ) -> None:
        self._topic = topic
        self._replicas = replicas
        self._timeout_ms = timeout_ms
        self._required_acks = required_acks

    def try_append(
        self, partition: int, leader_epoch: int, batch: bytearray
    ) -> tuple[ErrorCode, int] | None:
        """Appends a batch if there is no replica to wait for; returns (error, first offset)."""
        tp = TopicPartition(self._topic, partition)
        result = self._replicas.appends.try_append_unreplicated(
            tp, batch, AppendOrigin.COORDINATOR, leader_epoch
        )
        return None if result is None else result[:2]

    def append(
        self,
        partition: int,
        leader_epoch: int,
        batch: bytearray,
        on_committed: OnCommitted,
        on_appended: OnAppended | None = None,
    ) -> None:
        """Appends a batch if this broker leads in that epoch; see `InternalTopic`."""
        tp = TopicPartition(self._topic, partition)
        found = self._replicas.find_online(self._topic, partition)
        if found is not None and found.leader_epoch != leader_epoch:
            on_committed(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
            return
        is_local = False

        def on_local(result: ProduceResult) -> None:
            nonlocal is_local
            if not is_local and on_appended is not None and result.base_offset >= 0:
                on_appended(result.base_offset)
            is_local = True

        def on_result(results: Mapping[TopicPartition, ProduceResult]) -> None:
            result = results[tp]
            on_local(result)
            on_committed(result.error, result.base_offset)

        results = self._replicas.appends.append_records(
            timeout_ms=self._timeout_ms,
            required_acks=self._required_acks,
            internal_topics_allowed=True,
            origin=AppendOrigin.COORDINATOR,
            entries={tp: batch},
            respond=on_result,
        )
        on_local(results[tp])

    def start_offset(self, partition: int) -> int:
        """The log's start.

        Raises:
            ApiError: There is no log here.
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
            ApiError: There is no log here, or no such offset.
            StorageError: The disk failed.
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
