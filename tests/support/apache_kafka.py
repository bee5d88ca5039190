"""A real Apache Kafka for tests: its tools as processes, its broker as a context manager.

The jars come from `make kafka`, which puts them into a cache outside the tree. Nothing here touches
the network: a version that was not fetched is reported by `why_missing` and its tests skip.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.ports import free_ports

__all__ = [
    "KAFKA_VERSIONS",
    "BrokerStartError",
    "KafkaInstall",
    "RunningBroker",
    "find_kafka",
    "running_broker",
    "why_missing",
]

# The newest line, and the last one that knew ZooKeeper. `scripts/kafka` fetches the same two.
KAFKA_VERSIONS = ("4.3.1", "3.9.1")

# Any 16 bytes in URL-safe base64; one value for all, because no two of these brokers ever meet.
_CLUSTER_ID = "b2RyYWRlay10ZXN0cy0wMQ"

_START_TIMEOUT_S = 90  # a loaded machine of two cores takes 15 s
_STOP_TIMEOUT_S = 90
_STARTED_LINE = "Kafka Server started"
_PORT_TAKEN_LINE = "Address already in use"
_START_ATTEMPTS = 3  # a free port found by asking may be taken before the broker binds it

# Short-lived processes: the time to start counts, peak speed does not.
_JVM_OPTIONS = ("-Xms64m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class BrokerStartError(Exception):
    """The broker did not start; the message holds the end of its log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaInstall:
    """The jars of one Kafka version and the Java to run them with."""

    version: str
    java: str
    lib_dir: Path

    @property
    def archive(self) -> Path:
        """The classes as this Java has loaded them once, which halves the time of a start.

        The first broker that is stopped leaves it behind, beside the jars.
        """
        built = int(Path(self.java).resolve().stat().st_mtime)
        return self.lib_dir.parent / f"classes-{built}.jsa"

    def command(self, class_name: str, *args: str, log_level: str = "warn") -> list[str]:
        """The command line that runs a class of this Kafka."""
        return [
            self.java,
            *_JVM_OPTIONS,
            *((f"-XX:SharedArchiveFile={self.archive}",) if self.archive.exists() else ()),
            "-Xlog:disable",  # An archive that does not fit is left alone without a word.
            f"-Dorg.slf4j.simpleLogger.defaultLogLevel={log_level}",
            "-cp",
            f"{self.lib_dir}/*",
            class_name,
            *args,
        ]

    def run_tool(
        self, class_name: str, *args: str, timeout_s: float = 120
    ) -> subprocess.CompletedProcess[str]:
        """Runs a tool to its end. The exit code is the caller's to judge: some tools lie."""
        return subprocess.run(
            self.command(class_name, *args),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def dump_log_segments(self, *args: str) -> subprocess.CompletedProcess[str]:
        """Runs Kafka's dump tool, e.g. with ``--deep-iteration --files a.log,a.index``."""
        major = int(self.version.partition(".")[0])
        package = "org.apache.kafka.tools" if major >= 4 else "kafka.tools"
        return self.run_tool(f"{package}.DumpLogSegments", *args)


@dataclass(slots=True)
class RunningBroker:
    """A broker that answers. `stop` and `kill` may be called early; leaving the context stops."""

    bootstrap: str  # host:port for clients
    log_dir: Path  # holds a directory per partition, ``topic-0``, and the checkpoints
    _process: subprocess.Popen[bytes] = field(repr=False)
    # What it leaves behind when it ends, and where that goes.
    _fresh_archive: tuple[Path, Path] | None = field(default=None, repr=False)

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop(self) -> None:
        """Shuts down as an operator would: SIGTERM, which writes the clean-shutdown marker."""
        if self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        if self._fresh_archive is not None and self._fresh_archive[0].exists():
            self._fresh_archive[0].replace(self._fresh_archive[1])

    def kill(self) -> None:
        """Kills without warning (SIGKILL)."""
        self._process.kill()
        self._process.wait()


def find_kafka(version: str) -> KafkaInstall | None:
    """The install of `version`, or None; `why_missing` then says why."""
    java = shutil.which("java")
    lib_dir = _lib_dir(version)
    if java is None or not lib_dir.is_dir():
        return None
    return KafkaInstall(version=version, java=java, lib_dir=lib_dir)


def why_missing(version: str) -> str:
    """The reason to skip with when `find_kafka` returned None."""
    if shutil.which("java") is None:
        return "no java on the path, which running Apache Kafka needs"
    return f"Apache Kafka {version} is not in {_lib_dir(version)}; `make kafka` fetches it"


@contextlib.contextmanager
def running_broker(
    install: KafkaInstall, data_dir: Path, overrides: Mapping[str, str] | None = None
) -> Iterator[RunningBroker]:
    """Runs a KRaft node of one (broker and controller) on free loopback ports.

    Args:
        install: which Kafka.
        data_dir: gets ``server.properties``, ``broker.log`` and the log directory ``logs``. A
            second run on the same directory starts from what the first one left.
        overrides: entries of ``server.properties`` that win over the ones made here.

    Raises:
        BrokerStartError: it exited or did not answer in time.
    """
    data_dir.mkdir(parents=True, exist_ok=True)
    broker = _start(install, data_dir, dict(overrides or {}))
    try:
        yield broker
    finally:
        broker.stop()


def _lib_dir(version: str) -> Path:
    if cache := os.environ.get("ODRADEK_CACHE"):
        root = Path(cache)
    elif xdg_cache := os.environ.get("XDG_CACHE_HOME"):
        root = Path(xdg_cache) / "odradek"
    else:
        root = Path.home() / ".cache" / "odradek"
    return root / f"kafka-{version}" / "lib"


def _start(install: KafkaInstall, data_dir: Path, overrides: Mapping[str, str]) -> RunningBroker:
    log_path = data_dir / "broker.log"
    fresh: tuple[Path, Path] | None = None
    if not install.archive.exists():
        fresh = install.archive.with_suffix(f".{os.getpid()}.new"), install.archive
    for _ in range(_START_ATTEMPTS):
        port, controller_port = free_ports(2)
        properties_path = _write_properties(data_dir, port, controller_port, overrides)
        _format_storage(install, data_dir, properties_path)
        command = install.command("kafka.Kafka", str(properties_path), log_level="info")
        if fresh is not None:
            command.insert(1, f"-XX:ArchiveClassesAtExit={fresh[0]}")
        with log_path.open("wb") as log:
            process = subprocess.Popen(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
            )
        started = False
        try:
            started = _wait_until_started(process, log_path, port)
        finally:
            if not started:
                process.kill()
                process.wait()
        if started:
            return RunningBroker(f"127.0.0.1:{port}", data_dir / "logs", process, fresh)
        if _PORT_TAKEN_LINE not in log_path.read_text(errors="replace"):
            break
    tail = log_path.read_text(errors="replace")[-4000:]
    raise BrokerStartError(f"Apache Kafka {install.version} did not start in {data_dir}:\n{tail}")


def _write_properties(
    data_dir: Path, port: int, controller_port: int, overrides: Mapping[str, str]
) -> Path:
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(data_dir / "logs"),
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
        **overrides,
    }
    path = data_dir / "server.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    return path


def _format_storage(install: KafkaInstall, data_dir: Path, properties_path: Path) -> None:
    if (data_dir / "logs" / "meta.properties").exists():
        return
    arguments = ("format", "-t", _CLUSTER_ID, "-c", str(properties_path))
    result = install.run_tool("kafka.tools.StorageTool", *arguments)
    if result.returncode != 0:
        raise BrokerStartError(f"formatting {data_dir} failed:\n{result.stdout}{result.stderr}")


def _wait_until_started(process: subprocess.Popen[bytes], log_path: Path, port: int) -> bool:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline:
        if _STARTED_LINE in log_path.read_text(errors="replace") and _accepts(port):
            return True
        time.sleep(0.1)
    return False


def _accepts(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False
