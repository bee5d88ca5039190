"""Metrics of the process, under the names that Prometheus' own client libraries use.

Dashboards and alerts for processes of any kind look for `process_cpu_seconds_total` and the others.
Values are read when the page is: from `/proc/self`, which takes some microseconds. One that the
system does not tell is left out.
"""

import os
import platform
import resource
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from odradek.metrics.names import InstrumentKind, MetricName
from odradek.metrics.registry import Collected, MetricRegistry

__all__ = ["register_process_metrics"]

_PAGE_BYTES: Final = resource.getpagesize()
# Fields of /proc/self/stat, counted from behind the name of the program, which may have blanks.
_THREADS: Final = 17
_START_TICKS: Final = 19
_VIRTUAL_BYTES: Final = 20


def register_process_metrics(registry: MetricRegistry, build: Mapping[str, str]) -> None:
    """Registers the metrics of this process, and those that say what it runs.

    Args:
        build: Labels of `odradek_build_info`.
    """
    for name, (kind, doc, read) in _METRICS.items():
        registry.collect(name, _one(read), doc, kind=kind)
    labels = (*build.items(), ("python", platform.python_version()))
    registry.gauge(
        MetricName("odradek", "build", "info", labels),
        lambda: 1,
        "The version that runs, as labels; always 1.",
    )


def _one(read: Callable[[], float | None]) -> Callable[[], Collected]:
    def collected() -> Iterator[tuple[tuple[tuple[str, str], ...], float]]:
        try:
            value = read()
        except (OSError, ValueError, IndexError):  # The system has no such file, or another form.
            return
        if value is not None:
            yield (), value

    return collected


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _resident_bytes() -> float:
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * _PAGE_BYTES


def _stat(field: int) -> int:
    with open("/proc/self/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[field])


def _open_files() -> float:
    # Since Linux 6.2 the size of the directory; listing a hundred thousand takes long.
    return os.stat("/proc/self/fd").st_size or len(os.listdir("/proc/self/fd"))


def _start_seconds() -> float | None:
    with open("/proc/stat", "rb") as file:
        boot = next((line.split()[1] for line in file if line.startswith(b"btime ")), None)
    if boot is None:
        return None
    return int(boot) + _stat(_START_TICKS) / os.sysconf("SC_CLK_TCK")


_METRICS: Final[dict[MetricName, tuple[InstrumentKind, str, Callable[[], float | None]]]] = {
    MetricName("process", "cpu", "seconds"): (
        InstrumentKind.METER,
        "CPU time of the process, user and system.",
        _cpu_seconds,
    ),
    MetricName("process", "resident", "memory_bytes"): (
        InstrumentKind.GAUGE,
        "Memory of the process in RAM, mapped indexes included.",
        _resident_bytes,
    ),
    MetricName("process", "virtual", "memory_bytes"): (
        InstrumentKind.GAUGE,
        "Address space of the process.",
        lambda: _stat(_VIRTUAL_BYTES),
    ),
    MetricName("process", "open", "fds"): (
        InstrumentKind.GAUGE,
        "Open descriptors: connections, segments, indexes.",
        _open_files,
    ),
    MetricName("process", "max", "fds"): (
        InstrumentKind.GAUGE,
        "Limit on open descriptors.",
        lambda: resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    ),
    MetricName("process", "num", "threads"): (
        InstrumentKind.GAUGE,
        "Threads of the process.",
        lambda: _stat(_THREADS),
    ),
    MetricName("process", "start", "time_seconds"): (
        InstrumentKind.GAUGE,
        "When the process was started, in seconds since 1970.",
        _start_seconds,
    ),
}
