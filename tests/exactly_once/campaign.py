"""One run: a source, a target, lives of drivers with faults, and a history for the checker."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from confluent_kafka import Message
from confluent_kafka import Producer as OtherProducer

from odradek import Admin
from odradek.client.admin import NewTopic
from tests.exactly_once.checker import judge
from tests.exactly_once.driver import STEPS
from tests.support.apache_kafka import find_kafka, running_broker
from tests.support.odradek_broker import running_odradek
from tests.support.ports import free_port
from tests.support.spark_cluster import SparkCluster, running_cluster

__all__ = ["BROKERS", "FAULTS", "Plan", "faults_of_mistake", "run"]

BROKERS = ("odradek", "kafka-4.3.1", "kafka-3.9.1")
FAULTS = (*(f"kill-{step}" for step in STEPS), "kill", "worker", "broker", "pause", "executor")

_PARTITIONS = 3
_SOURCE_PARTITIONS = 2
_ROWS = 6000
_BATCH_ROWS = 500
_LIFE_LIMIT_S = 450
_TIMEOUT_MS = 20_000
_COMMITS = "__odradek_pipeline_commits"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run is made of."""

    seed: int
    broker: str
    faults: tuple[str, ...]
    folder: Path
    is_cluster: bool = False
    is_adaptive: bool = True
    mistake: str | None = None


def faults_of_mistake(mistake: str) -> tuple[str, ...]:
    """The faults that bring a planted mistake to light."""
    return {
        "marker-outside-the-transaction": ("kill-marked",),
        # The driver that pauses has to find a marker, or the note of its checkpoint warns it.
        "marker-before-init-producer-id": ("kill-freed", "pause"),
        "attempt-1-may-send": ("worker",),
        "epoch-used-twice": ("worker",),
        "commit-before-all-tasks": ("kill-committed",),
    }[mistake]


@dataclass(slots=True)
class Broker:
    """A broker that can be killed and started again."""

    bootstrap: str
    restart: Callable[[], None]


def run(plan: Plan) -> list[str]:
    """Runs; returns what the checker finds."""
    plan.folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(_broker(plan))
        cluster = None
        if plan.is_cluster:
            cluster = stack.enter_context(running_cluster(plan.folder / "spark", workers=2))
        campaign = _Campaign(plan, broker, cluster)
        campaign.prepare()
        with campaign.reader_beside():
            for fault in plan.faults:
                campaign.live_with(fault)
            campaign.live_to_the_end()
        campaign.collect()
    return judge(plan.folder)


@contextlib.contextmanager
def _broker(plan: Plan) -> Iterator[Broker]:
    folder = plan.folder / "broker"
    settings = {
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
        "transaction.state.log.num.partitions": "1",
    }
    with contextlib.ExitStack() as stack:
        if plan.broker == "odradek":
            port = free_port()
            first = stack.enter_context(running_odradek(folder, settings, port=port))
            running = [first]

            def restart() -> None:
                running[-1].kill()
                again = running_odradek(folder, settings, port=port)
                running.append(stack.enter_context(again))

            yield Broker(first.bootstrap, restart)
            return
        install = find_kafka(plan.broker.removeprefix("kafka-"))
        assert install is not None, f"{plan.broker} is not fetched: make kafka"
        node = stack.enter_context(running_broker(install, folder, settings))
        processes: list[subprocess.Popen[bytes]] = []
        stack.callback(_end_all, processes)

        def restart_kafka() -> None:
            _end_all(processes)
            node.kill()
            command = install.command("kafka.Kafka", str(folder / "server.properties"))
            with (folder / f"broker-{len(processes)}.log").open("wb") as log:
                processes.append(subprocess.Popen(command, stdout=log, stderr=log))

        yield Broker(node.bootstrap, restart_kafka)


def _end_all(processes: list[subprocess.Popen[bytes]]) -> None:
    for one in processes:
        _end(one)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


@dataclass(slots=True)
class _Campaign:
    plan: Plan
    broker: Broker
    cluster: SparkCluster | None
    random: Random = field(init=False)
    lives: int = 0

    def __post_init__(self) -> None:
        self.random = Random(self.plan.seed)

    def prepare(self) -> None:
        topics = {"source": _SOURCE_PARTITIONS, "target": _PARTITIONS}
        with Admin(bootstrap_servers=self.broker.bootstrap) as admin:
            admin.create_topics(
                [NewTopic(name=name, partition_count=count) for name, count in topics.items()]
            )
        producer = OtherProducer({"bootstrap.servers": self.broker.bootstrap})
        with (self.plan.folder / "produced.jsonl").open("w") as out:

            def told(number: int) -> Callable[[Any, Message], None]:
                def tell(error: Any, record: Message) -> None:
                    assert error is None, error
                    line = {"n": number, "partition": record.partition(), "offset": record.offset()}
                    out.write(json.dumps(line) + "\n")

                return tell

            for number in range(_ROWS):
                producer.produce(
                    "source",
                    str(number).encode(),
                    partition=number % _SOURCE_PARTITIONS,
                    on_delivery=told(number),
                )
            assert producer.flush(60) == 0

    # Lives

    def live_with(self, fault: str) -> None:
        if fault.startswith("kill-"):
            self._start(at=self._at(fault[5:], "kill")).wait(_LIFE_LIMIT_S)
        elif fault == "kill":
            process = self._start()
            self._wait_for(process, "started")
            time.sleep(self.random.uniform(0, 4))
            process.kill()
            process.wait()
        elif fault == "worker":
            (self.plan.folder / "trap").touch()
            self._start().wait(_LIFE_LIMIT_S)
        elif fault == "broker":
            process = self._start()
            self._wait_for(process, "started")
            time.sleep(self.random.uniform(0, 3))
            self.broker.restart()
            process.wait(_LIFE_LIMIT_S)
        elif fault == "executor":
            assert self.cluster is not None, "it needs --cluster"
            process = self._start()
            step = self.random.choice(["started", "packed", "begun"])
            if self._wait_for(process, step):
                time.sleep(self.random.choice([0.0, self.random.uniform(0, 1)]))
                self.cluster.kill_executor(self.random)
            process.wait(_LIFE_LIMIT_S)
        else:
            self._pause()

    def _at(self, step: str, sign: str) -> dict[str, Any]:
        """A step in the first or second batch of a life; the first one has steps of its own."""
        after = 0 if step in ("started", "judged", "read") else self.random.randrange(2)
        return {"step": step, "after": after, "signal": sign}

    def _pause(self) -> None:
        """One driver stops for longer than its transaction may last, while another one runs."""
        steps = [one for one in STEPS if one != "freed"]
        step = self.random.choice(steps)
        if self.plan.mistake == "marker-before-init-producer-id":
            step = "read"
        paused = self._start(at=self._at(step, "stop"))
        if not self._wait_for(paused, "stop"):
            return
        try:
            # Its Java must not go on alone, nor hold what the other one needs.
            time.sleep(self.random.choice([0, _TIMEOUT_MS / 1000 + 2]))
            self._start().wait(_LIFE_LIMIT_S)
        finally:
            os.kill(paused.pid, signal.SIGCONT)
        paused.wait(_LIFE_LIMIT_S)

    def live_to_the_end(self) -> None:
        for _ in range(4):
            if self._start().wait(_LIFE_LIMIT_S) == 0:
                return
        raise AssertionError(f"no driver comes to the end, see {self.plan.folder}")

    def _start(self, at: dict[str, Any] | None = None) -> subprocess.Popen[bytes]:
        plan, folder = self.plan, self.plan.folder
        self.lives += 1
        conf = {
            "spark.driver.memory": "512m",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.adaptive.enabled": str(plan.is_adaptive).lower(),
            "spark.sql.adaptive.streaming.stateless.enabled": str(plan.is_adaptive).lower(),
            "spark.local.dir": str(folder / "local"),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
        }
        if self.cluster is not None:
            conf |= {
                "spark.driver.host": "127.0.0.1",
                "spark.driver.bindAddress": "127.0.0.1",
                "spark.executor.memory": "512m",
                "spark.executor.cores": "1",
                "spark.cores.max": "2",
            }
        spec = {
            "life": self.lives,
            "bootstrap": self.broker.bootstrap,
            "source": "source",
            "target": "target",
            "checkpoint": f"file://{folder}/checkpoint",
            "events": str(folder / "events.jsonl"),
            "trap": str(folder / "trap"),
            "master": "local[2]" if self.cluster is None else self.cluster.url,
            "conf": conf,
            "batch_rows": _BATCH_ROWS,
            "transaction_timeout_ms": _TIMEOUT_MS,
            "at": at,
            "mistake": plan.mistake,
        }
        environ = dict(os.environ)
        if self.cluster is not None:
            environ["PYSPARK_PYTHON"] = self.cluster.python
        with (folder / f"driver-{self.lives}.log").open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.exactly_once.driver", json.dumps(spec)],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=environ,
            )

    def _wait_for(self, process: subprocess.Popen[bytes], event: str) -> bool:
        """Waits for an event of the present life; returns whether it came."""
        deadline = time.monotonic() + _LIFE_LIMIT_S
        path = self.plan.folder / "events.jsonl"
        while time.monotonic() < deadline:
            text = path.read_text() if path.exists() else ""
            for line in text.splitlines():
                if f'"life": {self.lives},' in line and f'"event": "{event}"' in line:
                    return True
            if process.poll() is not None:
                return False
            time.sleep(0.02)
        raise AssertionError(f"life {self.lives} does not come to {event!r}")

    # The history

    @contextlib.contextmanager
    def reader_beside(self) -> Iterator[None]:
        process = self._read("target", _PARTITIONS, "beside.jsonl", to_end=False)
        try:
            yield
        finally:
            _end(process)

    def collect(self) -> None:
        for topic, count, name in (("target", _PARTITIONS, "final"), (_COMMITS, 1, "raw")):
            assert self._read(topic, count, f"{name}.jsonl", to_end=True).wait(120) == 0
        raw = (self.plan.folder / "raw.jsonl").read_text().splitlines()
        with (self.plan.folder / "markers.jsonl").open("w") as out:
            for line in raw:
                told = json.loads(json.loads(line)["value"])
                out.write(json.dumps({"batch": told["batch"], "rows": told["rows"]}) + "\n")
        plans = self.plan.folder / "plans"
        shutil.rmtree(plans, ignore_errors=True)
        plans.mkdir()
        for path in (self.plan.folder / "checkpoint" / "offsets").iterdir():
            if path.name.isdecimal():
                shutil.copy(path, plans)

    def _read(
        self, topic: str, partitions: int, name: str, *, to_end: bool
    ) -> subprocess.Popen[bytes]:
        spec = {
            "bootstrap": self.broker.bootstrap,
            "topic": topic,
            "partitions": partitions,
            "out": str(self.plan.folder / name),
            "to_end": to_end,
        }
        with (self.plan.folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.exactly_once.reader", json.dumps(spec)],
                stdout=log,
                stderr=log,
            )
