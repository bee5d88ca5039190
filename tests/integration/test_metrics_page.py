"""The metrics page of a running broker: Kafka's names, and those that the documents name."""

import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.testing import EmbeddedBroker
from tests.support.commands import Commands
from tests.support.ports import free_port

pytestmark = pytest.mark.slow

DOCUMENT = Path(__file__).parents[2] / "docs" / "operations" / "observability.md"

# What Kafka's documentation says to watch of a broker: (domain, type, name, tag). The names of
# quotas and of the group coordinator's newer metrics have another form and are not here.
_METERS = [
    *(
        ("kafka.server", "BrokerTopicMetrics", f"{name}PerSec", "topic")
        for name in (
            "MessagesIn",
            "BytesIn",
            "BytesOut",
            "BytesRejected",
            "TotalProduceRequests",
            "TotalFetchRequests",
            "FailedProduceRequests",
            "FailedFetchRequests",
        )
    ),
    ("kafka.server", "ReplicaManager", "IsrShrinksPerSec", ""),
    ("kafka.server", "ReplicaManager", "IsrExpandsPerSec", ""),
    ("kafka.network", "RequestMetrics", "RequestsPerSec", "request"),
    ("kafka.network", "RequestMetrics", "ErrorsPerSec", "error"),
    ("kafka.controller", "ControllerStats", "UncleanLeaderElectionsPerSec", ""),
]
_GAUGES = [
    ("kafka.server", "ReplicaManager", "UnderReplicatedPartitions", ""),
    ("kafka.server", "ReplicaManager", "UnderMinIsrPartitionCount", ""),
    ("kafka.server", "ReplicaManager", "OfflineReplicaCount", ""),
    ("kafka.server", "ReplicaManager", "PartitionCount", ""),
    ("kafka.server", "ReplicaManager", "LeaderCount", ""),
    ("kafka.server", "DelayedOperationPurgatory", "PurgatorySize", "delayedOperation"),
    ("kafka.server", "DelayedOperationPurgatory", "NumDelayedOperations", "delayedOperation"),
    ("kafka.server", "KafkaRequestHandlerPool", "RequestHandlerAvgIdlePercent", ""),
    ("kafka.controller", "KafkaController", "ActiveControllerCount", ""),
    ("kafka.controller", "KafkaController", "OfflinePartitionsCount", ""),
    ("kafka.controller", "KafkaController", "GlobalTopicCount", ""),
    ("kafka.controller", "ControllerEventManager", "EventQueueSize", ""),
    ("kafka.network", "RequestChannel", "RequestQueueSize", ""),
    ("kafka.network", "RequestChannel", "ResponseQueueSize", ""),
    ("kafka.network", "SocketServer", "NetworkProcessorAvgIdlePercent", ""),
    ("kafka.log", "Log", "Size", "topic"),
    ("kafka.log", "Log", "LogStartOffset", "partition"),
    ("kafka.log", "Log", "LogEndOffset", "partition"),
    ("kafka.log", "Log", "NumLogSegments", "topic"),
    ("kafka.log", "LogManager", "OfflineLogDirectoryCount", ""),
    ("kafka.log", "LogManager", "LogDirectoryOffline", "logDirectory"),
]
_TIMES = [
    *(
        ("kafka.network", "RequestMetrics", f"{name}TimeMs", "request")
        for name in (
            "Total",
            "RequestQueue",
            "Local",
            "Remote",
            "Throttle",
            "ResponseQueue",
            "ResponseSend",
        )
    ),
    ("kafka.log", "LogFlushStats", "LogFlushRateAndTimeMs", ""),
    ("kafka.controller", "ControllerStats", "LeaderElectionRateAndTimeMs", ""),
]


@pytest.fixture(scope="module")
def page() -> Iterator[str]:
    port = free_port()
    with EmbeddedBroker({"odradek.metrics.port": str(port)}) as broker:
        odradek = Commands(broker.bootstrap_servers)
        odradek.ok("produce", "orders", stdin=b"one\ntwo\nthree\n")
        odradek.ok("consume", "orders", "--from-beginning", "--max-messages", 3)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            yield answer.read().decode()


def exported(domain: str, kind: str, name: str) -> str:
    """As the rules have it that come with Prometheus' exporter for Java: all in lower case."""
    return f"{domain.replace('.', '_')}_{kind}_{name}".lower()


@pytest.mark.parametrize("row", _METERS, ids=lambda row: f"{row[1]}.{row[2]}")
def test_a_rate_is_a_counter(page: str, row: tuple[str, str, str, str]) -> None:
    domain, kind, name, tag = row
    family = f"{exported(domain, kind, name.removesuffix('PerSec'))}_total"
    assert f"# TYPE {family} counter\n" in page
    assert re.search(rf"^{family}{_labels(tag)} \d+$", page, re.MULTILINE)


@pytest.mark.parametrize("row", _GAUGES, ids=lambda row: f"{row[1]}.{row[2]}")
def test_a_gauge(page: str, row: tuple[str, str, str, str]) -> None:
    domain, kind, name, tag = row
    family = exported(domain, kind, name)
    assert f"# TYPE {family} gauge\n" in page
    assert re.search(rf"^{family}{_labels(tag)} [\d.]+$", page, re.MULTILINE)


@pytest.mark.parametrize("row", _TIMES, ids=lambda row: f"{row[1]}.{row[2]}")
def test_a_time_is_a_summary(page: str, row: tuple[str, str, str, str]) -> None:
    domain, kind, name, tag = row
    family = exported(domain, kind, name)
    assert f"# TYPE {family} summary\n" in page
    assert re.search(rf"^{family}_count{_labels(tag)} \d+$", page, re.MULTILINE)
    assert re.search(rf'^{family}\{{(.*,)?quantile="0\.99"\}} \S+$', page, re.MULTILINE)


def test_the_figures_are_those_of_what_was_done(page: str) -> None:
    assert 'kafka_server_brokertopicmetrics_messagesin_total{topic="orders"} 3\n' in page
    assert 'kafka_log_log_logendoffset{topic="orders",partition="0"} 3\n' in page
    assert "kafka_server_replicamanager_leadercount 1\n" in page
    asked = re.search(r'requestmetrics_totaltimems_count\{request="Produce"\} (\d+)', page)
    assert asked is not None
    assert int(asked[1]) >= 1


def test_the_loop_tells_how_long_its_turns_are(page: str) -> None:
    """02 section 12."""
    assert "# TYPE odradek_loop_turn_seconds histogram\n" in page
    turns = re.search(r"^odradek_loop_turn_seconds_count (\d+)$", page, re.MULTILINE)
    assert turns is not None
    assert int(turns[1]) > 0


@pytest.mark.parametrize("name", ["Produce", "Fetch", "DeleteRecords", "ElectLeader", "topic"])
def test_every_purgatory_has_its_size(page: str, name: str) -> None:
    """04b section 1, 05 section 6: one for each kind of request that waits."""
    family = "kafka_server_delayedoperationpurgatory_purgatorysize"
    assert f'{family}{{delayedOperation="{name}"}} ' in page


def test_every_family_that_the_document_names_is_there(page: str) -> None:
    """A name that begins with … goes on like the last whole one in its line."""
    families = set(re.findall(r"^# TYPE (\w+) ", page, re.MULTILINE))
    named: list[str] = []
    for line in DOCUMENT.read_text().splitlines():
        beginning = ""
        for name in re.findall(r"`(kafka_\w+|…_\w+)[`{]", line):
            if name.startswith("kafka_"):
                beginning = "_".join(name.split("_")[:3])
                found = name in families
            else:
                found = any(
                    one.startswith(beginning) and one.endswith(name[1:]) for one in families
                )
            assert found, f"{name} in: {line}"
            named.append(name)
    assert len(named) > 30


def _labels(tag: str) -> str:
    return rf'\{{.*\b{tag}=".*"\}}' if tag else ""
