"""The recent use of each bucket of a quota, in bounded memory, and its metrics."""

import heapq
from typing import Final

from odradek.broker.quotas.entities import Bucket
from odradek.broker.quotas.token_bucket import TokenBucket
from odradek.clock import Clock
from odradek.metrics import MetricGroup, MetricRegistry
from odradek.network.rate import SampledRate

__all__ = ["BUCKET_LIFETIME_MS", "MAX_BUCKETS", "Usage", "UsageTable"]

# A bucket that was not used for that long is dropped.
BUCKET_LIFETIME_MS: Final = 3_600_000

# Clients choose their ids; beyond that many buckets the least recently used one is dropped.
MAX_BUCKETS: Final = 10_000


class Usage:
    """The use of one bucket."""

    __slots__ = ("last_used_ms", "rate", "throttle_counts", "throttle_times", "tokens")

    def __init__(self, *, window_count: int, window_size_s: int) -> None:
        def sampled() -> SampledRate:
            return SampledRate(count=window_count, sample_ms=window_size_s * 1000)

        self.rate = sampled()
        # Sum and number of the throttles; their quotient is the mean.
        self.throttle_times = sampled()
        self.throttle_counts = sampled()
        self.last_used_ms = 0
        # The remaining tokens, if the quota is one of tokens.
        self.tokens: TokenBucket | None = None

    def mean_throttle_ms(self, now_ms: int) -> float:
        count = self.throttle_counts.per_second(now_ms)
        return self.throttle_times.per_second(now_ms) / count if count > 0 else 0.0


class UsageTable:
    """The buckets of one quota.

    Args:
        metrics: Gets the metrics of each bucket, under the quota's Kafka type.
        type_name: That type, for example Produce.
        rate_name: The name of the rate's metric.
    """

    __slots__ = (
        "_clock",
        "_metrics",
        "_rate_name",
        "_throttled_until",
        "_type_name",
        "_usages",
        "_window_count",
        "_window_size_s",
    )

    def __init__(
        self,
        *,
        window_count: int,
        window_size_s: int,
        clock: Clock,
        metrics: MetricRegistry,
        type_name: str,
        rate_name: str,
    ) -> None:
        self._window_count = window_count
        self._window_size_s = window_size_s
        self._clock = clock
        self._metrics = metrics
        self._type_name = type_name
        self._rate_name = rate_name
        # Least recently used first.
        self._usages: dict[Bucket, Usage] = {}
        # Heap of the times at which throttles end. Invariant: ended ones leave with the next entry.
        self._throttled_until: list[int] = []
        metrics.group("kafka.server", type_name).gauge(
            "queue-size", self._throttled_count, "Requests whose connection is throttled."
        )

    def __len__(self) -> int:
        return len(self._usages)

    def get(self, bucket: Bucket, now_ms: int) -> Usage:
        """The bucket's usage, empty if it is new."""
        usages = self._usages
        usage = usages.pop(bucket, None)
        if usage is None:
            usage = self._make(bucket)
        usages[bucket] = usage
        usage.last_used_ms = now_ms
        return usage

    def find(self, bucket: Bucket) -> Usage | None:
        return self._usages.get(bucket)

    def note_throttle(self, usage: Usage, throttle_ms: int, now_ms: int) -> None:
        """Remembers, for the metrics, that a request has to wait."""
        usage.throttle_times.record(throttle_ms, now_ms)
        usage.throttle_counts.record(1, now_ms)
        if throttle_ms > 0:
            self._drop_ended(now_ms)
            heapq.heappush(self._throttled_until, now_ms + throttle_ms)

    def expire(self, now_ms: int) -> None:
        """Drops the buckets that were not used for an hour."""
        expired: list[Bucket] = []
        for bucket, usage in self._usages.items():
            if now_ms - usage.last_used_ms < BUCKET_LIFETIME_MS:
                break
            expired.append(bucket)
        for bucket in expired:
            self._drop(bucket)

    def _make(self, bucket: Bucket) -> Usage:
        if len(self._usages) >= MAX_BUCKETS:
            self._drop(next(iter(self._usages)))
        usage = Usage(window_count=self._window_count, window_size_s=self._window_size_s)
        clock = self._clock
        group = self._group(bucket)
        group.gauge(self._rate_name, lambda: usage.rate.per_second(clock.monotonic_ms()))
        group.gauge("throttle-time", lambda: usage.mean_throttle_ms(clock.monotonic_ms()))
        return usage

    def _drop(self, bucket: Bucket) -> None:
        del self._usages[bucket]
        self._group(bucket).remove()

    def _group(self, bucket: Bucket) -> MetricGroup:
        tags = {"user": bucket.user or "", "client-id": bucket.client_id or ""}
        return self._metrics.group("kafka.server", self._type_name, **tags)

    def _throttled_count(self) -> float:
        self._drop_ended(self._clock.monotonic_ms())
        return len(self._throttled_until)

    def _drop_ended(self, now_ms: int) -> None:
        heap = self._throttled_until
        while heap and heap[0] <= now_ms:
            heapq.heappop(heap)
