"""What operators watch of the replicas (05 section 6)."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from odradek.metrics import Gauge, MetricName
from odradek.replication import register_fetch_session_metrics
from odradek.replication.fetch_session import FetchSessionCache, SessionPartition
from tests.support.replicas import ReplicaFixture, hosted, state_of, tp


@pytest.fixture
def fixture(tmp_path: Path) -> Iterator[ReplicaFixture]:
    with ReplicaFixture(tmp_path, directories=("one", "two")) as fixture:
        yield fixture


def read(fixture: ReplicaFixture, name: str, type_name: str = "ReplicaManager") -> float:
    gauge = fixture.registry.get(MetricName("kafka.server", type_name, name, ()))
    assert isinstance(gauge, Gauge)
    return gauge.read()


def test_counts_of_replicas(fixture: ReplicaFixture) -> None:
    fixture.min_insync_replicas = 2
    fixture.lead(tp("a"), replicas=(1, 2, 3), isr=(1,))
    fixture.lead(tp("b"), replicas=(1, 2), isr=(1, 2))
    fixture.lead(tp("c"), replicas=(1, 2, 3), isr=(1, 2), adding_replicas=(3,))
    fixture.apply(hosted(state_of(tp("d"), leader=2, replicas=(1, 2))))
    figures = {
        name: read(fixture, name)
        for name in (
            "PartitionCount",
            "LeaderCount",
            "OfflineReplicaCount",
            "UnderReplicatedPartitions",
            "UnderMinIsrPartitionCount",
            "AtMinIsrPartitionCount",
            "ReassigningPartitions",
        )
    }
    assert figures == {
        "PartitionCount": 4,
        "LeaderCount": 3,
        "OfflineReplicaCount": 0,
        "UnderReplicatedPartitions": 1,
        "UnderMinIsrPartitionCount": 1,
        "AtMinIsrPartitionCount": 2,
        "ReassigningPartitions": 1,
    }


@pytest.mark.parametrize(
    ("isr", "adding", "missing"),
    [
        pytest.param((1, 2), (), 1, id="one is missing"),
        pytest.param((1, 2, 3), (), 0, id="all are there"),
        pytest.param((1, 2), (3,), 0, id="one is being added"),
        pytest.param((1,), (3,), 1, id="one is being added and another is missing"),
    ],
)
def test_a_partition_with_one_replica_missing_is_under_replicated(
    fixture: ReplicaFixture, isr: tuple[int, ...], adding: tuple[int, ...], missing: int
) -> None:
    fixture.lead(tp("a"), replicas=(1, 2, 3), isr=isr, adding_replicas=adding)
    assert read(fixture, "UnderReplicatedPartitions") == missing


def test_offline_replicas(fixture: ReplicaFixture) -> None:
    fixture.lead(tp("a"))
    fixture.lead(tp("b"))
    fixture.log(tp("a")).log_directory.fail("test", OSError(5, "input/output error"))
    assert read(fixture, "OfflineReplicaCount") == 1
    assert read(fixture, "PartitionCount") == 2
    assert read(fixture, "LeaderCount") == 1


def test_fetch_sessions(fixture: ReplicaFixture) -> None:
    cache = FetchSessionCache(1, random=Random(1))
    register_fetch_session_metrics(cache, fixture.registry)
    for size in (2, 3):
        cache.begin(
            session_id=0,
            epoch=0,
            wanted={
                key: SessionPartition(key, -1, 0, -1, 0, 1)
                for key in (("t", number) for number in range(size))
            },
            forgotten=(),
            is_from_follower=False,
            uses_topic_ids=False,
            is_known=lambda _key: True,
            now_ms=0,
        )
    assert read(fixture, "NumIncrementalFetchSessions", "FetchSessionCache") == 1
    assert read(fixture, "NumIncrementalFetchPartitionsCached", "FetchSessionCache") == 3
    evictions = "IncrementalFetchSessionEvictionsPerSec"
    assert fixture.count(evictions, type_name="FetchSessionCache") == 1
