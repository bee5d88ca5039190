"""The servers that are measured: a broker of ours, and one beside it.

The other one is an Apache Kafka, or a broker of ours from another commit. All are processes of
their own with fresh data on the same file system, one node, settings at their defaults. Kafka gets
the heap and collector that its own start script gives it.
"""

import contextlib
import os
import platform
import re
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

from odradek.builds import name_build
from tests.support.apache_kafka import KafkaInstall, find_kafka, running_broker, why_missing

__all__ = [
    "COMMAND",
    "KAFKA",
    "ODRADEK",
    "DefaultKafka",
    "Run",
    "Server",
    "Start",
    "cpu_seconds_of",
    "describe_python",
    "resident_mb_of",
    "start_odradek",
    "touch_free_memory",
    "with_bytecode",
    "with_commit",
    "with_kafka",
]

# The installed command.
COMMAND = str(Path(sys.executable).parent / "odradek")
ODRADEK = "odradek"
KAFKA = "kafka"
_KAFKA_VERSION = "4.3.1"

_ROOT = Path(__file__).resolve().parent.parent
_BYTECODE = _ROOT / "build" / "benchmarks" / "bytecode"
_READY_LINE = re.compile(r"odradek: broker \d+ ready on (\S+)$")
_STOP_TIMEOUT_S = 30
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

# What bin/kafka-server-start.sh and bin/kafka-run-class.sh set.
_KAFKA_JVM_OPTIONS = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)


def cpu_seconds_of(pid: int) -> float:
    """User and system time of all threads of a process so far."""
    stat = Path(f"/proc/{pid}/stat").read_text()
    # The name, in brackets, may hold anything; the fields after it start with the third.
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND


def resident_mb_of(pid: int) -> float:
    """Memory that a process has in use, in units of 10^6 bytes."""
    pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    return int(pages) * _PAGE_BYTES / 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server that answers."""

    bootstrap: str
    pid: int
    data: Path  # Where its partitions are.

    def cpu_seconds(self) -> float:
        """User and system time of all its threads so far."""
        return cpu_seconds_of(self.pid)

    def resident_mb(self) -> float:
        """Memory in use, in units of 10^6 bytes."""
        return resident_mb_of(self.pid)


def with_bytecode() -> dict[str, str]:
    """The environment for a process of ours, with modules compiled once, as in any installation.

    Some machines that build and test forbid the cache; every start would compile the whole package.
    """
    forbidding = ("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX")
    environment = {name: value for name, value in os.environ.items() if name not in forbidding}
    return {**environment, "PYTHONPYCACHEPREFIX": str(_BYTECODE)}


@cache
def describe_python() -> str:
    """The Python that runs our brokers and our code, and how this tree was built."""
    variables = sysconfig.get_config_vars()
    # Debian optimises by profile in its own way, and leaves the flag for it empty.
    is_optimised = (
        "--enable-optimizations" in str(variables.get("CONFIG_ARGS"))
        or variables.get("PGO_PROF_USE_FLAG") == ""
    )
    pgo = "PGO" if is_optimised else "no PGO"
    return f"{name_build()}, Python {platform.python_version()} {pgo}"


class Start(Protocol):
    """Starts a server with these settings."""

    def __call__(
        self, settings: Mapping[str, str] | None = None
    ) -> AbstractContextManager[Server]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The servers of a run, and how thoroughly they are measured."""

    is_quick: bool
    # By name, in the order in which they take turns.
    servers: Mapping[str, Start]
    repeats: int = 3  # Samples of each load of each server.

    def scaled(self, count: int) -> int:
        """How many messages or requests to send, where a full run sends `count`."""
        return max(count // 50, 100) if self.is_quick else count


def touch_free_memory() -> None:
    """Writes to all memory that is free.

    A virtual machine gets its memory when it is first written to, and the first process to write
    pays for it in CPU time: several seconds for a gigabyte, many times the cost of storing it.
    """
    free = re.search(r"^MemFree:\s+(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE)
    if free is not None:
        size = int(free[1]) * 1024 * 9 // 10
        subprocess.run([sys.executable, "-c", f"b'1' * {size}"], check=False)


def start_odradek(
    settings: Mapping[str, str] | None = None,
) -> AbstractContextManager[Server]:
    """`odradek serve` of this tree, from ready to its end."""
    return _serve((COMMAND,), with_bytecode(), settings)


@contextlib.contextmanager
def _serve(
    command: tuple[str, ...], environment: Mapping[str, str], settings: Mapping[str, str] | None
) -> Iterator[Server]:
    chosen = [w for key, value in (settings or {}).items() for w in ("--set", f"{key}={value}")]
    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as data:
        process = subprocess.Popen(
            [
                *(*command, "serve", "--listen", "127.0.0.1:0"),
                *("--data", data, "--log-level", "warning", *chosen),
            ],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        with process:
            try:
                assert process.stdout is not None
                line = process.stdout.readline()
                ready = _READY_LINE.match(line)
                if ready is None:
                    raise RuntimeError(f"the broker did not start, it said {line!r}")
                yield Server(bootstrap=ready[1], pid=process.pid, data=Path(data))
            finally:
                process.terminate()
                try:
                    process.wait(_STOP_TIMEOUT_S)
                except subprocess.TimeoutExpired:
                    process.kill()


class DefaultKafka(KafkaInstall):
    """A Kafka that starts as its own scripts start it."""

    __slots__ = ()

    def command(self, class_name: str, *args: str, log_level: str = "warn") -> list[str]:
        level = f"-Dorg.slf4j.simpleLogger.defaultLogLevel={log_level}"
        classes = ("-cp", f"{self.lib_dir}/*")
        return [self.java, *_KAFKA_JVM_OPTIONS, level, *classes, class_name, *args]


@contextlib.contextmanager
def with_commit(commit: str) -> Iterator[Start]:
    """How to start a broker of another commit, checked out and built in a temporary folder.

    It has its compiled record loops, and the packages that this Python has.

    Raises:
        RuntimeError: there is no such commit, or it cannot be built.
    """
    with tempfile.TemporaryDirectory(prefix="odradek-commit-") as folder:
        tree = Path(folder) / "tree"
        _run("git", "-C", str(_ROOT), "worktree", "add", "--detach", str(tree), commit)
        try:
            _run(sys.executable, "setup.py", "--quiet", "build_ext", "--inplace", cwd=tree)
            environment = {**with_bytecode(), "PYTHONPATH": str(tree / "src")}
            run = "import sys; from odradek.cli.main import main; sys.exit(main())"

            def start(
                settings: Mapping[str, str] | None = None,
            ) -> AbstractContextManager[Server]:
                return _serve((sys.executable, "-P", "-c", run), environment, settings)

            yield start
        finally:
            _run("git", "-C", str(_ROOT), "worktree", "remove", "--force", str(tree))


def _run(*command: str, cwd: Path | None = None) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"`{' '.join(command)}` failed: {done.stderr.strip()[-2000:]}")


def with_kafka() -> Start:
    """How to start an Apache Kafka; settings override those of the tests.

    Raises:
        RuntimeError: there is none here.
    """
    found = find_kafka(_KAFKA_VERSION)
    if found is None:
        raise RuntimeError(why_missing(_KAFKA_VERSION))
    install = DefaultKafka(version=found.version, java=found.java, lib_dir=found.lib_dir)

    @contextlib.contextmanager
    def start(settings: Mapping[str, str] | None = None) -> Iterator[Server]:
        with (
            tempfile.TemporaryDirectory(prefix="kafka-bench-") as data,
            running_broker(install, Path(data), settings) as broker,
        ):
            yield Server(bootstrap=broker.bootstrap, pid=broker.pid, data=broker.log_dir)

    return start
