"""Loads that whole servers get in turn: how they are warmed up, measured and compared.

All servers of a comparison run at once and idle while another has its turn. Each is first warmed up
with slices of the very load that is measured, until three successive slices cost the same CPU time
within 5 % and at least 300,000 requests were served: a virtual machine of Java interprets its code
at first, and compiles what it has seen often. Then the servers take turns, a slice each; a figure
is the median of the slices. A server that does not settle is measured all the same, and its row
says so.
"""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median

from benchmarks.load_clients import Figures
from benchmarks.servers import KAFKA, ODRADEK, Run, Server
from benchmarks.table import Row
from odradek.builds import COMPILED, name_build

__all__ = [
    "WARM_UP_REQUESTS",
    "CommitBar",
    "Prepare",
    "Samples",
    "Slice",
    "compare",
    "per_request",
    "take_turns",
]

WARM_UP_REQUESTS = 300_000
_SETTLED_SLICES = 3
_SETTLED_WITHIN = 0.05
_MAX_WARM_UP_SLICES = 30  # A machine that others use never settles.

# One slice of a load: sends it, returns its figures.
Slice = Callable[[], Figures]
# Makes a fresh server ready for a load.
Prepare = Callable[[Server], Slice]


@dataclass(frozen=True, slots=True)
class CommitBar:
    """The largest allowed ratio to an older commit, by how this tree was built."""

    compiled: float
    not_compiled: float

    def of_this_build(self) -> float:
        return self.compiled if name_build() == COMPILED else self.not_compiled


@dataclass(frozen=True, slots=True)
class Samples:
    """The figures of each slice of one load, by server."""

    measured: dict[str, list[Figures]] = field(default_factory=dict)
    warm_up: dict[str, list[Figures]] = field(default_factory=dict)
    unsettled: list[str] = field(default_factory=list)  # The servers that never settled.

    def medians(self, figure: str) -> dict[str, float]:
        return {name: median(one[figure] for one in all_) for name, all_ in self.measured.items()}


def take_turns(
    run: Run,
    prepare: Prepare,
    *,
    slices_at_least: int,
    slices_at_most: int = _MAX_WARM_UP_SLICES,
    settings: Mapping[str, str] | None = None,
    settles_by: tuple[str, ...] = ("cpu_us",),
) -> Samples:
    """Warms up all servers of the run, then lets them take turns.

    Args:
        run: which servers, and how thoroughly.
        prepare: makes a server ready and returns the load.
        slices_at_least: how many slices warm a server up at the least.
        slices_at_most: after how many a server is measured, settled or not.
        settings: of every server.
        settles_by: the figures that have to agree.
    """
    samples = Samples()
    slices_at_most = max(slices_at_most, slices_at_least)
    with contextlib.ExitStack() as stack:
        loads = {
            name: prepare(stack.enter_context(start(settings)))
            for name, start in run.servers.items()
        }
        for name, load in loads.items():
            slices = [load()]
            samples.warm_up[name] = slices
            while not run.is_quick and not _is_warm(slices, slices_at_least, settles_by):
                if len(slices) >= slices_at_most:
                    samples.unsettled.append(name)
                    break
                slices.append(load())
        samples.measured.update({name: [] for name in loads})
        for _ in range(run.repeats):
            for name, load in loads.items():
                samples.measured[name].append(load())
    return samples


def _is_warm(slices: list[Figures], at_least: int, settles_by: tuple[str, ...]) -> bool:
    if len(slices) < max(at_least, _SETTLED_SLICES):
        return False
    last = slices[-_SETTLED_SLICES:]
    return all(
        max(one[figure] for one in last) <= min(one[figure] for one in last) * (1 + _SETTLED_WITHIN)
        for figure in settles_by
    )


def per_request(server: Server, count: int, load: Callable[[], Figures]) -> Figures:
    """Sends a load of so many requests; returns their rate and the cost of each."""
    started = server.cpu_seconds()
    figures = load()
    cpu_seconds = server.cpu_seconds() - started
    return {
        **figures,
        "per_second": count / (figures["elapsed_ns"] / 1e9) if "elapsed_ns" in figures else 0.0,
        "cpu_us": cpu_seconds * 1e6 / count,
        "client_cpu_us": figures["client_cpu_ns"] / 1e3 / count,
    }


def compare(
    name: str,
    samples: Samples,
    figure: str,
    unit: str,
    bar: float | None = None,
    *,
    is_bar_lowest: bool = True,
    commit_bar: CommitBar | None = None,
) -> Row:
    """One figure of ours, beside that of the other server if there was one.

    Args:
        name: of the row.
        samples: of all servers.
        figure: which of them.
        unit: its unit.
        bar: of the ratio to Apache Kafka's.
        is_bar_lowest: whether that bar is the least allowed.
        commit_bar: of the ratio to another commit's, the most allowed.
    """
    medians = samples.medians(figure)
    other = next((server for server in medians if server != ODRADEK), None)
    if other is None:
        bar = None
    elif other != KAFKA:
        bar = None if commit_bar is None else commit_bar.of_this_build()
        is_bar_lowest = False
    return Row(
        name=name,
        measured=medians[ODRADEK],
        unit=unit,
        beside=None if other is None else medians[other],
        beside_name=other or "",
        bar=bar,
        is_bar_lowest=is_bar_lowest,
        note=f"not settled: {', '.join(samples.unsettled)}" if samples.unsettled else "",
        raw={
            server: {
                "measured": [one[figure] for one in all_],
                "warm_up": [one[figure] for one in samples.warm_up[server]],
            }
            for server, all_ in samples.measured.items()
        },
    )
