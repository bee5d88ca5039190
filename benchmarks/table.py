"""The rows that benchmarks yield, and how a run is printed and kept.

A benchmark is a function that yields rows; `@benchmark("name")` registers it for the run, and
`@server_benchmark("name")` one that loads whole servers. A row with a bar passes or fails, one
without is there to be watched. Where Apache Kafka or another commit was measured beside us, the bar
is of the ratio. Every row names the Python and the build that it was measured with.
"""

import json
import os
import platform
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.servers import Run, describe_python

__all__ = [
    "BENCHMARKS",
    "CLUSTER_BENCHMARKS",
    "COMMIT_BENCHMARKS",
    "SERVER_BENCHMARKS",
    "Row",
    "at_least",
    "at_most",
    "benchmark",
    "cluster_benchmark",
    "print_row",
    "save",
    "server_benchmark",
]

RESULTS = Path(__file__).parent / "results"
_COLUMNS = "{:<54} {:>14} {:>14} {:>7} {:>9}  {:<4}  {}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure."""

    name: str
    measured: float
    unit: str
    beside: float | None = None  # The same figure of the other server in the same run.
    beside_name: str = ""  # The name of that server.
    # The limit for the figure, or for its ratio to the one beside it.
    bar: float | None = None
    is_bar_lowest: bool = False  # Whether the bar is the least allowed; otherwise the most.
    ran_on: str = field(default_factory=describe_python)  # The Python and the build.
    note: str = ""  # A reservation that a reader has to know.
    # The data of the figure: samples, byte counts and the like.
    raw: dict[str, Any] = field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        """Ours by the other one; None without the latter."""
        if self.beside is None:
            return None
        return self.measured / self.beside if self.beside else float("inf")

    @property
    def is_passed(self) -> bool | None:
        """Whether the bar is reached; None without one."""
        if self.bar is None:
            return None
        judged = self.measured if self.ratio is None else self.ratio
        return judged >= self.bar if self.is_bar_lowest else judged <= self.bar


def at_most(
    name: str, samples: list[float], unit: str, bar: float | None = None, **raw: Any
) -> Row:
    """The median of the samples, which should be small."""
    return Row(name=name, measured=median(samples), unit=unit, bar=bar, raw=_raw(samples, raw))


def at_least(
    name: str, samples: list[float], unit: str, bar: float | None = None, **raw: Any
) -> Row:
    """The median of the samples, which should be large."""
    return Row(
        name=name,
        measured=median(samples),
        unit=unit,
        bar=bar,
        is_bar_lowest=True,
        raw=_raw(samples, raw),
    )


def _raw(samples: list[float], more: dict[str, Any]) -> dict[str, Any]:
    return {"samples": samples, "min": min(samples), "max": max(samples), **more}


Benchmark = Callable[[], Iterator[Row]]
ServerBenchmark = Callable[[Run], Iterator[Row]]
BENCHMARKS: dict[str, Benchmark] = {}
SERVER_BENCHMARKS: dict[str, ServerBenchmark] = {}
CLUSTER_BENCHMARKS: dict[str, ServerBenchmark] = {}
COMMIT_BENCHMARKS: list[str] = []  # Names of those in a run beside another commit.


def benchmark(name: str) -> Callable[[Benchmark], Benchmark]:
    """Registers a benchmark under a name that `--only` takes."""

    def register(function: Benchmark) -> Benchmark:
        assert name not in BENCHMARKS, f"two benchmarks are called {name}"
        BENCHMARKS[name] = function
        return function

    return register


def server_benchmark(
    name: str, *, is_of_commits: bool = False
) -> Callable[[ServerBenchmark], ServerBenchmark]:
    """Registers a benchmark of whole servers under a name that `--only` takes."""

    def register(function: ServerBenchmark) -> ServerBenchmark:
        assert name not in SERVER_BENCHMARKS, f"two benchmarks are called {name}"
        if is_of_commits:
            COMMIT_BENCHMARKS.append(name)
        SERVER_BENCHMARKS[name] = function
        return function

    return register


def cluster_benchmark(name: str) -> Callable[[ServerBenchmark], ServerBenchmark]:
    """Registers a benchmark of clusters; one that fails yields a row that says why."""

    def register(function: ServerBenchmark) -> ServerBenchmark:
        assert name not in CLUSTER_BENCHMARKS, f"two benchmarks are called {name}"

        def guarded(run: Run) -> Iterator[Row]:
            try:
                yield from function(run)
            except Exception as error:
                why = f"{type(error).__name__}: {error}".strip().splitlines()
                yield Row(
                    name=f"{name} failed", measured=float("nan"), unit="", bar=0.0,
                    note=" / ".join([why[0], *why[-1:]])[:400], raw={"why": str(error)},
                )  # fmt: skip

        CLUSTER_BENCHMARKS[name] = guarded
        return function

    return register


def print_row(row: Row | None, beside: str = "beside it") -> None:
    """Prints one line of the table; None prints its head, with the name of the other server."""
    if row is None:
        print(_COLUMNS.format("what", "measured", beside, "ratio", "bar", "", "on"))
        return
    other = "" if row.beside is None else f"{row.beside:.4g} {row.unit}"
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
    bar = "" if row.bar is None else f"{'>=' if row.is_bar_lowest else '<='} {row.bar:g}"
    verdict = {None: "", True: "pass", False: "FAIL"}[row.is_passed]
    measured = f"{row.measured:.4g} {row.unit}"
    remarks = f"{row.ran_on}; {row.note}" if row.note else row.ran_on
    print(_COLUMNS.format(row.name, measured, other, ratio, bar, verdict, remarks), flush=True)


def save(rows: list[Row], path: Path | None) -> Path:
    """Writes the rows with all data needed to compare them later; returns the path."""
    started = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    commit = _git("rev-parse", "--short", "HEAD")
    if path is None:
        RESULTS.mkdir(exist_ok=True)
        path = RESULTS / f"{started}-{commit or 'unknown'}.json"
    content = {
        "when": started,
        "commit": commit,
        "is_modified": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "python": describe_python(),
        "machine": {
            "cpu": _first_field("/proc/cpuinfo", "model name"),
            "cores": os.cpu_count(),
            "memory": _first_field("/proc/meminfo", "MemTotal"),
            "kernel": platform.release(),
            "load_average": os.getloadavg(),
        },
        "rows": [{**asdict(row), "ratio": row.ratio, "is_passed": row.is_passed} for row in rows],
    }
    path.write_text(json.dumps(content, indent=1) + "\n")
    return path


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", *arguments], capture_output=True, text=True, check=True, cwd=RESULTS.parent
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


def _first_field(path: str, name: str) -> str:
    try:
        with open(path) as file:
            for line in file:
                key, _, value = line.partition(":")
                if key.strip() == name:
                    return value.strip()
    except OSError:
        pass
    return "unknown"
