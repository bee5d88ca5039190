"""The limits on the bytes of replication: what a leader sends, and what a follower fetches.

A reassignment copies whole partitions. So that it leaves room for clients, an operator names
replicas in settings of their topics and a rate in settings of brokers; each side keeps its own::

    leader.replication.throttled.replicas   = 0:1,3:1   partition:broker, or *
    leader.replication.throttled.rate       = 10000000  bytes per second, all of them together

The bytes of named replicas count, and while their rate is above the limit, a replica that is named
gets no records. **Replicas in sync are never held back** (05 section 4): they count, but to slow
them down would shrink the ISR, and with it every producer. A leader answers the others without
records, after the wait of the fetch; a follower leaves them out of its next request.

Example, limit 1000/s with 11 samples of a second: 10,000 bytes at once are a rate of 1000/s, which
is allowed; 5,000 more are a rate of 1500/s. The replicas are held back until the first sample is 11
seconds old and dropped.
"""

from collections.abc import Callable, Container
from typing import Final

from odradek.clock import Clock
from odradek.metrics import MetricRegistry
from odradek.model import TopicPartition
from odradek.network.rate import SampledRate

__all__ = ["UNLIMITED", "ReplicationThrottle"]

# The limit that limits nothing.
UNLIMITED: Final = 2**63 - 1
_EVERY_REPLICA: Final = ("*",)
# Topics whose replicas are kept parsed; the cache is cleared beyond.
_MOST_TOPICS: Final = 10_000


class ReplicationThrottle:
    """One direction of replication on one broker.

    Args:
        broker_id: This broker.
        named_replicas: The setting of a topic.
        clock: For the rate.
        sample_count: replication.quota.window.num.
        sample_s: replication.quota.window.size.seconds.
    """

    __slots__ = ("_broker_id", "_clock", "_named_replicas", "_parsed", "_rate", "bytes_per_second")

    def __init__(
        self,
        broker_id: int,
        named_replicas: Callable[[str], tuple[str, ...]],
        clock: Clock,
        *,
        sample_count: int = 11,
        sample_s: int = 1,
    ) -> None:
        self.bytes_per_second = UNLIMITED
        self._broker_id = broker_id
        self._named_replicas = named_replicas
        self._clock = clock
        self._rate = SampledRate(count=sample_count, sample_ms=sample_s * 1000)
        # By topic: the setting, and the partitions whose replica here it names; None: all.
        self._parsed: dict[str, tuple[tuple[str, ...], Container[int] | None]] = {}

    def register(self, metrics: MetricRegistry, type_name: str) -> None:
        """Shows the rate."""
        metrics.group("kafka.server", type_name).gauge(
            "byte-rate", self.per_second, "Bytes per second of throttled replicas."
        )

    @property
    def is_limited(self) -> bool:
        """Whether there is a limit; without one nothing else needs to be asked."""
        return self.bytes_per_second != UNLIMITED

    def is_named(self, tp: TopicPartition) -> bool:
        """Whether the replica here is one of those that are limited."""
        named = self._named_replicas(tp.topic)
        if not named:
            return False
        known = self._parsed.get(tp.topic)
        if known is None or known[0] is not named:
            if len(self._parsed) >= _MOST_TOPICS:
                self._parsed.clear()
            known = self._parsed[tp.topic] = (named, _partitions_of(self._broker_id, named))
        return known[1] is None or tp.partition in known[1]

    def holds_back(self, tp: TopicPartition, *, is_in_sync: bool) -> bool:
        """Whether no records of a replica may travel now."""
        return self.is_limited and not is_in_sync and self.is_named(tp) and self.is_exceeded()

    def is_exceeded(self) -> bool:
        """Whether the rate is above the limit."""
        return self.per_second() > self.bytes_per_second

    def per_second(self) -> float:
        """The bytes per second of the named replicas."""
        return self._rate.per_second(self._clock.monotonic_ms())

    def count(self, tp: TopicPartition, size: int) -> None:
        """Counts bytes that have travelled, if the replica is a named one."""
        if size and self.is_named(tp):
            self._rate.record(size, self._clock.monotonic_ms())


def _partitions_of(broker_id: int, named: tuple[str, ...]) -> Container[int] | None:
    if named == _EVERY_REPLICA:
        return None
    pairs = (pair.split(":") for pair in named)
    return frozenset(int(partition) for partition, broker in pairs if int(broker) == broker_id)
