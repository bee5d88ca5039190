"""One run of a campaign: a cluster, its clients, faults from a seed, healing, and the verdict."""

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tests.chaos.admin import Admin
from tests.chaos.checker import ANOMALIES, judge, parse_batches, parse_history
from tests.chaos.clients import Client, lines_of
from tests.chaos.clusters import Cluster, KraftCluster, OdradekCluster, rack_of
from tests.chaos.faults import FAULTS, FaultKind, World
from tests.chaos.network import open_network
from tests.chaos.nodes import wait_until
from tests.chaos.outcome import Outcome
from tests.support.apache_kafka import KAFKA_VERSIONS, find_kafka

__all__ = ["CLUSTERS", "Plan", "available_faults", "run"]

CLUSTERS: dict[str, type[Cluster]] = {one.kind: one for one in (KraftCluster, OdradekCluster)}

TOPIC = "chaos"
CHURN = "churn"
PARTITIONS = 3
GROUP = "chaos-group"
GROUP_TOPIC = "__consumer_offsets"
# Of a record in each life of the topic that is made anew.
CHURN_RECORDS = 60
CLIENT_STOP_S = 90
BEGIN_LIMIT_S = 90
# After healing: sessions and elections take seconds, and the machine may be slow.
HEALING_S = 90
DRAIN_S = 60
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run is made of.

    Attributes:
        faults: Names, in order.
        weak: Acks of the leader alone and unclean elections: records are lost, and the run is to
            show that the checker sees it.
    """

    cluster: str
    seed: int
    faults: tuple[str, ...]
    folder: Path
    weak: bool = False
    rate: float = 50
    clients: tuple[str, ...] = ("librdkafka", "ours")


def available_faults(cluster: type[Cluster], *, can_cut: bool) -> list[str]:
    """The faults that can be had here."""
    there = set()
    if cluster.store_hosts:
        there.add("stores")
    if can_cut:
        there.add("links")
    if find_kafka(KAFKA_VERSIONS[0]) is not None:
        there.add("tools")
    return [name for name, kind in FAULTS.items() if kind.needs <= there]


@dataclass(slots=True)
class _Run:
    plan: Plan
    cluster: Cluster
    admin: Admin
    random: Random
    can_cut: bool
    clients: dict[str, Client] = field(default_factory=dict)
    lives: int = 0  # Of the topic that is made anew.
    faults: int = 0

    @property
    def history(self) -> Path:
        return self.plan.folder / "history-campaign.jsonl"

    def say(self, event: str, **facts: Any) -> None:
        """Writes an event of the campaign itself."""
        row = {"t": time.monotonic(), "process": "campaign", "event": event, **facts}
        with self.history.open("a") as file:
            file.write(json.dumps(row) + "\n")

    def tell(self, text: str) -> None:
        print(f"{time.monotonic():.1f} {text}", flush=True)

    # Clients

    def start_client(self, name: str, role: str, client: str, **settings: Any) -> Client:
        folder = self.plan.folder
        history = folder / f"history-{name}.jsonl"
        facts = {
            "process": name,
            "history": str(history),
            "bootstrap": self.cluster.bootstrap,
            "topic": TOPIC,
            "label": TOPIC,
            "partitions": PARTITIONS,
            "rate": self.plan.rate,
            "acks": "1" if self.plan.weak else "all",
            "group": GROUP,
            **settings,
        }
        errors = folder / f"{name}.log"
        with errors.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.workload", role, client, json.dumps(facts)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=ROOT,
            )
        self.clients[name] = Client(role, history, process, errors)
        return self.clients[name]

    def start_workload(self) -> None:
        for number, client in enumerate(self.plan.clients, 1):
            self.start_client(f"producer-{number}", "producer", client)
            self.start_client(f"reader-{number}", "reader", client, rack=rack_of(number))
            self.start_client(f"member-{number}", "member", client)
        self.start_client("observer-1", "observer", "librdkafka")
        if not wait_until(self._has_begun, BEGIN_LIMIT_S, pause_s=1):
            raise TimeoutError(f"clients do not get on: see {self.plan.folder}")

    def of_role(self, role: str) -> list[Client]:
        return [one for one in self.clients.values() if one.role == role]

    def _has_begun(self) -> bool:
        wanted = {"producer": "sent", "reader": "poll", "member": "joined"}
        return all(
            any(event["event"] == wanted[one.role] for event in one.events())
            for one in self.clients.values()
            if one.role in wanted
        )

    def renew_topic(self) -> str:
        """Deletes the topic with the records of one life and begins another."""
        if self.lives and not self._end_life():
            return "NOT DELETED in time"
        self._begin_life()
        if self.lives == 1:  # The first time it is there to be deleted at once.
            if not self._end_life():
                return "NOT DELETED in time"
            self._begin_life()
        return f"life {self.lives} of {CHURN} begins"

    def _end_life(self) -> bool:
        if not self.admin.delete_topic(CHURN):
            return False
        self.say("deleted", topic=f"{CHURN}#{self.lives}")
        return True

    def _begin_life(self) -> None:
        self.lives += 1
        self.admin.create_topic(CHURN, 1)
        client = self.start_client(
            f"churner-{self.lives}",
            "producer",
            self.random.choice(self.plan.clients),
            topic=CHURN,
            label=f"{CHURN}#{self.lives}",
            partitions=1,
            count=CHURN_RECORDS,
        )
        client.role = "churner"
        client.wait(CLIENT_STOP_S)

    # The course of a run

    def apply(self, kind: FaultKind, world: World) -> None:
        """Begins a fault, lets it last, and ends it."""
        self.faults += 1
        begun = kind.begin(world)
        facts = {"n": self.faults, "name": kind.name, "targets": list(begun.targets)}
        self.say("fault", phase="begin", detail=begun.detail, serves=kind.serves, **facts)
        self.tell(f"fault {self.faults} {kind.name} {', '.join(begun.targets)} {begun.detail}")
        time.sleep(self.random.uniform(*kind.hold_s))
        # Its end is the beginning of the end: starting a process takes a while.
        self.say("fault", phase="end", detail="", **facts)
        begun.end()
        time.sleep(self.random.uniform(1, 4))

    def heal(self) -> None:
        """Ends all faults and waits until the cluster says that it is whole."""
        cluster = self.cluster
        cluster.network.join_all()
        for node in (*cluster.stores.values(), *cluster.brokers.values()):
            node.resume()
        cluster.start_stores(*(n for n, node in cluster.stores.items() if not node.is_running))
        cluster.start_brokers(*(n for n, node in cluster.brokers.items() if not node.is_running))
        self.say("healed", bound_s=HEALING_S)
        self.tell("healed")
        healed = time.monotonic()
        wait_until(lambda: self._are_acknowledged_since(healed), HEALING_S, pause_s=1)
        for topic in (TOPIC, GROUP_TOPIC):
            wait_until(lambda topic=topic: self.admin.is_whole(topic), HEALING_S)  # type: ignore[misc]  # mypy wants no default here
            for number, view in self.admin.partitions(topic).items():
                self.say(
                    "in-sync",
                    topic=topic,
                    partition=number,
                    replicas=view.replicas,
                    in_sync=view.isr,
                )

    def _are_acknowledged_since(self, since: float) -> bool:
        for client in self.of_role("producer"):
            sends = {}
            acknowledged = set()
            for event in client.events():
                if event["event"] == "send" and event["t"] >= since:
                    sends[event["n"]] = event["partition"]
                elif event["event"] == "sent" and event["outcome"] == "ok":
                    acknowledged.add(sends.get(event["n"]))
            if not acknowledged.issuperset(range(PARTITIONS)):
                return False
        return True

    def finish(self) -> None:
        """Stops producers, reads everything out, lets readers come to the end, stops them."""
        self.tell("producers stop")
        for producer in self.of_role("producer"):
            producer.stop()
        for producer in self.of_role("producer"):
            producer.wait(CLIENT_STOP_S)
        reads = [self.start_client("final-1", "final", "librdkafka", limit_s=DRAIN_S)]
        if self.lives:
            label = f"{CHURN}#{self.lives}"
            reads.append(
                self.start_client(
                    "final-2",
                    "final",
                    "librdkafka",
                    topic=CHURN,
                    label=label,
                    partitions=1,
                    limit_s=DRAIN_S,
                )
            )
        for read in reads:
            read.wait(DRAIN_S + 10)
        ends = self._ends()
        wait_until(lambda: self._have_drained(ends), DRAIN_S, pause_s=1)
        # A look at the group's offsets after its last commit.
        time.sleep(3)
        rest = [one for one in self.clients.values() if one.process.poll() is None]
        for client in rest:
            client.stop()
        for client in rest:
            client.wait(CLIENT_STOP_S)
        self.write_replicas()
        if (counts := self.cluster.active_controllers()) is not None:
            self.say("controllers", counts=counts)

    def _ends(self) -> dict[tuple[str, int], int]:
        return {
            (event["topic"], event["partition"]): event["high"]
            for name in ("final-1", "final-2")
            if name in self.clients
            for event in self.clients[name].events()
        }

    def _have_drained(self, ends: Mapping[tuple[str, int], int]) -> bool:
        wanted = {place: end for place, end in ends.items() if place[0] == TOPIC and end}
        members: dict[tuple[str, int], int] = {}
        for client in self.of_role("reader"):
            mine: dict[tuple[str, int], int] = {}
            _note_positions(client, mine)
            if any(mine.get(place, 0) < end for place, end in wanted.items()):
                return False
        for client in self.of_role("member"):
            _note_positions(client, members)
        return all(members.get(place, 0) >= end for place, end in wanted.items())

    def write_replicas(self) -> None:
        """Writes down what each replica has on its disk, once all have all."""
        for (label, partition), high in sorted(self._ends().items()):
            topic = label.partition("#")[0]
            views = self.admin.partitions(topic)
            for broker in sorted(views[partition].replicas) if partition in views else []:
                name = f"{topic}-{partition}"
                folders = [one / name for one in self.cluster.log_folders(broker)]
                batches = _batches_once(folders, high)
                self.say(
                    "replica",
                    broker=broker,
                    topic=label,
                    partition=partition,
                    high=high,
                    batches=[
                        [
                            one.base_offset,
                            one.last_offset,
                            one.leader_epoch,
                            one.digest,
                            one.producer_id,
                            one.producer_epoch,
                            one.base_sequence,
                        ]
                        for one in batches
                    ],
                    records=[list(record) for one in batches for record in one.records],
                )


def _note_positions(client: Client, positions: dict[tuple[str, int], int]) -> None:
    for event in client.events():
        if event["event"] == "poll":
            for topic, partition, offset, _ in event["records"]:
                place = (topic, partition)
                positions[place] = max(positions.get(place, 0), offset + 1)


def _batches_once(folders: Sequence[Path], high: int) -> list[Any]:
    """The batches below the high watermark, waited for if the replica is behind.

    One of the folders is there, unless the replica moves from one to the other just then.
    """
    found: list[Any] = []

    def is_there() -> bool:
        found.clear()
        with contextlib.suppress(FileNotFoundError):
            for path in (one for folder in folders for one in sorted(folder.glob("*.log"))):
                found.extend(parse_batches(path.read_bytes()))
        return bool(found) and found[-1].last_offset + 1 >= high

    wait_until(is_there, 30, pause_s=1)
    return [one for one in found if one.base_offset < high]


def run(plan: Plan) -> Outcome:
    """Runs it; all files are left in the folder.

    Raises:
        FileExistsError: The folder has the histories of another run.
    """
    began = time.monotonic()
    kind = CLUSTERS[plan.cluster]
    plan.folder.mkdir(parents=True, exist_ok=True)
    if lines_of(plan.folder):
        raise FileExistsError(f"{plan.folder} has histories of another run; give an empty folder")
    settings = {"unclean.leader.election.enable": "true" if plan.weak else "false"}
    if plan.weak:
        settings["min.insync.replicas"] = "1"
    with open_network(kind.hosts()) as network:
        network.enter("clients")
        cluster = kind(network, plan.folder, settings, is_spread=True)
        one = _Run(plan, cluster, Admin(cluster.bootstrap, plan.folder), Random(plan.seed),
                   network.can_cut)  # fmt: skip
        allowed = sorted(ANOMALIES) if plan.weak else []
        one.say("run", seed=plan.seed, cluster=plan.cluster, allowed=allowed)
        try:
            cluster.start()
            one.tell(f"{plan.cluster} serves, links {'' if network.can_cut else 'NOT '}cuttable")
            one.admin.create_topic(TOPIC, PARTITIONS)
            one.start_workload()
            one.tell("clients get on")
            world = World(cluster, one.admin, TOPIC, GROUP, one.random, one.renew_topic)
            for name in plan.faults:
                one.apply(FAULTS[name], world)
            one.heal()
            one.finish()
        finally:
            for client in one.clients.values():
                if client.process.poll() is None:
                    client.process.kill()
                    client.process.wait()
            cluster.stop()
    report = judge(parse_history(lines_of(plan.folder)))
    return Outcome(report=report, can_cut=network.can_cut, took_s=time.monotonic() - began)
