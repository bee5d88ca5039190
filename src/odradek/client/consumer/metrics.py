"""The figures of a consumer, under the names of Kafka's consumer metrics."""

from collections.abc import Callable

from odradek.client.metrics import Samples, Total

__all__ = ["ConsumerMetrics"]


class ConsumerMetrics:
    """Counted by the parts of a consumer, read by `Consumer.metrics`."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        """`now_ms` is monotonic."""
        self._now_ms = now_ms
        now_s = now_ms() / 1000
        self.records = Total(now_s)
        self.bytes = Total(now_s)
        self._fetches = Total(now_s)
        self._commits = Total(now_s)
        self._heartbeats = Total(now_s)
        self._joins = Total(now_s)
        self._rebalances = Total(now_s)
        self._failed_rebalances = Total(now_s)
        self._fetch_latency_ms = Samples(now_s)
        self._fetch_bytes = Samples(now_s)
        self._throttle_ms = Samples(now_s)
        self._commit_latency_ms = Samples(now_s)
        self._heartbeat_latency_ms = Samples(now_s)
        self._join_ms = Samples(now_s)
        self._heartbeat_at_ms: int | None = None
        self._poll_at_ms: int | None = None

    def on_fetch(self, latency_ms: int, size_bytes: int, throttle_ms: int) -> None:
        """Counts an answer to a fetch."""
        now_s = self._now_ms() / 1000
        self._fetches.value += 1
        self.bytes.value += size_bytes
        self._fetch_latency_ms.add(latency_ms, now_s)
        self._fetch_bytes.add(size_bytes, now_s)
        self._throttle_ms.add(throttle_ms, now_s)

    def on_poll(self, now_ms: int, count: int) -> None:
        """Counts records that a poll returned."""
        self._poll_at_ms = now_ms
        if count:
            self.records.value += count

    def on_commit(self, latency_ms: int) -> None:
        """Counts an answer to a commit."""
        self._commits.value += 1
        self._commit_latency_ms.add(latency_ms, self._now_ms() / 1000)

    def on_heartbeat(self, latency_ms: int) -> None:
        """Counts an answer to a heartbeat."""
        self._heartbeat_at_ms = self._now_ms()
        self._heartbeats.value += 1
        self._heartbeat_latency_ms.add(latency_ms, self._heartbeat_at_ms / 1000)

    def on_join(self, duration_ms: int) -> None:
        """Counts a join that succeeded."""
        self._joins.value += 1
        self._join_ms.add(duration_ms, self._now_ms() / 1000)

    def on_rebalance(self) -> None:
        """Counts an assignment that the application took over."""
        self._rebalances.value += 1

    def on_failed_rebalance(self) -> None:
        """Counts a join that failed for good."""
        self._failed_rebalances.value += 1

    def snapshot(self, *, lags: dict[str, float], replicas: dict[str, int]) -> dict[str, float]:
        """Every figure by its name.

        Args:
            lags: Records behind the end, by partition.
            replicas: The broker each assigned partition is read from, -1 for its leader.
        """
        now_ms = self._now_ms()
        now_s = now_ms / 1000
        told: dict[str, float] = {}
        for name, total in (
            ("records-consumed", self.records),
            ("bytes-consumed", self.bytes),
            ("fetch", self._fetches),
            ("commit", self._commits),
            ("heartbeat", self._heartbeats),
            ("join", self._joins),
            ("failed-rebalance", self._failed_rebalances),
        ):
            told[f"{name}-total"] = float(total.value)
            told[f"{name}-rate"] = total.rate(now_s)
        told["rebalance-total"] = float(self._rebalances.value)
        told["rebalance-rate-per-hour"] = self._rebalances.rate(now_s) * 3600
        for name, samples in (
            ("fetch-latency", self._fetch_latency_ms),
            ("fetch-size", self._fetch_bytes),
            ("fetch-throttle-time", self._throttle_ms),
            ("commit-latency", self._commit_latency_ms),
            ("join-time", self._join_ms),
        ):
            told[f"{name}-avg"] = samples.average(now_s)
            told[f"{name}-max"] = samples.largest(now_s)
        told["heartbeat-response-time-max"] = self._heartbeat_latency_ms.largest(now_s)
        told["assigned-partitions"] = float(len(replicas))
        told["records-lag-max"] = max(lags.values(), default=float("nan"))
        told["last-heartbeat-seconds-ago"] = _seconds_ago(self._heartbeat_at_ms, now_ms)
        told["last-poll-seconds-ago"] = _seconds_ago(self._poll_at_ms, now_ms)
        for partition, lag in lags.items():
            told[f"{partition}.records-lag"] = lag
        for partition, replica in replicas.items():
            told[f"{partition}.preferred-read-replica"] = float(replica)
        return told


def _seconds_ago(at_ms: int | None, now_ms: int) -> float:
    return -1.0 if at_ms is None else (now_ms - at_ms) // 1000
