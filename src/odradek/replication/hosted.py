"""The partitions that this broker hosts.

| state   | meaning                                                      | asking for it gives     |
|---------|--------------------------------------------------------------|-------------------------|
| none    | it has no replica here                                       | 6, 9 or 3, by metadata  |
| changed | its first role is being taken, which may block on the disk   | 6                       |
| online  | metadata gave it a role                                      | the partition           |
| offline | its log directory failed; only a restart repairs that        | 56                      |
"""

from collections.abc import Callable

from odradek.errors import ApiError, ErrorCode
from odradek.model import TopicPartition
from odradek.replication.fetch_values import FetchPartition
from odradek.replication.partition import Partition
from odradek.storage.directories.log_directory import LogDirectory

__all__ = ["HostedPartitions"]


class HostedPartitions:
    """Partitions by name; a look-up that fails raises the reason."""

    __slots__ = ("_broker_id", "_partitions", "being_changed", "by_topic", "get", "is_known")

    def __init__(self, broker_id: int) -> None:
        self._broker_id = broker_id
        # None marks a partition as offline.
        self._partitions: dict[TopicPartition, Partition | None] = {}
        # Partitions whose roles are being taken.
        self.being_changed: set[TopicPartition] = set()
        # The online partitions a second time, by topic and index: a request that names one
        # partition finds it without making a key.
        self.by_topic: dict[str, dict[int, Partition]] = {}
        # The partition if it is online. The map's own method, since every request calls it.
        self.get: Callable[[TopicPartition], Partition | None] = self._partitions.get
        # Whether metadata knows a partition, wherever it lives.
        self.is_known: Callable[[TopicPartition], bool] = lambda _tp: False

    def __len__(self) -> int:
        return len(self._partitions)

    def online(self) -> list[Partition]:
        """The partitions that are served."""
        return [partition for partition in self._partitions.values() if partition is not None]

    @property
    def offline_count(self) -> int:
        return sum(partition is None for partition in self._partitions.values())

    def is_offline(self, tp: TopicPartition) -> bool:
        return tp in self._partitions and self._partitions[tp] is None

    def topics(self) -> tuple[set[str], set[str]]:
        """Topics with a partition here, offline ones included; topics with a leader here."""
        led = {
            tp.topic
            for tp, partition in self._partitions.items()
            if partition is not None and partition.is_leader
        }
        return {tp.topic for tp in self._partitions}, led

    def add(self, partition: Partition) -> None:
        tp = partition.tp
        self._partitions[tp] = partition
        self.by_topic.setdefault(tp.topic, {})[tp.partition] = partition

    def remove(self, tp: TopicPartition) -> None:
        self._partitions.pop(tp, None)
        self._forget_online(tp)

    def mark_offline(self, tp: TopicPartition) -> None:
        self._partitions[tp] = None
        self._forget_online(tp)

    def _forget_online(self, tp: TopicPartition) -> None:
        partitions = self.by_topic.get(tp.topic, {})
        gone = partitions.pop(tp.partition, None)
        if gone is not None:
            gone.tell_watches()
        if not partitions:
            self.by_topic.pop(tp.topic, None)

    def mark_directory_offline(self, directory: LogDirectory) -> list[TopicPartition]:
        """Marks the partitions whose logs are in a directory; returns them."""
        lost = [
            partition.tp
            for partition in self.online()
            if partition.log is not None and partition.log.log_directory is directory
        ]
        for tp in lost:
            self.mark_offline(tp)
        return lost

    def find(self, tp: TopicPartition, *, expect_leader: bool = False) -> Partition:
        """The partition.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR if its directory failed, otherwise as in the module's
                table.
        """
        partition = self._partitions.get(tp)
        if partition is not None:
            return partition
        if tp in self._partitions:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{tp}: its log directory is offline")
        if tp in self.being_changed:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{tp}: its role is being taken")
        if self.is_known(tp):
            code = (
                ErrorCode.NOT_LEADER_OR_FOLLOWER
                if expect_leader
                else ErrorCode.REPLICA_NOT_AVAILABLE
            )
            raise ApiError(code, f"{tp} is not hosted by broker {self._broker_id}")
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{tp} does not exist here")

    def find_leader(self, tp: TopicPartition) -> Partition:
        """The partition for a request to its leader; whether it leads is checked on use."""
        return self.find(tp, expect_leader=True)

    def find_wanted(self, wanted: FetchPartition) -> Partition:
        """The partition that a fetch names.

        Raises:
            ApiError: It is not here, or another topic has its name.
        """
        partition = self._partitions.get(wanted.tp)
        if partition is None:
            # NOT_LEADER_OR_FOLLOWER to every reader: as Kafka since 2.6, so that it looks again.
            partition = self.find(wanted.tp, expect_leader=True)
        topic_id = wanted.topic_id
        if (
            topic_id is not None
            and partition.topic_id is not None
            and topic_id != partition.topic_id
        ):
            raise ApiError(
                ErrorCode.INCONSISTENT_TOPIC_ID,
                f"{wanted.tp} has topic id {partition.topic_id}, asked for {topic_id}",
            )
        return partition
