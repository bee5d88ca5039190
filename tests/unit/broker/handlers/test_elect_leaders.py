"""ElectLeaders and the two reassignment APIs: the controller's answers, told by topic."""

import pytest

from odradek.broker.handlers.alter_partition_reassignments import (
    handle_alter_partition_reassignments,
)
from odradek.broker.handlers.elect_leaders import handle_elect_leaders
from odradek.broker.handlers.list_partition_reassignments import (
    handle_list_partition_reassignments,
)
from odradek.errors import ErrorCode
from odradek.metadata.admin_requests import ElectionOutcome
from odradek.model import ReplicaAssignment, TopicPartition
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.enums import ElectionType
from odradek.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from odradek.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)
from tests.unit.broker.handlers.handler_fakes import BrokerFixture

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


def elect(*partitions: int, election_type: int = 0, timeout_ms: int = 1000) -> ElectLeadersRequest:
    return ElectLeadersRequest(
        election_type=election_type,
        topic_partitions=[TopicPartitions(topic="a", partitions=partitions)],
        timeout_ms=timeout_ms,
    )


def ask(broker: BrokerFixture, message: ElectLeadersRequest, version: int) -> ElectLeadersResponse:
    return broker.ask(
        handle_elect_leaders, ApiKey.ELECT_LEADERS, message, version, ElectLeadersResponse
    )


def codes(response: ElectLeadersResponse) -> list[tuple[str, int, int]]:
    return [
        (topic.topic, row.partition_id, row.error_code)
        for topic in response.replica_election_results
        for row in topic.partition_result
    ]


def test_answered_once_the_leaders_show() -> None:
    broker = BrokerFixture()
    broker.publish_topic("a", 2, leader=-1)
    broker.controller.elections = {
        A0: ElectionOutcome(ErrorCode.NONE, leader=0),
        A1: ElectionOutcome(ErrorCode.ELECTION_NOT_NEEDED, "fine as it is"),
    }
    request = broker.request(ApiKey.ELECT_LEADERS, elect(0, 1, election_type=1), 2)
    assert broker.call(handle_elect_leaders, request) is None
    assert broker.elections.watched == 1  # 04b section 1: in a purgatory of its own.
    broker.publish_topic("a", 2, leader=0)
    answer = broker.last_sent(ElectLeadersResponse)
    assert codes(answer) == [("a", 0, 0), ("a", 1, ErrorCode.ELECTION_NOT_NEEDED)]
    assert broker.controller.calls == [("elect", ([A0, A1], ElectionType.UNCLEAN))]


def test_time_that_is_up_is_said_of_the_partition_that_is_late() -> None:
    broker = BrokerFixture()
    broker.publish_topic("a", 1, leader=-1)
    broker.controller.elections = {A0: ElectionOutcome(ErrorCode.NONE, leader=0)}
    request = broker.request(ApiKey.ELECT_LEADERS, elect(0, timeout_ms=100), 2)
    assert broker.call(handle_elect_leaders, request) is None
    broker.advance(100)
    assert codes(broker.last_sent(ElectLeadersResponse)) == [("a", 0, ErrorCode.REQUEST_TIMED_OUT)]


@pytest.mark.parametrize("version", range(3))
def test_null_is_all_partitions(version: int) -> None:
    broker = BrokerFixture()
    answer = ask(broker, ElectLeadersRequest(topic_partitions=None), version)
    assert (codes(answer), answer.error_code) == ([], 0)
    assert broker.controller.calls == [("elect", (None, ElectionType.PREFERRED))]


def test_not_the_controller_is_said_of_the_whole_and_of_each() -> None:
    broker = BrokerFixture()
    broker.controller.is_active = False
    answer = ask(broker, elect(0, 1), 1)
    assert answer.error_code == ErrorCode.NOT_CONTROLLER
    assert codes(answer) == [("a", n, ErrorCode.NOT_CONTROLLER) for n in (0, 1)]


def test_version_0_has_no_error_of_the_whole() -> None:
    broker = BrokerFixture()
    broker.controller.is_active = False
    assert codes(ask(broker, elect(0), 0)) == [("a", 0, ErrorCode.NOT_CONTROLLER)]


def test_an_election_type_nobody_knows() -> None:
    broker = BrokerFixture()
    answer = ask(broker, elect(0, election_type=2), 2)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert not broker.controller.calls


def list_moves(
    broker: BrokerFixture, message: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    return broker.ask(
        handle_list_partition_reassignments,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        message,
        0,
        ListPartitionReassignmentsResponse,
    )


def test_moves_are_listed_by_topic_and_partitions_at_rest_left_out() -> None:
    broker = BrokerFixture()
    broker.controller.moves = {
        A1: ReplicaAssignment((3, 1), adding=(3,), removing=(1,)),
        A0: ReplicaAssignment((1,)),
    }
    topics = [ListPartitionReassignmentsTopics(name="a", partition_indexes=[0, 1])]
    answer = list_moves(broker, ListPartitionReassignmentsRequest(topics=topics))
    [topic] = answer.topics
    [row] = topic.partitions
    assert (answer.error_code, topic.name, row.partition_index) == (0, "a", 1)
    assert (row.replicas, row.adding_replicas, row.removing_replicas) == ((3, 1), (3,), (1,))
    assert broker.controller.calls == [("list", [A0, A1])]


def test_all_moves() -> None:
    broker = BrokerFixture()
    assert list_moves(broker, ListPartitionReassignmentsRequest(topics=None)).topics == ()
    assert broker.controller.calls == [("list", None)]


def test_moves_are_known_to_the_controller_only() -> None:
    broker = BrokerFixture()
    broker.controller.is_active = False
    answer = list_moves(broker, ListPartitionReassignmentsRequest())
    assert answer.error_code == ErrorCode.NOT_CONTROLLER


def move(
    broker: BrokerFixture, version: int, *, may_grow: bool = True
) -> AlterPartitionReassignmentsResponse:
    message = AlterPartitionReassignmentsRequest(
        allow_replication_factor_change=may_grow,
        topics=[
            ReassignableTopic(
                name="a",
                partitions=[
                    ReassignablePartition(partition_index=0, replicas=[9]),
                    ReassignablePartition(partition_index=1, replicas=None),
                    ReassignablePartition(partition_index=0, replicas=[2, 1]),
                ],
            ),
            ReassignableTopic(
                name="b", partitions=[ReassignablePartition(partition_index=0, replicas=[])]
            ),
        ],
    )
    return broker.ask(
        handle_alter_partition_reassignments,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        message,
        version,
        AlterPartitionReassignmentsResponse,
    )


@pytest.mark.parametrize("version", range(2))
def test_moves_are_answered_by_partition_and_the_last_target_counts(version: int) -> None:
    broker = BrokerFixture()
    broker.controller.refusals["b"] = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    answer = move(broker, version)
    assert answer.error_code == 0
    assert [
        (topic.name, row.partition_index, row.error_code)
        for topic in answer.responses
        for row in topic.partitions
    ] == [("a", 0, 0), ("a", 1, 0), ("b", 0, ErrorCode.INVALID_REPLICA_ASSIGNMENT)]
    targets = {A0: (2, 1), A1: None, TopicPartition("b", 0): ()}
    assert broker.controller.calls == [("move", targets)]


def test_another_number_of_replicas_may_be_excluded() -> None:
    broker = BrokerFixture()
    assert not move(broker, 1, may_grow=False).allow_replication_factor_change
    assert broker.controller.calls[0][0] == "move as many"


def test_only_the_controller_moves_replicas() -> None:
    broker = BrokerFixture()
    broker.controller.is_active = False
    answer = move(broker, 1)
    assert (answer.error_code, answer.responses) == (ErrorCode.NOT_CONTROLLER, ())
    assert not broker.controller.calls
