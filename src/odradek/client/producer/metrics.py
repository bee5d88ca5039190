"""The figures of a producer, under the names of Kafka's `producer-metrics`."""

from odradek.client.metrics import Samples, Total

__all__ = ["ProducerMetrics"]


class ProducerMetrics:
    """Counted by the sender, read by `Producer.metrics`."""

    def __init__(self, now_s: float) -> None:
        self.records_sent = Total(now_s)
        self.records_failed = Total(now_s)
        self.records_retried = Total(now_s)
        self.requests = Total(now_s)
        self.outgoing_bytes = Total(now_s)
        self.batch_splits = Total(now_s)
        self.buffer_exhausted = Total(now_s)
        self.batch_bytes = Samples(now_s)
        self.compression_rate = Samples(now_s)
        self.queue_time_ms = Samples(now_s)
        self.records_per_request = Samples(now_s)
        self.request_latency_ms = Samples(now_s)
        self.throttle_time_ms = Samples(now_s)

    def snapshot(self, now_s: float) -> dict[str, float]:
        """Every figure by its name."""
        told: dict[str, float] = {}
        for name, total in (
            ("record-send", self.records_sent),
            ("record-error", self.records_failed),
            ("record-retry", self.records_retried),
            ("request", self.requests),
            ("outgoing-byte", self.outgoing_bytes),
            ("batch-split", self.batch_splits),
            ("buffer-exhausted", self.buffer_exhausted),
        ):
            told[f"{name}-total"] = float(total.value)
            told[f"{name}-rate"] = total.rate(now_s)
        for name, samples in (
            ("batch-size", self.batch_bytes),
            ("record-queue-time", self.queue_time_ms),
            ("request-latency", self.request_latency_ms),
            ("produce-throttle-time", self.throttle_time_ms),
        ):
            told[f"{name}-avg"] = samples.average(now_s)
            told[f"{name}-max"] = samples.largest(now_s)
        told["compression-rate-avg"] = self.compression_rate.average(now_s)
        told["records-per-request-avg"] = self.records_per_request.average(now_s)
        return told
