"""The registry: one instrument per name, one kind per family, and a bound on series."""

from collections.abc import Iterator
from random import Random

import pytest

from odradek.metrics import (
    OTHER,
    Histogram,
    Meter,
    MetricName,
    MetricRegistry,
    Timer,
    render_prometheus,
)
from tests.unit.metrics.hand_clock import FakeClock

BYTES_IN = MetricName("kafka.server", "BrokerTopicMetrics", "BytesInPerSec")


def registry_of(max_series: int = 100) -> MetricRegistry:
    return MetricRegistry(FakeClock(), Random(1), max_series_per_family=max_series)


def test_the_same_name_gives_the_same_instrument() -> None:
    registry = registry_of()
    topics = registry.group("kafka.server", "BrokerTopicMetrics")
    assert topics.meter("BytesInPerSec") is registry.meter(BYTES_IN)
    assert topics.meter("BytesInPerSec", topic="t") is not topics.meter("BytesInPerSec")
    assert isinstance(topics.histogram("Sizes"), Histogram)
    assert topics.histogram("Sizes") is topics.histogram("Sizes")
    assert isinstance(topics.timer("Times"), Timer)
    assert topics.timer("Times") is topics.timer("Times")
    assert len(registry) == 4
    assert isinstance(registry.get(BYTES_IN), Meter)
    assert registry.get(MetricName("a", "b", "c")) is None


def test_a_family_has_one_kind() -> None:
    registry = registry_of()
    group = registry.group("kafka.server", "Times")
    group.timer("Load")
    with pytest.raises(ValueError, match="kafka_server_times_load holds Timers already"):
        group.gauge("Load", lambda: 1, topic="t")
    with pytest.raises(ValueError, match="a Histogram cannot join"):
        group.histogram("Load")


def test_a_deleted_topic_takes_its_metrics_along() -> None:
    registry = registry_of()
    topics = registry.group("kafka.server", "BrokerTopicMetrics")
    partition = registry.group("kafka.log", "Log", topic="t", partition="0")
    everything = topics.meter("BytesInPerSec")
    topics.meter("BytesInPerSec", topic="t")
    topics.meter("BytesInPerSec", topic="u")
    partition.gauge("Size", lambda: 5)
    assert registry.remove_tagged("topic", "t") == 2
    assert registry.remove_tagged("topic", "t") == 0
    assert len(registry) == 2
    assert registry.meter(BYTES_IN) is everything
    assert registry._by_tag.keys() == {("topic", "u")}


def test_a_topic_created_again_starts_at_zero() -> None:
    registry = registry_of()
    topics = registry.group("kafka.server", "BrokerTopicMetrics")
    before = topics.meter("BytesInPerSec", topic="t")
    before.mark(7)
    registry.remove_tagged("topic", "t")
    before.mark(7)
    assert topics.meter("BytesInPerSec", topic="t").count == 0


def test_one_metric_is_removed_by_name() -> None:
    registry = registry_of()
    registry.meter(BYTES_IN)
    assert registry.remove(BYTES_IN) is True
    assert registry.remove(BYTES_IN) is False
    assert list(registry.families()) == []


def test_a_group_removes_its_own_metrics_only() -> None:
    registry = registry_of()
    mine = registry.group("kafka.network", "Processor", processor="1")
    mine.gauge("IdlePercent", lambda: 1.0)
    mine.meter("Seen", "", listener="a")
    registry.group("kafka.network", "Processor", processor="2").gauge("IdlePercent", lambda: 1.0)
    mine.remove()
    assert len(registry) == 1


def test_series_beyond_the_bound_are_counted_together(caplog: pytest.LogCaptureFixture) -> None:
    registry = registry_of(max_series=3)
    clients = registry.group("kafka.server", "Clients")
    for number in range(10):
        clients.meter("RequestsPerSec", client=f"c{number}").mark()
    assert len(registry) == 4
    other = registry.get(
        MetricName("kafka.server", "Clients", "RequestsPerSec", (("client", OTHER),))
    )
    assert isinstance(other, Meter)
    assert other.count == 7
    assert clients.meter("RequestsPerSec", client="c1").count == 1, "known names stay their own"
    assert caplog.text.count("further ones are counted together") == 1


def test_gauges_beyond_the_bound_are_left_out() -> None:
    registry = registry_of(max_series=2)
    group = registry.group("kafka.server", "Clients")
    for number in range(5):
        group.gauge("Depth", lambda: 1, client=str(number))
    group.gauge("Depth", lambda: 2, client="0")
    assert len(registry) == 2


def test_removal_makes_room_again() -> None:
    registry = registry_of(max_series=1)
    group = registry.group("kafka.server", "BrokerTopicMetrics")
    group.meter("BytesInPerSec", topic="a")
    registry.remove_tagged("topic", "a")
    group.meter("BytesInPerSec", topic="b").mark()
    assert group.meter("BytesInPerSec", topic="b").count == 1


def test_collected_series_are_asked_for_when_they_are_read() -> None:
    registry = registry_of(max_series=3)
    lags: dict[str, float] = {}
    name = MetricName("kafka", "consumergroup", "lag")
    registry.collect(
        name, lambda: (((("topic", topic),), lag) for topic, lag in lags.items()), "How far behind."
    )
    family = "kafka_consumergroup_lag"
    assert render_prometheus(registry).splitlines() == [
        f"# HELP {family} How far behind.",
        f"# TYPE {family} gauge",
    ]

    lags.update(b=2, a=1)
    registry.meter(BYTES_IN)
    assert render_prometheus(registry).splitlines()[:4] == [
        f"# HELP {family} How far behind.",
        f"# TYPE {family} gauge",
        family + '{topic="b"} 2',
        family + '{topic="a"} 1',
    ]

    lags.update(c=3, d=4)
    assert render_prometheus(registry).count(family + "{") == 3  # The bound of a family.
    lags.clear()
    assert family + "{" not in render_prometheus(registry)


def test_a_collection_that_fails_leaves_the_rest_of_the_page() -> None:
    registry = registry_of()

    def fail() -> Iterator[tuple[tuple[tuple[str, str], ...], float]]:
        yield (("topic", "t"),), 1
        raise RuntimeError("a fault of ours")

    registry.collect(MetricName("kafka", "consumergroup", "lag"), fail)
    registry.meter(BYTES_IN)
    page = render_prometheus(registry)
    assert 'kafka_consumergroup_lag{topic="t"} 1\n' in page
    assert "kafka_server_brokertopicmetrics_bytesin_total 0\n" in page
