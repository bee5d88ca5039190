"""Producing, consuming, single requests, waking consumers and latency, through a whole server.

Servers are warmed up and take turns as `benchmarks.turns` says. Bars are ratios to Apache Kafka or
to another commit of ours, and count only in a run beside it.
"""

import time
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

from benchmarks import load_clients
from benchmarks.load_clients import Figures
from benchmarks.servers import ODRADEK, Run, Server, touch_free_memory
from benchmarks.table import Row, at_most, server_benchmark
from benchmarks.turns import (
    WARM_UP_REQUESTS,
    CommitBar,
    Samples,
    Slice,
    compare,
    per_request,
    take_turns,
)
from odradek.errors import ErrorCode
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.delete_topics import DeleteTopicsRequest
from tests.conformance.clients.raw import RawConnection

_PARTITIONS = 4
_TOPIC = "measured"
_FILLED_TOPIC = "filled"
_REMOVAL_TIMEOUT_S = 60
# Topics of gigabytes are deleted after each slice, and their files at once.
_REMOVE_AT_ONCE = {"log.segment.delete.delay.ms": "0"}


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
    slice: int  # Requests.
    bar: float | None  # Of the rate, beside Kafka.
    commit_bar: CommitBar | None = None  # Of the CPU time, beside another commit.
    version: int = 7
    is_idempotent: bool = False
    warm_up: int = WARM_UP_REQUESTS


_REQUESTS = (
    _Requests(
        "requests-50x1", "one-record requests, 50 connections x 1",
        50, 1, 1, 100, 100_000, 0.85, CommitBar(0.6, 0.85),
    ),
    _Requests(
        "requests-4x5", "one-record requests, 4 connections x 5",
        4, 5, 1, 100, 100_000, 1.6, CommitBar(0.58, 0.8),
    ),
    _Requests(
        "idempotent-50x1", "the same, idempotent, 50 x 1",
        50, 1, 1, 100, 100_000, None, CommitBar(0.48, 0.66), is_idempotent=True,
    ),
    _Requests(
        "idempotent-4x5", "the same, idempotent, 4 x 5",
        4, 5, 1, 100, 100_000, None, CommitBar(0.48, 0.66), is_idempotent=True,
    ),
    _Requests(
        "produce5-50x1", "the same, Produce version 5, 50 x 1",
        50, 1, 1, 100, 100_000, None, version=5,
    ),
    _Requests(
        "produce5-4x5", "the same, Produce version 5, 4 x 5",
        4, 5, 1, 100, 100_000, None, version=5,
    ),
    # A batch of records of 1 KB, as large as the default limit of a message lets it be. A slice is
    # a gigabyte, so three of them have to do for a warm-up.
    _Requests(
        "requests-1MB", "1 MB requests, 4 connections x 2",
        4, 2, 1_010, 1_024, 1_000, 1.0, warm_up=3_000,
    ),
)  # fmt: skip


def _bulk(case: _Bulk, run: Run) -> Iterator[Row]:
    """Many messages in and out with the client's default batching, acks=all."""
    if not run.is_quick:
        touch_free_memory()
    count = run.scaled(case.total)
    samples = take_turns(
        run,
        lambda server: _prepare_bulk(server, case, count),
        slices_at_least=-(-WARM_UP_REQUESTS // case.total),
        settings=_REMOVE_AT_ONCE,
        settles_by=("produce_cpu_s", "consume_cpu_s"),
    )
    yield compare(f"produce {case.label}", samples, "produce_mb_s", "MB/s", case.produce_bar)
    yield compare(
        f"server CPU per GB produced, {case.label}",
        samples, "produce_cpu_s", "s", _PRODUCE_CPU_BAR, is_bar_lowest=False,
    )  # fmt: skip
    yield compare(f"consume {case.label}", samples, "consume_mb_s", "MB/s", case.consume_bar)
    yield compare(
        f"server CPU per GB consumed, {case.label}",
        samples, "consume_cpu_s", "s", _CONSUME_CPU_BAR, is_bar_lowest=False,
    )  # fmt: skip
    resident = [one["resident_mb"] for one in samples.measured[ODRADEK]]
    yield at_most(f"memory after bulk, {case.label}", resident, "MB", _RESIDENT_MB_BAR)


def _prepare_bulk(server: Server, case: _Bulk, count: int) -> Slice:
    bootstrap = server.bootstrap
    # What is consumed lies alike in every server; how `produce` spreads it is left to chance.
    load_clients.create_topic(bootstrap, _FILLED_TOPIC, _PARTITIONS)
    load_clients.fill(bootstrap, _FILLED_TOPIC, size=case.size, count=count, partitions=_PARTITIONS)
    gigabytes = case.size * count / 1e9

    def measure() -> Figures:
        load_clients.create_topic(bootstrap, _TOPIC, _PARTITIONS)
        started = server.cpu_seconds()
        produced = load_clients.produce(bootstrap, _TOPIC, size=case.size, count=count)
        between = server.cpu_seconds()
        resident_mb = server.resident_mb()
        consumed = load_clients.consume(
            bootstrap, _FILLED_TOPIC, partitions=_PARTITIONS, count=count
        )
        ended = server.cpu_seconds()
        _delete_topic(server, _TOPIC)
        return {
            "produce_mb_s": _mb_per_second(produced),
            "produce_cpu_s": (between - started) / gigabytes,
            "produce_client_cpu_s": produced["client_cpu_ns"] / 1e9,
            "consume_mb_s": _mb_per_second(consumed),
            "consume_cpu_s": (ended - between) / gigabytes,
            "consume_client_cpu_s": consumed["client_cpu_ns"] / 1e9,
            "resident_mb": resident_mb,
        }

    return measure


def _mb_per_second(figures: Figures) -> float:
    return figures["bytes"] / 1e6 / (figures["elapsed_ns"] / 1e9)


def _delete_topic(server: Server, topic: str) -> None:
    """Deletes a topic and waits until its files are gone, so that disks and memory do not fill."""
    with RawConnection(int(server.bootstrap.rpartition(":")[2])) as connection:
        answer: Any = connection.call(
            ApiKey.DELETE_TOPICS, 4, DeleteTopicsRequest(topic_names=[topic], timeout_ms=30_000)
        )
        assert answer.responses[0].error_code == ErrorCode.NONE, answer
    deadline = time.monotonic() + _REMOVAL_TIMEOUT_S
    # A partition waits for its removal under another name that begins alike.
    while any(server.data.glob(f"{topic}*")) and time.monotonic() < deadline:
        time.sleep(0.1)


def _requests(case: _Requests, run: Run) -> Iterator[Row]:
    """The same Produce request again and again, acks=all."""
    count = run.scaled(case.slice)

    def prepare(server: Server) -> Slice:
        load_clients.create_topic(server.bootstrap, _TOPIC, _PARTITIONS)
        return lambda: per_request(server, count, lambda: _replay(server, case, count))

    samples = take_turns(run, prepare, slices_at_least=-(-case.warm_up // case.slice))
    yield compare(case.label, samples, "per_second", "/s", case.bar)
    yield compare(
        "  server CPU for each", samples, "cpu_us", "us",
        is_bar_lowest=False, commit_bar=case.commit_bar,
    )  # fmt: skip


def _replay(server: Server, case: _Requests, count: int) -> Figures:
    return load_clients.replay_requests(
        server.bootstrap,
        _TOPIC,
        partitions=_PARTITIONS,
        connections=case.connections,
        depth=case.depth,
        records=case.records,
        size=case.size,
        count=count,
        version=case.version,
        is_idempotent=case.is_idempotent,
    )


for _case in _BULK:
    server_benchmark(_case.name)(partial(_bulk, _case))
for _replayed in _REQUESTS:
    server_benchmark(_replayed.name, is_of_commits=_replayed.commit_bar is not None)(
        partial(_requests, _replayed)
    )


@server_benchmark("fan-out", is_of_commits=True)
def fan_out(run: Run) -> Iterator[Row]:
    """One record to fifty waiting consumers."""
    samples = _wake(run, 50, 1_000)
    yield compare(
        "one record to 50 waiting consumers, until all have it",
        samples, "p50_us", "us", 0.8, is_bar_lowest=False,
    )  # fmt: skip
    yield compare(
        "  a long poll woken, server CPU for each", samples, "cpu_us", "us",
        is_bar_lowest=False, commit_bar=CommitBar(0.5, 0.75),
    )  # fmt: skip


@server_benchmark("wake-up", is_of_commits=True)
def wake_up(run: Run) -> Iterator[Row]:
    """One record to one waiting consumer."""
    samples = _wake(run, 1, 5_000)
    yield compare(
        "one record to one waiting consumer, until it has it",
        samples, "p50_us", "us", is_bar_lowest=False,
    )  # fmt: skip
    yield compare("  server CPU for both requests", samples, "cpu_us", "us", is_bar_lowest=False)


def _wake(run: Run, consumers: int, rounds: int) -> Samples:
    rounds_of_run = run.scaled(rounds)

    def prepare(server: Server) -> Slice:
        load_clients.create_topic(server.bootstrap, _TOPIC, 1)

        def measure() -> Figures:
            started = server.cpu_seconds()
            figures = load_clients.wake(
                server.bootstrap, _TOPIC, consumers=consumers, size=100, rounds=rounds_of_run
            )
            cpu_seconds = server.cpu_seconds() - started
            return {
                "p50_us": figures["p50_ns"] / 1e3,
                "mean_us": figures["mean_ns"] / 1e3,
                "cpu_us": cpu_seconds * 1e6 / (consumers * rounds_of_run),
            }

        return measure

    # A round of one consumer pauses for milliseconds: a tenth of the requests has to do there.
    least = WARM_UP_REQUESTS if consumers > 1 else WARM_UP_REQUESTS // 10
    at_least = -(-least // (consumers * rounds))
    # Most of a slice is pauses, eight seconds of them and more.
    return take_turns(run, prepare, slices_at_least=at_least, slices_at_most=at_least + 4)


@server_benchmark("latency")
def latency(run: Run) -> Iterator[Row]:
    """The time from a message to its answer, 5,000 messages a second, acks=all."""
    count = 50_000

    def prepare(server: Server) -> Slice:
        load_clients.create_topic(server.bootstrap, _TOPIC, _PARTITIONS)

        def measure() -> Figures:
            started = server.cpu_seconds()
            figures = load_clients.latency(
                server.bootstrap, _TOPIC, size=1_024, count=run.scaled(count), per_second=5_000
            )
            cpu_seconds = server.cpu_seconds() - started
            return {
                "cpu_us": cpu_seconds * 1e6 / run.scaled(count),
                **{name: figures[f"{name}_ns"] / 1e3 for name in ("p50", "p99", "max")},
            }

        return measure

    least = WARM_UP_REQUESTS // count
    # At a fixed rate every slice takes ten seconds, on a busy server as on an idle one.
    samples = take_turns(run, prepare, slices_at_least=least, slices_at_most=least + 2)
    for name, bar in (("p50", 0.9), ("p99", 0.2)):
        yield compare(
            f"{name} at 5,000 messages/s, linger 0", samples, name, "us", bar, is_bar_lowest=False
        )
