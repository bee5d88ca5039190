"""What groups do, as raw requests: the same against Odradek and Apache Kafka.

Each takes a port and a group id that nobody used before; the topic is `t`.
"""

from odradek.errors import ErrorCode
from tests.support.group_members import (
    GroupMember,
    assignment_for,
    commit,
    committed,
    form_group,
    wait_until,
)

__all__ = [
    "commit_by_an_administrator",
    "restart_a_static_member",
    "restart_a_static_member_while_it_is_assigned",
]


def restart_a_static_member(port: int, group_id: str, *, version: int, is_leader: bool) -> None:
    """07:G-4: no rebalance; what the member is told depends on its version and its role."""
    first = GroupMember(port, group_id, instance_id="one", version=version)
    second = GroupMember(port, group_id, instance_id="two", version=version)
    with first, second:
        leader = form_group(first, second)
        old = leader if is_leader else (second if leader is first else first)
        other = second if old is first else first
        old.close()
        with GroupMember(port, group_id, instance_id=old.instance_id, version=version) as restarted:
            answer = restarted.join()
            assert answer.generation_id == old.generation_id, "no rebalance"
            assert restarted.member_id != old.member_id
            members = {row.member_id for row in answer.members}
            if not is_leader:
                assert answer.leader == leader.member_id
                assert not members
                assert not answer.skip_assignment
            elif version >= 9:
                assert answer.leader == restarted.member_id
                assert members == {restarted.member_id, other.member_id}
                assert answer.skip_assignment
            else:
                assert answer.leader != restarted.member_id, "or it would assign"
                assert not members
            assert restarted.sync() == assignment_for(old), "what it had"
            assert other.heartbeat() is ErrorCode.NONE
            # Whoever still has the old id is told that somebody took its place.
            with GroupMember(port, group_id, instance_id=old.instance_id) as zombie:
                zombie.member_id, zombie.generation_id = old.member_id, old.generation_id
                assert zombie.heartbeat() is ErrorCode.FENCED_INSTANCE_ID


def restart_a_static_member_while_it_is_assigned(port: int, group_id: str) -> None:
    """07:G-7: a static member restarts between JoinGroup and the leader's SyncGroup."""
    first = GroupMember(port, group_id, instance_id="one")
    second = GroupMember(port, group_id, instance_id="two")
    with first, second:
        first.join()
        first.sync({first.member_id: b"all"})
        second.send_join()
        wait_until(
            lambda: first.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS, "the first is told"
        )
        first.send_join()
        first.joined()
        second.joined()
        second.close()
        with GroupMember(port, group_id, instance_id="two") as restarted:
            restarted.send_join()
            # The leader's assignment is for an id that is gone: it has to begin again.
            wait_until(
                lambda: first.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS, "a new rebalance"
            )
            first.send_join()
            answers = {first: first.joined(), restarted: restarted.joined()}
            [leader] = [m for m, answer in answers.items() if answer.leader == m.member_id]
            [follower] = [member for member in answers if member is not leader]
            assert first.generation_id == restarted.generation_id
            follower.send_sync()
            leader.sync({m.member_id: assignment_for(m) for m in answers})
            follower.synced()
            assert restarted.assignment == assignment_for(restarted)


def commit_by_an_administrator(port: int, group_id: str) -> None:
    """07:G-13: not against members, but for a group that has none."""
    with GroupMember(port, group_id) as member:
        form_group(member)
        assert commit(port, group_id, {("t", 0): 5}) == {("t", 0): ErrorCode.UNKNOWN_MEMBER_ID}
        assert committed(port, group_id) == {}
        assert member.commit({("t", 0): 3}) == {0}
        assert member.leave() == [0]
    assert commit(port, group_id, {("t", 0): 5}) == {("t", 0): 0}
    assert committed(port, group_id) == {("t", 0): 5}
