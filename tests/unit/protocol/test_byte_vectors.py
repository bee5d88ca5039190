"""The byte vectors of the protocol specification, both directions."""

from typing import Any

import pytest

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.envelope import encode_request, encode_response, parse_request, parse_response
from odradek.protocol.headers import RequestHeader
from odradek.protocol.messages import (
    api_versions,
    describe_topic_partitions,
    fetch,
    find_coordinator,
    heartbeat,
    init_producer_id,
    metadata,
    produce,
)
from odradek.protocol.schema import Message

TOPIC_ID = bytes.fromhex("00000000000000010000000000000002")

REQUESTS: list[Any] = [
    pytest.param(
        (ApiKey.API_VERSIONS, 0),
        api_versions.ApiVersionsRequest(),
        "001200000000000700026331",
        id="11:PV-1",
    ),
    pytest.param(
        (ApiKey.API_VERSIONS, 3),
        api_versions.ApiVersionsRequest(
            client_software_name="odradek", client_software_version="1.0"
        ),
        "00120003000000070002633100086f64726164656b04312e3000",
        id="11:PV-2",
    ),
    pytest.param(
        (ApiKey.METADATA, 1),
        metadata.MetadataRequest(topics=None),
        "000300010000000700026331ffffffff",
        id="11:PV-6",
    ),
    pytest.param(
        (ApiKey.METADATA, 12),
        metadata.MetadataRequest(topics=None),
        "0003000c00000007000263310000010000",
        id="11:PV-7",
    ),
    pytest.param(
        (ApiKey.METADATA, 12),
        metadata.MetadataRequest(topics=(metadata.MetadataRequestTopic(name="t"),)),
        "0003000c0000000700026331000200000000000000000000000000000000027400010000",
        id="11:PV-8",
    ),
    pytest.param(
        (ApiKey.FIND_COORDINATOR, 2),
        find_coordinator.FindCoordinatorRequest(key="g"),
        "000a0002000000070002633100016700",
        id="11:PV-11",
    ),
    pytest.param(
        (ApiKey.FIND_COORDINATOR, 4),
        find_coordinator.FindCoordinatorRequest(coordinator_keys=("g", "h")),
        "000a000400000007000263310000030267026800",
        id="11:PV-12",
    ),
    pytest.param(
        (ApiKey.INIT_PRODUCER_ID, 4),
        init_producer_id.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60000),
        "00160004000000070002633100000000ea60ffffffffffffffffffff00",
        id="11:PV-14",
    ),
    pytest.param(
        (ApiKey.HEARTBEAT, 3),
        heartbeat.HeartbeatRequest(group_id="g", generation_id=1, member_id="m"),
        "000c000300000007000263310001670000000100016dffff",
        id="11:PV-16",
    ),
    pytest.param(
        (ApiKey.FETCH, 12),
        fetch.FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=1048576,
            session_epoch=0,
            topics=(
                fetch.FetchTopic(
                    topic="t",
                    partitions=(
                        fetch.FetchPartition(
                            current_leader_epoch=3, fetch_offset=5, partition_max_bytes=1048576
                        ),
                    ),
                ),
            ),
        ),
        "0001000c000000070002633100ffffffff000001f400000001001000000000000000000000000202740200"
        "000000000000030000000000000005ffffffffffffffffffffffff001000000000010100",
        id="11:PV-21",
    ),
    pytest.param(
        (ApiKey.FETCH, 17),
        fetch.FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=1048576,
            session_epoch=0,
            topics=(
                fetch.FetchTopic(
                    topic_id=TOPIC_ID,
                    partitions=(
                        fetch.FetchPartition(
                            current_leader_epoch=3, fetch_offset=5, partition_max_bytes=1048576
                        ),
                    ),
                ),
            ),
        ),
        "00010011000000070002633100000001f40000000100100000000000000000000000020000000000000001"
        "00000000000000020200000000000000030000000000000005ffffffffffffffffffffffff001000000000"
        "010100",
        id="11:PV-22",
    ),
]


def produced(**values: Any) -> produce.PartitionProduceResponse:
    return produce.PartitionProduceResponse(**{"base_offset": 5, "log_start_offset": 0} | values)


def fetched(**values: Any) -> fetch.PartitionData:
    defaults = {
        "high_watermark": 5,
        "last_stable_offset": 5,
        "log_start_offset": 0,
        "aborted_transactions": None,
        "records": b"",
    }
    return fetch.PartitionData(**defaults | values)


ROW_18 = api_versions.ApiVersion(api_key=18, min_version=0, max_version=4)
BROKER = metadata.MetadataResponseBroker(node_id=1, host="h", port=9092)

RESPONSES: list[Any] = [
    pytest.param(
        (ApiKey.API_VERSIONS, 99),
        api_versions.ApiVersionsResponse(error_code=35, api_keys=(ROW_18,)),
        "00000007002300000001001200000004",
        id="11:PV-3",
    ),
    pytest.param(
        (ApiKey.API_VERSIONS, 3),
        api_versions.ApiVersionsResponse(api_keys=(ROW_18,)),
        "00000007000002001200000004000000000000",
        id="11:PV-4",
    ),
    pytest.param(
        (ApiKey.API_VERSIONS, 3),
        api_versions.ApiVersionsResponse(
            api_keys=(ROW_18,),
            supported_features=(
                api_versions.SupportedFeatureKey(
                    name="transaction.version", min_version=1, max_version=2
                ),
            ),
            finalized_features_epoch=5,
            finalized_features=(
                api_versions.FinalizedFeatureKey(
                    name="transaction.version", max_version_level=2, min_version_level=2
                ),
            ),
        ),
        "00000007000002001200000004000000000003001a02147472616e73616374696f6e2e76657273696f6e00"
        "0100020001080000000000000005021a02147472616e73616374696f6e2e76657273696f6e0002000200",
        id="11:PV-5",
    ),
    pytest.param(
        (ApiKey.METADATA, 12),
        metadata.MetadataResponse(
            brokers=(BROKER,),
            cluster_id="cid",
            controller_id=1,
            topics=(
                metadata.MetadataResponseTopic(
                    name="t",
                    topic_id=TOPIC_ID,
                    partitions=(
                        metadata.MetadataResponsePartition(
                            leader_id=1, leader_epoch=3, replica_nodes=(1,), isr_nodes=(1,)
                        ),
                    ),
                ),
            ),
        ),
        "00000007000000000002000000010268000023840000046369640000000102000002740000000000000001"
        "00000000000000020002000000000000000000010000000302000000010200000001010080000000000"
        "0",
        id="11:PV-9",
    ),
    pytest.param(
        (ApiKey.METADATA, 1),
        metadata.MetadataResponse(brokers=(BROKER,), controller_id=1),
        "00000007000000010000000100016800002384ffff0000000100000000",
        id="11:PV-10",
    ),
    pytest.param(
        (ApiKey.FIND_COORDINATOR, 4),
        find_coordinator.FindCoordinatorResponse(
            coordinators=(
                find_coordinator.Coordinator(
                    key="g", node_id=1, host="h", port=9092, error_message=""
                ),
            )
        ),
        "000000070000000000020267000000010268000023840000010000",
        id="11:PV-13",
    ),
    pytest.param(
        (ApiKey.INIT_PRODUCER_ID, 4),
        init_producer_id.InitProducerIdResponse(producer_id=4000, producer_epoch=0),
        "00000007000000000000000000000000000fa0000000",
        id="11:PV-15",
    ),
    pytest.param(
        (ApiKey.HEARTBEAT, 3),
        heartbeat.HeartbeatResponse(error_code=27),
        "0000000700000000001b",
        id="11:PV-17",
    ),
    pytest.param(
        (ApiKey.PRODUCE, 7),
        produce.ProduceResponse(
            responses=(produce.TopicProduceResponse(name="t", partition_responses=(produced(),)),)
        ),
        "0000000700000001000174000000010000000000000000000000000005ffffffffffffffff000000000000"
        "000000000000",
        id="11:PV-18",
    ),
    pytest.param(
        (ApiKey.PRODUCE, 9),
        produce.ProduceResponse(
            responses=(produce.TopicProduceResponse(name="t", partition_responses=(produced(),)),)
        ),
        "0000000700020274020000000000000000000000000005ffffffffffffffff000000000000000001000000"
        "0000000000",
        id="11:PV-19",
    ),
    pytest.param(
        (ApiKey.PRODUCE, 13),
        produce.ProduceResponse(
            responses=(
                produce.TopicProduceResponse(
                    topic_id=TOPIC_ID,
                    partition_responses=(
                        produced(
                            error_code=6,
                            base_offset=-1,
                            log_start_offset=-1,
                            current_leader=produce.LeaderIdAndEpoch(leader_id=2, leader_epoch=4),
                        ),
                    ),
                ),
            ),
            node_endpoints=(produce.NodeEndpoint(node_id=2, host="h", port=9092),),
        ),
        "0000000700020000000000000001000000000000000202000000000006ffffffffffffffffffffffffffff"
        "ffffffffffffffffffff0100010009000000020000000400000000000001000d0200000002026800002384"
        "0000",
        id="11:PV-20",
    ),
    pytest.param(
        (ApiKey.FETCH, 11),
        fetch.FetchResponse(
            session_id=9,
            responses=(fetch.FetchableTopicResponse(topic="t", partitions=(fetched(),)),),
        ),
        "00000007000000000000000000090000000100017400000001000000000000000000000000000500000000"
        "000000050000000000000000ffffffffffffffff00000000",
        id="11:PV-23",
    ),
    pytest.param(
        (ApiKey.FETCH, 12),
        fetch.FetchResponse(
            session_id=9,
            responses=(fetch.FetchableTopicResponse(topic="t", partitions=(fetched(),)),),
        ),
        "00000007000000000000000000000902027402000000000000000000000000000500000000000000050000"
        "00000000000000ffffffff01000000",
        id="11:PV-24",
    ),
    pytest.param(
        (ApiKey.FETCH, 17),
        fetch.FetchResponse(
            session_id=9,
            responses=(
                fetch.FetchableTopicResponse(
                    topic_id=TOPIC_ID,
                    partitions=(
                        fetched(
                            error_code=6,
                            high_watermark=-1,
                            last_stable_offset=-1,
                            log_start_offset=-1,
                            current_leader=fetch.LeaderIdAndEpoch(leader_id=2, leader_epoch=4),
                        ),
                    ),
                ),
            ),
            node_endpoints=(fetch.NodeEndpoint(node_id=2, host="h", port=9092),),
        ),
        "000000070000000000000000000009020000000000000001000000000000000202000000000006ffffffff"
        "ffffffffffffffffffffffffffffffffffffffff00ffffffff010101090000000200000004000001000d02"
        "000000020268000023840000",
        id="11:PV-25",
    ),
    pytest.param(
        (ApiKey.FETCH, 12),
        fetch.FetchResponse(
            responses=(
                fetch.FetchableTopicResponse(
                    topic="t",
                    partitions=(
                        fetched(diverging_epoch=fetch.EpochEndOffset(epoch=2, end_offset=3)),
                    ),
                ),
            )
        ),
        "00000007000000000000000000000002027402000000000000000000000000000500000000000000050000"
        "00000000000000ffffffff0101000d000000020000000000000003000000",
        id="11:PV-26",
    ),
    pytest.param(
        (ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0),
        describe_topic_partitions.DescribeTopicPartitionsResponse(
            topics=(
                describe_topic_partitions.DescribeTopicPartitionsResponseTopic(
                    name="t",
                    topic_id=TOPIC_ID,
                    partitions=(
                        describe_topic_partitions.DescribeTopicPartitionsResponsePartition(
                            leader_id=1, leader_epoch=3, replica_nodes=(1,), isr_nodes=(1,)
                        ),
                    ),
                ),
            ),
            next_cursor=describe_topic_partitions.Cursor(topic_name="t", partition_index=1),
        ),
        "00000007000000000002000002740000000000000001000000000000000200020000000000000000000100"
        "00000302000000010200000001000001008000000000010274000000010000",
        id="11:PV-27",
    ),
]


@pytest.mark.parametrize(("key", "request_body", "hexadecimal"), REQUESTS)
def test_request_vector(key: tuple[ApiKey, int], request_body: Message, hexadecimal: str) -> None:
    header = RequestHeader(*key, 7, "c1")
    assert encode_request(header, request_body).hex() == hexadecimal
    assert parse_request(bytes.fromhex(hexadecimal)) == (header, request_body)


@pytest.mark.parametrize(("key", "response", "hexadecimal"), RESPONSES)
def test_response_vector(key: tuple[ApiKey, int], response: Message, hexadecimal: str) -> None:
    header = RequestHeader(*key, 7, "c1")
    assert encode_response(header, response).hex() == hexadecimal
    assert parse_response(bytes.fromhex(hexadecimal), *key) == (7, response)


@pytest.mark.parametrize(
    ("prefix", "client_id", "version"),
    [
        ("0012000300000001000772646b61666b6100", "rdkafka", 3),
        ("0012000000000001" + "0013" + b"aiokafka-0.14.0-abc".hex(), "aiokafka-0.14.0-abc", 0),
    ],
)
def test_first_frames_of_clients_have_a_legible_header(
    prefix: str, client_id: str, version: int
) -> None:
    payload = bytes.fromhex(prefix)
    if version >= 3:
        payload += api_versions_body()
    header, request = parse_request(payload)
    assert header == RequestHeader(ApiKey.API_VERSIONS, version, 1, client_id)
    assert isinstance(request, api_versions.ApiVersionsRequest)


def api_versions_body() -> bytes:
    name = b"confluent-kafka-python"
    return bytes([len(name) + 1]) + name + b"\x072.16.0\0"
