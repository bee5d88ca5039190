"""Requests between brokers: their senders; those of the controller in their older versions."""

from collections.abc import Callable
from typing import Any

import pytest

from odradek.broker.dispatch import HANDLERS
from odradek.errors import ErrorCode, SessionExpired
from odradek.network.request import CloseConnectionResponse
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import encode_message
from odradek.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from odradek.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from odradek.protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)
from odradek.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    LeaderAndIsrTopicState,
)
from odradek.protocol.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
    StopReplicaTopicV1,
)
from odradek.protocol.messages.update_metadata import (
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from odradek.protocol.schema import Message
from odradek.security.operations import Operation, ResourceType
from odradek.security.principal import Principal
from tests.unit.broker.handlers.handler_fakes import BrokerFixture, topic_id

ID = topic_id(1).bytes
Handler = Callable[..., Any]


def leader_and_isr() -> LeaderAndIsrRequest:
    state = LeaderAndIsrPartitionState(
        partition_index=3, leader=0, leader_epoch=1, isr=[0], replicas=[0]
    )
    topic = LeaderAndIsrTopicState(topic_name="t", topic_id=ID, partition_states=[state])
    return LeaderAndIsrRequest(
        controller_id=1, controller_epoch=4, broker_epoch=9, topic_states=[topic]
    )


def leader_and_isr_answer() -> LeaderAndIsrResponse:
    error = LeaderAndIsrPartitionError(topic_name="t", partition_index=3, error_code=56)
    return LeaderAndIsrResponse(
        error_code=0, topics=[LeaderAndIsrTopicError(topic_id=ID, partition_errors=[error])]
    )


CASES = [
    (ApiKey.LEADER_AND_ISR, leader_and_isr(), 7, LeaderAndIsrResponse),
    (ApiKey.STOP_REPLICA, StopReplicaRequest(controller_id=1), 4, StopReplicaResponse),
    (ApiKey.UPDATE_METADATA, UpdateMetadataRequest(controller_id=1), 8, UpdateMetadataResponse),
]
# Those that brokers send to the controller.
TO_THE_CONTROLLER = [
    (ApiKey.ALTER_PARTITION, AlterPartitionRequest(broker_id=1), 3, AlterPartitionResponse),
    (
        ApiKey.CONTROLLED_SHUTDOWN,
        ControlledShutdownRequest(broker_id=1),
        3,
        ControlledShutdownResponse,
    ),
    (
        ApiKey.ALLOCATE_PRODUCER_IDS,
        AllocateProducerIdsRequest(broker_id=1),
        0,
        AllocateProducerIdsResponse,
    ),
]


class DenyClusterAction:
    """An authorizer that permits all but what brokers do."""

    def is_allowed(
        self,
        principal: Principal,
        host: str,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
    ) -> bool:
        return operation is not Operation.CLUSTER_ACTION


@pytest.mark.parametrize(("key", "message", "version", "answer"), [*CASES, *TO_THE_CONTROLLER])
def test_a_control_request_on_a_listener_of_clients_is_refused(
    key: ApiKey, message: Message, version: int, answer: type[Any]
) -> None:
    """11 section 11: only on the control plane's or the inter-broker listener."""
    broker = BrokerFixture()
    refused = broker.ask(HANDLERS[key], key, message, version, answer, listener="EXTERNAL")
    assert refused.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert broker.obeyed == []


@pytest.mark.parametrize(("key", "message", "version", "answer"), [*CASES, *TO_THE_CONTROLLER])
def test_a_control_request_needs_the_right_of_brokers(
    key: ApiKey, message: Message, version: int, answer: type[Any]
) -> None:
    broker = BrokerFixture(authorizer=DenyClusterAction())
    refused = broker.ask(HANDLERS[key], key, message, version, answer)
    assert refused.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert broker.obeyed == []


def test_a_broker_does_not_hear_from_itself() -> None:
    """Its own controller passes requests inside the process: through a socket they are forged."""
    broker = BrokerFixture()
    key = ApiKey.UPDATE_METADATA
    forged = UpdateMetadataRequest(controller_id=0, controller_epoch=1)
    refused = broker.ask(HANDLERS[key], key, forged, 8, UpdateMetadataResponse)
    assert refused.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert broker.obeyed == []


def test_a_role_is_taken_as_the_controller_orders_it() -> None:
    broker = BrokerFixture()
    broker.control_answer = leader_and_isr_answer()
    key = ApiKey.LEADER_AND_ISR
    told = broker.ask(HANDLERS[key], key, leader_and_isr(), 7, LeaderAndIsrResponse)
    [obeyed] = broker.obeyed
    assert isinstance(obeyed, LeaderAndIsrRequest)
    assert encode_message(obeyed, 7) == encode_message(leader_and_isr(), 7)
    assert encode_message(told, 7) == encode_message(leader_and_isr_answer(), 7)
    assert broker.throttled == []


def test_an_older_controller_reads_names_instead_of_ids() -> None:
    """11 section 11: answers by topic id from version 5 on."""
    broker = BrokerFixture()
    broker.control_answer = leader_and_isr_answer()
    key = ApiKey.LEADER_AND_ISR
    told = broker.ask(HANDLERS[key], key, leader_and_isr(), 4, LeaderAndIsrResponse)
    assert [(e.topic_name, e.partition_index, e.error_code) for e in told.partition_errors] == [
        ("t", 3, 56)
    ]


@pytest.mark.parametrize("version", [1, 2])
def test_an_older_controller_stops_replicas_without_epochs(version: int) -> None:
    broker = BrokerFixture()
    broker.control_answer = StopReplicaResponse(error_code=0)
    key = ApiKey.STOP_REPLICA
    message = StopReplicaRequest(
        controller_id=1,
        controller_epoch=4,
        broker_epoch=9,
        delete_partitions=True,
        topics=[StopReplicaTopicV1(name="t", partition_indexes=[0, 2])],
    )
    broker.ask(HANDLERS[key], key, message, version, StopReplicaResponse)
    states = [
        StopReplicaPartitionState(partition_index=index, leader_epoch=-1, delete_partition=True)
        for index in (0, 2)
    ]
    assert broker.obeyed == [
        StopReplicaRequest(
            controller_id=1,
            controller_epoch=4,
            broker_epoch=9,
            topic_states=(StopReplicaTopicState(topic_name="t", partition_states=tuple(states)),),
        )
    ]


@pytest.mark.parametrize(("key", "message", "version", "_answer"), CASES)
def test_a_store_that_cannot_be_read_ends_the_connection(
    key: ApiKey, message: Message, version: int, _answer: type[Any]
) -> None:
    """The controller takes any answer for an end; a lost connection makes it send again."""
    broker = BrokerFixture()
    broker.control_answer = SessionExpired("no store")
    response = broker.call(HANDLERS[key], broker.request(key, message, version))
    assert isinstance(response, CloseConnectionResponse)
