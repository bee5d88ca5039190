"""`kafka-consumer-groups` and `kafka-configs`, unchanged, on groups.

Each test is 11:PS-13 for what it runs: the tool ends with code 0, tells what is true, and sends
the API versions that the table of the specification says.
"""

import datetime
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from odradek.errors import ErrorCode
from tests.conformance.groups.judge import Judge
from tests.support.apache_kafka import KafkaInstall, find_kafka, why_missing
from tests.support.group_members import GroupMember, commit, describe, subscription, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.timeout(900)]

Names = Callable[[str], str]
Sent = set[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class Tool:
    """The tools of one Kafka version, pointed at a broker."""

    install: KafkaInstall
    judge: Judge

    def groups(self, *args: str, sends: Sent | None = None) -> str:
        return self.run(
            "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", *args, sends=sends
        )

    def run(self, tool: str, *args: str, sends: Sent | None = None) -> str:
        """Its output; `sends` are the requests it makes beside ApiVersions and Metadata."""
        broker = self.judge.broker
        with broker.watched() as requests:
            result = self.install.run_tool(tool, "--bootstrap-server", broker.bootstrap, *args)
        assert result.returncode == 0, f"{args}\n{result.stdout}\n{result.stderr}"
        assert not re.search(r"\bERROR\b|Exception", result.stderr), result.stderr
        if sends is not None:
            assert requests.without_introduction() == sends, args
        return result.stdout

    @property
    def is_old(self) -> bool:
        return self.install.version.startswith("3.")

    @property
    def describe_groups(self) -> tuple[str, int]:
        return ("DescribeGroups", 5 if self.is_old else 6)

    @property
    def list_offsets(self) -> tuple[str, int]:
        return ("ListOffsets", 9 if self.is_old else 11)


@pytest.fixture
def tool(kafka: KafkaInstall, judge: Judge) -> Tool:
    return Tool(kafka, judge)


def _assignment(topic: str, *partitions: int) -> bytes:
    """A consumer's assignment, version 0."""
    name = len(topic).to_bytes(2, "big") + topic.encode()
    numbers = b"".join(number.to_bytes(4, "big") for number in partitions)
    rows = (1).to_bytes(4, "big") + name + len(partitions).to_bytes(4, "big") + numbers
    return b"\0\0" + rows + b"\xff\xff\xff\xff"


@contextmanager
def _two_members(judge: Judge, group: str, topic: str) -> Iterator[tuple[str, str]]:
    """A Stable group; the ids of its members, of partition 0 and of partition 1.

    They are plain requests: a consumer's fetches would count among those of the tools.
    """
    port = judge.broker.port
    facts = {"metadata": subscription(topic), "session_timeout_ms": 600_000}
    with (
        GroupMember(port, group, **facts) as first,  # type: ignore[arg-type]  # mixed values
        GroupMember(port, group, **facts) as second,  # type: ignore[arg-type]
    ):
        first.join()
        first.sync({first.member_id: _assignment(topic, 0, 1)})
        second.send_join()
        wait_until(lambda: first.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS, "the second joins")
        first.send_join()
        first.joined()
        second.joined()
        second.send_sync()
        first.sync(
            {
                first.member_id: _assignment(topic, 0),
                second.member_id: _assignment(topic, 1),
            }
        )
        second.synced()
        yield first.member_id, second.member_id


def test_list_and_describe(tool: Tool, new_name: Names) -> None:
    """A Stable group and an Empty one. 07:T5: the line of ``--describe --state``."""
    judge = tool.judge
    topic, group, empty = new_name("topic"), new_name("live"), new_name("empty")
    judge.create_topic(topic, 2)
    judge.produce(topic, 10, 2)
    commit(judge.broker.port, empty, {(topic, 0): 3, (topic, 1): 10})
    with _two_members(judge, group, topic) as ids:
        told = tool.groups("--list", "--state", sends={("ListGroups", 5)})
        states = dict(line.split() for line in told.splitlines()[1:])
        assert (states[group], states[empty]) == ("Stable", "Empty")

        told = tool.groups("--describe", "--group", group, "--state")
        row = rf"^{group}\s+{judge.broker.bootstrap} +\(0\)\s+range\s+Stable\s+(\S+\s+)?2\s*$"
        assert re.search(row, told, re.MULTILINE), told

        told = tool.groups("--describe", "--group", group, "--members", "--verbose")
        for number, member_id in enumerate(ids):
            [line] = [line for line in told.splitlines() if member_id in line]
            assert "/127.0.0.1" in line
            # 3.9.1 leaves the topic out.
            shown = rf"\s\({number}\)" if tool.is_old else rf"\b{topic}(\({number}\)|:{number}\b)"
            assert re.search(shown, line), told

    told = tool.groups("--describe", "--group", empty, "--offsets")
    for number, offset in ((0, 3), (1, 10)):
        row = rf"^{empty}\s+{topic}\s+{number}\s+(\S+\s+)?{offset}\s+10\s+{10 - offset}\s+-"
        assert re.search(row, told, re.MULTILINE), told


def test_reset_offsets(tool: Tool, new_name: Names, tmp_path: Path) -> None:
    """Every way to say where to; with the older tool, two of them."""
    judge = tool.judge
    topic, group = new_name("topic"), new_name("group")
    judge.create_topic(topic, 1)
    judge.produce(topic, 4, 1)
    time.sleep(0.1)  # Records of before and of after have timestamps on their side of the middle.
    middle = datetime.datetime.now(datetime.UTC)
    time.sleep(0.1)
    judge.produce(topic, 6, 1)
    commit(judge.broker.port, group, {(topic, 0): 7})
    plan = tmp_path / "plan.csv"
    plan.write_text(f"{topic},0,2\n")
    when = middle.strftime("%Y-%m-%dT%H:%M:%S.") + f"{middle.microsecond // 1000:03d}Z"

    told = tool.groups("--reset-offsets", "--group", group, "--topic", topic, "--to-earliest")
    assert re.search(rf"\b{group}\s+{topic}\s+0\s+0\s*$", told, re.MULTILINE), told
    assert judge.committed(group) == {(topic, 0): 7}, "without --execute nothing changes"

    steps: list[tuple[tuple[str, ...], int]] = [
        (("--to-current",), 7),
        (("--to-earliest",), 0),
        (("--to-latest",), 10),
        (("--shift-by", "-4"), 6),
        (("--to-offset", "5"), 5),
        (("--to-datetime", when), 4),
        (("--by-duration", "P1D"), 0),
        (("--from-file", str(plan)), 2),
    ]
    if tool.is_old:  # The same requests, and a JVM for each: the ones that ask the broker most.
        steps = [(("--shift-by", "-4"), 3), (("--to-datetime", when), 4)]
    for how, expected in steps:
        named = () if how[0] == "--from-file" else ("--topic", topic)
        tool.groups("--reset-offsets", "--group", group, *named, *how, "--execute")
        assert judge.committed(group) == {(topic, 0): expected}, how


def test_delete(tool: Tool, new_name: Names) -> None:
    """Offsets of one topic, then the group; not of those that have members."""
    judge = tool.judge
    topic, other = new_name("topic"), new_name("other")
    group, live = new_name("group"), new_name("live")
    judge.create_topic(topic, 2)
    judge.create_topic(other, 1)
    commit(judge.broker.port, group, {(topic, 0): 1, (topic, 1): 1, (other, 0): 1})
    told = tool.groups("--delete-offsets", "--group", group, "--topic", topic)
    assert "Request succeeded" in told or "Successful" in told, told
    assert judge.committed(group) == {(other, 0): 1}
    told = tool.groups(
        "--delete", "--group", group, sends={("FindCoordinator", 6), ("DeleteGroups", 2)}
    )
    assert "successful" in told, told
    assert judge.committed(group) == {}
    with _two_members(judge, live, topic):
        told = tool.groups("--delete", "--group", live)
        assert "failed" in told
        assert describe(judge.broker.port, live).group_state == "Stable"


def test_group_configs(judge: Judge, new_name: Names) -> None:
    """`kafka-configs --entity-type groups`, which 3.9.1 does not know: none has settings."""
    install = find_kafka("4.3.1")
    if install is None:
        pytest.skip(why_missing("4.3.1"))
    topic, group = new_name("topic"), new_name("group")
    judge.create_topic(topic, 1)
    commit(judge.broker.port, group, {(topic, 0): 0})
    told = Tool(install, judge).run(
        "kafka.admin.ConfigCommand",
        *("--describe", "--entity-type", "groups"),
        sends={("ListGroups", 5), ("ListConfigResources", 1), ("DescribeConfigs", 4)},
    )
    assert re.search(rf"\bgroup {group} are:\s*$", told, re.MULTILINE), told
