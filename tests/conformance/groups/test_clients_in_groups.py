"""Each client by itself in a group: every codec, commits of each kind, restarts, patterns."""

import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.conformance.clients.adaptors import (
    CODECS,
    AioKafka,
    Client,
    JavaClient,
    KafkaPython,
    Librdkafka,
    Message,
)
from tests.conformance.groups.judge import DEADLINE_S, Judge
from tests.conformance.groups.members import (
    PYTHON_CLIENTS,
    Member,
    Plan,
    started,
    wait_until_read,
    wait_until_shared,
)
from tests.support.apache_kafka import KafkaInstall

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

Names = Callable[[str], str]

_PER_CODEC = 5


@pytest.mark.parametrize(
    ("client", "commit"),
    [(Librdkafka(), "async"), (KafkaPython(), "async"), (AioKafka(), "auto")],
    ids=PYTHON_CLIENTS,
)
def test_a_python_client(
    judge: Judge, new_name: Names, tmp_path: Path, client: Client, commit: str
) -> None:
    """11:PS-5."""
    topic = new_name("topic")
    judge.create_topic(topic, 2)
    for codec in CODECS:
        client.produce(judge.broker.bootstrap, topic, codec, _messages())
    _share_restart_resume(judge, new_name("group"), topic, tmp_path, client.name, commit)


@pytest.mark.kafka
def test_java(judge: Judge, new_name: Names, tmp_path: Path, kafka: KafkaInstall) -> None:
    """11:PS-5. Its console writes with one codec here; with each in `test_every_codec.py`."""
    topic, is_old = new_name("topic"), kafka.version.startswith("3.")
    judge.create_topic(topic, 2)
    own = "snappy" if is_old else "zstd"
    JavaClient(kafka).produce(judge.broker.bootstrap, topic, own, _messages())
    for codec in CODECS:
        if codec != own:
            Librdkafka().produce(judge.broker.bootstrap, topic, codec, _messages())
    commit = "auto" if is_old else "sync"
    _share_restart_resume(judge, new_name("group"), topic, tmp_path, kafka, commit)


def _messages() -> list[Message]:
    now_ms = int(time.time() * 1000)
    return [Message(b"k", b"v%d" % n, (("h", b"v"),), now_ms) for n in range(_PER_CODEC)]


def _share_restart_resume(
    judge: Judge,
    group: str,
    topic: str,
    directory: Path,
    client: str | KafkaInstall,
    commit: str,
) -> None:
    """Two members read what is there; one restarts and goes on where its group was."""
    partitions = {(topic, 0), (topic, 1)}
    ends = {0: _PER_CODEC * len(CODECS), 1: 0}
    plans = [
        Plan(client=client, group=group, topic=topic, commit=commit, number=n) for n in range(2)
    ]
    with started(judge, directory, *plans) as members:
        owned = wait_until_shared(judge, group, members, partitions)
        assert {len(some) for some in owned.values()} == {1}
        wait_until_read(judge, group, members, topic, ends)
        restarted = members[0]
        restarted.stop()
        restarted.start()
        wait_until_shared(judge, group, members, partitions)
        judge.produce(topic, 5, 2)
        wait_until_read(judge, group, members, topic, {p: end + 5 for p, end in ends.items()})
        again = [one for one in _read_in_last_run(restarted) if one[2] < ends[one[1]]]
        assert again == []


def _read_in_last_run(member: Member) -> list[tuple[str, int, int]]:
    return [
        (row["topic"], row["partition"], row["minOffset"])
        for event in member.events()
        if event["name"] == "records_consumed"
        for row in event["partitions"]
    ]


@pytest.mark.skipif(shutil.which("kcat") is None, reason="no kcat on the path")
def test_an_old_librdkafka(judge: Judge, new_name: Names, tmp_path: Path) -> None:
    """11:PS-5: kcat on librdkafka 2.0.2. Two members, and a third that goes on where they were."""
    topic, group, count = new_name("topic"), new_name("group"), 4
    judge.create_topic(topic, count)
    for codec in CODECS:
        judge.produce(topic, 2, count, codec)
    first = [_Kcat(judge, group, topic, tmp_path / f"kcat-{n}") for n in range(2)]
    try:
        everything = {(p, offset) for p in range(count) for offset in range(10)}
        judge.wait_until(
            lambda: everything <= first[0].read() | first[1].read(),
            lambda: "".join(one.story() for one in first),
        )
        # Both own some in the end, whoever was the first to read.
        judge.wait_until(lambda: _members_with_partitions(judge, group) == 2, lambda: group)
    finally:
        for one in first:
            one.stop()
    # Closing commits what was read.
    assert judge.committed(group) == {(topic, p): 10 for p in range(count)}
    judge.produce(topic, 5, count)
    last = _Kcat(judge, group, topic, tmp_path / "kcat-2")
    try:
        new = {(p, offset) for p in range(count) for offset in range(10, 15)}
        judge.wait_until(lambda: new <= last.read(), last.story)
        assert last.read() == new
    finally:
        last.stop()


def _members_with_partitions(judge: Judge, group: str) -> int:
    _, owned = judge.ownership(group)
    return sum(bool(some) for some in owned.values())


class _Kcat:
    """kcat as a member; it prints a line for each record."""

    def __init__(self, judge: Judge, group: str, topic: str, out: Path) -> None:
        self._out = out
        settings = {
            "client.id": out.name,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": "30000",
            "heartbeat.interval.ms": "300",
        }
        options = [word for name, value in settings.items() for word in ("-X", f"{name}={value}")]
        with out.open("wb") as lines, out.with_suffix(".err").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *("kcat", "-b", judge.broker.bootstrap, "-u", "-f", "%p %o\\n", *options),
                    *("-G", group, topic),
                ],
                stdin=subprocess.DEVNULL,
                stdout=lines,
                stderr=log,
            )

    def read(self) -> set[tuple[int, int]]:
        lines = self._out.read_text().split("\n")[:-1]
        return {(int(p), int(offset)) for p, offset in (line.split() for line in lines)}

    def story(self) -> str:
        return f"{self._out.read_text()}\n{self._out.with_suffix('.err').read_text()}"

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(DEADLINE_S)
        finally:
            self._process.kill()
            self._process.wait()


def test_patterns(judge: Judge, new_name: Names, tmp_path: Path) -> None:
    """Members that subscribe to a pattern find a topic that is made later."""
    prefix = new_name("pattern")
    judge.create_topic(f"{prefix}.a", 2)
    judge.create_topic(f"not-{prefix}.c", 1)
    judge.produce(f"{prefix}.a", 3, 2)
    judge.produce(f"not-{prefix}.c", 3, 1)
    plans = [
        Plan(client=client, group=f"{prefix}-{client}", pattern=f"^{prefix}\\..*")
        for client in PYTHON_CLIENTS
    ]
    with started(judge, tmp_path, *plans) as members:
        for member in members:
            group = member.plan.group
            wait_until_read(judge, group, [member], f"{prefix}.a", {0: 3, 1: 3})
        judge.create_topic(f"{prefix}.b", 2)
        judge.produce(f"{prefix}.b", 3, 2)
        for member in members:
            group = member.plan.group
            wait_until_read(judge, group, [member], f"{prefix}.b", {0: 3, 1: 3})
            assert {topic for topic, _, _ in member.read()} == {f"{prefix}.a", f"{prefix}.b"}


def test_slow_processing_is_not_death(judge: Judge, new_name: Names, tmp_path: Path) -> None:
    """08:F-23: longer than the session, shorter than the time between polls: no rebalance."""
    topic, group = new_name("topic"), new_name("group")
    partitions = judge.create_topic(topic, 2)
    plans = [
        Plan(client="librdkafka", group=group, topic=topic, session_ms=8_000, pause_s=9.5),
        Plan(client="librdkafka", group=group, topic=topic, number=1),
    ]
    with started(judge, tmp_path, *plans) as members:
        owned = wait_until_shared(judge, group, members, partitions)
        judge.wait_until(
            lambda: {member.name: member.owned() for member in members} == owned,
            lambda: "".join(member.story() for member in members),
        )
        before = [member.changes() for member in members]
        judge.produce(topic, 5, 2)
        slow = members[0]
        judge.wait_until(lambda: "paused" in [event["name"] for event in slow.events()], slow.story)
        wait_until_read(judge, group, members, topic, {0: 5, 1: 5})
        assert judge.ownership(group) == ("Stable", owned)
        assert [member.changes() for member in members] == before


def test_a_standalone_consumer_keeps_offsets(judge: Judge, new_name: Names) -> None:
    """08:F-17: who assigns partitions by hand may commit; the topic for it makes itself."""
    topic, group = new_name("topic"), new_name("group")
    judge.create_topic(topic, 1)
    judge.produce(topic, 5, 1)
    settings = {
        "bootstrap.servers": judge.broker.bootstrap,
        "group.id": group,
        "enable.auto.commit": False,
    }
    consumer = Consumer(settings)
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        [committed] = consumer.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
        assert committed.error is None
        [found] = consumer.committed([TopicPartition(topic, 0)], DEADLINE_S)
        assert found.offset == 3
    finally:
        consumer.close()
    assert judge.ownership(group) == ("Empty", {})
    admin = AdminClient({"bootstrap.servers": judge.broker.bootstrap})
    description = admin.list_topics("__consumer_offsets", timeout=DEADLINE_S)
    assert len(description.topics["__consumer_offsets"].partitions) == 50


@pytest.mark.kafka
def test_the_console_consumer(judge: Judge, new_name: Names, kafka: KafkaInstall) -> None:
    """`kafka-console-consumer` with a group goes on where it was, also with a pattern."""
    prefix, group = new_name("console"), new_name("group")
    judge.create_topic(f"{prefix}.a", 2)
    judge.produce(f"{prefix}.a", 5, 2)
    assert _console(kafka, judge, group, "--topic", f"{prefix}.a", count=10) == 10
    assert judge.committed(group) == {(f"{prefix}.a", 0): 5, (f"{prefix}.a", 1): 5}
    judge.create_topic(f"{prefix}.b", 1)
    judge.produce(f"{prefix}.a", 1, 2)
    judge.produce(f"{prefix}.b", 4, 1)
    assert _console(kafka, judge, group, "--include", f"{prefix}\\..*", count=6) == 6
    assert judge.committed(group) == {
        (f"{prefix}.a", 0): 6,
        (f"{prefix}.a", 1): 6,
        (f"{prefix}.b", 0): 4,
    }


def _console(kafka: KafkaInstall, judge: Judge, group: str, *what: str, count: int) -> int:
    """Reads that many records, from the group's offsets or the beginning; how many came."""
    result = kafka.run_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", judge.broker.bootstrap, "--group", group, *what),
        *("--from-beginning", "--max-messages", str(count)),
        *("--timeout-ms", str(DEADLINE_S * 1000)),
        timeout_s=2 * DEADLINE_S,
    )
    assert result.returncode == 0, result.stderr
    assert "ERROR" not in result.stderr, result.stderr
    return len(result.stdout.splitlines())
