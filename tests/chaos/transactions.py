"""One run of a campaign with transactions: pipelines, faults from a seed, and the verdict.

A producer without and a feeder with transactions write to one topic; two pipelines of one group
read its committed records and write a result of each to another topic, with the offsets in the same
transaction. A reader follows the committed results. Faults hit the processes of producers as well
as brokers, half of them at the moment at which some producer asks for a commit.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tests.chaos.admin import Admin
from tests.chaos.checker import judge, parse_history
from tests.chaos.clients import Client, lines_of
from tests.chaos.clusters import (
    Cluster,
    KraftBroker,
    KraftCluster,
    OdradekBroker,
    OdradekCluster,
)
from tests.chaos.network import open_network
from tests.chaos.nodes import wait_until
from tests.chaos.outcome import Outcome

__all__ = [
    "TRANSACTION_CLIENTS",
    "TRANSACTION_CLUSTERS",
    "TRANSACTION_FAULTS",
    "TransactionPlan",
    "run_transactions",
]

TRANSACTION_CLUSTERS: dict[str, type[Cluster]] = {
    one.kind: one for one in (KraftBroker, KraftCluster, OdradekBroker, OdradekCluster)
}
# Of the two pipelines; a seed draws one if none is named.
TRANSACTION_CLIENTS: dict[str, tuple[str, str]] = {
    "librdkafka": ("librdkafka", "librdkafka"),
    "ours": ("ours", "ours"),
    "mixed": ("librdkafka", "ours"),
    "aiokafka": ("aiokafka", "aiokafka"),
    "kafka-python": ("kafka-python", "kafka-python"),
    "java": ("java", "java"),
}

INPUT = "chaos"
OUTPUT = "chaos-out"
GROUP = "chaos-pipeline"
PARTITIONS = 3
# Of each pipeline, where its client reads partitions by hand.
BY_HAND = ((0, 2), (1,))
SESSION_MS = 6000
READ_COMMITTED = "read_committed"
START_S = 2
BEGIN_LIMIT_S = 90
STOP_S = 60
HEALING_S = 60
COMMIT_LIMIT_S = 5
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionPlan:
    """What a run is made of."""

    cluster: str
    seed: int
    faults: tuple[str, ...]
    folder: Path
    clients: str  # A key of TRANSACTION_CLIENTS.
    rate: float = 40


@dataclass(slots=True)
class _Worker:
    """A producer with transactions, and the settings with which another instance is started."""

    name: str
    role: str
    client: str
    settings: Mapping[str, Any]
    instances: list[Client] = field(default_factory=list)
    started: int = 0


@dataclass(slots=True)
class _Run:
    plan: TransactionPlan
    cluster: Cluster
    admin: Admin
    random: Random
    workers: list[_Worker] = field(default_factory=list)
    others: dict[str, Client] = field(default_factory=dict)
    faults: int = 0

    def say(self, event: str, *, process: str = "campaign", **facts: Any) -> None:
        row = {"t": time.monotonic(), "process": process, "event": event, **facts}
        with (self.plan.folder / "history-campaign.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")

    def tell(self, text: str) -> None:
        print(f"{time.monotonic():.1f} {text}", flush=True)

    # Processes

    def start(self, name: str, role: str, client: str, **settings: Any) -> Client:
        history = self.plan.folder / f"history-{name}.jsonl"
        facts = {
            "process": name,
            "history": str(history),
            "bootstrap": self.cluster.bootstrap,
            "topic": INPUT,
            "label": INPUT,
            "partitions": PARTITIONS,
            "rate": self.plan.rate,
            "group": "",
            "seed": self.plan.seed,
            **settings,
        }
        errors = self.plan.folder / f"{name}.log"
        with errors.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.workload", role, client, json.dumps(facts)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=ROOT,
            )
        return Client(role, history, process, errors)

    def start_instance(self, worker: _Worker) -> Client:
        """Another process with the same transactional id."""
        worker.started += 1
        name = f"{worker.name}-{worker.started}"
        client = self.start(name, worker.role, worker.client, **worker.settings)
        worker.instances.append(client)
        return client

    def kill_instance(self, worker: _Worker, client: Client) -> None:
        client.kill()
        worker.instances.remove(client)
        if events := client.events():
            self.say("ended", process=events[-1]["process"])

    def start_workload(self) -> None:
        kinds = TRANSACTION_CLIENTS[self.plan.clients]
        out = {"topic": OUTPUT, "label": OUTPUT}
        self.others["producer"] = self.start("producer-1", "producer", "librdkafka")
        self.others["reader"] = self.start(
            "reader-1", "reader", "librdkafka", isolation=READ_COMMITTED, **out
        )
        self.others["observer-in"] = self.start(
            "observer-1", "observer", "librdkafka", isolation=READ_COMMITTED, group=GROUP
        )
        self.others["observer-out"] = self.start(
            "observer-2", "observer", "librdkafka", isolation=READ_COMMITTED, **out
        )
        self.workers.append(
            _Worker("feeder-1", "feeder", kinds[-1], {"transactional_id": "feeder-1"})
        )
        for number, kind in enumerate(kinds, 1):
            settings = {
                "transactional_id": f"pipeline-{number}",
                "output": OUTPUT,
                "group": GROUP,
                "session_ms": SESSION_MS,
            }
            if kind == "aiokafka":
                settings["numbers"] = BY_HAND[number - 1]
            self.workers.append(_Worker(f"pipeline-{number}", "pipeline", kind, settings))
        for worker in self.workers:
            self.start_instance(worker)
        # The group's members share the partitions, so each pipeline gets something to do.
        time.sleep(START_S)
        self._check_running()
        if not wait_until(lambda: self.have_committed_since(0), BEGIN_LIMIT_S, pause_s=0.5):
            raise TimeoutError(f"pipelines do not get on: see {self.plan.folder}")

    def _check_running(self) -> None:
        """A client that ended by itself is a fault of the campaign, whatever else is found."""
        for client in (*self.others.values(), *(one for w in self.workers for one in w.instances)):
            if client.process.poll() is not None:
                raise RuntimeError(f"{client.history.stem} has ended: {client.errors.read_text()}")

    def have_committed_since(self, since: float) -> bool:
        """Whether each producer with transactions has committed one."""
        return all(
            any(
                event["event"] == "txn-ended"
                and event["outcome"] == "committed"
                and event["t"] >= since
                for client in worker.instances
                for event in reversed(client.events())
            )
            for worker in self.workers
        )

    def await_commit(self, worker: _Worker) -> None:
        """Waits until a worker asks for the end of a transaction, and a moment more."""
        sizes = {
            client.history: client.history.stat().st_size
            for client in worker.instances
            if client.history.exists()
        }

        def asks() -> bool:
            for path, size in sizes.items():
                with path.open("rb") as file:
                    file.seek(size)
                    if b'"txn-ending"' in file.read():
                        return True
            return False

        wait_until(asks, COMMIT_LIMIT_S, pause_s=0.002)
        time.sleep(self.random.choice([0.0, 0.003, 0.01, 0.03]))

    # The course of a run

    def apply(self, name: str) -> None:
        kind = TRANSACTION_FAULTS[name]
        self.faults += 1
        time.sleep(self.random.uniform(0, 1.5))
        worker = self.random.choice(self.workers)
        if self.random.random() < 0.5:
            self.await_commit(worker)
        began = time.monotonic()
        target, end = kind.begin(self, worker)
        facts: dict[str, Any] = {"n": self.faults, "name": name, "targets": [target]}
        self.say("fault", phase="begin", detail="", serves=False, **facts)
        self.tell(f"fault {self.faults} {name} {target}")
        time.sleep(max(0.0, began + self.random.uniform(*kind.hold_s) - time.monotonic()))
        self.say("fault", phase="end", detail="", **facts)
        end()
        time.sleep(self.random.uniform(0.5, 3))

    def heal(self) -> None:
        for node in (*self.cluster.stores.values(), *self.cluster.brokers.values()):
            node.resume()
        down = [one for one, node in self.cluster.brokers.items() if not node.is_running]
        self.cluster.start_brokers(*down)
        self.say("healed", bound_s=HEALING_S)
        self.tell("healed")
        self._check_running()
        healed = time.monotonic()
        wait_until(lambda: self.have_committed_since(healed), HEALING_S, pause_s=0.5)

    def finish(self) -> None:
        """Stops who feeds, lets pipelines and markers come to their end, and reads everything."""
        feeders = [worker for worker in self.workers if worker.role == "feeder"]
        pipelines = [worker for worker in self.workers if worker.role == "pipeline"]
        self._stop(self.others["producer"], *(one for each in feeders for one in each.instances))
        wait_until(lambda: self._is_stable("observer-in"), HEALING_S, pause_s=0.5)
        self._read_out("final-1", INPUT)
        lasts = self._lasts("final-1")
        wait_until(lambda: self._has_processed(lasts), HEALING_S, pause_s=0.5)
        self._stop(*(one for each in pipelines for one in each.instances))
        stopped = time.monotonic()
        wait_until(lambda: self._is_stable("observer-out", stopped), HEALING_S, pause_s=0.5)
        self._read_out("final-2", OUTPUT)
        ends = self._lasts("final-2")
        wait_until(lambda: self._has_read(ends), HEALING_S, pause_s=0.5)
        # A look at the offsets after the last commit.
        wait_until(lambda: self._has_looked(stopped), HEALING_S, pause_s=0.5)
        self._stop(*self.others.values())

    def _stop(self, *clients: Client) -> None:
        for client in clients:
            client.stop()
        for client in clients:
            client.wait(STOP_S)

    def _read_out(self, name: str, topic: str) -> None:
        final = self.start(
            name,
            "final",
            "librdkafka",
            topic=topic,
            label=topic,
            isolation=READ_COMMITTED,
            limit_s=HEALING_S,
        )
        self.others[name] = final
        final.wait(HEALING_S + 10)

    def _looks(self, name: str, event: str) -> list[dict[str, Any]]:
        return [one for one in self.others[name].events() if one["event"] == event]

    def _is_stable(self, observer: str, since: float = 0.0) -> bool:
        since = since or time.monotonic() - 5
        last = {
            one["partition"]: one
            for one in self._looks(observer, "watermarks")
            if one["since"] >= since
        }
        return len(last) == PARTITIONS and all(
            one["stable"] == one["high"] for one in last.values()
        )

    def _lasts(self, name: str) -> dict[int, int]:
        """The last record of each partition."""
        return {
            one["partition"]: one["records"][-1][0] if one["records"] else -1
            for one in self._looks(name, "final-read")
        }

    def _has_processed(self, lasts: Mapping[int, int]) -> bool:
        looks = self._looks("observer-in", "committed")
        offsets = {row[1]: row[2] or 0 for row in looks[-1]["offsets"]} if looks else {}
        return all(offsets.get(number, 0) > last for number, last in lasts.items())

    def _has_read(self, lasts: Mapping[int, int]) -> bool:
        read = {row[1]: row[2] for one in self._looks("reader", "poll") for row in one["records"]}
        return all(read.get(number, -1) >= last for number, last in lasts.items())

    def _has_looked(self, since: float) -> bool:
        return any(one["since"] >= since for one in self._looks("observer-in", "committed"))


def _is_stuck(log: Path) -> bool:
    return " stuck: " in log.read_text(errors="replace")


# Faults

End = Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    begin: Callable[[_Run, _Worker], tuple[str, End]]
    hold_s: tuple[float, float]


def _kill_producer(run: _Run, worker: _Worker) -> tuple[str, End]:
    run.kill_instance(worker, worker.instances[-1])
    return worker.name, lambda: _restart(run, worker)


def _restart(run: _Run, worker: _Worker) -> None:
    run.start_instance(worker)


def _pause_producer(run: _Run, worker: _Worker) -> tuple[str, End]:
    client = worker.instances[-1]
    client.pause()
    return worker.name, client.resume


def _replace_producer(run: _Run, worker: _Worker) -> tuple[str, End]:
    """One is taken for dead, another takes its place, and the first comes back."""
    first = worker.instances[-1]
    first.pause()
    run.start_instance(worker)

    def end() -> None:
        first.resume()
        time.sleep(run.random.uniform(0.5, 2))
        run.kill_instance(worker, first)

    return worker.name, end


def _second_instance(run: _Run, worker: _Worker) -> tuple[str, End]:
    """Two with the same id fence each other, until one of them dies."""
    first = worker.instances[-1]
    second = run.start_instance(worker)
    return worker.name, lambda: run.kill_instance(worker, run.random.choice([first, second]))


def _broker(run: _Run) -> int:
    """The leader of some partition: of records, of offsets, or of transactions."""
    topic = run.random.choice([OUTPUT, "__consumer_offsets", "__transaction_state"])
    leader = run.admin.leader(topic, run.random.randrange(PARTITIONS))
    return leader or run.random.choice(sorted(run.cluster.brokers))


def _kill_broker(run: _Run, worker: _Worker) -> tuple[str, End]:
    target = _broker(run)
    run.cluster.brokers[target].kill()
    return f"broker-{target}", lambda: run.cluster.start_brokers(target)


def _stop_broker(run: _Run, worker: _Worker) -> tuple[str, End]:
    target = _broker(run)
    run.cluster.brokers[target].stop()
    return f"broker-{target}", lambda: run.cluster.start_brokers(target)


def _pause_broker(run: _Run, worker: _Worker) -> tuple[str, End]:
    node = run.cluster.brokers[_broker(run)]
    node.pause()
    return node.name, node.resume


def _kill_both(run: _Run, worker: _Worker) -> tuple[str, End]:
    target = _broker(run)
    run.cluster.brokers[target].kill()
    run.kill_instance(worker, worker.instances[-1])

    def end() -> None:
        run.cluster.start_brokers(target)
        run.start_instance(worker)

    return f"broker-{target}, {worker.name}", end


TRANSACTION_FAULTS: dict[str, _Kind] = {
    "kill-producer": _Kind(begin=_kill_producer, hold_s=(0.2, 3)),
    # Shorter and longer than the timeout of a transaction, and than a member's session.
    "pause-producer": _Kind(begin=_pause_producer, hold_s=(1, 12)),
    "replace-producer": _Kind(begin=_replace_producer, hold_s=(2, 6)),
    "second-instance": _Kind(begin=_second_instance, hold_s=(2, 6)),
    "kill-broker": _Kind(begin=_kill_broker, hold_s=(0.5, 3)),
    "stop-broker": _Kind(begin=_stop_broker, hold_s=(0, 2)),
    "pause-broker": _Kind(begin=_pause_broker, hold_s=(1, 8)),
    "kill-both": _Kind(begin=_kill_both, hold_s=(0.5, 3)),
}


def run_transactions(plan: TransactionPlan) -> Outcome:
    """Runs it; all files are left in the folder.

    Raises:
        FileExistsError: The folder has the histories of another run.
    """
    began = time.monotonic()
    kind = TRANSACTION_CLUSTERS[plan.cluster]
    plan.folder.mkdir(parents=True, exist_ok=True)
    if lines_of(plan.folder):
        raise FileExistsError(f"{plan.folder} has histories of another run; give an empty folder")
    factor = len(kind.broker_ids)
    with open_network(kind.hosts()) as network:
        network.enter("clients")
        cluster = kind(network, plan.folder, {"unclean.leader.election.enable": "false"})
        run = _Run(plan, cluster, Admin(cluster.bootstrap, plan.folder), Random(plan.seed))
        run.say("run", seed=plan.seed, cluster=plan.cluster, allowed=[], clients=plan.clients)
        try:
            cluster.start()
            for topic in (INPUT, OUTPUT):
                run.admin.create_topic(topic, PARTITIONS, factor=factor)
            run.start_workload()
            run.tell("pipelines get on")
            for name in plan.faults:
                run.apply(name)
            run.heal()
            run.finish()
            if stuck := [path.stem for path in plan.folder.glob("*.log") if _is_stuck(path)]:
                run.tell(f"replaced, because a call of the client did not return: {stuck}")
            for why, names in cluster.known_faults().items():
                run.say("excused", names=sorted(names), why=why)
                run.tell(f"known fault: {why}")
        finally:
            processes = [one for worker in run.workers for one in worker.instances]
            for client in (*processes, *run.others.values()):
                if client.process.poll() is None:
                    client.kill()
            cluster.stop()
    report = judge(parse_history(lines_of(plan.folder)))
    return Outcome(report=report, can_cut=network.can_cut, took_s=time.monotonic() - began)
