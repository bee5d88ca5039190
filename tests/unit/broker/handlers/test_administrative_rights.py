"""Every handler asks who may do what; a denial costs what was denied, and is counted."""

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

import pytest

from odradek.broker.dispatch import HANDLERS
from odradek.errors import ErrorCode
from odradek.network.request import Request, Response
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages import (
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_client_quotas,
    describe_configs,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    elect_leaders,
    incremental_alter_configs,
    init_producer_id,
    list_config_resources,
    list_offsets,
    list_partition_reassignments,
    metadata,
    offset_for_leader_epoch,
)
from odradek.protocol.messages.delete_topics import DeleteTopicsResponse
from odradek.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsResponse
from odradek.protocol.messages.metadata import MetadataResponse
from odradek.protocol.primitives import ZERO_UUID
from odradek.protocol.schema import Message
from odradek.security.operations import CLUSTER_NAME, Operation, ResourceType
from odradek.security.principal import ANONYMOUS, Principal
from tests.unit.broker.handlers.handler_fakes import (
    BrokerFixture,
    FakeTopicCreator,
    parsed,
    topic_id,
)

TOPIC, CLUSTER = ResourceType.TOPIC, ResourceType.CLUSTER
NONE, OUT_OF_TOPIC = ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED
OUT_OF_CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

Right = tuple[Operation, ResourceType, str]
THE_CLUSTER = (CLUSTER, CLUSTER_NAME)


class Denying:
    """Denies some rights and remembers what it was asked for."""

    def __init__(self, *denied: Right) -> None:
        self.denied = denied
        self.asked: list[Right] = []

    def is_allowed(
        self,
        principal: Principal,
        host: str,
        operation: Operation,
        resource: ResourceType,
        name: str,
    ) -> bool:
        assert (principal, host) == (ANONYMOUS, "127.0.0.1")
        self.asked.append((operation, resource, name))
        return self.asked[-1] not in self.denied


class Case(NamedTuple):
    """A request about the topics open and secret, or about the cluster."""

    key: ApiKey
    version: int
    message: Message
    denied: Right
    errors: Mapping[ErrorCode, int]  # Of the answer, as they are counted.


def delete_records_of(*names: str) -> Message:
    partition = delete_records.DeleteRecordsPartition(partition_index=0, offset=5)
    return delete_records.DeleteRecordsRequest(
        topics=[
            delete_records.DeleteRecordsTopic(name=name, partitions=[partition]) for name in names
        ],
        timeout_ms=100,
    )


def offsets_of(*names: str) -> Message:
    partition = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-1)
    return list_offsets.ListOffsetsRequest(
        replica_id=-1,
        topics=[list_offsets.ListOffsetsTopic(name=name, partitions=[partition]) for name in names],
    )


QUOTA = alter_client_quotas.RequestEntryData(
    entity=[alter_client_quotas.EntityData(entity_type="client-id", entity_name="c")],
    ops=[alter_client_quotas.OpData(key="producer_byte_rate", value=9.0)],
)
CASES = [
    Case(
        ApiKey.CREATE_PARTITIONS,
        3,
        create_partitions.CreatePartitionsRequest(
            topics=[create_partitions.CreatePartitionsTopic(name="secret", count=3)],
            timeout_ms=100,
        ),
        (Operation.ALTER, TOPIC, "secret"),
        {OUT_OF_TOPIC: 1},
    ),
    Case(
        ApiKey.DELETE_TOPICS,
        6,
        delete_topics.DeleteTopicsRequest(
            topics=[delete_topics.DeleteTopicState(name="secret", topic_id=ZERO_UUID)],
            timeout_ms=100,
        ),
        (Operation.DELETE, TOPIC, "secret"),
        {OUT_OF_TOPIC: 1},
    ),
    Case(
        ApiKey.DELETE_RECORDS,
        2,
        delete_records_of("secret", "open"),
        (Operation.DELETE, TOPIC, "secret"),
        {OUT_OF_TOPIC: 1, ErrorCode.NOT_LEADER_OR_FOLLOWER: 1},
    ),
    Case(
        ApiKey.LIST_OFFSETS,
        9,
        offsets_of("secret", "open"),
        (Operation.DESCRIBE, TOPIC, "secret"),
        {OUT_OF_TOPIC: 1, ErrorCode.NOT_LEADER_OR_FOLLOWER: 1},
    ),
    Case(
        ApiKey.DESCRIBE_PRODUCERS,
        0,
        describe_producers.DescribeProducersRequest(
            topics=[describe_producers.TopicRequest(name="secret", partition_indexes=[0, 1])]
        ),
        (Operation.READ, TOPIC, "secret"),
        {OUT_OF_TOPIC: 2},
    ),
    Case(
        ApiKey.DESCRIBE_CONFIGS,
        4,
        describe_configs.DescribeConfigsRequest(
            resources=[
                describe_configs.DescribeConfigsResource(
                    resource_type=kind, resource_name=name, configuration_keys=None
                )
                for kind, name in ((2, "secret"), (2, "open"), (4, "0"))
            ]
        ),
        (Operation.DESCRIBE_CONFIGS, TOPIC, "secret"),
        {OUT_OF_TOPIC: 1, NONE: 2},
    ),
    Case(
        ApiKey.ALTER_CONFIGS,
        2,
        alter_configs.AlterConfigsRequest(
            resources=[
                alter_configs.AlterConfigsResource(resource_type=2, resource_name=name, configs=[])
                for name in ("secret", "open")
            ]
        ),
        (Operation.ALTER_CONFIGS, TOPIC, "secret"),
        {OUT_OF_TOPIC: 1, NONE: 1},
    ),
    Case(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        incremental_alter_configs.IncrementalAlterConfigsRequest(
            resources=[
                incremental_alter_configs.AlterConfigsResource(
                    resource_type=kind, resource_name=name, configs=[]
                )
                for kind, name in ((4, "0"), (8, "0"), (2, "open"))
            ]
        ),
        (Operation.ALTER_CONFIGS, *THE_CLUSTER),
        {OUT_OF_CLUSTER: 2, NONE: 1},
    ),
    Case(
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        1,
        describe_client_quotas.DescribeClientQuotasRequest(components=[]),
        (Operation.DESCRIBE_CONFIGS, *THE_CLUSTER),
        {OUT_OF_CLUSTER: 1},
    ),
    Case(
        ApiKey.ALTER_CLIENT_QUOTAS,
        1,
        alter_client_quotas.AlterClientQuotasRequest(entries=[QUOTA]),
        (Operation.ALTER_CONFIGS, *THE_CLUSTER),
        {OUT_OF_CLUSTER: 1},
    ),
    Case(
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        2,
        alter_replica_log_dirs.AlterReplicaLogDirsRequest(
            dirs=[
                alter_replica_log_dirs.AlterReplicaLogDir(
                    path="/d",
                    topics=[
                        alter_replica_log_dirs.AlterReplicaLogDirTopic(
                            name="open", partitions=[0, 1]
                        )
                    ],
                )
            ]
        ),
        (Operation.ALTER, *THE_CLUSTER),
        {OUT_OF_CLUSTER: 2},
    ),
    Case(
        ApiKey.DESCRIBE_LOG_DIRS,
        4,
        describe_log_dirs.DescribeLogDirsRequest(topics=None),
        (Operation.DESCRIBE, *THE_CLUSTER),
        {OUT_OF_CLUSTER: 1},
    ),
    Case(
        ApiKey.ELECT_LEADERS,
        2,
        elect_leaders.ElectLeadersRequest(
            topic_partitions=[elect_leaders.TopicPartitions(topic="open", partitions=[0, 1])]
        ),
        (Operation.ALTER, *THE_CLUSTER),
        {OUT_OF_CLUSTER: 3},
    ),
    Case(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        1,
        alter_partition_reassignments.AlterPartitionReassignmentsRequest(topics=[]),
        (Operation.ALTER, *THE_CLUSTER),
        {OUT_OF_CLUSTER: 1},
    ),
    Case(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        0,
        list_partition_reassignments.ListPartitionReassignmentsRequest(topics=None),
        (Operation.DESCRIBE, *THE_CLUSTER),
        {OUT_OF_CLUSTER: 1},
    ),
    Case(
        ApiKey.LIST_CONFIG_RESOURCES,
        1,
        list_config_resources.ListConfigResourcesRequest(resource_types=[]),
        (Operation.DESCRIBE_CONFIGS, *THE_CLUSTER),
        {OUT_OF_CLUSTER: 1},
    ),
    Case(
        ApiKey.INIT_PRODUCER_ID,
        5,
        init_producer_id.InitProducerIdRequest(transactional_id="mine"),
        (Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "mine"),
        {ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: 1},
    ),
    Case(
        ApiKey.CREATE_TOPICS,
        7,
        create_topics.CreateTopicsRequest(
            topics=[
                create_topics.CreatableTopic(name="new", num_partitions=0, replication_factor=1)
            ],
            validate_only=True,
        ),
        (Operation.CREATE, *THE_CLUSTER),
        {NONE: 1},  # The right to create a topic of that name is as good.
    ),
]


def served(*denied: Right) -> BrokerFixture:
    broker = BrokerFixture(authorizer=Denying(*denied))
    broker.publish_topic("open", number=1)
    broker.publish_topic("secret", number=2)
    return broker


def answered(
    broker: BrokerFixture, key: ApiKey, message: Message, version: int
) -> tuple[Request, Response]:
    request = broker.request(key, message, version)
    response = broker.call(HANDLERS[key], request)
    asyncio.run(broker.tasks.run_all())
    return request, broker.sent.pop() if response is None else response


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.key.name)
def test_a_denial_is_told_and_counted(case: Case) -> None:
    broker = served(case.denied)
    request, _ = answered(broker, case.key, case.message, case.version)

    authorizer = broker.context.authorizer
    assert isinstance(authorizer, Denying)
    assert case.denied in authorizer.asked
    assert request.errors == case.errors


def test_nobody_is_asked_to_do_what_is_denied() -> None:
    denied = [case.denied for case in CASES]
    for case in CASES:
        broker = served(*denied, (Operation.CREATE, TOPIC, "new"))
        answered(broker, case.key, case.message, case.version)
        topics = {change.resource.name for change in broker.port.configs}
        assert (broker.controller.calls, broker.port.quotas) == ([], []), case.key
        assert topics <= {"open"}, case.key


def test_who_may_write_to_any_topic_may_do_so_with_idempotence() -> None:
    rights = [(Operation.IDEMPOTENT_WRITE, *THE_CLUSTER), (Operation.WRITE, TOPIC, "open")]
    message = init_producer_id.InitProducerIdRequest(transactional_id=None)
    for denied, code in (
        (rights, NONE),
        ([*rights, (Operation.WRITE, TOPIC, "secret")], OUT_OF_CLUSTER),
    ):
        request, _ = answered(served(*denied), ApiKey.INIT_PRODUCER_ID, message, 5)
        assert request.errors == {code: 1}


def test_brokers_may_ask_for_epochs_of_every_topic() -> None:
    partition = offset_for_leader_epoch.OffsetForLeaderPartition(partition=0, leader_epoch=0)
    topic = offset_for_leader_epoch.OffsetForLeaderTopic(topic="secret", partitions=[partition])
    message = offset_for_leader_epoch.OffsetForLeaderEpochRequest(topics=[topic])
    describe = (Operation.DESCRIBE, TOPIC, "secret")
    act = (Operation.CLUSTER_ACTION, *THE_CLUSTER)
    for denied, code in (
        ([describe], ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ([act], ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ([describe, act], OUT_OF_TOPIC),
    ):
        request, _ = answered(served(*denied), ApiKey.OFFSET_FOR_LEADER_EPOCH, message, 4)
        assert request.errors == {code: 1}


# Topics that not everybody may know of.

HIDDEN = (Operation.DESCRIBE, TOPIC, "secret")


def metadata_of(*names: str | None, id_: bytes = ZERO_UUID) -> Message:
    topics = [metadata.MetadataRequestTopic(topic_id=id_, name=name) for name in names]
    return metadata.MetadataRequest(topics=topics, allow_auto_topic_creation=True)


def told_topics(broker: BrokerFixture, message: Message) -> dict[str | None, int]:
    request, response = answered(broker, ApiKey.METADATA, message, 12)
    answer = parsed(response, MetadataResponse)
    codes = [topic.error_code for topic in answer.topics]
    codes += [row.error_code for topic in answer.topics for row in topic.partitions]
    assert request.errors == {ErrorCode(code): codes.count(code) for code in codes}
    return {topic.name: topic.error_code for topic in answer.topics}


def test_metadata_hides_topics() -> None:
    broker = served(HIDDEN)
    everything = metadata.MetadataRequest(topics=None)
    assert told_topics(broker, everything) == {"open": NONE}
    assert told_topics(broker, metadata_of("open", "secret")) == {
        "open": NONE,
        "secret": OUT_OF_TOPIC,
    }
    by_id = metadata_of(None, id_=topic_id(2).bytes)
    assert told_topics(broker, by_id) == {None: OUT_OF_TOPIC}


def test_metadata_makes_topics_for_those_who_may() -> None:
    in_cluster, by_name = (Operation.CREATE, *THE_CLUSTER), (Operation.CREATE, TOPIC, "new")
    for denied, code, made in (
        ([in_cluster], ErrorCode.LEADER_NOT_AVAILABLE, ["new"]),
        ([by_name], ErrorCode.LEADER_NOT_AVAILABLE, ["new"]),
        ([in_cluster, by_name], OUT_OF_TOPIC, []),
    ):
        broker = served(*denied)
        assert told_topics(broker, metadata_of("new")) == {"new": code}
        creator = broker.context.topic_creator
        assert isinstance(creator, FakeTopicCreator)
        assert creator.started == made


def test_described_partitions_hide_topics() -> None:
    def described(*names: str) -> dict[str | None, int]:
        rows = [describe_topic_partitions.TopicRequest(name=name) for name in names]
        message = describe_topic_partitions.DescribeTopicPartitionsRequest(topics=rows)
        _, response = answered(served(HIDDEN), ApiKey.DESCRIBE_TOPIC_PARTITIONS, message, 0)
        answer = parsed(response, DescribeTopicPartitionsResponse)
        return {topic.name: topic.error_code for topic in answer.topics}

    assert described() == {"open": NONE}
    assert described("open", "secret") == {"open": NONE, "secret": OUT_OF_TOPIC}


def test_an_id_does_not_give_the_name_of_a_hidden_topic() -> None:
    broker = served(HIDDEN)
    state = delete_topics.DeleteTopicState(name=None, topic_id=topic_id(2).bytes)
    message = delete_topics.DeleteTopicsRequest(topics=[state], timeout_ms=100)
    _, response = answered(broker, ApiKey.DELETE_TOPICS, message, 6)
    [row] = parsed(response, DeleteTopicsResponse).responses
    assert (row.name, row.error_code) == (None, OUT_OF_TOPIC)
    assert row.topic_id == state.topic_id
