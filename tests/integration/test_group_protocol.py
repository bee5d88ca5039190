"""Groups through a real broker, request by request: what each member is told, and when."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.errors import ErrorCode
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.delete_groups import DeleteGroupsRequest
from odradek.protocol.messages.delete_topics import DeleteTopicsRequest
from odradek.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from odradek.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek.records.builder import build_batch
from tests.conformance.clients.raw import RawConnection
from tests.support.group_members import (
    GroupMember,
    commit,
    committed,
    create_topic,
    describe,
    form_group,
    wait_for_coordinator,
    wait_until,
)
from tests.support.group_scenarios import (
    commit_by_an_administrator,
    restart_a_static_member,
    restart_a_static_member_while_it_is_assigned,
)
from tests.support.odradek_broker import OdradekBroker, running_odradek

pytestmark = pytest.mark.slow

# Long enough for a busy machine to join and sync, short enough to be waited out.
_REBALANCE_TIMEOUT_MS = 8_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OdradekBroker]:
    settings = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "4"}
    with running_odradek(tmp_path_factory.mktemp("groups"), settings) as running:
        create_topic(running.port, "t")
        create_topic(running.port, "u")
        wait_for_coordinator(running.port, *map(str, range(20)))
        yield running


@pytest.fixture(scope="module")
def new_group() -> Callable[[], str]:
    names = (f"group-{number}" for number in itertools.count())
    return lambda: next(names)


def test_a_heartbeat_between_join_and_sync(
    broker: OdradekBroker, new_group: Callable[[], str]
) -> None:
    """07:G-1."""
    with GroupMember(broker.port, new_group()) as member:
        member.join()
        assert member.heartbeat() is ErrorCode.NONE
        assert member.sync({member.member_id: b"mine"}) == b"mine"
        assert member.heartbeat() is ErrorCode.NONE
        assert member.generation_id == 1


def test_a_leader_that_never_syncs_is_removed(
    broker: OdradekBroker, new_group: Callable[[], str]
) -> None:
    """07:G-2: it heartbeats all the while; the other one gets partitions."""
    group_id = new_group()
    leader = GroupMember(broker.port, group_id, rebalance_timeout_ms=_REBALANCE_TIMEOUT_MS)
    other = GroupMember(broker.port, group_id, rebalance_timeout_ms=_REBALANCE_TIMEOUT_MS)
    with leader, other:
        assert form_group(leader) is leader
        other.send_join()
        wait_until(lambda: leader.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS, "a rebalance")
        assert leader.join().leader == leader.member_id
        generation = other.joined().generation_id
        other.send_sync()
        told = wait_until(
            lambda: [e] if (e := leader.heartbeat()) is not ErrorCode.NONE else None, "the end"
        )
        assert told == [ErrorCode.UNKNOWN_MEMBER_ID]
        other.synced(ErrorCode.REBALANCE_IN_PROGRESS)
        answer = other.join()
        assert (answer.leader, answer.generation_id) == (other.member_id, generation + 1)
        assert other.sync({other.member_id: b"all"}) == b"all"


def test_a_follower_that_syncs_late_gets_its_own(
    broker: OdradekBroker, new_group: Callable[[], str]
) -> None:
    """07:G-3: the group is Stable already; one that stays silent is removed."""
    group_id = new_group()
    leader = GroupMember(broker.port, group_id)
    late = GroupMember(broker.port, group_id)
    with leader, late:
        form_group(leader)
        late.send_join()
        wait_until(lambda: leader.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS, "a rebalance")
        leader.join()
        late.joined()
        leader.sync({late.member_id: b"late", leader.member_id: b"leader"})
        assert describe(broker.port, group_id).group_state == "Stable"
        assert late.sync() == b"late"


def test_a_follower_that_never_syncs_is_removed(
    broker: OdradekBroker, new_group: Callable[[], str]
) -> None:
    """07:G-3."""
    group_id = new_group()
    leader = GroupMember(broker.port, group_id, rebalance_timeout_ms=_REBALANCE_TIMEOUT_MS)
    silent = GroupMember(broker.port, group_id, rebalance_timeout_ms=_REBALANCE_TIMEOUT_MS)
    with leader, silent:
        form_group(leader)
        silent.send_join()
        wait_until(lambda: leader.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS, "a rebalance")
        leader.join()
        silent.joined()
        leader.sync({})
        # It lives, but does not take what is assigned to it.
        wait_until(lambda: silent.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID, "its removal")
        assert leader.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
        assert [row.member_id for row in leader.join().members] == [leader.member_id]


@pytest.mark.parametrize("version", [9, 5])
@pytest.mark.parametrize("is_leader", [True, False], ids=["leader", "follower"])
def test_a_static_member_restarts(
    broker: OdradekBroker, new_group: Callable[[], str], version: int, is_leader: bool
) -> None:
    """07:G-4, 07:G-8."""
    restart_a_static_member(broker.port, new_group(), version=version, is_leader=is_leader)


def test_a_static_member_restarts_while_it_is_assigned(
    broker: OdradekBroker, new_group: Callable[[], str]
) -> None:
    """07:G-7."""
    restart_a_static_member_while_it_is_assigned(broker.port, new_group())


def test_a_parked_request_of_a_member_that_was_replaced(
    broker: OdradekBroker, new_group: Callable[[], str]
) -> None:
    """07:G-8: the older of two with one instance id is told, however it waits."""
    group_id = new_group()
    first = GroupMember(broker.port, group_id)
    older = GroupMember(broker.port, group_id, instance_id="x")
    with first, older, GroupMember(broker.port, group_id, instance_id="x") as newer:
        form_group(first)
        older.send_join()  # Waits for the first one to join again.
        wait_until(lambda: first.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS, "a rebalance")
        newer.send_join()
        older.joined(ErrorCode.FENCED_INSTANCE_ID)
        first.join()
        newer.joined()


def test_an_administrator_commits(broker: OdradekBroker, new_group: Callable[[], str]) -> None:
    """07:G-13."""
    commit_by_an_administrator(broker.port, new_group())


def test_members_leave_each_with_its_own_outcome(
    broker: OdradekBroker, new_group: Callable[[], str]
) -> None:
    """07:G-14: a pending id, an unknown one, and a static member by its instance id."""
    group_id = new_group()
    static = GroupMember(broker.port, group_id, instance_id="s")
    pending = GroupMember(broker.port, group_id)
    with static, pending:
        form_group(static)
        asked = pending._call(ApiKey.JOIN_GROUP, 9, pending._join_request())
        assert asked.error_code == ErrorCode.MEMBER_ID_REQUIRED
        errors = static.leave((asked.member_id, None), ("nobody", None), ("", "s"))
        assert errors == [0, ErrorCode.UNKNOWN_MEMBER_ID, 0]
    assert describe(broker.port, group_id).group_state == "Empty"


def test_a_parked_sync_of_a_member_that_is_removed(
    broker: OdradekBroker, new_group: Callable[[], str]
) -> None:
    """07:G-18."""
    group_id = new_group()
    leader = GroupMember(broker.port, group_id)
    other = GroupMember(broker.port, group_id, instance_id="o")
    with leader, other:
        form_group(leader)
        other.send_join()
        wait_until(lambda: leader.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS, "a rebalance")
        leader.join()
        other.joined()
        other.send_sync()
        assert leader.leave(("", "o")) == [0]
        other.synced(ErrorCode.UNKNOWN_MEMBER_ID)


def delete_offset(port: int, group_id: str, *topics: str) -> Any:
    row = OffsetDeleteRequestPartition(partition_index=0)
    with RawConnection(port) as connection:
        return connection.call(
            ApiKey.OFFSET_DELETE,
            0,
            OffsetDeleteRequest(
                group_id=group_id,
                topics=[OffsetDeleteRequestTopic(name=t, partitions=[row]) for t in topics],
            ),
        )


def test_offsets_of_topics_in_use_are_not_deleted(
    broker: OdradekBroker, new_group: Callable[[], str]
) -> None:
    """07:G-15."""
    group_id = new_group()
    with GroupMember(broker.port, group_id) as member:
        form_group(member)
        assert member.commit({("t", 0): 1, ("u", 0): 2}) == {0}
        answer = delete_offset(broker.port, group_id, "t", "u")
        assert [topic.partitions[0].error_code for topic in answer.topics] == [
            ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
            0,
        ]
        assert committed(broker.port, group_id) == {("t", 0): 1}
    connect = new_group()
    with GroupMember(broker.port, connect, protocol_type="connect", metadata=b"\1") as worker:
        form_group(worker)
        answer = delete_offset(broker.port, connect, "t")
        assert answer.error_code == ErrorCode.NON_EMPTY_GROUP


@pytest.mark.parametrize("version", range(10))
def test_members_of_every_version(
    broker: OdradekBroker, new_group: Callable[[], str], version: int
) -> None:
    """11:PS-5 in part: JoinGroup to LeaveGroup as clients of all ages send them."""
    with GroupMember(broker.port, new_group(), version=version) as member:
        answer = member.join()
        assert (answer.generation_id, answer.leader) == (1, member.member_id)
        assert [row.member_id for row in answer.members] == [member.member_id]
        member.send_sync({member.member_id: b"a"}, version=min(version, 5))
        assert member.synced() == b"a"
        assert member.heartbeat(min(version, 4)) is ErrorCode.NONE
        assert member.commit({("t", 1): 4}, max(2, version)) == {0}
        assert member.leave() == [0]


def test_a_group_is_deleted_when_it_is_empty(
    broker: OdradekBroker, new_group: Callable[[], str]
) -> None:
    group_id = new_group()

    def delete() -> list[int]:
        with RawConnection(broker.port) as connection:
            answer: Any = connection.call(
                ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=[group_id])
            )
        return [row.error_code for row in answer.results]

    with GroupMember(broker.port, group_id) as member:
        form_group(member)
        assert member.commit({("t", 0): 1}) == {0}
        assert delete() == [ErrorCode.NON_EMPTY_GROUP]
        member.leave()
    assert delete() == [0]
    assert delete() == [ErrorCode.GROUP_ID_NOT_FOUND]
    assert committed(broker.port, group_id) == {}


def test_clients_do_not_write_to_the_offsets_topic(broker: OdradekBroker) -> None:
    batch = bytes(build_batch([(0, b"k", b"v", ())]))
    data = PartitionProduceData(index=0, records=batch)
    request = ProduceRequest(
        acks=-1,
        timeout_ms=60_000,
        topic_data=[TopicProduceData(name="__consumer_offsets", partition_data=[data])],
    )
    with RawConnection(broker.port) as connection:
        answer: Any = connection.call(ApiKey.PRODUCE, 8, request)
    [row] = answer.responses[0].partition_responses
    assert row.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_metrics_tell_of_groups(broker: OdradekBroker, new_group: Callable[[], str]) -> None:
    with GroupMember(broker.port, new_group()) as member:
        form_group(member)
        assert member.commit({("t", 0): 1}) == {0}
        text = broker.metrics()
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if line[:1] != "#")
    family = "kafka_coordinator_group_groupmetadatamanager_"
    assert float(values[f"{family}numgroupsstable"]) >= 1
    assert float(values[f"{family}numgroups"]) >= 1
    assert float(values[f"{family}numoffsets"]) >= 1
    counters = "kafka_server_group_coordinator_metrics_"
    assert float(values[f"{counters}offset_commit_total"]) >= 1
    assert float(values[f"{counters}group_completed_rebalance_total"]) >= 1


def test_a_fresh_broker_has_groups(tmp_path: Path) -> None:
    """07:G-17: nothing is configured; the offsets topic is made with one replica."""
    with running_odradek(tmp_path) as fresh:
        create_topic(fresh.port, "t")
        wait_for_coordinator(fresh.port, "g")
        with GroupMember(fresh.port, "g") as member:
            form_group(member)
            assert member.commit({("t", 0): 1}) == {0}
        with RawConnection(fresh.port) as connection:
            request = DescribeTopicPartitionsRequest(
                topics=[TopicRequest(name="__consumer_offsets")]
            )
            answer: Any = connection.call(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, request)
        [topic] = answer.topics
        assert len(topic.partitions) == 50
        assert {len(row.replica_nodes) for row in topic.partitions} == {1}
        assert topic.is_internal
        assert "offsets.topic.replication.factor" in fresh.log()


def test_a_replication_factor_that_is_set_is_not_lowered(tmp_path: Path) -> None:
    """07:G-17: COORDINATOR_NOT_AVAILABLE, and one line that says why."""
    with running_odradek(tmp_path, {"offsets.topic.replication.factor": "3"}) as lonely:
        line = "Topic __consumer_offsets was requested, but cannot be created"

        def ask() -> int:
            with RawConnection(lonely.port) as connection:
                answer: Any = connection.call(
                    ApiKey.FIND_COORDINATOR, 2, FindCoordinatorRequest(key="g")
                )
            error: int = answer.error_code
            return error

        assert ask() == ErrorCode.COORDINATOR_NOT_AVAILABLE
        wait_until(lambda: line in lonely.log(), "the reason")
        for _ in range(5):
            assert ask() == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert lonely.log().count(line) == 1


def test_commits_of_a_deleted_topic_are_forgotten(
    broker: OdradekBroker, new_group: Callable[[], str]
) -> None:
    group_id, topic = new_group(), "deleted"
    create_topic(broker.port, topic)
    assert commit(broker.port, group_id, {(topic, 0): 7, ("t", 0): 3}) == {
        (topic, 0): 0,
        ("t", 0): 0,
    }
    with RawConnection(broker.port) as connection:
        connection.call(
            ApiKey.DELETE_TOPICS, 4, DeleteTopicsRequest(topic_names=[topic], timeout_ms=60_000)
        )
    wait_until(lambda: committed(broker.port, group_id) == {("t", 0): 3}, "the end of its offsets")
