"""Meters of topics and replicas, under Kafka's names."""

from odradek.errors import ErrorCode
from odradek.metrics import MetricRegistry
from odradek.model import TopicPartition

__all__ = ["ReplicationStats", "TopicStats"]

_DOMAIN, _TYPE = "kafka.server", "BrokerTopicMetrics"


class TopicStats:
    """What one topic takes in and gives out; every mark counts for all topics, too."""

    __slots__ = (
        "_all",
        "bytes_in",
        "bytes_out",
        "bytes_rejected",
        "failed_fetch_requests",
        "failed_produce_requests",
        "messages_in",
        "total_fetch_requests",
        "total_produce_requests",
    )

    def __init__(
        self, registry: MetricRegistry, topic: str | None, all_: "TopicStats | None"
    ) -> None:
        tags = {} if topic is None else {"topic": topic}
        group = registry.group(_DOMAIN, _TYPE, **tags)
        self.messages_in = group.meter("MessagesInPerSec")
        self.bytes_in = group.meter("BytesInPerSec")
        self.bytes_out = group.meter("BytesOutPerSec")
        self.bytes_rejected = group.meter("BytesRejectedPerSec")
        self.failed_produce_requests = group.meter("FailedProduceRequestsPerSec")
        self.failed_fetch_requests = group.meter("FailedFetchRequestsPerSec")
        self.total_produce_requests = group.meter("TotalProduceRequestsPerSec")
        self.total_fetch_requests = group.meter("TotalFetchRequestsPerSec")
        self._all = all_

    def count_append(self, size: int, message_count: int) -> None:
        """Batches were stored."""
        self.bytes_in.mark(size)
        self.messages_in.mark(message_count)
        if self._all is not None:
            self._all.bytes_in.mark(size)
            self._all.messages_in.mark(message_count)

    def count_refusal(self, code: ErrorCode) -> None:
        """Batches were refused; what a client did wrong is no failure of the broker."""
        if code is ErrorCode.UNKNOWN_SERVER_ERROR:
            self.failed_produce_requests.mark()


class ReplicationStats:
    """The meters of all topics."""

    def __init__(self, registry: MetricRegistry) -> None:
        self._registry = registry
        self.all_topics = TopicStats(registry, None, None)
        self._topics: dict[str, TopicStats] = {}
        replicas = registry.group("kafka.server", "ReplicaManager")
        self.isr_shrinks = replicas.meter("IsrShrinksPerSec")
        self.isr_expands = replicas.meter("IsrExpandsPerSec")
        self.failed_isr_updates = replicas.meter("FailedIsrUpdatesPerSec")
        self._produce_expired = registry.group("kafka.server", "DelayedProduceMetrics").meter(
            "ExpiresPerSec"
        )
        self._consumer_fetch_expired = registry.group(
            "kafka.server", "DelayedFetchMetrics", fetcherType="consumer"
        ).meter("ExpiresPerSec")
        self._follower_fetch_expired = registry.group(
            "kafka.server", "DelayedFetchMetrics", fetcherType="follower"
        ).meter("ExpiresPerSec")

    def topic(self, name: str) -> TopicStats:
        """The meters of one topic."""
        stats = self._topics.get(name)
        if stats is None:
            stats = self._topics[name] = TopicStats(self._registry, name, self.all_topics)
        return stats

    def remove_topic(self, name: str) -> None:
        """Forgets a topic that is gone from this broker."""
        if self._topics.pop(name, None) is not None:
            self._registry.remove_tagged("topic", name)

    def mark_produce_expired(self, _tp: TopicPartition) -> None:
        self._produce_expired.mark()

    def mark_fetch_expired(self, is_from_follower: bool) -> None:
        meter = self._follower_fetch_expired if is_from_follower else self._consumer_fetch_expired
        meter.mark()
