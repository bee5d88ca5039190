"""Metrics under Kafka's names: instruments, their registry, and Prometheus text."""

from odradek.metrics.instruments import (
    QUANTILES,
    Buckets,
    Gauge,
    Histogram,
    Snapshot,
    Timer,
)
from odradek.metrics.meter import Meter, Rates
from odradek.metrics.names import MetricName
from odradek.metrics.prometheus import CONTENT_TYPE, iter_prometheus, render_prometheus
from odradek.metrics.registry import OTHER, Instrument, MetricGroup, MetricRegistry

__all__ = [
    "CONTENT_TYPE",
    "OTHER",
    "QUANTILES",
    "Buckets",
    "Gauge",
    "Histogram",
    "Instrument",
    "Meter",
    "MetricGroup",
    "MetricName",
    "MetricRegistry",
    "Rates",
    "Snapshot",
    "Timer",
    "iter_prometheus",
    "render_prometheus",
]
