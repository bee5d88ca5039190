"""Every version that the broker advertises is answered, with rows in it, and without an error.

What a version has no rows of, or what there is none of on a broker like this, is not asked for.

Clients send one version each; this is for all the others. A field that a handler fills but an old
version cannot carry shows here.
"""

import time
from collections.abc import Callable, Iterator, Sequence

import pytest

from odradek.errors import ErrorCode
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    api_versions,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sasl_authenticate,
    sasl_handshake,
    sync_group,
    txn_offset_commit,
    update_features,
    write_txn_markers,
)
from odradek.protocol.schema import Message
from odradek.protocol.versions import VersionRange
from odradek.records.builder import build_batch
from tests.conformance.clients.raw import RawConnection
from tests.support.odradek_broker import OdradekBroker

pytestmark = pytest.mark.slow

_TOPIC_RESOURCE = 2


def _batch() -> bytes:
    return bytes(build_batch([(int(time.time() * 1000), b"k", b"v", ())]))


def _create(name: str, *, validate_only: bool = False) -> create_topics.CreateTopicsRequest:
    topic = create_topics.CreatableTopic(name=name, num_partitions=2, replication_factor=1)
    return create_topics.CreateTopicsRequest(topics=[topic], validate_only=validate_only)


def _produce(topic: str, topic_id: bytes) -> Message:
    partition = produce.PartitionProduceData(index=0, records=_batch())
    data = produce.TopicProduceData(name=topic, topic_id=topic_id, partition_data=[partition])
    return produce.ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[data])


def _fetch(topic: str, topic_id: bytes) -> Message:
    partition = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    wanted = fetch.FetchTopic(topic=topic, topic_id=topic_id, partitions=[partition])
    return fetch.FetchRequest(max_wait_ms=100, min_bytes=1, topics=[wanted])


def _list_offsets(topic: str, version: int) -> Message:
    # One timestamp a request: a partition named twice is refused.
    timestamp = (-1, -2, 0)[version % 3]
    partition = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    return list_offsets.ListOffsetsRequest(
        replica_id=-1, topics=[list_offsets.ListOffsetsTopic(name=topic, partitions=[partition])]
    )


def _offset_fetch(topic: str, topic_id: bytes, version: int) -> Message:
    if version < 8:
        asked = offset_fetch.OffsetFetchRequestTopic(name=topic, partition_indexes=[0])
        return offset_fetch.OffsetFetchRequest(group_id="g", topics=[asked])
    topics = [
        offset_fetch.OffsetFetchRequestTopics(name=topic, topic_id=topic_id, partition_indexes=[0])
    ]
    group = offset_fetch.OffsetFetchRequestGroup(group_id="g", topics=topics)
    return offset_fetch.OffsetFetchRequest(groups=[group])


def _find_coordinator(version: int) -> Message:
    if version < 4:
        return find_coordinator.FindCoordinatorRequest(key="g")
    return find_coordinator.FindCoordinatorRequest(coordinator_keys=["g", "h"])


def _describe_quotas() -> Message:
    component = describe_client_quotas.ComponentData(
        entity_type="client-id", match_type=0, match="someone"
    )
    return describe_client_quotas.DescribeClientQuotasRequest(components=[component])


def _alter_quotas() -> Message:
    entity = alter_client_quotas.EntityData(entity_type="client-id", entity_name="someone")
    operation = alter_client_quotas.OpData(key="request_percentage", value=200.0)
    entry = alter_client_quotas.RequestEntryData(entity=[entity], ops=[operation])
    return alter_client_quotas.AlterClientQuotasRequest(entries=[entry])


def _alter_configs(topic: str) -> Message:
    change = alter_configs.AlterableConfig(name="retention.ms", value="7200000")
    resource = alter_configs.AlterConfigsResource(
        resource_type=_TOPIC_RESOURCE, resource_name=topic, configs=[change]
    )
    return alter_configs.AlterConfigsRequest(resources=[resource])


def _incremental_alter_configs(topic: str) -> Message:
    change = incremental_alter_configs.AlterableConfig(
        name="retention.ms", config_operation=0, value="3600000"
    )
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=_TOPIC_RESOURCE, resource_name=topic, configs=[change]
    )
    return incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource])


def _describe_configs(topic: str, version: int) -> Message:
    resource = describe_configs.DescribeConfigsResource(
        resource_type=_TOPIC_RESOURCE, resource_name=topic, configuration_keys=None
    )
    return describe_configs.DescribeConfigsRequest(
        resources=[resource], include_synonyms=True, include_documentation=version >= 3
    )


def _delete_topics(topic: str, version: int) -> Message:
    if version < 6:
        return delete_topics.DeleteTopicsRequest(topic_names=[topic], timeout_ms=10_000)
    state = delete_topics.DeleteTopicState(name=topic)
    return delete_topics.DeleteTopicsRequest(topics=[state], timeout_ms=10_000)


def _delete_records(topic: str) -> Message:
    partition = delete_records.DeleteRecordsPartition(partition_index=1, offset=-1)
    wanted = delete_records.DeleteRecordsTopic(name=topic, partitions=[partition])
    return delete_records.DeleteRecordsRequest(topics=[wanted], timeout_ms=5000)


def _commit(topic: str, topic_id: bytes) -> Message:
    row = offset_commit.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata=""
    )
    return offset_commit.OffsetCommitRequest(
        group_id="g",
        member_id="",
        topics=[
            offset_commit.OffsetCommitRequestTopic(name=topic, topic_id=topic_id, partitions=[row])
        ],
    )


def _join() -> Message:
    # Members of every version are in tests/integration/test_group_protocol.py.
    protocol = join_group.JoinGroupRequestProtocol(name="range", metadata=b"")
    return join_group.JoinGroupRequest(
        group_id="g",
        session_timeout_ms=1,
        member_id="",
        protocol_type="consumer",
        protocols=[protocol],
    )


def _leave(version: int) -> Message:
    if version < 3:
        return leave_group.LeaveGroupRequest(group_id="g", member_id="m")
    member = leave_group.MemberIdentity(member_id="m")
    return leave_group.LeaveGroupRequest(group_id="g", members=[member])


def _delete_offset(topic: str) -> Message:
    row = offset_delete.OffsetDeleteRequestPartition(partition_index=0)
    return offset_delete.OffsetDeleteRequest(
        group_id="nobody",
        topics=[offset_delete.OffsetDeleteRequestTopic(name=topic, partitions=[row])],
    )


def _epoch_end(topic: str) -> Message:
    partition = offset_for_leader_epoch.OffsetForLeaderPartition(partition=0, leader_epoch=0)
    wanted = offset_for_leader_epoch.OffsetForLeaderTopic(topic=topic, partitions=[partition])
    return offset_for_leader_epoch.OffsetForLeaderEpochRequest(topics=[wanted])


# (topic, its id, version) -> a request that will be answered with a row about the topic.
_PRODUCER: dict[str, int] = {"producer_id": 1 << 40, "producer_epoch": 0}


def _add_partitions(topic: str, version: int) -> Message:
    topics = [add_partitions_to_txn.AddPartitionsToTxnTopic(name=topic, partitions=[0])]
    if version < 4:
        return add_partitions_to_txn.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="nobody",
            v3_and_below_producer_id=_PRODUCER["producer_id"],
            v3_and_below_topics=topics,
        )
    transaction = add_partitions_to_txn.AddPartitionsToTxnTransaction(
        transactional_id="nobody",
        producer_id=_PRODUCER["producer_id"],
        verify_only=True,
        topics=topics,
    )
    return add_partitions_to_txn.AddPartitionsToTxnRequest(transactions=[transaction])


def _write_markers(topic: str) -> Message:
    marker = write_txn_markers.WritableTxnMarker(
        producer_id=_PRODUCER["producer_id"],
        transaction_result=True,
        topics=[write_txn_markers.WritableTxnMarkerTopic(name=topic, partition_indexes=[0])],
    )
    return write_txn_markers.WriteTxnMarkersRequest(markers=[marker])


def _commit_in_transaction(topic: str) -> Message:
    partition = txn_offset_commit.TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=0
    )
    return txn_offset_commit.TxnOffsetCommitRequest(
        transactional_id="nobody",
        group_id="g",
        topics=[txn_offset_commit.TxnOffsetCommitRequestTopic(name=topic, partitions=[partition])],
        producer_id=_PRODUCER["producer_id"],
        producer_epoch=0,
    )


_REQUESTS: dict[ApiKey, Callable[[str, bytes, int], Message]] = {
    ApiKey.PRODUCE: lambda topic, topic_id, _: _produce(topic, topic_id),
    ApiKey.FETCH: lambda topic, topic_id, _: _fetch(topic, topic_id),
    ApiKey.LIST_OFFSETS: lambda topic, _, version: _list_offsets(topic, version),
    ApiKey.METADATA: lambda topic, _, version: metadata.MetadataRequest(
        topics=[metadata.MetadataRequestTopic(name=topic)],
        include_topic_authorized_operations=version >= 8,
        include_cluster_authorized_operations=8 <= version <= 10,
    ),
    ApiKey.OFFSET_FETCH: lambda topic, topic_id, version: _offset_fetch(topic, topic_id, version),
    ApiKey.FIND_COORDINATOR: lambda _, __, version: _find_coordinator(version),
    ApiKey.OFFSET_COMMIT: lambda topic, topic_id, _: _commit(topic, topic_id),
    ApiKey.JOIN_GROUP: lambda _, __, ___: _join(),
    ApiKey.SYNC_GROUP: lambda _, __, ___: sync_group.SyncGroupRequest(
        group_id="g", generation_id=1, member_id="m", assignments=[]
    ),
    ApiKey.HEARTBEAT: lambda _, __, ___: heartbeat.HeartbeatRequest(
        group_id="g", generation_id=1, member_id="m"
    ),
    ApiKey.LEAVE_GROUP: lambda _, __, version: _leave(version),
    ApiKey.DESCRIBE_GROUPS: lambda _, __, ___: describe_groups.DescribeGroupsRequest(groups=["g"]),
    ApiKey.LIST_GROUPS: lambda _, __, ___: list_groups.ListGroupsRequest(),
    ApiKey.DELETE_GROUPS: lambda _, __, ___: delete_groups.DeleteGroupsRequest(
        groups_names=["nobody"]
    ),
    ApiKey.OFFSET_DELETE: lambda topic, _, __: _delete_offset(topic),
    ApiKey.API_VERSIONS: lambda _, __, version: api_versions.ApiVersionsRequest(
        client_software_name="raw", client_software_version="1"
    ),
    ApiKey.CREATE_TOPICS: lambda topic, _, version: _create(f"{topic}-v{version}"),
    ApiKey.DELETE_TOPICS: lambda topic, _, version: _delete_topics(f"{topic}-gone", version),
    ApiKey.DELETE_RECORDS: lambda topic, _, __: _delete_records(topic),
    ApiKey.INIT_PRODUCER_ID: lambda _, __, ___: init_producer_id.InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=60_000
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: lambda topic, _, version: _add_partitions(topic, version),
    ApiKey.ADD_OFFSETS_TO_TXN: lambda _, __, ___: add_offsets_to_txn.AddOffsetsToTxnRequest(
        transactional_id="nobody", group_id="g", **_PRODUCER
    ),
    ApiKey.END_TXN: lambda _, __, ___: end_txn.EndTxnRequest(
        transactional_id="nobody", committed=True, **_PRODUCER
    ),
    ApiKey.WRITE_TXN_MARKERS: lambda topic, _, __: _write_markers(topic),
    ApiKey.TXN_OFFSET_COMMIT: lambda topic, _, __: _commit_in_transaction(topic),
    ApiKey.DESCRIBE_TRANSACTIONS: lambda _, __, ___: (
        describe_transactions.DescribeTransactionsRequest(transactional_ids=["nobody"])
    ),
    ApiKey.LIST_TRANSACTIONS: lambda _, __, ___: list_transactions.ListTransactionsRequest(
        state_filters=["Odd"]
    ),
    ApiKey.UPDATE_FEATURES: lambda _, __, ___: update_features.UpdateFeaturesRequest(
        feature_updates=[
            update_features.FeatureUpdateKey(feature="transaction.version", max_version_level=2)
        ]
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: lambda topic, _, __: _epoch_end(topic),
    ApiKey.DESCRIBE_CONFIGS: lambda topic, _, version: _describe_configs(topic, version),
    ApiKey.ALTER_CONFIGS: lambda topic, _, __: _alter_configs(topic),
    ApiKey.ALTER_REPLICA_LOG_DIRS: lambda topic, _, __: (
        alter_replica_log_dirs.AlterReplicaLogDirsRequest(
            dirs=[
                alter_replica_log_dirs.AlterReplicaLogDir(
                    path="/nowhere",
                    topics=[
                        alter_replica_log_dirs.AlterReplicaLogDirTopic(name=topic, partitions=[0])
                    ],
                )
            ]
        )
    ),
    ApiKey.DESCRIBE_LOG_DIRS: lambda _, __, ___: describe_log_dirs.DescribeLogDirsRequest(
        topics=None
    ),
    ApiKey.CREATE_PARTITIONS: lambda topic, _, version: create_partitions.CreatePartitionsRequest(
        topics=[
            create_partitions.CreatePartitionsTopic(name=topic, count=3 + version, assignments=None)
        ],
        timeout_ms=10_000,
    ),
    ApiKey.ELECT_LEADERS: lambda topic, _, __: elect_leaders.ElectLeadersRequest(
        topic_partitions=[elect_leaders.TopicPartitions(topic=topic, partitions=[0])]
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: lambda topic, _, __: _incremental_alter_configs(topic),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: lambda topic, _, __: (
        alter_partition_reassignments.AlterPartitionReassignmentsRequest(
            topics=[
                alter_partition_reassignments.ReassignableTopic(
                    name=topic,
                    partitions=[
                        alter_partition_reassignments.ReassignablePartition(
                            partition_index=0, replicas=[0]
                        )
                    ],
                )
            ]
        )
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: lambda _, __, ___: (
        list_partition_reassignments.ListPartitionReassignmentsRequest(topics=None)
    ),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: lambda _, __, ___: _describe_quotas(),
    ApiKey.ALTER_CLIENT_QUOTAS: lambda _, __, ___: _alter_quotas(),
    ApiKey.DESCRIBE_CLUSTER: lambda _, __, ___: describe_cluster.DescribeClusterRequest(
        include_cluster_authorized_operations=True
    ),
    ApiKey.DESCRIBE_PRODUCERS: lambda topic, _, __: describe_producers.DescribeProducersRequest(
        topics=[describe_producers.TopicRequest(name=topic, partition_indexes=[0])]
    ),
    ApiKey.LIST_CONFIG_RESOURCES: lambda _, __, version: (
        list_config_resources.ListConfigResourcesRequest()
    ),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: lambda topic, _, __: (
        describe_topic_partitions.DescribeTopicPartitionsRequest(
            topics=[describe_topic_partitions.TopicRequest(name=topic)]
        )
    ),
    ApiKey.SASL_HANDSHAKE: lambda _, __, ___: sasl_handshake.SaslHandshakeRequest(
        mechanism="PLAIN"
    ),
    ApiKey.SASL_AUTHENTICATE: lambda _, __, ___: sasl_authenticate.SaslAuthenticateRequest(
        auth_bytes=b"\0u\0p"
    ),
    ApiKey.DESCRIBE_ACLS: lambda _, __, ___: describe_acls.DescribeAclsRequest(
        resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1
    ),
    ApiKey.CREATE_ACLS: lambda topic, _, __: create_acls.CreateAclsRequest(
        creations=[
            create_acls.AclCreation(
                resource_type=2,
                resource_name=topic,
                principal="User:u",
                host="*",
                operation=3,
                permission_type=3,
            )
        ]
    ),
    ApiKey.DELETE_ACLS: lambda _, __, ___: delete_acls.DeleteAclsRequest(
        filters=[
            delete_acls.DeleteAclsFilter(resource_type_filter=1, operation=1, permission_type=1)
        ]
    ),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: lambda _, __, ___: (
        describe_user_scram_credentials.DescribeUserScramCredentialsRequest(users=None)
    ),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: lambda _, __, ___: (
        alter_user_scram_credentials.AlterUserScramCredentialsRequest(
            deletions=[alter_user_scram_credentials.ScramCredentialDeletion(name="u", mechanism=1)]
        )
    ),
}


def _error_codes(value: object) -> Iterator[ErrorCode]:
    """All error codes in an answer, at whatever depth."""
    if isinstance(value, Message):
        for field in type(value).wire_fields:
            inner = getattr(value, field.name)
            if field.name in ("error_code", "partition_error_code"):
                yield ErrorCode(inner)
            else:
                yield from _error_codes(inner)
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes | memoryview):
        for one in value:
            yield from _error_codes(one)


# Where the rows of an answer are, and their versions if not in all of them.
_ROWS = {
    ApiKey.PRODUCE: ["responses.partition_responses"],
    ApiKey.FETCH: ["responses.partitions.records"],
    ApiKey.LIST_OFFSETS: ["topics.partitions"],
    ApiKey.METADATA: ["brokers", "topics.partitions.replica_nodes"],
    ApiKey.OFFSET_COMMIT: ["topics.partitions"],
    ApiKey.OFFSET_FETCH: ["0-7 topics.partitions", "8+ groups.topics.partitions"],
    ApiKey.FIND_COORDINATOR: ["0-3 host", "4+ coordinators.host"],
    ApiKey.LEAVE_GROUP: ["3+ members"],
    ApiKey.DESCRIBE_GROUPS: ["groups.group_id"],
    ApiKey.LIST_GROUPS: ["groups.group_id"],
    ApiKey.API_VERSIONS: ["api_keys"],
    ApiKey.CREATE_TOPICS: ["topics.name"],
    ApiKey.DELETE_TOPICS: ["responses.name"],
    ApiKey.DELETE_RECORDS: ["topics.partitions"],
    ApiKey.OFFSET_FOR_LEADER_EPOCH: ["topics.partitions"],
    ApiKey.DESCRIBE_CONFIGS: ["results.configs.name", "results.configs.synonyms"],
    ApiKey.ALTER_CONFIGS: ["responses.resource_name"],
    ApiKey.ALTER_REPLICA_LOG_DIRS: ["results.partitions"],
    ApiKey.DESCRIBE_LOG_DIRS: ["results.topics.partitions"],
    ApiKey.CREATE_PARTITIONS: ["results.name"],
    ApiKey.DELETE_GROUPS: ["results.group_id"],
    ApiKey.ELECT_LEADERS: ["replica_election_results.partition_result"],
    ApiKey.INCREMENTAL_ALTER_CONFIGS: ["responses.resource_name"],
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: ["responses.partitions"],
    ApiKey.DESCRIBE_CLIENT_QUOTAS: ["entries.entity", "entries.values"],
    ApiKey.ALTER_CLIENT_QUOTAS: ["entries.entity"],
    ApiKey.DESCRIBE_CLUSTER: ["brokers.host"],
    ApiKey.DESCRIBE_PRODUCERS: ["topics.partitions"],
    ApiKey.LIST_CONFIG_RESOURCES: ["1+ config_resources"],
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: ["topics.partitions.replica_nodes"],
    ApiKey.DESCRIBE_ACLS: ["error_message"],
    ApiKey.CREATE_ACLS: ["results.error_message"],
    ApiKey.DELETE_ACLS: ["filter_results.error_message"],
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: ["results.user"],
}


def _rows(key: ApiKey, version: int) -> Iterator[str]:
    for row in _ROWS.get(key, ()):
        versions, _, path = row.rpartition(" ")
        if not versions or version in VersionRange.parse(versions):
            yield path


def _is_filled(value: object, path: str) -> bool:
    """Whether there is something at a path; of the rows on the way, in one at least."""
    name, _, rest = path.partition(".")
    inner = getattr(value, name)
    if not rest:
        return inner is not None and len(inner) > 0
    return any(_is_filled(one, rest) for one in inner)


def _expected_errors(key: ApiKey, version: int) -> set[ErrorCode]:
    if key is ApiKey.PRODUCE and version < 3:
        return {ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT}  # No v2 batches there; see 11:PS-6.
    if key is ApiKey.ELECT_LEADERS:
        return {ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED}
    if key is ApiKey.ALTER_REPLICA_LOG_DIRS:
        return {ErrorCode.LOG_DIR_NOT_FOUND}  # The broker has one directory, and no other.
    if key in _EXPECTED_OF_PROTECTION:
        return {_EXPECTED_OF_PROTECTION[key]}
    if key in _OF_TRANSACTIONS:
        return _EXPECTED_OF_TRANSACTIONS
    return {ErrorCode.NONE, *_EXPECTED_OF_GROUPS.get(key, ())}


# Of requests about a transaction that is not there; its coordinator may not be there, either.
_OF_TRANSACTIONS = {
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.DESCRIBE_TRANSACTIONS,
}
_EXPECTED_OF_TRANSACTIONS = {
    ErrorCode.NONE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
}

# Of requests about protection that is not there.
_EXPECTED_OF_PROTECTION = {
    ApiKey.SASL_HANDSHAKE: ErrorCode.ILLEGAL_SASL_STATE,
    ApiKey.SASL_AUTHENTICATE: ErrorCode.ILLEGAL_SASL_STATE,
    ApiKey.DESCRIBE_ACLS: ErrorCode.SECURITY_DISABLED,
    ApiKey.CREATE_ACLS: ErrorCode.SECURITY_DISABLED,
    ApiKey.DELETE_ACLS: ErrorCode.SECURITY_DISABLED,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: ErrorCode.RESOURCE_NOT_FOUND,
}


# Of requests about members and groups that are not there.
_EXPECTED_OF_GROUPS = {
    ApiKey.JOIN_GROUP: {ErrorCode.INVALID_SESSION_TIMEOUT},
    ApiKey.SYNC_GROUP: {ErrorCode.UNKNOWN_MEMBER_ID},
    ApiKey.HEARTBEAT: {ErrorCode.UNKNOWN_MEMBER_ID},
    ApiKey.LEAVE_GROUP: {ErrorCode.UNKNOWN_MEMBER_ID},
    ApiKey.DESCRIBE_GROUPS: {ErrorCode.GROUP_ID_NOT_FOUND},
    ApiKey.DELETE_GROUPS: {ErrorCode.GROUP_ID_NOT_FOUND},
    ApiKey.OFFSET_DELETE: {ErrorCode.GROUP_ID_NOT_FOUND},
}
_GROUP_APIS = {
    *_EXPECTED_OF_GROUPS,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
    ApiKey.LIST_GROUPS,
}
_COORDINATOR_TIMEOUT_S = 60


def _wait_for_coordinator(connection: RawConnection) -> None:
    """The first one to ask has the offsets topic made, and its partitions are loaded then."""
    deadline = time.monotonic() + _COORDINATOR_TIMEOUT_S
    while True:
        found = connection.call(ApiKey.FIND_COORDINATOR, 4, _find_coordinator(4))
        listed = connection.call(ApiKey.LIST_GROUPS, 0, list_groups.ListGroupsRequest())
        if {*_error_codes(found), *_error_codes(listed)} == {ErrorCode.NONE}:
            return
        assert time.monotonic() < deadline, f"no coordinator: {found} {listed}"
        time.sleep(0.05)


# Tried by tests/integration/test_between_brokers.py.
_OF_BROKERS = {
    ApiKey.LEADER_AND_ISR,
    ApiKey.STOP_REPLICA,
    ApiKey.UPDATE_METADATA,
    ApiKey.CONTROLLED_SHUTDOWN,
    ApiKey.ALTER_PARTITION,
    ApiKey.ALLOCATE_PRODUCER_IDS,
}


def _advertised(broker: OdradekBroker) -> dict[ApiKey, range]:
    """The versions of each API, without those that only brokers send to each other."""
    with RawConnection(broker.port) as connection:
        answer = connection.call(ApiKey.API_VERSIONS, 0, api_versions.ApiVersionsRequest())
    assert isinstance(answer, api_versions.ApiVersionsResponse)
    return {
        ApiKey(row.api_key): range(row.min_version, row.max_version + 1)
        for row in answer.api_keys
        if row.api_key not in _OF_BROKERS
    }


def test_every_advertised_api_is_tried(odradek: OdradekBroker) -> None:
    """11:PS-12: no empty range, a handler for each row, OffsetFetch beside FindCoordinator."""
    advertised = _advertised(odradek)
    assert set(advertised) == set(_REQUESTS)
    assert all(versions for versions in advertised.values())
    assert ApiKey.OFFSET_FETCH in advertised


@pytest.mark.parametrize("key", [pytest.param(key, id=key.name) for key in _REQUESTS])
def test_every_version_is_answered(
    odradek: OdradekBroker, new_topic: Callable[[], str], key: ApiKey
) -> None:
    topic = new_topic()
    with RawConnection(odradek.port) as connection:
        made = connection.call(ApiKey.CREATE_TOPICS, 7, _create(topic))
        assert isinstance(made, create_topics.CreateTopicsResponse)
        topic_id = made.topics[0].topic_id
        connection.call(ApiKey.PRODUCE, 12, _produce(topic, topic_id))
        if key in {*_GROUP_APIS, ApiKey.FIND_COORDINATOR}:
            _wait_for_coordinator(connection)
        if key is ApiKey.LIST_GROUPS:
            connection.call(ApiKey.OFFSET_COMMIT, 8, _commit(topic, topic_id))
        if key is ApiKey.DESCRIBE_CLIENT_QUOTAS:
            connection.call(ApiKey.ALTER_CLIENT_QUOTAS, 1, _alter_quotas())
        for version in _advertised(odradek)[key]:
            if key is ApiKey.DELETE_TOPICS:
                connection.call(ApiKey.CREATE_TOPICS, 7, _create(f"{topic}-gone"))
            answer = connection.call(key, version, _REQUESTS[key](topic, topic_id, version))
            errors = set(_error_codes(answer))
            assert errors <= _expected_errors(key, version), f"v{version}: {answer}"
            for path in _rows(key, version):
                assert _is_filled(answer, path), f"v{version} without {path}: {answer}"


def test_the_time_of_every_api_counts(odradek: OdradekBroker, new_topic: Callable[[], str]) -> None:
    """13 §12: a client without a share of the broker's time is asked to wait by every answer."""
    topic, client_id = new_topic(), "counted"
    entity = alter_client_quotas.EntityData(entity_type="client-id", entity_name=client_id)
    operation = alter_client_quotas.OpData(key="request_percentage", value=1e-6)
    entry = alter_client_quotas.RequestEntryData(entity=[entity], ops=[operation])
    quota = alter_client_quotas.AlterClientQuotasRequest(entries=[entry])
    with RawConnection(odradek.port) as free:
        made = free.call(ApiKey.CREATE_TOPICS, 7, _create(topic))
        assert isinstance(made, create_topics.CreateTopicsResponse)
        topic_id = made.topics[0].topic_id
        _wait_for_coordinator(free)
        free.call(ApiKey.ALTER_CLIENT_QUOTAS, 1, quota)
    told = {}
    for key, versions in _advertised(odradek).items():
        version = versions[-1]
        # Who was asked to wait is not heard until then; so each has a connection of its own.
        with RawConnection(odradek.port, client_id=client_id) as connection:
            answer = connection.call(key, version, _REQUESTS[key](topic, topic_id, version))
        told[key] = getattr(answer, "throttle_time_ms", None)
    assert {key: throttle_ms for key, throttle_ms in told.items() if throttle_ms == 0} == {}
