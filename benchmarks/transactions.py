"""Transactions: how many a second, how long a commit takes, and what reading committed ones costs.

`transactions` commits transactions of 100 records of 100 B, dealt out to four partitions, by one
producer and by sixteen at once; librdkafka is the client of both servers, with its defaults. A
commit is timed from the call to its return, with the records that it has to wait for. Servers are
warmed up by sixteen producers, and have their coordinators loaded by then.

`transactions-reading` reads one log of 4 partitions twice, as a reader of committed records and as
one of all: a tenth of its transactions are aborted. Its figure is the pace through the log, by its
records and those that are aborted, and the bar is of committed by all.
"""

from collections.abc import Iterator
from statistics import median
from typing import Final

from benchmarks import load_clients
from benchmarks.load_clients import Figures
from benchmarks.servers import ODRADEK, Run, Server, touch_free_memory
from benchmarks.table import Row, server_benchmark
from benchmarks.turns import Slice, compare, take_turns

_TOPIC: Final = "measured"
_PARTITIONS: Final = 4
_SIZE: Final = 100
_RECORDS: Final = 100
_ONE: Final = 800  # Transactions of a slice, of one producer and of sixteen.
_MANY: Final = 3_200
_PRODUCERS: Final = 16
# At six requests each; the slices before the first that counts add as many again.
_WARM_UP: Final = 16_000
_SLICES: Final = 3
_SETTINGS: Final = {
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "50",
}
# The log that is read: large transactions, as a batch job writes them, and small ones.
_READ: Final = (("100", 100, 20_000), ("1,000", 1_000, 3_000))
_ABORTED: Final = 10
_READING_BAR: Final = 0.9


@server_benchmark("transactions")
def transactions(run: Run) -> Iterator[Row]:
    """Transactions a second and the time of a commit, beside Apache Kafka."""
    samples = take_turns(
        run,
        lambda server: _prepare(server, run),
        slices_at_least=_SLICES,
        slices_at_most=2 * _SLICES,
        settings=_SETTINGS,
    )
    for key, label in (("one", "1 producer"), ("many", f"{_PRODUCERS} producers")):
        what = f"transactions of {_RECORDS} records, {label}"
        yield compare(what, samples, f"{key}_per_second", "/s", 1.0)
        yield compare(f"  commit p50, {label}", samples, f"{key}_p50_ms", "ms", is_bar_lowest=False)
        yield compare(
            f"  commit p99, {label}", samples, f"{key}_p99_ms", "ms", 1.0, is_bar_lowest=False
        )
    yield compare("  server CPU for each", samples, "cpu_us", "us", is_bar_lowest=False)


def _prepare(server: Server, run: Run) -> Slice:
    load_clients.create_topic(server.bootstrap, _TOPIC, _PARTITIONS)
    _transact(server, run.scaled(_WARM_UP), _PRODUCERS)
    one, many = run.scaled(_ONE), run.scaled(_MANY)

    def measure() -> Figures:
        started = server.cpu_seconds()
        figures: Figures = {}
        for key, count, producers in (("one", one, 1), ("many", many, _PRODUCERS)):
            told = _transact(server, count, producers)
            figures[f"{key}_per_second"] = told["committed"] / (told["elapsed_ns"] / 1e9)
            figures[f"{key}_p50_ms"] = told["p50_ns"] / 1e6
            figures[f"{key}_p99_ms"] = told["p99_ns"] / 1e6
        figures["cpu_us"] = (server.cpu_seconds() - started) * 1e6 / (one + many)
        return figures

    return measure


def _transact(server: Server, count: int, producers: int) -> Figures:
    return load_clients.transact(
        server.bootstrap, _TOPIC, size=_SIZE, records=_RECORDS, count=count, producers=producers,
        partitions=_PARTITIONS,
    )  # fmt: skip


@server_benchmark("transactions-reading")
def reading(run: Run) -> Iterator[Row]:
    """The pace of a reader of committed records, by that of a reader of all of them."""
    if not run.is_quick:
        touch_free_memory()
    for label, records, count in _READ:
        samples = take_turns(
            run,
            lambda server, records=records, count=count: _prepare_log(  # type: ignore[misc]  # bound now, called now
                server, records, run.scaled(count)
            ),
            slices_at_least=_SLICES,
            slices_at_most=2 * _SLICES,
            settings=_SETTINGS,
            settles_by=("committed_cpu_us",),
        )
        what = f"transactions of {label} records"
        yield compare(f"read committed, {what}", samples, "committed_per_second", "/s")
        yield compare(f"read all, {what}", samples, "all_per_second", "/s")
        for name, figures in samples.measured.items():
            ratios = [one["committed_per_second"] / one["all_per_second"] for one in figures]
            is_ours = name == ODRADEK
            yield Row(
                name=f"  committed by all, {what}, {name}",
                measured=median(ratios),
                unit="x",
                bar=_READING_BAR if is_ours and not run.is_quick else None,
                is_bar_lowest=True,
                raw={"samples": ratios},
            )


def _prepare_log(server: Server, records: int, count: int) -> Slice:
    count -= count % _PRODUCERS
    load_clients.create_topic(server.bootstrap, _TOPIC, _PARTITIONS)
    told = load_clients.transact(
        server.bootstrap, _TOPIC, size=_SIZE, records=records, count=count, producers=_PRODUCERS,
        partitions=_PARTITIONS, aborted=_ABORTED,
    )  # fmt: skip
    # An empty message for each partition shows that it can be written to.
    everything = count * records + _PARTITIONS
    committed = int(told["committed"]) * records + _PARTITIONS

    def measure() -> Figures:
        figures: Figures = {}
        for key, isolation, readable in (
            ("committed", "read_committed", committed),
            ("all", "read_uncommitted", everything),
        ):
            started = server.cpu_seconds()
            read = load_clients.consume(
                server.bootstrap, _TOPIC, partitions=_PARTITIONS, count=readable,
                isolation=isolation,
            )  # fmt: skip
            figures[f"{key}_per_second"] = everything / (read["elapsed_ns"] / 1e9)
            figures[f"{key}_cpu_us"] = (server.cpu_seconds() - started) * 1e6 / everything
        return figures

    return measure
