"""Many members at once, and a leader that is gone when its members wait for it."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.errors import ErrorCode
from tests.conformance.groups.judge import DEADLINE_S, Judge
from tests.conformance.groups.members import Plan, started, wait_until_read, wait_until_shared
from tests.support.group_members import GroupMember, describe, subscription, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

Names = Callable[[str], str]


class _LightMember(threading.Thread):
    """Joins, syncs and heartbeats as a client does, and knows no more than that."""

    def __init__(self, port: int, group: str, may_join: threading.Barrier) -> None:
        super().__init__()
        self._may_join = may_join
        self.member = GroupMember(
            port, group, session_timeout_ms=120_000, rebalance_timeout_ms=120_000
        )
        self.is_stopping = threading.Event()
        self.settled: tuple[int, bytes] | None = None  # generation and assignment
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self._may_join.wait(DEADLINE_S)
            while not self.is_stopping.is_set():
                self._take_part()
        except BaseException as error:
            self.error = error
        finally:
            self.member.close()

    def _take_part(self) -> None:
        """One generation: from the join to the rebalance that ends it."""
        member = self.member
        answer = member.join()
        assigned = {}
        if answer.leader == member.member_id:
            assigned = {row.member_id: row.member_id.encode() for row in answer.members}
        member.send_sync(assigned)
        sync = member._receive()
        if sync.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            return
        assert sync.error_code == 0, ErrorCode(sync.error_code)
        self.settled = (member.generation_id, bytes(sync.assignment))
        while not self.is_stopping.wait(0.2):
            heard = member.heartbeat()
            if heard is ErrorCode.REBALANCE_IN_PROGRESS:
                return
            assert heard is ErrorCode.NONE, heard


def test_a_hundred_members_join_at_once(judge: Judge, new_name: Names) -> None:
    """They settle in one generation, each with its own assignment."""
    group, count = new_name("group"), 100
    gate = threading.Barrier(count)
    members = [_LightMember(judge.broker.port, group, gate) for _ in range(count)]
    for member in members:
        member.start()
    try:

        def is_settled() -> bool:
            assert not [m.error for m in members if m.error], [m.error for m in members if m.error]
            return {m.settled for m in members} == {
                (members[0].member.generation_id, m.member.member_id.encode()) for m in members
            }

        wait_until(is_settled, "a hundred members settle")
        row = describe(judge.broker.port, group)
        assert (row.group_state, len(row.members)) == ("Stable", count)
    finally:
        for member in members:
            member.is_stopping.set()
        for member in members:
            member.join()


def test_a_leader_dies_between_join_and_sync(judge: Judge, new_name: Names, tmp_path: Path) -> None:
    """Clients that wait for its assignment are told to join again, and share what there is."""
    topic, group = new_name("topic"), new_name("group")
    partitions = judge.create_topic(topic, 4)
    judge.produce(topic, 5, 4)
    plans = [Plan(client=client, group=group, topic=topic) for client in ("librdkafka", "aiokafka")]
    with GroupMember(
        judge.broker.port,
        group,
        session_timeout_ms=6_000,
        rebalance_timeout_ms=60_000,
        metadata=subscription(topic),
    ) as leader:
        leader.join()
        leader.sync({leader.member_id: b""})
        with started(judge, tmp_path, *plans) as members:
            wait_until(
                lambda: leader.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS, "clients join"
            )
            answer = leader.join()
            assert answer.leader == leader.member_id
            leader.close()
            wait_until_shared(judge, group, members, partitions)
            wait_until_read(judge, group, members, topic, dict.fromkeys(range(4), 5))
