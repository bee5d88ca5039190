"""Producing to clusters of three brokers: factor 3, two in sync at least, acks=all.

Bulk and single requests are measured as those of one server, see `benchmarks.turns`, beside an
Apache Kafka without ZooKeeper.
"""

from collections.abc import Iterator
from functools import partial
from itertools import count as counter
from typing import NamedTuple, cast

from benchmarks import load_clients
from benchmarks.clusters import ClusterServer
from benchmarks.load_clients import Figures
from benchmarks.servers import Run, Server
from benchmarks.table import Row, cluster_benchmark
from benchmarks.turns import Slice, compare, take_turns

_PARTITIONS = 4
_TOPIC = "measured"
_REMOVE_AT_ONCE = {"log.segment.delete.delay.ms": "0"}
_WARM_UP_REQUESTS = 300_000


class _Bulk(NamedTuple):
    name: str
    label: str
    size: int
    total: int


_BULK = (
    _Bulk("cluster-bulk-1KB", "1 KB", 1_024, 400_000),
    _Bulk("cluster-bulk-100B", "100 B", 100, 1_500_000),
)


def _bulk(case: _Bulk, run: Run) -> Iterator[Row]:
    """Many messages with the client's default batching."""
    total = run.scaled(case.total)

    def prepare(server: Server) -> Slice:
        cluster = cast("ClusterServer", server)
        numbers = counter()

        def measure() -> Figures:
            topic = f"{_TOPIC}-{next(numbers)}"
            cluster.create(topic, _PARTITIONS)
            started = cluster.cpu_seconds()
            figures = load_clients.produce(cluster.bootstrap, topic, size=case.size, count=total)
            cpu_seconds = cluster.cpu_seconds() - started
            measured = {
                "mb_s": figures["bytes"] / 1e6 / (figures["elapsed_ns"] / 1e9),
                "cpu_s": cpu_seconds / (figures["bytes"] / 1e9),
                "resident_mb": cluster.resident_mb(),
                "stores_mb": cluster.stores_resident_mb(),
            }
            cluster.remove(topic)
            return measured

        return measure

    samples = take_turns(
        run, prepare, slices_at_least=3, slices_at_most=6,
        settings=_REMOVE_AT_ONCE, settles_by=("cpu_s",),
    )  # fmt: skip
    yield compare(f"cluster: produce {case.label}", samples, "mb_s", "MB/s", 1.5)
    yield compare(
        f"cluster: server CPU per GB produced, {case.label}",
        samples, "cpu_s", "s", 0.4, is_bar_lowest=False,
    )  # fmt: skip
    yield compare(
        f"cluster: memory of the three after it, {case.label}",
        samples, "resident_mb", "MB", 1 / 8, is_bar_lowest=False,
    )  # fmt: skip
    yield compare("  memory of its ZooKeeper", samples, "stores_mb", "MB")


for _case in _BULK:
    cluster_benchmark(_case.name)(partial(_bulk, _case))


@cluster_benchmark("cluster-ping")
def ping(run: Run) -> Iterator[Row]:
    """One record, one in flight; the servers were warmed up with fifty connections."""
    requests = run.scaled(5_000)

    def prepare(server: Server) -> Slice:
        cluster = cast("ClusterServer", server)
        cluster.create(_TOPIC, 1)
        leader = cluster.address_of(cluster.leader_of(_TOPIC))
        warm_up = run.scaled(_WARM_UP_REQUESTS)
        _replay(leader, connections=50, requests=warm_up)

        def measure() -> Figures:
            started = cluster.cpu_seconds()
            figures = _replay(leader, connections=1, requests=requests)
            cpu_seconds = cluster.cpu_seconds() - started
            return {
                "p50": figures["p50_ns"] / 1e3,
                "p99": figures["p99_ns"] / 1e3,
                "cpu_us": cpu_seconds * 1e6 / requests,
            }

        return measure

    samples = take_turns(run, prepare, slices_at_least=3, slices_at_most=6)
    for name, bar in (("p50", 0.66), ("p99", 0.5)):
        yield compare(f"cluster: ping {name}", samples, name, "us", bar, is_bar_lowest=False)
    yield compare("  CPU of the three for each", samples, "cpu_us", "us", is_bar_lowest=False)


def _replay(address: str, *, connections: int, requests: int) -> Figures:
    return load_clients.replay_requests(
        address, _TOPIC, partitions=1, connections=connections, depth=1,
        records=1, size=100, count=requests,
    )  # fmt: skip
