"""Meters of topics and replicas, under Kafka's names."""

from odradek.errors import (
    ApiError,
    CorruptRecordError,
    ErrorCode,
    InvalidRecordError,
    StorageError,
)
from odradek.metrics import Meter, MetricRegistry
from odradek.metrics.names import MetricName
from odradek.model import TopicPartition
from odradek.records.batch import CURRENT_MAGIC, MAGIC_POSITION, Buffer
from odradek.storage.log.expansion import ExpansionDeferredError

__all__ = ["ReplicationStats", "TopicStats"]

_DOMAIN, _TYPE = "kafka.server", "BrokerTopicMetrics"

# Errors of clients and passing conditions are no failures of the broker.
_EXPECTED_PRODUCE_ERRORS = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)

_METERS = {
    "messages_in": "MessagesInPerSec",
    "bytes_in": "BytesInPerSec",
    "bytes_out": "BytesOutPerSec",
    "bytes_rejected": "BytesRejectedPerSec",
    "failed_produce_requests": "FailedProduceRequestsPerSec",
    "failed_fetch_requests": "FailedFetchRequestsPerSec",
    "total_produce_requests": "TotalProduceRequestsPerSec",
    "total_fetch_requests": "TotalFetchRequestsPerSec",
    "fetch_message_conversions": "FetchMessageConversionsPerSec",
    "produce_message_conversions": "ProduceMessageConversionsPerSec",
    "no_key_records": "NoKeyCompactedTopicRecordsPerSec",
    "invalid_magic_records": "InvalidMagicNumberRecordsPerSec",
    "invalid_crc_records": "InvalidMessageCrcRecordsPerSec",
    "invalid_offset_records": "InvalidOffsetOrSequenceRecordsPerSec",
}

# Followers are read, too: these stay where a topic is followed.
_READ_METERS = frozenset(
    {
        "BytesOutPerSec",
        "FailedFetchRequestsPerSec",
        "FetchMessageConversionsPerSec",
        "TotalFetchRequestsPerSec",
    }
)


class TopicStats:
    """The traffic of one topic; each count is added to that of all topics, too.

    The methods of the hot path add to the meters' counts themselves, which is all `mark` does.
    """

    __slots__ = (*_METERS, "_all", "_tags")

    messages_in: Meter
    bytes_in: Meter
    bytes_out: Meter
    bytes_rejected: Meter
    failed_produce_requests: Meter
    failed_fetch_requests: Meter
    total_produce_requests: Meter
    total_fetch_requests: Meter
    fetch_message_conversions: Meter
    produce_message_conversions: Meter
    no_key_records: Meter
    invalid_magic_records: Meter
    invalid_crc_records: Meter
    invalid_offset_records: Meter

    def __init__(
        self, registry: MetricRegistry, topic: str | None, all_: "TopicStats | None"
    ) -> None:
        self._tags = () if topic is None else (("topic", topic),)
        for attribute, name in _METERS.items():
            setattr(self, attribute, registry.meter(self._name(name)))
        self._all = all_ or self

    def _name(self, name: str) -> MetricName:
        return MetricName(_DOMAIN, _TYPE, name, self._tags)

    def remove_writes_from(self, registry: MetricRegistry) -> None:
        """Removes the meters of writes from the registry; further counts of these are lost."""
        for name in _METERS.values():
            if name not in _READ_METERS:
                registry.remove(self._name(name))

    def _mark(self, attribute: str, count: int = 1) -> None:
        getattr(self, attribute).mark(count)
        if self._all is not self:
            getattr(self._all, attribute).mark(count)

    def count_refused(self) -> None:
        """Counts a produce of which nothing was stored."""
        self.total_produce_requests.count += 1
        all_ = self._all
        if all_ is not self:
            all_.total_produce_requests.count += 1

    def count_append(self, size: int, message_count: int) -> None:
        """Counts a produce whose batches were stored."""
        self.total_produce_requests.count += 1
        self.bytes_in.count += size
        self.messages_in.count += message_count
        all_ = self._all
        if all_ is not self:
            all_.total_produce_requests.count += 1
            all_.bytes_in.count += size
            all_.messages_in.count += message_count

    def count_fetch(self) -> None:
        """Counts a fetch."""
        self.total_fetch_requests.count += 1
        all_ = self._all
        if all_ is not self:
            all_.total_fetch_requests.count += 1

    def count_bytes_out(self, size: int) -> None:
        """Counts bytes sent to a consumer."""
        self.bytes_out.count += size
        all_ = self._all
        if all_ is not self:
            all_.bytes_out.count += size

    def count_rejected(self, size: int) -> None:
        """Counts the bytes of a set that was refused because one of its batches is too large."""
        self._mark("bytes_rejected", size)

    def count_failed_fetch(self) -> None:
        """Counts a read that failed with an unexpected error."""
        self._mark("failed_fetch_requests")

    def count_refusal(self, error: Exception, records: Buffer) -> None:
        """Counts an append that was refused or failed, by its error."""
        if isinstance(error, ExpansionDeferredError):
            return  # The append is tried again and counted then.
        self.count_refused()
        if isinstance(error, CorruptRecordError):
            self._mark("invalid_crc_records")
        elif isinstance(error, InvalidRecordError):
            if len(records) > MAGIC_POSITION and records[MAGIC_POSITION] != CURRENT_MAGIC:
                self._mark("invalid_magic_records")
            elif error.record_errors:
                self._mark("no_key_records", len(error.record_errors))
            else:
                self._mark("invalid_offset_records")
        is_expected = isinstance(error, StorageError) or (
            isinstance(error, ApiError) and error.code in _EXPECTED_PRODUCE_ERRORS
        )
        if not is_expected:
            self._mark("failed_produce_requests")


class ReplicationStats:
    """The meters of all topics, and of the replicas of this broker."""

    def __init__(self, registry: MetricRegistry) -> None:
        self.registry = registry
        self.all_topics = TopicStats(registry, None, None)
        self._topics: dict[str, TopicStats] = {}
        topics = registry.group(_DOMAIN, _TYPE)
        self.replication_bytes_in = topics.meter("ReplicationBytesInPerSec")
        self.replication_bytes_out = topics.meter("ReplicationBytesOutPerSec")
        self.reassignment_bytes_in = topics.meter("ReassignmentBytesInPerSec")
        self.reassignment_bytes_out = topics.meter("ReassignmentBytesOutPerSec")
        replicas = registry.group("kafka.server", "ReplicaManager")
        self.isr_shrinks = replicas.meter("IsrShrinksPerSec")
        self.isr_expands = replicas.meter("IsrExpandsPerSec")
        self.failed_isr_updates = replicas.meter("FailedIsrUpdatesPerSec")
        self._delayed_produce = registry.group("kafka.server", "DelayedProduceMetrics")
        self._produce_expired = self._delayed_produce.meter("ExpiresPerSec")
        delayed_fetch = registry.group("kafka.server", "DelayedFetchMetrics")
        self._consumer_fetch_expired = delayed_fetch.meter("ExpiresPerSec", fetcherType="consumer")
        self._follower_fetch_expired = delayed_fetch.meter("ExpiresPerSec", fetcherType="follower")

    def topic(self, name: str) -> TopicStats:
        """The meters of a topic that this broker hosts.

        Never for a topic that a client only names: the number of such names is unlimited.
        """
        stats = self._topics.get(name)
        if stats is None:
            stats = self._topics[name] = TopicStats(self.registry, name, self.all_topics)
        return stats

    def remove_leader_meters(self, topic: str) -> None:
        """Removes the meters that only a leader of the topic's partitions counts."""
        stats = self._topics.pop(topic, None)
        if stats is not None:
            stats.remove_writes_from(self.registry)

    def remove_topic(self, name: str) -> None:
        """Removes all metrics of a topic that is gone from this broker."""
        self._topics.pop(name, None)
        self.registry.remove_tagged("topic", name)

    def mark_produce_expired(self, tp: TopicPartition) -> None:
        self._produce_expired.mark()
        self._delayed_produce.meter(
            "ExpiresPerSec", topic=tp.topic, partition=str(tp.partition)
        ).mark()

    def mark_fetch_expired(self, is_from_follower: bool) -> None:
        meter = self._follower_fetch_expired if is_from_follower else self._consumer_fetch_expired
        meter.mark()
