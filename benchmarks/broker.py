"""Producing, consuming, single requests and latency, through a whole server.

Servers take turns, a fresh one for each sample of each load; a figure is the median of the samples.
Before it is measured, a server gets the same kind of load to warm up with, on a topic of its own.
Bars are ratios to Apache Kafka, and count only in a run beside it.
"""

from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from typing import NamedTuple

from benchmarks import load_clients
from benchmarks.load_clients import Figures
from benchmarks.servers import KAFKA, ODRADEK, Run, Server, touch_free_memory
from benchmarks.table import Row, at_most, server_benchmark

_PARTITIONS = 4
_TOPIC = "measured"
_WARM_UP_TOPIC = "warm-up"
_WARM_UP_SHARE = 4  # One message in four more than is measured.

# Of one load: the figures of each sample, by server.
Samples = dict[str, list[Figures]]


class _Bulk(NamedTuple):
    name: str
    label: str
    size: int
    total: int
    produce_bar: float
    consume_bar: float


_BULK = (
    _Bulk("bulk-100B", "100 B", 100, 4_000_000, 1.2, 1.0),
    _Bulk("bulk-1KB", "1 KB", 1_024, 1_000_000, 1.8, 1.2),
    _Bulk("bulk-10KB", "10 KB", 10_240, 150_000, 3.0, 2.0),
)
_PRODUCE_CPU_BAR = 0.5
_CONSUME_CPU_BAR = 1.0
_RESIDENT_MB_BAR = 120


class _Requests(NamedTuple):
    name: str
    label: str
    connections: int
    depth: int
    records: int
    size: int
    total: int
    bar: float


_REQUESTS = (
    _Requests(
        "requests-50x1", "one-record requests, 50 connections x 1", 50, 1, 1, 100, 100_000, 0.9
    ),
    _Requests("requests-4x5", "one-record requests, 4 connections x 5", 4, 5, 1, 100, 100_000, 1.5),
    # A batch of records of 1 KB, as large as the default limit of a message lets it be.
    _Requests("requests-1MB", "1 MB requests, 4 connections x 2", 4, 2, 1_010, 1_024, 3_000, 1.0),
)


def _bulk(case: _Bulk, run: Run) -> Iterator[Row]:
    """Many messages in and out with the client's default batching, acks=all."""
    if not run.is_quick:
        touch_free_memory()
    samples = _take_turns(run, lambda server: _measure_bulk(server, case, run.scaled(case.total)))
    yield _compare(f"produce {case.label}", samples, "produce_mb_s", "MB/s", case.produce_bar)
    yield _compare(
        f"server CPU per GB produced, {case.label}",
        samples, "produce_cpu_s", "s", _PRODUCE_CPU_BAR, is_bar_lowest=False,
    )  # fmt: skip
    yield _compare(f"consume {case.label}", samples, "consume_mb_s", "MB/s", case.consume_bar)
    yield _compare(
        f"server CPU per GB consumed, {case.label}",
        samples, "consume_cpu_s", "s", _CONSUME_CPU_BAR, is_bar_lowest=False,
    )  # fmt: skip
    resident = [one["resident_mb"] for one in samples[ODRADEK]]
    yield at_most(f"memory after bulk, {case.label}", resident, "MB", _RESIDENT_MB_BAR)


def _measure_bulk(server: Server, case: _Bulk, count: int) -> Figures:
    bootstrap = server.bootstrap
    for topic in (_WARM_UP_TOPIC, _TOPIC):
        load_clients.create_topic(bootstrap, topic, _PARTITIONS)
    # What is consumed lies alike in every server; how `produce` spreads it is left to chance.
    load_clients.fill(
        bootstrap, _WARM_UP_TOPIC, size=case.size, count=count, partitions=_PARTITIONS
    )
    load_clients.consume(bootstrap, _WARM_UP_TOPIC, partitions=_PARTITIONS, count=count)
    started = server.cpu_seconds()
    produced = load_clients.produce(bootstrap, _TOPIC, size=case.size, count=count)
    between = server.cpu_seconds()
    resident_mb = server.resident_mb()
    consumed = load_clients.consume(bootstrap, _WARM_UP_TOPIC, partitions=_PARTITIONS, count=count)
    ended = server.cpu_seconds()
    gigabytes = case.size * count / 1e9
    return {
        "produce_mb_s": _mb_per_second(produced),
        "produce_cpu_s": (between - started) / gigabytes,
        "produce_client_cpu_s": produced["client_cpu_ns"] / 1e9,
        "consume_mb_s": _mb_per_second(consumed),
        "consume_cpu_s": (ended - between) / gigabytes,
        "consume_client_cpu_s": consumed["client_cpu_ns"] / 1e9,
        "resident_mb": resident_mb,
    }


def _mb_per_second(figures: Figures) -> float:
    return figures["bytes"] / 1e6 / (figures["elapsed_ns"] / 1e9)


def _requests(case: _Requests, run: Run) -> Iterator[Row]:
    """The same Produce request again and again, acks=all."""
    samples = _take_turns(
        run, lambda server: _measure_requests(server, case, run.scaled(case.total))
    )
    yield _compare(case.label, samples, "per_second", "/s", case.bar)
    yield _compare("  server CPU for each", samples, "cpu_us", "us", is_bar_lowest=False)


def _measure_requests(server: Server, case: _Requests, count: int) -> Figures:
    def replay(topic: str, count: int) -> Figures:
        load_clients.create_topic(server.bootstrap, topic, _PARTITIONS)
        return load_clients.replay_requests(
            server.bootstrap,
            topic,
            partitions=_PARTITIONS,
            connections=case.connections,
            depth=case.depth,
            records=case.records,
            size=case.size,
            count=count,
        )

    replay(_WARM_UP_TOPIC, max(count // _WARM_UP_SHARE, 1))
    started = server.cpu_seconds()
    figures = replay(_TOPIC, count)
    cpu_seconds = server.cpu_seconds() - started
    return {
        "per_second": count / (figures["elapsed_ns"] / 1e9),
        "cpu_us": cpu_seconds * 1e6 / count,
        "client_cpu_us": figures["client_cpu_ns"] / 1e3 / count,
    }


for _case in _BULK:
    server_benchmark(_case.name)(partial(_bulk, _case))
for _replayed in _REQUESTS:
    server_benchmark(_replayed.name)(partial(_requests, _replayed))


@server_benchmark("latency")
def latency(run: Run) -> Iterator[Row]:
    """The time from a message to its answer, 5,000 messages a second, acks=all."""

    def measure(server: Server) -> Figures:
        for topic, count in ((_WARM_UP_TOPIC, 15_000), (_TOPIC, 50_000)):
            load_clients.create_topic(server.bootstrap, topic, _PARTITIONS)
            figures = load_clients.latency(
                server.bootstrap, topic, size=1_024, count=run.scaled(count), per_second=5_000
            )
        return {name: figures[f"{name}_ns"] / 1e3 for name in ("p50", "p99", "max")}

    samples = _take_turns(run, measure)
    for name, bar in (("p50", 1.0), ("p99", 0.2)):
        yield _compare(
            f"{name} at 5,000 messages/s, linger 0", samples, name, "us", bar, is_bar_lowest=False
        )


def _take_turns(run: Run, measure: Callable[[Server], Figures]) -> Samples:
    samples: Samples = {name: [] for name in run.servers}
    for _ in range(run.repeats):
        for name, start in run.servers.items():
            with start() as server:
                samples[name].append(measure(server))
    return samples


def _compare(
    name: str,
    samples: Samples,
    figure: str,
    unit: str,
    bar: float | None = None,
    *,
    is_bar_lowest: bool = True,
) -> Row:
    """One figure of ours, beside Kafka's if that was measured."""
    beside = median(one[figure] for one in samples[KAFKA]) if KAFKA in samples else None
    return Row(
        name=name,
        measured=median(one[figure] for one in samples[ODRADEK]),
        unit=unit,
        beside=beside,
        bar=bar if beside is not None else None,
        is_bar_lowest=is_bar_lowest,
        raw={server: [one[figure] for one in all_] for server, all_ in samples.items()},
    )
