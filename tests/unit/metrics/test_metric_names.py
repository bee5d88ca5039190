"""Kafka's metric names and their Prometheus forms."""

import pytest

from odradek.metrics.names import InstrumentKind, MetricName


def test_the_name_is_kafkas() -> None:
    name = MetricName("kafka.server", "BrokerTopicMetrics", "BytesInPerSec", (("topic", "t"),))
    assert str(name) == "kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec,topic=t"


def test_tags_keep_their_order() -> None:
    name = MetricName(
        "kafka.network", "RequestMetrics", "ErrorsPerSec", (("request", "Fetch"), ("error", "NONE"))
    )
    assert str(name).endswith("name=ErrorsPerSec,request=Fetch,error=NONE")


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("my-topic_1.x", "my-topic_1.x"),
        ("a=b", '"a=b"'),
        ('quo"te', '"quo\\"te"'),
        ("star*?", '"star\\*\\?"'),
        ("line\nback\\", '"line\\nback\\\\"'),
        ("", ""),
    ],
)
def test_special_values_are_quoted_as_jmx_does(value: str, written: str) -> None:
    assert str(MetricName("d", "T", "N", (("client-id", value),))) == (
        f"d:type=T,name=N,client-id={written}"
    )


@pytest.mark.parametrize(
    ("name", "kind", "family"),
    [
        (
            MetricName("kafka.server", "BrokerTopicMetrics", "BytesInPerSec"),
            InstrumentKind.METER,
            "kafka_server_brokertopicmetrics_bytesin_total",
        ),
        (
            MetricName("kafka.network", "RequestMetrics", "TotalTimeMs"),
            InstrumentKind.HISTOGRAM,
            "kafka_network_requestmetrics_totaltimems",
        ),
        (
            MetricName("kafka.server", "ReplicaManager", "UnderReplicatedPartitions"),
            InstrumentKind.GAUGE,
            "kafka_server_replicamanager_underreplicatedpartitions",
        ),
        (
            MetricName("kafka.log", "Log-Flush", "x y"),
            InstrumentKind.GAUGE,
            "kafka_log_log_flush_x_y",
        ),
        (MetricName("4", "T", "n"), InstrumentKind.GAUGE, "_4_t_n"),
    ],
)
def test_prometheus_families(name: MetricName, kind: InstrumentKind, family: str) -> None:
    assert name.family(kind) == family


def test_label_names_are_made_legal() -> None:
    name = MetricName("d", "T", "N", (("client-id", "a-b"), ("1st", "x")))
    assert name.labels() == (("client_id", "a-b"), ("_1st", "x"))
