"""Members of groups, each a process of its own: Python clients and Kafka's verifiable consumer.

All of them print the same lines, so a test sees any of them as a `Member`: what it owns, what it
has read, how it ended. `started` starts some and ends them with the block, whatever happens.
"""

import contextlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.conformance.groups.judge import DEADLINE_S, Judge
from tests.support.apache_kafka import KafkaInstall

__all__ = [
    "JAVA_ASSIGNORS",
    "PYTHON_CLIENTS",
    "Member",
    "Plan",
    "started",
    "wait_until_read",
    "wait_until_shared",
]

PYTHON_CLIENTS = ("librdkafka", "kafka-python", "aiokafka")
JAVA_ASSIGNORS = {
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "roundrobin": "org.apache.kafka.clients.consumer.RoundRobinAssignor",
    "cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}
_ROOT = Path(__file__).parents[3]
_OUT_OF_THE_GROUP_S = 20  # after which kafka-python is started anew

# What a client says when it could not make sense of an answer, or the broker of its request.
_PROTOCOL_TROUBLE = re.compile(
    r"unsupported.?version|malformed|under(flow|run)|corrupt|\bcrc\b|unknown.?server"
    r"|invalid.?request|bad.?msg|schema|cannot (parse|read)|decod(e|ing)|NullPointer",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a member is to do; see the settings of `member_program`."""

    client: str | KafkaInstall
    group: str
    topic: str | None = None
    pattern: str | None = None
    strategy: str = "range"
    instance_id: str | None = None
    session_ms: int = 30_000
    commit: str = "sync"
    pause_s: float = 0
    number: int = 0  # tells members of one client apart

    @property
    def name(self) -> str:
        client = self.client if isinstance(self.client, str) else f"java-{self.client.version}"
        return f"{client}-{self.number}"


@dataclass(slots=True)
class Member:
    """A process that is, or was, a member."""

    plan: Plan
    judge: Judge
    directory: Path
    _runs: list[Path] = field(default_factory=list)
    _process: subprocess.Popen[bytes] | None = None

    @property
    def name(self) -> str:
        return self.plan.name

    def start(self) -> None:
        assert self._process is None or self._process.poll() is not None
        out = self.directory / f"{self.name}.{len(self._runs)}.jsonl"
        self._runs.append(out)
        command = self._python() if isinstance(self.plan.client, str) else self._java()
        with out.open("wb") as lines, out.with_suffix(".err").open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=lines, stderr=log, cwd=_ROOT
            )

    def _python(self) -> list[str]:
        plan = self.plan
        told = ("group", "topic", "pattern", "strategy", "instance_id", "session_ms", "commit")
        settings = {name: getattr(plan, name) for name in (*told, "pause_s")}
        settings |= {"bootstrap": self.judge.broker.bootstrap, "client_id": self.name}
        program = "tests.conformance.groups.member_program"
        return [sys.executable, "-m", program, str(plan.client), json.dumps(settings)]

    def _java(self) -> list[str]:
        plan = self.plan
        assert isinstance(plan.client, KafkaInstall)
        assert plan.topic, "the verifiable consumer takes one topic"
        assert plan.commit in ("sync", "auto"), "it cannot commit without waiting"
        config = self.directory / f"{self.name}.properties"
        config.write_text(
            f"client.id={self.name}\nheartbeat.interval.ms=300\nauto.commit.interval.ms=200\n"
        )
        arguments = [
            *("--bootstrap-server", self.judge.broker.bootstrap, "--topic", plan.topic),
            *("--group-id", plan.group, "--session-timeout", str(plan.session_ms)),
            *("--assignment-strategy", JAVA_ASSIGNORS[plan.strategy]),
            *("--reset-policy", "earliest", "--consumer.config", str(config)),
            *(("--group-instance-id", plan.instance_id) if plan.instance_id else ()),
            *(("--enable-autocommit",) if plan.commit == "auto" else ()),
        ]
        return plan.client.command("org.apache.kafka.tools.VerifiableConsumer", *arguments)

    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        """Has it close its client in order, and so leave the group."""
        assert self._process is not None
        self._process.terminate()
        self._process.wait(DEADLINE_S)
        self._close_input()
        assert "shutdown_complete" in [event["name"] for event in self.events()], self.story()

    def kill(self) -> None:
        """Ends it without a word to anybody."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        self._close_input()

    def _close_input(self) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()

    # What it said

    def events(self, run: int = -1) -> list[dict[str, Any]]:
        """The lines of its latest run, but for one that is being written."""
        lines = self._runs[run].read_text(errors="replace").split("\n")[:-1]
        return [json.loads(line) for line in lines if line.startswith("{")]

    def owned(self) -> set[tuple[str, int]]:
        """What it believes to own."""
        return self.owned_over_time()[-1] if self.changes() else set()

    def owned_over_time(self) -> list[set[tuple[str, int]]]:
        """What it owned after each change of this run."""
        owned: set[tuple[str, int]] = set()
        over_time = []
        for name, partitions in self.changes():
            owned = owned | partitions if name == "partitions_assigned" else owned - partitions
            over_time.append(owned)
        return over_time

    def changes(self) -> list[tuple[str, set[tuple[str, int]]]]:
        """Assignments and revocations of this run that were not empty, in order."""
        kinds = ("partitions_assigned", "partitions_revoked")
        rows = [(e["name"], _partitions(e)) for e in self.events() if e["name"] in kinds]
        return [row for row in rows if row[1]]

    def read(self) -> set[tuple[str, int, int]]:
        """Topic, partition and offset of all it has ever read."""
        return {
            (row["topic"], row["partition"], offset)
            for run in range(len(self._runs))
            for event in self.events(run)
            if event["name"] == "records_consumed"
            for row in event["partitions"]
            for offset in range(row["minOffset"], row["maxOffset"] + 1)
        }

    def log(self) -> str:
        return "\n".join(run.with_suffix(".err").read_text(errors="replace") for run in self._runs)

    def story(self) -> str:
        return f"{self.name}:\n{self._runs[-1].read_text()[-2000:]}\n{self.log()[-3000:]}"

    def check_no_protocol_trouble(self) -> None:
        """Of all its runs: neither its log nor its failures tell of bytes that were not right."""
        told = [repr(event) for run in range(len(self._runs)) for event in self.events(run)]
        for line in (*self.log().splitlines(), *told):
            assert not _PROTOCOL_TROUBLE.search(line), f"{self.name}: {line}\n{self.story()}"


def _partitions(event: dict[str, Any]) -> set[tuple[str, int]]:
    return {(row["topic"], row["partition"]) for row in event["partitions"]}


@contextlib.contextmanager
def started(
    judge: Judge, directory: Path, *plans: Plan, may_be_cut_off: bool = False
) -> Iterator[list[Member]]:
    """Members that run; at the end of the block those that still do are killed.

    Their logs are checked then, unless answers to them may have been cut off in the middle.
    """
    directory.mkdir(parents=True, exist_ok=True)
    members = [Member(plan, judge, directory) for plan in plans]
    try:
        for member in members:
            member.start()
        yield members
    finally:
        for member in members:
            member.kill()
    for member in members:
        if not may_be_cut_off:
            member.check_no_protocol_trouble()


def wait_until_shared(
    judge: Judge, group: str, members: Sequence[Member], partitions: set[tuple[str, int]]
) -> dict[str, set[tuple[str, int]]]:
    """Until the broker says that exactly these live members own each partition once.

    A member of kafka-python that the group has long been without is started anew, see
    `FINDINGS.md`. Returns what each owns, by its name.
    """
    deadline = time.monotonic() + DEADLINE_S
    seen_at = dict.fromkeys((member.name for member in members), time.monotonic())
    while True:
        group_state, owned = judge.ownership(group)
        rows = sorted(one for some in owned.values() for one in some)
        names = sorted(member.name for member in members)
        if group_state == "Stable" and sorted(owned) == names and rows == sorted(partitions):
            return owned
        for member in members:
            assert member.is_alive(), f"it ended: {member.story()}"
            if member.name in owned:
                seen_at[member.name] = time.monotonic()
            elif (
                member.plan.client == "kafka-python"
                and time.monotonic() > seen_at[member.name] + _OUT_OF_THE_GROUP_S
            ):
                member.kill()
                member.start()
                seen_at[member.name] = time.monotonic()
        stories = "\n".join(member.story() for member in members)
        assert time.monotonic() < deadline, f"{group}: {group_state}, {owned}\n{stories}"
        time.sleep(0.05)


def wait_until_read(
    judge: Judge, group: str, members: Sequence[Member], topic: str, ends: dict[int, int]
) -> None:
    """Until these members have read all of a topic, each record at least once, and said so."""
    everything = {(topic, p, offset) for p, end in ends.items() for offset in range(end)}
    wanted = {(topic, p): end for p, end in ends.items() if end}
    deadline = time.monotonic() + DEADLINE_S
    while True:
        missing = everything - {one for member in members for one in member.read()}
        committed = {tp: end for tp, end in judge.committed(group).items() if tp in wanted}
        if not missing and committed == wanted:
            return
        stories = "\n".join(member.story() for member in members)
        assert time.monotonic() < deadline, f"missing {missing}, {committed}\n{stories}"
        time.sleep(0.05)
