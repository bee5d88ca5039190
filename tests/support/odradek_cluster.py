"""Brokers as their users run them: processes of `odradek serve` on one ZooKeeper.

Each can be killed and started again, at the address and on the data that it had before.
"""

import contextlib
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from odradek import Admin
from odradek.client.admin import NewTopic
from odradek.client.cluster import PartitionView
from odradek.errors import ApiError, ErrorCode
from tests.support.ports import free_ports
from tests.support.zookeeper import ZooKeeperProcess

__all__ = ["BrokerProcess", "ProcessCluster", "eventually", "running_processes"]

_PATIENCE_S = 90
# A dead broker is seen after a session; a live one on a loaded machine keeps its session.
_SETTINGS = {
    "zookeeper.session.timeout.ms": "3000",
    "auto.leader.rebalance.enable": "false",
    "offsets.topic.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "replica.lag.time.max.ms": "6000",
}


def eventually(condition: Callable[[], bool], what: Callable[[], object] = lambda: "") -> None:
    """Waits for a condition; `what` is said of the moment when there was no time left."""
    deadline = time.monotonic() + _PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.05)


@dataclass(slots=True)
class BrokerProcess:
    """One broker: alive or not."""

    broker_id: int
    folder: Path
    port: int
    metrics_port: int
    connect: str
    settings: Mapping[str, str]
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log_dir(self) -> Path:
        return self.folder / "logs"

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def log(self) -> str:
        """What all its lives wrote to standard error."""
        return (self.folder / "broker.log").read_text(errors="replace")

    def launch(self) -> None:
        """Starts the process; `wait_until_ready` follows."""
        assert not self.is_alive
        self.folder.mkdir(parents=True, exist_ok=True)
        given = {
            **_SETTINGS,
            "zookeeper.connect": self.connect,
            "broker.id": str(self.broker_id),
            "broker.rack": f"rack-{self.broker_id}",
            "odradek.metrics.port": str(self.metrics_port),
            **self.settings,
        }
        words = [word for key, value in given.items() for word in ("--set", f"{key}={value}")]
        with (
            (self.folder / "broker.out").open("wb") as out,
            (self.folder / "broker.log").open("ab") as log,
        ):
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "odradek.cli.main", "serve"),
                    *("--listen", self.bootstrap, "--data", str(self.log_dir), *words),
                ],
                stdout=out,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )

    def wait_until_ready(self) -> None:
        out, ready = self.folder / "broker.out", f"odradek: broker {self.broker_id} ready on"
        eventually(lambda: ready in out.read_text() or not self.is_alive, self.log)
        assert self.is_alive, self.log()[-4000:]

    def start(self) -> None:
        self.launch()
        self.wait_until_ready()

    def kill(self) -> None:
        """Ends it as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> int:
        """Ends it as an operator would; returns the exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(_PATIENCE_S)

    def metric(self, name: str) -> float:
        """The sum of a metric over its labels."""
        url = f"http://127.0.0.1:{self.metrics_port}/metrics"
        with urllib.request.urlopen(url, timeout=60) as answer:
            page: str = answer.read().decode()
        found = re.findall(rf"(?m)^{name}(?:\{{[^}}]*\}})? (\S+)$", page)
        assert found, f"{name} is not on the page"
        return sum(map(float, found))


@dataclass(slots=True)
class ProcessCluster:
    """Brokers 0, 1, 2."""

    connect: str  # servers and path, as of `zookeeper.connect`
    brokers: list[BrokerProcess]

    @property
    def bootstrap(self) -> str:
        return ",".join(one.bootstrap for one in self.brokers)

    def admin(self) -> Admin:
        alive = [one.bootstrap for one in self.brokers if one.is_alive]
        return Admin(bootstrap_servers=",".join(alive))

    def create(self, topic: str, assignments: Mapping[int, list[int]], **configs: str) -> None:
        """Creates a topic on these brokers, and waits until each live one shows it whole."""
        named = {key.replace("_", "."): value for key, value in configs.items()}
        new = NewTopic(name=topic, assignments=dict(assignments), configs=named)
        with self.admin() as admin:

            def is_answered() -> bool:
                """Not between two controllers."""
                created = admin.create_topics([new])[topic]
                if isinstance(created, ApiError) and created.code is ErrorCode.NOT_CONTROLLER:
                    return False
                assert not isinstance(created, ApiError), created
                return True

            eventually(is_answered, lambda: f"{topic}: no controller")
        for number, replicas in assignments.items():
            self.wait_for(topic, number, lambda seen, all_=replicas: set(seen.isr) == set(all_))  # type: ignore[misc]  # a default

    def view(self, topic: str, number: int, told_by: int) -> PartitionView | None:
        """A partition as one broker shows it."""
        with Admin(bootstrap_servers=self.brokers[told_by].bootstrap) as admin:
            found = admin.describe_topics([topic])[topic]
        return None if isinstance(found, ApiError) else found.partitions[number]

    def wait_for(
        self, topic: str, number: int, is_so: Callable[[PartitionView], bool]
    ) -> PartitionView:
        """Waits until every live broker shows a partition so; returns what the last one shows."""
        shown: list[PartitionView | None] = []
        for one in self.brokers:
            if not one.is_alive:
                continue

            def holds(told_by: int = one.broker_id) -> bool:
                shown.append(seen := self.view(topic, number, told_by))
                return seen is not None and is_so(seen)

            eventually(holds, lambda: (topic, number, shown[-3:]))
        assert shown[-1] is not None
        return shown[-1]

    def restart_dead(self) -> None:
        """Starts the brokers that do not run, so that the next test finds all."""
        dead = [one for one in self.brokers if not one.is_alive]
        for one in dead:
            one.launch()
        for one in dead:
            one.wait_until_ready()

    def all_metrics(self, name: str) -> float:
        """A metric summed over the live brokers."""
        return sum(one.metric(name) for one in self.brokers if one.is_alive)


@contextlib.contextmanager
def running_processes(
    zookeeper: ZooKeeperProcess, folder: Path, settings: Mapping[str, str] | None = None
) -> Iterator[ProcessCluster]:
    """Three brokers in a chroot of their own; those that live at the end must end in order."""
    ports = free_ports(6)
    connect = f"{zookeeper.address}/{uuid4().hex}"
    cluster = ProcessCluster(
        connect,
        [
            BrokerProcess(
                broker_id=number,
                folder=folder / f"broker-{number}",
                port=ports[number],
                metrics_port=ports[3 + number],
                connect=connect,
                settings=settings or {},
            )
            for number in range(3)
        ],
    )
    try:
        cluster.restart_dead()
        yield cluster
        for one in cluster.brokers:
            if one.is_alive:
                assert one.stop() == 0, one.log()[-4000:]
    finally:
        for one in cluster.brokers:
            one.kill()
