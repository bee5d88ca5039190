"""FindCoordinator and the group APIs: requests in, the coordinator's answers out."""

from dataclasses import replace
from typing import Any

import pytest

from odradek.broker.handlers.delete_groups import handle_delete_groups
from odradek.broker.handlers.describe_groups import handle_describe_groups
from odradek.broker.handlers.find_coordinator import handle_find_coordinator
from odradek.broker.handlers.heartbeat import handle_heartbeat
from odradek.broker.handlers.join_group import handle_join_group
from odradek.broker.handlers.leave_group import handle_leave_group
from odradek.broker.handlers.list_groups import handle_list_groups
from odradek.broker.handlers.offset_commit import handle_offset_commit
from odradek.broker.handlers.offset_delete import handle_offset_delete
from odradek.broker.handlers.offset_fetch import handle_offset_fetch
from odradek.broker.handlers.sync_group import handle_sync_group
from odradek.errors import ErrorCode
from odradek.metadata.delta import ClusterDelta
from odradek.protocol.api_keys import API_SUPPORT, ApiKey
from odradek.protocol.messages.delete_groups import DeleteGroupsRequest
from odradek.protocol.messages.describe_groups import DescribeGroupsRequest
from odradek.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from odradek.protocol.messages.heartbeat import HeartbeatRequest
from odradek.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from odradek.protocol.messages.list_groups import ListGroupsRequest
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from odradek.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from odradek.protocol.messages.sync_group import SyncGroupRequest
from odradek.protocol.registry import response_type
from odradek.protocol.schema import Message
from odradek.security.operations import Operation, ResourceType
from odradek.security.principal import Principal
from tests.unit.broker.handlers.handler_fakes import LISTENER, BrokerFixture, FakeTopicCreator

HANDLERS: dict[ApiKey, Any] = {
    ApiKey.OFFSET_COMMIT: handle_offset_commit,
    ApiKey.OFFSET_FETCH: handle_offset_fetch,
    ApiKey.JOIN_GROUP: handle_join_group,
    ApiKey.SYNC_GROUP: handle_sync_group,
    ApiKey.HEARTBEAT: handle_heartbeat,
    ApiKey.LEAVE_GROUP: handle_leave_group,
    ApiKey.DESCRIBE_GROUPS: handle_describe_groups,
    ApiKey.LIST_GROUPS: handle_list_groups,
    ApiKey.DELETE_GROUPS: handle_delete_groups,
    ApiKey.OFFSET_DELETE: handle_offset_delete,
}


class Denying:
    """An authorizer that forbids one kind of resource."""

    def __init__(self, resource: ResourceType) -> None:
        self.resource = resource

    def is_allowed(
        self,
        principal: Principal,
        host: str,
        operation: Operation,
        resource: ResourceType,
        name: str,
    ) -> bool:
        return resource is not self.resource


def served(**options: Any) -> BrokerFixture:
    """A broker that coordinates all groups, and has the topic t with three partitions."""
    broker = BrokerFixture(**options)
    broker.publish_topic("__consumer_offsets", 50, number=9)
    broker.publish_topic("t", 3)
    broker.coordination.lead_all()
    return broker


def ask(broker: BrokerFixture, key: ApiKey, message: Message, version: int) -> Any:
    """The answer, given at once or by the coordinator."""
    request = broker.request(key, message, version)
    response = broker.call(HANDLERS[key], request)
    if response is not None:
        broker.sent.append(response)
    return broker.last_sent(response_type(key))


def versions(key: ApiKey) -> list[int]:
    accepted = API_SUPPORT[key].accepted
    return list(range(accepted.first, accepted.last + 1))


def commit_request(group_id: str = "g", **offsets: int) -> OffsetCommitRequest:
    """A commit outside of a group; `t_0=5` is partition 0 of t."""
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for name, offset in offsets.items():
        topic, _, number = name.rpartition("_")
        topics.setdefault(topic, []).append(
            OffsetCommitRequestPartition(
                partition_index=int(number), committed_offset=offset, committed_metadata=""
            )
        )
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[OffsetCommitRequestTopic(name=n, partitions=rows) for n, rows in topics.items()],
    )


def errors_of(answer: Any) -> dict[tuple[str, int], int]:
    return {
        (topic.name, row.partition_index): row.error_code
        for topic in answer.topics
        for row in topic.partitions
    }


def committed(broker: BrokerFixture, group_id: str = "g") -> dict[tuple[str, int], int]:
    """All that is committed, asked for with null."""
    groups = [OffsetFetchRequestGroup(group_id=group_id, topics=None)]
    answer = ask(broker, ApiKey.OFFSET_FETCH, OffsetFetchRequest(groups=groups), 8)
    [group] = answer.groups
    assert group.error_code == 0
    return {
        (topic.name, row.partition_index): row.committed_offset
        for topic in group.topics
        for row in topic.partitions
    }


def join_request(member_id: str = "", **fields: Any) -> JoinGroupRequest:
    return JoinGroupRequest(
        **{
            "group_id": "g",
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 60_000,
            "member_id": member_id,
            "protocol_type": "consumer",
            "protocols": [JoinGroupRequestProtocol(name="range", metadata=b"")],
            **fields,
        }
    )


# FindCoordinator


def find(
    broker: BrokerFixture, message: FindCoordinatorRequest, version: int, listener: str = LISTENER
) -> FindCoordinatorResponse:
    return broker.ask(
        handle_find_coordinator,
        ApiKey.FIND_COORDINATOR,
        message,
        version,
        FindCoordinatorResponse,
        listener=listener,
    )


@pytest.mark.parametrize("version", range(4))
def test_who_leads_the_partition_coordinates_the_group(version: int) -> None:
    answer = find(served(), FindCoordinatorRequest(key="g"), version, "EXTERNAL")
    assert (answer.error_code, answer.node_id, answer.host, answer.port) == (0, 0, "x0", 9093)


@pytest.mark.parametrize("version", [4, 5])
def test_one_row_per_key_from_version_4_on(version: int) -> None:
    message = FindCoordinatorRequest(coordinator_keys=["g", "h"])
    answer = find(served(), message, version)
    assert [(row.key, row.error_code, row.node_id, row.host) for row in answer.coordinators] == [
        ("g", 0, 0, "h0"),
        ("h", 0, 0, "h0"),
    ]


@pytest.mark.parametrize(
    ("key_type", "code"),
    [(2, ErrorCode.INVALID_REQUEST), (3, ErrorCode.INVALID_REQUEST)],
)
def test_other_types_have_no_coordinator(key_type: int, code: ErrorCode) -> None:
    broker = served()
    old = find(broker, FindCoordinatorRequest(key="x", key_type=key_type), 2)
    assert (old.error_code, old.node_id, old.host, old.port) == (code, -1, "", -1)
    message = FindCoordinatorRequest(coordinator_keys=["x"], key_type=key_type)
    for version in (5, 6):
        [row] = find(broker, message, version).coordinators
        assert (row.key, row.error_code, row.node_id) == ("x", code, -1)


def test_a_leader_without_the_listener_coordinates_nothing_there() -> None:
    answer = find(served(), FindCoordinatorRequest(key="g"), 1, "OTHER")
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_the_offsets_topic_is_made_when_it_is_missing() -> None:
    broker = BrokerFixture()
    answer = find(broker, FindCoordinatorRequest(key="g"), 1)
    assert (answer.error_code, answer.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
    creator = broker.context.topic_creator
    assert isinstance(creator, FakeTopicCreator)
    assert creator.started == ["__consumer_offsets"]


def test_each_key_has_its_own_leader() -> None:
    """`my-group` lives in partition 12, `test` in 48."""
    broker = served()
    state = broker.cache.image.topics["__consumer_offsets"].partitions[12]
    assert state.leader == 0
    broker.publish_brokers(0, 4)
    broker.publish(ClusterDelta(partitions=(replace(state, leader=4, leader_epoch=1),)))
    message = FindCoordinatorRequest(coordinator_keys=["my-group", "test"])
    assert [row.node_id for row in find(broker, message, 4).coordinators] == [4, 0]


# Offsets


@pytest.mark.parametrize("version", [v for v in versions(ApiKey.OFFSET_COMMIT) if v < 10])
def test_what_is_committed_is_fetched(version: int) -> None:
    broker = served()
    answer = ask(broker, ApiKey.OFFSET_COMMIT, commit_request(t_0=5, t_2=7), version)
    assert errors_of(answer) == {("t", 0): 0, ("t", 2): 0}
    assert committed(broker) == {("t", 0): 5, ("t", 2): 7}


def test_partitions_that_do_not_exist_are_refused_alone() -> None:
    broker = served()
    answer = ask(broker, ApiKey.OFFSET_COMMIT, commit_request(t_0=5, t_3=1, u_0=1), 8)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert errors_of(answer) == {("t", 0): 0, ("t", 3): unknown, ("u", 0): unknown}
    assert committed(broker) == {("t", 0): 5}
    nothing = ask(broker, ApiKey.OFFSET_COMMIT, commit_request("other", u_0=1), 8)
    assert errors_of(nothing) == {("u", 0): unknown}
    assert "other" not in broker.coordination.registry.groups


def test_metadata_that_is_too_long_is_refused_alone() -> None:
    broker = served(settings={"offset.metadata.max.bytes": "3"})
    rows = [
        OffsetCommitRequestPartition(
            partition_index=number, committed_offset=1, committed_metadata=text
        )
        for number, text in enumerate(["abc", "abcd"])
    ]
    message = OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[OffsetCommitRequestTopic(name="t", partitions=rows)],
    )
    answer = ask(broker, ApiKey.OFFSET_COMMIT, message, 8)
    assert errors_of(answer) == {("t", 0): 0, ("t", 1): ErrorCode.OFFSET_METADATA_TOO_LARGE}
    assert committed(broker) == {("t", 0): 1}


def test_a_failed_append_is_told_of_all_and_changes_nothing() -> None:
    broker = served()
    ask(broker, ApiKey.OFFSET_COMMIT, commit_request(t_0=5), 8)
    broker.coordination.topic.error = ErrorCode.NOT_ENOUGH_REPLICAS
    answer = ask(broker, ApiKey.OFFSET_COMMIT, commit_request(t_0=6, t_1=6), 8)
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert errors_of(answer) == {("t", 0): code, ("t", 1): code}
    assert committed(broker) == {("t", 0): 5}


def test_a_commit_is_answered_when_it_is_on_all_replicas() -> None:
    broker = served()
    broker.coordination.topic.is_held = True
    request = broker.request(ApiKey.OFFSET_COMMIT, commit_request(t_0=5), 8)
    assert broker.call(handle_offset_commit, request) is None
    assert not broker.sent
    broker.coordination.topic.release()
    answer = broker.last_sent(response_type(ApiKey.OFFSET_COMMIT))
    assert errors_of(answer) == {("t", 0): 0}


@pytest.mark.parametrize(("version", "code"), [(8, 22), (9, 69)])
def test_a_generation_of_a_group_nobody_knows(version: int, code: int) -> None:
    message = OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=1,
        member_id="m",
        topics=commit_request(t_0=1).topics,
    )
    answer = ask(served(), ApiKey.OFFSET_COMMIT, message, version)
    assert errors_of(answer) == {("t", 0): code}


@pytest.mark.parametrize("version", range(1, 8))
def test_nothing_is_committed(version: int) -> None:
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0, 3])]
    message = OffsetFetchRequest(group_id="g", topics=topics)
    answer = ask(served(), ApiKey.OFFSET_FETCH, message, version)
    [topic] = answer.topics
    assert (answer.error_code, topic.name) == (0, "t")
    assert [
        (p.partition_index, p.committed_offset, p.committed_leader_epoch, p.metadata, p.error_code)
        for p in topic.partitions
    ] == [(0, -1, -1, "", 0), (3, -1, -1, "", 0)]


@pytest.mark.parametrize("version", [8, 9])
def test_several_groups_from_version_8_on(version: int) -> None:
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[1])]
    groups = [
        OffsetFetchRequestGroup(group_id="g", topics=topics),
        OffsetFetchRequestGroup(group_id="h", topics=None),
    ]
    answer = ask(served(), ApiKey.OFFSET_FETCH, OffsetFetchRequest(groups=groups), version)
    first, second = answer.groups
    assert (first.group_id, first.error_code, second.group_id) == ("g", 0, "h")
    [row] = first.topics[0].partitions
    assert (row.partition_index, row.committed_offset, row.error_code) == (1, -1, 0)
    assert second.topics == ()


def test_null_asks_for_all_that_is_committed() -> None:
    answer = ask(served(), ApiKey.OFFSET_FETCH, OffsetFetchRequest(group_id="g", topics=None), 2)
    assert (answer.error_code, answer.topics) == (0, ())


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_FETCH))
def test_a_group_of_another_broker_is_told_where_each_version_tells_it(version: int) -> None:
    """Never COORDINATOR_NOT_AVAILABLE, at which Java consumers before 3.9 give up."""
    broker = BrokerFixture()
    broker.publish_topic("__consumer_offsets", 50, number=9)
    if version >= 8:
        topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
        message = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)])
    else:
        asked = [OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
        message = OffsetFetchRequest(group_id="g", topics=asked)
    answer = ask(broker, ApiKey.OFFSET_FETCH, message, version)
    code = ErrorCode.NOT_COORDINATOR
    if version >= 8:
        assert [group.error_code for group in answer.groups] == [code]
    elif version >= 2:
        assert answer.error_code == code
    else:
        assert errors_of(answer) == {("t", 0): code}
    broker.context.groups.stop()
    again = ask(broker, ApiKey.OFFSET_FETCH, message, version)
    assert again == answer, "also when the coordinator has stopped"


def test_stable_reads_see_a_commit_that_is_being_written() -> None:
    broker = served()
    ask(broker, ApiKey.OFFSET_COMMIT, commit_request(t_0=5), 8)
    broker.coordination.topic.is_held = True
    broker.call(
        handle_offset_commit, broker.request(ApiKey.OFFSET_COMMIT, commit_request(t_0=6), 8)
    )
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
    found = {}
    for is_stable in (False, True):
        message = OffsetFetchRequest(group_id="g", topics=topics, require_stable=is_stable)
        [topic] = ask(broker, ApiKey.OFFSET_FETCH, message, 7).topics
        [row] = topic.partitions
        found[is_stable] = (row.committed_offset, row.error_code)
    assert found == {False: (5, 0), True: (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)}


def delete_offsets_request(**partitions: int) -> OffsetDeleteRequest:
    return OffsetDeleteRequest(
        group_id="g",
        topics=[
            OffsetDeleteRequestTopic(
                name=name, partitions=[OffsetDeleteRequestPartition(partition_index=number)]
            )
            for name, number in partitions.items()
        ],
    )


def test_offsets_are_deleted() -> None:
    broker = served()
    ask(broker, ApiKey.OFFSET_COMMIT, commit_request(t_0=5, t_1=6), 8)
    answer = ask(broker, ApiKey.OFFSET_DELETE, delete_offsets_request(t=0, u=0), 0)
    assert answer.error_code == 0
    assert errors_of(answer) == {
        ("t", 0): 0,
        ("u", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert committed(broker) == {("t", 1): 6}


def test_offsets_of_no_group_cannot_be_deleted() -> None:
    answer = ask(served(), ApiKey.OFFSET_DELETE, delete_offsets_request(t=0), 0)
    assert (answer.error_code, answer.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, ())


# Members


def test_a_member_joins_syncs_heartbeats_and_leaves() -> None:
    broker = served(settings={"group.initial.rebalance.delay.ms": "0"})
    asked = ask(broker, ApiKey.JOIN_GROUP, join_request(), 9)
    assert asked.error_code == ErrorCode.MEMBER_ID_REQUIRED
    member_id = asked.member_id
    assert member_id.startswith("c1-")
    broker.call(handle_join_group, broker.request(ApiKey.JOIN_GROUP, join_request(member_id), 9))
    broker.coordination.advance(100)
    joined: Any = broker.last_sent(response_type(ApiKey.JOIN_GROUP))
    assert (joined.error_code, joined.generation_id, joined.leader) == (0, 1, member_id)
    assert [(row.member_id, row.metadata) for row in joined.members] == [(member_id, b"")]
    sync = SyncGroupRequest(
        group_id="g",
        generation_id=1,
        member_id=member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[],
    )
    synced = ask(broker, ApiKey.SYNC_GROUP, sync, 5)
    assert (synced.error_code, synced.protocol_name, synced.assignment) == (0, "range", b"")
    heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id=member_id)
    for version in versions(ApiKey.HEARTBEAT):
        assert ask(broker, ApiKey.HEARTBEAT, heartbeat, version).error_code == 0
    described = ask(broker, ApiKey.DESCRIBE_GROUPS, DescribeGroupsRequest(groups=["g"]), 6)
    [group] = described.groups
    assert (group.group_state, group.protocol_data) == ("Stable", "range")
    assert [(row.client_id, row.client_host) for row in group.members] == [("c1", "/127.0.0.1")]
    leave = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=member_id)])
    left = ask(broker, ApiKey.LEAVE_GROUP, leave, 5)
    assert (left.error_code, [row.error_code for row in left.members]) == (0, [0])
    assert ask(broker, ApiKey.HEARTBEAT, heartbeat, 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", versions(ApiKey.JOIN_GROUP))
def test_a_refused_join_can_be_written_in_every_version(version: int) -> None:
    message = join_request(session_timeout_ms=1)
    answer = ask(served(), ApiKey.JOIN_GROUP, message, version)
    assert answer.error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    assert answer.protocol_name == (None if version >= 7 else "")
    assert (answer.generation_id, answer.leader, answer.members) == (-1, "", ())


@pytest.mark.parametrize("version", versions(ApiKey.LEAVE_GROUP))
def test_who_leaves_a_group_that_is_not_there(version: int) -> None:
    if version >= 3:
        message = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="m")])
    else:
        message = LeaveGroupRequest(group_id="g", member_id="m", members=[])
    answer = ask(served(), ApiKey.LEAVE_GROUP, message, version)
    errors = [row.error_code for row in answer.members] if version >= 3 else [answer.error_code]
    assert errors == [ErrorCode.UNKNOWN_MEMBER_ID]


# Administrators


def test_groups_are_listed_and_filtered() -> None:
    broker = served()
    for group_id in ("a", "b"):
        ask(broker, ApiKey.OFFSET_COMMIT, commit_request(group_id, t_0=1), 8)
    for version in versions(ApiKey.LIST_GROUPS):
        answer = ask(broker, ApiKey.LIST_GROUPS, ListGroupsRequest(), version)
        assert [row.group_id for row in answer.groups] == ["a", "b"]
    [row, _] = answer.groups
    assert (row.protocol_type, row.group_state, row.group_type) == ("", "Empty", "classic")
    stable = ask(broker, ApiKey.LIST_GROUPS, ListGroupsRequest(states_filter=["Stable"]), 5)
    assert stable.groups == ()


class Describing:
    """An authorizer that allows nothing but to describe some resources."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def is_allowed(
        self,
        principal: Principal,
        host: str,
        operation: Operation,
        resource: ResourceType,
        name: str,
    ) -> bool:
        return operation is Operation.DESCRIBE and name in self.names


@pytest.mark.parametrize(
    ("described", "told"),
    [(["kafka-cluster"], ["g1", "g2"]), (["g1"], ["g1"]), ([], [])],
    ids=["all", "one", "none"],
)
def test_groups_are_listed_to_those_who_may_know_of_them(
    described: list[str], told: list[str]
) -> None:
    """02:N-21."""
    broker = served()
    for group_id in ("g1", "g2"):
        ask(broker, ApiKey.OFFSET_COMMIT, commit_request(group_id, t_0=1), 8)
    broker.context = replace(broker.context, authorizer=Describing(*described))
    answer = ask(broker, ApiKey.LIST_GROUPS, ListGroupsRequest(), 5)
    assert (answer.error_code, [row.group_id for row in answer.groups]) == (0, told)


def test_a_list_says_that_it_may_not_be_whole() -> None:
    broker = served()
    broker.coordination.topic.lead(3, 7)
    broker.coordination.loader.lead(3, 7)
    answer = ask(broker, ApiKey.LIST_GROUPS, ListGroupsRequest(), 5)
    assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    broker.coordination.tasks.run()


@pytest.mark.parametrize(("version", "code"), [(5, 0), (6, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_a_group_that_is_not_there_is_dead(version: int, code: int) -> None:
    message = DescribeGroupsRequest(groups=["g"])
    [group] = ask(served(), ApiKey.DESCRIBE_GROUPS, message, version).groups
    assert (group.error_code, group.group_state, group.members) == (code, "Dead", ())


def test_operations_on_a_group_are_told_on_request() -> None:
    message = DescribeGroupsRequest(groups=["g"], include_authorized_operations=True)
    [group] = ask(served(), ApiKey.DESCRIBE_GROUPS, message, 5).groups
    assert group.authorized_operations == 0b1101_0100_1000, "3, 6, 8, 10, 11"


def test_groups_are_deleted_each_with_its_own_outcome() -> None:
    broker = served()
    ask(broker, ApiKey.OFFSET_COMMIT, commit_request("a", t_0=1), 8)
    answer = ask(broker, ApiKey.DELETE_GROUPS, DeleteGroupsRequest(groups_names=["a", "b"]), 2)
    assert {row.group_id: row.error_code for row in answer.results} == {
        "a": 0,
        "b": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    assert committed(broker, "a") == {}
    nothing = ask(broker, ApiKey.DELETE_GROUPS, DeleteGroupsRequest(groups_names=[]), 2)
    assert nothing.results == ()


# Rights


def test_a_group_that_is_none_of_the_clients_business() -> None:
    broker = served(authorizer=Denying(ResourceType.GROUP))
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    commit = ask(broker, ApiKey.OFFSET_COMMIT, commit_request(t_0=1), 8)
    assert errors_of(commit) == {("t", 0): code}
    fetch = OffsetFetchRequest(group_id="g", topics=None)
    heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    leave = LeaveGroupRequest(group_id="g", member_id="m", members=[])
    sync = SyncGroupRequest(group_id="g", generation_id=1, member_id="m", assignments=[])
    requests: list[tuple[ApiKey, Message, int]] = [
        (ApiKey.JOIN_GROUP, join_request(), 5),
        (ApiKey.SYNC_GROUP, sync, 3),
        (ApiKey.HEARTBEAT, heartbeat, 3),
        (ApiKey.LEAVE_GROUP, leave, 1),
        (ApiKey.OFFSET_FETCH, fetch, 7),
        (ApiKey.OFFSET_DELETE, delete_offsets_request(t=0), 0),
    ]
    for key, message, version in requests:
        assert ask(broker, key, message, version).error_code == code, key
    [described] = ask(broker, ApiKey.DESCRIBE_GROUPS, DescribeGroupsRequest(groups=["g"]), 5).groups
    assert described.error_code == code
    [deleted] = ask(
        broker, ApiKey.DELETE_GROUPS, DeleteGroupsRequest(groups_names=["g"]), 2
    ).results
    assert deleted.error_code == code
    assert find(broker, FindCoordinatorRequest(key="g"), 1).error_code == code


def test_a_topic_that_is_none_of_the_clients_business() -> None:
    broker = served(authorizer=Denying(ResourceType.TOPIC))
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    commit = ask(broker, ApiKey.OFFSET_COMMIT, commit_request(t_0=1), 8)
    assert errors_of(commit) == {("t", 0): code}
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
    fetched = ask(broker, ApiKey.OFFSET_FETCH, OffsetFetchRequest(group_id="g", topics=topics), 7)
    assert errors_of(fetched) == {("t", 0): code}
