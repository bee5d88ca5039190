"""Odradek's broker as its users run it: a process of its own, started by `odradek serve`.

Beside the address for clients it offers what a test cannot see from outside a client: which API
versions were sent to it (`requests_sent_by`), and its log.
"""

import contextlib
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.ports import free_port

__all__ = ["OdradekBroker", "Requests", "running_odradek"]

_START_TIMEOUT_S = 90
_STOP_TIMEOUT_S = 90
_QUIET_TIMEOUT_S = 60
_READY = re.compile(r"^odradek: broker 0 ready on (?P<address>\S+:\d+)$", re.MULTILINE)
_REQUEST_COUNT = re.compile(
    r"^kafka_network_requestmetrics_requests_total"
    r"\{request=\"(?P<name>\w+)\",version=\"(?P<version>-?\d+)\"\} (?P<count>[\d.e+]+)$",
    re.MULTILINE,
)
_NO_FETCH_WAITS = re.compile(
    r"^kafka_server_delayedoperationpurgatory_numdelayedoperations"
    r"\{delayedOperation=\"Fetch\"\} 0$",
    re.MULTILINE,
)


@dataclass(slots=True)
class Requests:
    """What clients sent while `OdradekBroker.watched` was open, as Kafka names it."""

    counts: dict[tuple[str, int], int] = field(default_factory=dict)

    def versions_of(self, name: str) -> set[int]:
        return {version for (one, version) in self.counts if one == name}

    def without_introduction(self) -> set[tuple[str, int]]:
        """API and version of all that came, but for what every client begins with."""
        return {one for one in self.counts if one[0] not in ("ApiVersions", "Metadata")}


@dataclass(slots=True)
class OdradekBroker:
    """A broker that answers."""

    bootstrap: str  # host:port for clients
    log_dir: Path
    log_path: Path  # what it wrote to standard error
    metrics_port: int = field(repr=False)
    _process: subprocess.Popen[bytes] = field(repr=False)

    @property
    def port(self) -> int:
        return int(self.bootstrap.rpartition(":")[2])

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def peak_memory_bytes(self) -> int:
        """The most it has had in memory so far."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        (found,) = re.findall(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
        return int(found) * 1024

    def metrics(self) -> str:
        url = f"http://127.0.0.1:{self.metrics_port}/metrics"
        with urllib.request.urlopen(url, timeout=60) as answer:
            text: str = answer.read().decode()
        return text

    @contextlib.contextmanager
    def watched(self) -> Iterator[Requests]:
        """Yields what will hold, at the end of the block, the requests that came within it.

        The broker counts a request when its answer has left; a client that got the answer is
        at most one turn of the event loop ahead of that count, and asking takes several. Fetches
        that a client of before left behind are waited for, or they would count here.
        """
        deadline = time.monotonic() + _QUIET_TIMEOUT_S
        while not _NO_FETCH_WAITS.search(self.metrics()):
            assert time.monotonic() < deadline, "somebody keeps fetching"
            time.sleep(0.02)
        before = self._request_counts()
        requests = Requests()
        yield requests
        for request, count in self._request_counts().items():
            if more := count - before.get(request, 0):
                requests.counts[request] = more

    def stop(self) -> int:
        """Shuts down as an operator would and returns the exit code."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise

    def kill(self) -> None:
        """Ends it as a crash would; the block that runs it then ends without a check."""
        self._process.kill()
        self._process.wait()

    @property
    def was_killed(self) -> bool:
        return self._process.poll() == -signal.SIGKILL

    def _request_counts(self) -> dict[tuple[str, int], int]:
        return {
            (found["name"], int(found["version"])): int(float(found["count"]))
            for found in _REQUEST_COUNT.finditer(self.metrics())
        }


@contextlib.contextmanager
def running_odradek(
    data_dir: Path,
    settings: Mapping[str, str] | None = None,
    *,
    advertise: Mapping[str, str] | None = None,
    port: int = 0,
) -> Iterator[OdradekBroker]:
    """Runs a broker on free loopback ports until the block ends; checks that it ends in order.

    Args:
        data_dir: gets ``broker.log``, and ``logs`` unless the settings name ``log.dirs``.
        settings: entries as of ``server.properties``.
        advertise: other version ranges to tell clients than the real ones, by the name in
            `ApiKey`: ``{"PRODUCE": "3-12"}``.
        port: where to listen, for a broker that clients are to find again; 0 takes any.
    """
    data_dir.mkdir(parents=True, exist_ok=True)
    metrics_port = free_port()
    overrides = {"odradek.metrics.port": str(metrics_port), **(settings or {})}
    command = [sys.executable, "-m", "odradek.cli.main"]
    if advertise:
        command[-1] = "tests.support.run_broker"
        command += [f"{api}={versions}" for api, versions in advertise.items()]
    command += ["serve", "--listen", f"127.0.0.1:{port}"]
    if "log.dirs" not in overrides:
        command += ["--data", str(data_dir / "logs")]
    command += [word for key, value in overrides.items() for word in ("--set", f"{key}={value}")]
    out_path, log_path = data_dir / "broker.out", data_dir / "broker.log"
    with out_path.open("wb") as out, log_path.open("wb") as log:
        process = subprocess.Popen(command, stdout=out, stderr=log, stdin=subprocess.DEVNULL)
    try:
        address = _wait_until_ready(process, out_path, log_path)
        broker = OdradekBroker(address, data_dir / "logs", log_path, metrics_port, process)
        yield broker
        if broker.was_killed or process.poll() == 0:
            return
        assert broker.is_alive(), f"the broker died:\n{broker.log()[-4000:]}"
        assert broker.stop() == 0, f"the broker did not end in order:\n{broker.log()[-4000:]}"
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _wait_until_ready(process: subprocess.Popen[bytes], out_path: Path, log_path: Path) -> str:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline:
        if found := _READY.search(out_path.read_text()):
            return found["address"]
        time.sleep(0.02)
    raise AssertionError(f"Odradek did not start:\n{log_path.read_text(errors='replace')[-4000:]}")
