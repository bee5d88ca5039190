"""The text format, read back by the parser of the Prometheus client library."""

import math
from random import Random

import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from odradek.metrics import CONTENT_TYPE, MetricRegistry, iter_prometheus, render_prometheus
from tests.unit.metrics.hand_clock import FakeClock


def parse(page: str) -> dict[str, Metric]:
    return {family.name: family for family in text_string_to_metric_families(page)}


@pytest.fixture
def registry() -> MetricRegistry:
    return MetricRegistry(FakeClock(), Random(1))


def test_a_meter_is_a_counter(registry: MetricRegistry) -> None:
    topics = registry.group("kafka.server", "BrokerTopicMetrics")
    topics.meter("BytesInPerSec", "Bytes written by clients.").mark(4096)
    topics.meter("BytesInPerSec", topic="orders").mark(96)
    assert render_prometheus(registry) == (
        "# HELP kafka_server_brokertopicmetrics_bytesin_total Bytes written by clients.\n"
        "# TYPE kafka_server_brokertopicmetrics_bytesin_total counter\n"
        "kafka_server_brokertopicmetrics_bytesin_total 4096\n"
        'kafka_server_brokertopicmetrics_bytesin_total{topic="orders"} 96\n'
    )
    # The parser names a counter without its suffix.
    family = parse(render_prometheus(registry))["kafka_server_brokertopicmetrics_bytesin"]
    assert family.type == "counter"
    assert [(sample.labels, sample.value) for sample in family.samples] == [
        ({}, 4096),
        ({"topic": "orders"}, 96),
    ]


def test_a_histogram_is_a_summary(registry: MetricRegistry) -> None:
    times = registry.group("kafka.network", "RequestMetrics").histogram(
        "TotalTimeMs", request="Produce"
    )
    for value in range(1, 100):
        times.update(value / 10)
    family = parse(render_prometheus(registry))["kafka_network_requestmetrics_totaltimems"]
    assert family.type == "summary"
    assert family.documentation == "kafka.network:type=RequestMetrics,name=TotalTimeMs"
    samples = {
        (sample.name.rpartition("_")[2], sample.labels.get("quantile")): sample.value
        for sample in family.samples
    }
    assert samples["totaltimems", "0.5"] == pytest.approx(5.0)
    assert samples["totaltimems", "0.999"] == pytest.approx(9.9)
    assert samples["count", None] == 99
    assert samples["sum", None] == pytest.approx(495.0)
    assert all(sample.labels["request"] == "Produce" for sample in family.samples)
    assert [sample.labels["quantile"] for sample in family.samples[:6]] == [
        "0.5",
        "0.75",
        "0.95",
        "0.98",
        "0.99",
        "0.999",
    ]


def test_a_timer_is_a_summary_and_an_empty_one_has_no_quantiles(registry: MetricRegistry) -> None:
    registry.group("kafka.log", "LogFlushStats").timer("LogFlushRateAndTimeMs")
    family = parse(render_prometheus(registry))["kafka_log_logflushstats_logflushrateandtimems"]
    assert family.type == "summary"
    assert all(math.isnan(sample.value) for sample in family.samples[:6])
    assert family.samples[-1].value == 0


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "3"),
        (True, "1"),
        (0.5, "0.5"),
        (1e300, "1e+300"),
        (math.inf, "+Inf"),
        (-math.inf, "-Inf"),
        (math.nan, "NaN"),
    ],
)
def test_gauge_values(registry: MetricRegistry, value: float, text: str) -> None:
    registry.group("kafka.server", "KafkaServer").gauge("Level", lambda: value)
    page = render_prometheus(registry)
    assert page.splitlines()[-1] == f"kafka_server_kafkaserver_level {text}"
    (sample,) = parse(page)["kafka_server_kafkaserver_level"].samples
    assert sample.value == value or math.isnan(value)


def test_escaping(registry: MetricRegistry) -> None:
    hostile = 'a"b\\c\nd{}=,é\t'
    registry.group("d", "T").gauge("N", lambda: 1, "two\nlines \\ and a slash", topic=hostile)
    page = render_prometheus(registry)
    assert len(page.splitlines()) == 3
    family = parse(page)["d_t_n"]
    assert family.samples[0].labels == {"topic": hostile}
    assert family.documentation == "two\nlines \\ and a slash"


def test_a_broken_gauge_leaves_the_rest(
    registry: MetricRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> float:
        raise RuntimeError("owner is gone")

    group = registry.group("d", "T")
    group.gauge("Broken", broken)
    group.gauge("Fine", lambda: 1)
    families = parse(render_prometheus(registry))
    assert families["d_t_fine"].samples[0].value == 1
    assert families["d_t_broken"].samples == []
    assert "d:type=T,name=Broken" in caplog.text


def test_a_page_in_pieces_survives_changes(registry: MetricRegistry) -> None:
    group = registry.group("d", "T")
    for name in ("A", "B", "C"):
        group.gauge(name, lambda: 1, topic=name)
    pieces = iter_prometheus(registry)
    first = next(pieces) + next(pieces)
    registry.remove_tagged("topic", "B")
    group.gauge("D", lambda: 1)
    assert [family.name for family in text_string_to_metric_families(first)] == ["d_t_a"]
    assert list(parse("".join(pieces))) == ["d_t_c"]


def test_a_large_family_comes_in_several_pieces(registry: MetricRegistry) -> None:
    group = registry.group("d", "T")
    for number in range(250):
        group.meter("N", topic=str(number)).mark(number)
    pieces = list(iter_prometheus(registry))
    assert [piece.count("\n") for piece in pieces] == [2, 200, 50]
    (family,) = parse("".join(pieces)).values()
    assert [sample.value for sample in family.samples] == list(range(250))


def test_an_empty_registry_is_an_empty_page(registry: MetricRegistry) -> None:
    assert render_prometheus(registry) == ""
    assert "version=0.0.4" in CONTENT_TYPE
