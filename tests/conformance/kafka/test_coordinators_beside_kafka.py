"""Groups and transactions of Apache Kafka and ours: the same answers, and the same records."""

import shutil
from pathlib import Path

import pytest

from odradek.errors import ErrorCode
from tests.conformance.kafka.unfinished_transactions import check_finished, leave, unfinish
from tests.integration.test_transactions import RawTransaction
from tests.support.apache_kafka import KafkaInstall, running_broker
from tests.support.group_members import (
    GroupMember,
    commit,
    committed,
    create_topic,
    describe,
    form_group,
    wait_for_coordinator,
)
from tests.support.group_scenarios import (
    commit_by_an_administrator,
    restart_a_static_member,
    restart_a_static_member_while_it_is_assigned,
)
from tests.support.odradek_broker import running_odradek

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

# Of the topics `kafkas` and `odradeks` each is written by one of the two.
_INTERNAL = ("__consumer_offsets-0", "__transaction_state-0")
_SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}
# A member that was silent while its broker was stopped is there all the same.
_SESSION_TIMEOUT_MS = 1_800_000


def write_groups(port: int, writer: str) -> GroupMember:
    """Commits of a group that has nobody, and a group with a member that goes away silently."""
    simple = f"simple-{writer}"
    for offset in (3, 7):
        assert commit(port, simple, {("t", 0): offset, ("t", 1): 2 * offset}) == {
            ("t", 0): 0,
            ("t", 1): 0,
        }
    with GroupMember(
        port, f"group-{writer}", instance_id="i", session_timeout_ms=_SESSION_TIMEOUT_MS
    ) as member:
        form_group(member)
        assert member.commit({("t", 0): 11}) == {0}
    return member


def check_groups(port: int, writer: str, member: GroupMember) -> None:
    """What `write_groups` wrote is served, and the member goes on where it was."""
    wait_for_coordinator(port, f"simple-{writer}", f"group-{writer}")
    assert committed(port, f"simple-{writer}") == {("t", 0): 7, ("t", 1): 14}
    assert committed(port, f"group-{writer}") == {("t", 0): 11}
    group = describe(port, f"group-{writer}")
    assert group.group_state == "Stable"
    assert [(row.member_id, bytes(row.member_assignment)) for row in group.members] == [
        (member.member_id, member.assignment)
    ]
    with GroupMember(port, f"group-{writer}", instance_id="i") as back:
        back.member_id, back.generation_id = member.member_id, member.generation_id
        assert back.heartbeat() is ErrorCode.NONE
        assert back.sync() == member.assignment
        assert back.commit({("t", 0): 11}) == {0}


def replace_log(source: Path, target: Path) -> None:
    """Puts the records of one partition's directory in the place of another's."""
    for path in target.iterdir():
        if path.name != "partition.metadata":
            path.unlink()
    for path in source.glob("*.log"):
        shutil.copy(path, target)
    # Nothing is known about it any more: its reader has to look through it.
    for path in (*target.parent.glob("*-checkpoint"), *target.parent.glob(".kafka_cleanshutdown")):
        path.unlink()


def port_of(bootstrap: str) -> int:
    return int(bootstrap.rpartition(":")[2])


def replace_logs(source: Path, target: Path, topic: str) -> None:
    for name in (*_INTERNAL, f"{topic}-0", f"{topic}-1"):
        replace_log(source / name, target / name)


def start_anew(port: int) -> None:
    for topic in ("t", "kafkas", "odradeks"):
        create_topic(port, topic)
    wait_for_coordinator(port, "any")
    with RawTransaction(port, "any") as producer:
        producer.init()


def test_groups_and_transactions_of_kafka_and_ours(kafka: KafkaInstall, tmp_path: Path) -> None:
    """07:G-4, 07:G-7, 07:G-13 as Kafka has them; its internal topics load here, ours in 3.9.

    10:TX-6, 10:TX-7: transactions that are open or decided are finished by the other one.
    """
    theirs, ours = tmp_path / "kafka", tmp_path / "odradek"
    with running_broker(kafka, theirs) as broker:
        port = port_of(broker.bootstrap)
        start_anew(port)
        for version in (9, 5):
            for is_leader in (True, False):
                restart_a_static_member(
                    port, f"static-{version}-{is_leader}", version=version, is_leader=is_leader
                )
        restart_a_static_member_while_it_is_assigned(port, "completing")
        commit_by_an_administrator(port, "administered")
        kafkas_member = write_groups(port, "kafka")
        leave(broker.bootstrap, "kafka", "kafkas")
    states = unfinish(theirs / "logs", "kafkas")
    with running_odradek(ours, _SETTINGS) as odradek:
        start_anew(odradek.port)
    replace_logs(theirs / "logs", ours / "logs", "kafkas")
    with running_odradek(ours, _SETTINGS) as odradek:
        check_groups(odradek.port, "kafka", kafkas_member)
        check_finished(odradek.bootstrap, "kafka", "kafkas", states)
        our_member = write_groups(odradek.port, "odradek")
        leave(odradek.bootstrap, "odradek", "odradeks")
    states = unfinish(ours / "logs", "odradeks")
    replace_logs(ours / "logs", theirs / "logs", "odradeks")
    with running_broker(kafka, theirs) as broker:
        port = port_of(broker.bootstrap)
        if kafka.version.startswith("3."):
            check_groups(port, "odradek", our_member)
            check_groups(port, "kafka", kafkas_member)
        check_finished(broker.bootstrap, "odradek", "odradeks", states)
