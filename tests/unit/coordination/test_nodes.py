"""Paths and JSON of the store's nodes, in Kafka's shape."""

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from odradek.coordination import paths
from odradek.coordination.embedded import EmbeddedEngine
from odradek.coordination.nodes import (
    BrokerNode,
    ControllerNode,
    FeatureNode,
    PartitionStateNode,
    ProducerIdBlock,
    TopicNode,
    encode_cluster_id,
    encode_config,
    encode_config_change,
    encode_controller_epoch,
    encode_log_dir_event,
    encode_partitions,
    encode_reassignments,
    parse_cluster_id,
    parse_config,
    parse_config_change,
    parse_controller_epoch,
    parse_log_dir_event,
    parse_partitions,
    parse_reassignments,
)
from odradek.coordination.paths import ConfigNodeType
from odradek.errors import BadNodeData
from odradek.model import (
    Endpoint,
    LeaderAndIsr,
    ReplicaAssignment,
    SecurityProtocol,
    TopicPartition,
    parse_uuid,
    uuid_text,
)

TP = TopicPartition("orders", 3)
TOPIC_ID = uuid.UUID("01234567-89ab-cdef-0123-456789abcdef")
PLAIN = Endpoint("h1", 9092, "PLAINTEXT", SecurityProtocol.PLAINTEXT)
SECURE = Endpoint("::1", 9093, "CLIENTS", SecurityProtocol.SASL_SSL)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (paths.broker_path(1), "/brokers/ids/1"),
        (paths.topic_path("orders"), "/brokers/topics/orders"),
        (paths.partitions_path("orders"), "/brokers/topics/orders/partitions"),
        (paths.partition_path(TP), "/brokers/topics/orders/partitions/3"),
        (paths.partition_state_path(TP), "/brokers/topics/orders/partitions/3/state"),
        (paths.delete_topic_path("orders"), "/admin/delete_topics/orders"),
        (paths.config_path(ConfigNodeType.TOPIC, "orders"), "/config/topics/orders"),
        (paths.config_path(ConfigNodeType.BROKER, None), "/config/brokers/<default>"),
        (paths.config_path(ConfigNodeType.USER, "a b*~é"), "/config/users/a%20b%2A%7E%C3%A9"),
        (
            paths.user_client_entity("CN=x,O=y", "c/1"),
            "users/CN%3Dx%2CO%3Dy/clients/c%2F1",
        ),
        (
            paths.user_client_entity(None, None),
            "users/<default>/clients/<default>",
        ),
        (
            paths.user_client_entity("<default>", "<default>"),
            "users/%3Cdefault%3E/clients/%3Cdefault%3E",
        ),
        (paths.config_entity(ConfigNodeType.CLIENT, "<default>"), "clients/%3Cdefault%3E"),
        (paths.config_entity(ConfigNodeType.USER, "."), "users/%2E"),
        (paths.config_entity(ConfigNodeType.USER, ".."), "users/%2E%2E"),
        (paths.config_entity(ConfigNodeType.USER, "..."), "users/..."),
        (paths.config_entity(ConfigNodeType.TOPIC, "t2"), "topics/t2"),
        (paths.config_change_path("topics/t2"), "/config/topics/t2"),
    ],
)
def test_paths(path: str, expected: str) -> None:
    assert path == expected


def test_sanitizing_is_undone() -> None:
    name = "CN=Jöhn *~ +%/Ω"
    assert "/" not in paths.sanitize(name)
    assert paths.unsanitize(paths.sanitize(name)) == name


def test_ancestors_are_listed_top_first() -> None:
    assert paths.ancestors("/a/b/c") == ["/a", "/a/b"]
    assert paths.ancestors("/a") == []


def test_every_initial_path_comes_after_its_parents() -> None:
    seen: set[str] = set()
    for path in paths.INITIAL_PATHS:
        assert seen.issuperset(paths.ancestors(path))
        seen.add(path)
    assert seen == {
        *("/brokers", "/brokers/ids", "/brokers/topics", "/brokers/seqid"),
        *("/config", "/config/changes", "/config/topics", "/config/clients"),
        *("/config/users", "/config/brokers", "/config/ips", "/admin", "/admin/delete_topics"),
        *("/isr_change_notification", "/log_dir_event_notification"),
        *("/latest_producer_id_block", "/consumers"),
    }


def test_the_controller_document_in_its_node(tmp_path: Path) -> None:
    """03b:T3.1; we write it as Kafka 3.9 does, in version 2."""
    document = b'{"version":1,"brokerid":0,"timestamp":"1585098432431"}'
    node = ControllerNode(broker_id=0, timestamp_ms=1585098432431)
    assert len(document) == 54
    assert node.encode() == document.replace(b':1,"b', b':2,"b')[:-1] + (
        b',"kraftControllerEpoch":-1}'
    )

    async def main() -> None:
        async with EmbeddedEngine(str(tmp_path)) as engine:
            store = engine.connect()
            await store.create(paths.CONTROLLER, document, ephemeral=True)
            data, stat = await engine.connect().get(paths.CONTROLLER)
            assert ControllerNode.parse(data) == node
            assert (stat.ephemeral_owner, stat.version) == (store.session.id, 0)
            assert stat.ephemeral_owner != 0
            assert (await store.children(paths.CONTROLLER))[0] == []

    asyncio.run(main())


def test_a_later_controller_document_is_accepted() -> None:
    data = b'{"version":2,"brokerid":7,"timestamp":"5","kraftControllerEpoch":-1}'
    assert ControllerNode.parse(data) == ControllerNode(7, 5)


def test_an_uncleanly_elected_leader_is_noted_until_it_has_recovered() -> None:
    """As Kafka 3.9 writes it: the field is there only while it is not 0 (KIP-704)."""
    document = (
        b'{"controller_epoch":3,"leader":1,"version":1,"leader_epoch":4,"isr":[1],'
        b'"leader_recovery_state":1}'
    )
    state = LeaderAndIsr(leader=1, leader_epoch=4, isr=(1,), partition_version=2)
    recovering = replace(state, is_recovering=True)
    assert PartitionStateNode(recovering, 3).encode() == document
    assert PartitionStateNode.parse(document, 2).leader_and_isr == recovering
    recovered = document.replace(b'state":1', b'state":0')
    assert PartitionStateNode.parse(recovered, 2).leader_and_isr == state
    assert b"recovery" not in PartitionStateNode(state, 3).encode()


def test_the_feature_document() -> None:
    node = FeatureNode({"metadata.version": 4})
    document = b'{"version":2,"status":1,"features":{"metadata.version":{"max_version_level":4}}}'
    assert node.encode() == document
    assert FeatureNode.parse(document) == node
    old = b'{"version":1,"status":0,"features":{"f":{"min_version_level":1,"max_version_level":2}}}'
    assert FeatureNode.parse(old) == FeatureNode({"f": 2}, is_enabled=False, version=1)
    first = FeatureNode({"f": 2}, version=1)
    assert b'"f":{"max_version_level":2,"min_version_level":2}' in first.encode()
    assert FeatureNode.parse(first.encode()) == first


@pytest.mark.parametrize(
    "document",
    [
        b'{"version":3,"status":1,"features":{}}',
        b'{"version":2,"status":2,"features":{}}',
        b'{"version":2,"status":1}',
        b'{"version":2,"status":1,"features":{"f":1}}',
        b'{"version":2,"status":1,"features":{"f":{}}}',
        b"{",
        None,
    ],
)
def test_a_feature_document_of_another_form_is_refused(document: bytes | None) -> None:
    with pytest.raises(BadNodeData, match="feature"):
        FeatureNode.parse(document)


def test_the_partition_state_document() -> None:
    document = b'{"controller_epoch":1775,"leader":3,"version":1,"leader_epoch":145,"isr":[3,5]}'
    state = LeaderAndIsr(leader=3, leader_epoch=145, isr=(3, 5), partition_version=9)
    node = PartitionStateNode(state, controller_epoch=1775)
    assert node.encode() == document
    assert PartitionStateNode.parse(document, version=9) == node


def test_the_broker_document() -> None:
    node = BrokerNode(endpoints=(SECURE, PLAIN), timestamp_ms=12, rack="r1")
    document = (
        b'{"version":5,"host":"h1","port":9092,"jmx_port":-1,"timestamp":"12",'
        b'"endpoints":["CLIENTS://[::1]:9093","PLAINTEXT://h1:9092"],'
        b'"listener_security_protocol_map":{"CLIENTS":"SASL_SSL","PLAINTEXT":"PLAINTEXT"},'
        b'"features":{},"rack":"r1"}'
    )
    assert node.encode() == document
    assert BrokerNode.parse(document) == node
    old = document.replace(b'"version":5', b'"version":4').replace(b'"features":{},', b"")
    assert node.encode(4) == old
    assert BrokerNode.parse(old) == node


def test_a_broker_without_a_plain_listener_has_no_host() -> None:
    document = BrokerNode(endpoints=(SECURE,), timestamp_ms=12).encode()
    assert b'"host":null,"port":-1,' in document
    assert b"rack" not in document
    assert BrokerNode.parse(document).endpoints == (SECURE,)


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        pytest.param(
            b'{"version":1,"host":"h1","port":9092,"jmx_port":9999,"timestamp":"1"}',
            BrokerNode(endpoints=(PLAIN,), timestamp_ms=1),
            id="v1",
        ),
        pytest.param(
            b'{"version":2,"host":"h1","port":9092,"timestamp":"1",'
            b'"endpoints":["PLAINTEXT://h1:9092","SSL://:9"]}',
            BrokerNode(
                endpoints=(PLAIN, Endpoint("", 9, "SSL", SecurityProtocol.SSL)), timestamp_ms=1
            ),
            id="v2",
        ),
        pytest.param(
            b'{"version":3,"endpoints":["PLAINTEXT://h1:9092"],"rack":"r"}',
            BrokerNode(endpoints=(PLAIN,), timestamp_ms=-1, rack="r"),
            id="v3",
        ),
        pytest.param(
            b'{"version":4,"listener_security_protocol_map":{"X":"SSL"},"endpoints":["X://h:1"]}',
            BrokerNode(endpoints=(Endpoint("h", 1, "X", SecurityProtocol.SSL),), timestamp_ms=-1),
            id="v4",
        ),
    ],
)
def test_older_broker_documents_are_read(document: bytes, expected: BrokerNode) -> None:
    assert BrokerNode.parse(document) == expected


def test_the_topic_document() -> None:
    node = TopicNode(
        topic_id=TOPIC_ID,
        assignment={
            0: ReplicaAssignment((1, 2)),
            1: ReplicaAssignment((2, 3, 1), adding=(3,), removing=(1,)),
        },
    )
    document = (
        b'{"version":3,"topic_id":"ASNFZ4mrze8BI0VniavN7w","partitions":{"0":[1,2],"1":[2,3,1]},'
        b'"adding_replicas":{"1":[3]},"removing_replicas":{"1":[1]}}'
    )
    assert node.encode() == document
    assert TopicNode.parse(document) == node


@pytest.mark.parametrize(
    "document",
    [
        b'{"version":1,"partitions":{"0":[1]}}',
        b'{"version":2,"partitions":{"0":[1]},"adding_replicas":{},"removing_replicas":{}}',
    ],
    ids=["v1", "v2"],
)
def test_topic_documents_without_an_id_are_read(document: bytes) -> None:
    """The reading half of what 14 §15.5 asks of a foreign writer's topic."""
    node = TopicNode.parse(document)
    assert node == TopicNode(topic_id=None, assignment={0: ReplicaAssignment((1,))})


def test_a_topic_id_has_22_characters() -> None:
    assert parse_uuid(uuid_text(TOPIC_ID)) == TOPIC_ID
    for wrong in ("", "x" * 21, "x" * 23, "!" * 22, "é" * 22):
        with pytest.raises(ValueError, match="id"):
            parse_uuid(wrong)


@pytest.mark.parametrize(
    ("encoded", "document", "parse", "value"),
    [
        pytest.param(
            encode_config({"retention.ms": "1000"}),
            b'{"version":1,"config":{"retention.ms":"1000"}}',
            parse_config,
            {"retention.ms": "1000"},
            id="config",
        ),
        pytest.param(
            encode_config_change("topics/t2"),
            b'{"version":2,"entity_path":"topics/t2"}',
            parse_config_change,
            "topics/t2",
            id="config change",
        ),
        pytest.param(
            encode_cluster_id("4L6g3nShT-eMCtK--X86sw"),
            b'{"version":"1","id":"4L6g3nShT-eMCtK--X86sw"}',
            parse_cluster_id,
            "4L6g3nShT-eMCtK--X86sw",
            id="cluster id",
        ),
        pytest.param(
            ProducerIdBlock(broker_id=1, first_id=0, last_id=999).encode(),
            b'{"version":1,"broker":1,"block_start":"0","block_end":"999"}',
            ProducerIdBlock.parse,
            ProducerIdBlock(broker_id=1, first_id=0, last_id=999),
            id="producer id block",
        ),
        pytest.param(
            encode_partitions([TopicPartition("t", 0), TopicPartition("t", 1)]),
            b'{"version":1,"partitions":[{"topic":"t","partition":0},{"topic":"t","partition":1}]}',
            parse_partitions,
            [TopicPartition("t", 0), TopicPartition("t", 1)],
            id="ISR change, preferred election",
        ),
        pytest.param(
            encode_reassignments({TopicPartition("t", 0): [1, 2]}),
            b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]}]}',
            parse_reassignments,
            {TopicPartition("t", 0): (1, 2)},
            id="reassignment",
        ),
        pytest.param(
            encode_log_dir_event(4),
            b'{"version":1,"broker":4,"event":1}',
            parse_log_dir_event,
            4,
            id="log dir event",
        ),
        pytest.param(
            encode_controller_epoch(12), b"12", parse_controller_epoch, 12, id="controller epoch"
        ),
    ],
)
def test_the_other_documents(
    encoded: bytes, document: bytes, parse: Callable[[bytes], object], value: object
) -> None:
    assert encoded == document
    assert parse(document) == value


def test_null_data_where_it_has_a_meaning() -> None:
    assert ProducerIdBlock.parse(None) is None
    assert parse_config(None) == {}
    with pytest.raises(BadNodeData, match="found null"):
        ControllerNode.parse(None)


@pytest.mark.parametrize(
    ("parse", "data", "message"),
    [
        (ControllerNode.parse, b"", "controller: not JSON"),
        (ControllerNode.parse, b"[1]", "expected a JSON object, found a JSON array of 1"),
        (ControllerNode.parse, b"{}", "brokerid: expected a 32-bit integer, found no such field"),
        (ControllerNode.parse, b'{"brokerid":true}', "expected a 32-bit integer, found True"),
        (ControllerNode.parse, b'{"brokerid":1.0}', "expected a 32-bit integer, found 1.0"),
        (ControllerNode.parse, b'{"brokerid":1,"timestamp":5}', "a number in a string, found 5"),
        (ControllerNode.parse, b'{"brokerid":NaN}', "NaN is not JSON"),
        (ControllerNode.parse, b'{"a":' + b"[" * 100_000, "not JSON"),
        (ControllerNode.parse, b'{"brokerid":' + b"1" * 5000 + b"}", "not JSON"),
        (BrokerNode.parse, b'{"version":6}', "expected version 1 to 5, found 6"),
        (BrokerNode.parse, b'{"version":4,"endpoints":["h:1"]}', "NAME://host:port, found 'h:1'"),
        (BrokerNode.parse, b'{"version":4,"endpoints":["X://h:1"]}', "unknown protocol 'X'"),
        (BrokerNode.parse, b'{"version":4,"endpoints":[1]}', "an array of strings"),
        (BrokerNode.parse, b'{"version":4,"endpoints":["SSL://h:1","SSL://i:2"]}', "comes twice"),
        (TopicNode.parse, b'{"partitions":{"a":[1]}}', "expected a number"),
        (TopicNode.parse, b'{"partitions":{"-1":[1]}}', "partition numbers from 0"),
        (TopicNode.parse, b'{"partitions":{"0":[99999999999]}}', "array of 32-bit integers"),
        (TopicNode.parse, b'{"partitions":{},"topic_id":"x"}', "22 base64url characters"),
        (ProducerIdBlock.parse, b'{"broker":1,"block_start":"9","block_end":"1"}', "9 to 1"),
        (parse_config, b'{"config":{"a":1}}', "maps keys to text, found"),
        (parse_config, b'{"config":{"a":"\\ud800"}}', "maps keys to text, found"),
        (parse_config_change, b'{"version":1,"entity_path":"x"}', "expected version 2, found 1"),
        (parse_controller_epoch, b"1x", "expected a number"),
        (parse_controller_epoch, b"99999999999", "expected a number up to 2147483647"),
        (parse_partitions, b'{"partitions":[{"topic":"t","partition":-1}]}', "partition -1"),
        (parse_partitions, b'{"partitions":7}', "expected an array, found 7"),
    ],
)
def test_what_cannot_be_read_is_named(
    parse: Callable[[bytes], object], data: bytes, message: str
) -> None:
    with pytest.raises(BadNodeData) as caught:
        parse(data)
    assert message in str(caught.value)
