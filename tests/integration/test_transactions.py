"""Transactions through real brokers: by request, by the producers of others, in a cluster."""

import asyncio
import contextlib
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Self

import aiokafka
import pytest
from confluent_kafka import Consumer as ForeignConsumer
from confluent_kafka import Producer as ForeignProducer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from odradek import Admin, Producer
from odradek.client.admin import ConfigOperation, ConfigResource, ConfigResourceType
from odradek.errors import ErrorCode
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.envelope import parse_response
from odradek.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from odradek.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from odradek.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from odradek.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from odradek.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from odradek.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from odradek.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from odradek.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from odradek.records.batch import parse_header
from odradek.records.builder import build_batch
from odradek.records.compression import Codec
from odradek.records.record import read_records
from odradek.testing import EmbeddedBroker, EmbeddedCluster
from tests.conformance.clients.adaptors import kafka
from tests.conformance.clients.raw import RawConnection
from tests.support.group_members import create_topic
from tests.support.group_members import wait_until as wait_for

pytestmark = pytest.mark.slow

NONE = ErrorCode.NONE
SETTINGS = {
    "transaction.state.log.num.partitions": "4",
    "offsets.topic.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
}


def wait_until(condition: Callable[[], object]) -> None:
    wait_for(condition, "a transaction goes on")


def port_of(server: str) -> int:
    return int(server.rpartition(":")[2])


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with EmbeddedBroker(data_dir=tmp_path_factory.mktemp("txn"), settings=SETTINGS) as broker:
        number = port_of(broker.bootstrap_servers)
        create_topic(number, "t", 2)
        with RawTransaction(number, "first") as producer:
            producer.init()
        yield number


class RawTransaction:
    """A transactional producer that sends the requests it is told to."""

    def __init__(self, port: int, transactional_id: str, *, version: int = 2) -> None:
        self._connection = RawConnection(port)
        self.transactional_id = transactional_id
        self.version = version  # Of transactions.
        self.producer_id = self.epoch = -1
        self.sequences: dict[int, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._connection.__exit__(None, None, None)

    def init_once(self) -> ErrorCode:
        answer = self._connection.call(
            ApiKey.INIT_PRODUCER_ID, 4,
            InitProducerIdRequest(
                transactional_id=self.transactional_id, transaction_timeout_ms=60_000
            ),
        )  # fmt: skip
        assert isinstance(answer, InitProducerIdResponse)
        if not answer.error_code:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return ErrorCode(answer.error_code)

    def init(self) -> None:
        """Finds the coordinator, and becomes the producer of the id."""

        def is_found() -> bool:
            answer = self._connection.call(
                ApiKey.FIND_COORDINATOR, 4,
                FindCoordinatorRequest(key_type=1, coordinator_keys=[self.transactional_id]),
            )  # fmt: skip
            assert isinstance(answer, FindCoordinatorResponse)
            return not answer.coordinators[0].error_code

        wait_until(is_found)
        wait_until(lambda: self.init_once() is NONE)

    def add(self, *partitions: int, topic: str = "t") -> list[ErrorCode]:
        answer = self._connection.call(
            ApiKey.ADD_PARTITIONS_TO_TXN, 3,
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=[
                    AddPartitionsToTxnTopic(name=topic, partitions=partitions)
                ],
            ),
        )  # fmt: skip
        assert isinstance(answer, AddPartitionsToTxnResponse)
        [topic_row] = answer.results_by_topic_v3_and_below
        return [ErrorCode(row.partition_error_code) for row in topic_row.results_by_partition]

    def produce(self, partition: int, value: bytes, *, version: int | None = None) -> ErrorCode:
        batch = build_batch(
            # Of now: an old record would begin another segment, where a fetch ends.
            [(time.time_ns() // 1_000_000, None, value, ())],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequences.get(partition, 0),
            is_transactional=True,
        )
        answer = self._connection.call(
            ApiKey.PRODUCE,
            version or (12 if self.version >= 2 else 11),
            ProduceRequest(
                transactional_id=self.transactional_id,
                acks=-1,
                timeout_ms=5_000,
                topic_data=[
                    TopicProduceData(
                        name="t",
                        partition_data=[PartitionProduceData(index=partition, records=batch)],
                    )
                ],
            ),
        )
        assert isinstance(answer, ProduceResponse)
        error = ErrorCode(answer.responses[0].partition_responses[0].error_code)
        if error is NONE:
            self.sequences[partition] = self.sequences.get(partition, 0) + 1
        return error

    def end(self, *, is_commit: bool) -> ErrorCode:
        answer = self._connection.call(
            ApiKey.END_TXN,
            5 if self.version >= 2 else 4,
            EndTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                committed=is_commit,
            ),
        )
        assert isinstance(answer, EndTxnResponse)
        if not answer.error_code and self.version >= 2:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return ErrorCode(answer.error_code)


def read(
    port: int, partition: int, *, is_committed: bool = True
) -> tuple[list[bytes], FetchResponse]:
    """The values of a partition of `t` that a reader of this isolation gets."""
    with RawConnection(port) as connection:
        answer = connection.call(
            ApiKey.FETCH, 12,
            FetchRequest(
                max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, isolation_level=int(is_committed),
                session_epoch=-1,
                topics=[
                    FetchTopic(
                        topic="t",
                        partitions=[
                            FetchPartition(
                                partition=partition, fetch_offset=0, partition_max_bytes=1 << 20
                            )
                        ],
                    )
                ],
            ),
        )  # fmt: skip
    assert isinstance(answer, FetchResponse)
    data = bytes(answer.responses[0].partitions[0].records or b"")
    values, position = [], 0
    while (header := parse_header(data, position)) is not None and position + header.size <= len(
        data
    ):
        if not header.is_control:
            records = read_records(data, position=position, header=header)
            values += [record.value or b"" for record in records]
        position += header.size
    return values, answer


def read_values(port: int, partition: int) -> list[bytes]:
    """As a client with `read_committed` sees them: without those of aborted transactions."""
    consumer = ForeignConsumer(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([Place("t", partition, 0)])
    values: list[bytes] = []
    try:
        while True:
            message = consumer.poll(10)
            assert message is not None, "neither a message nor the end"
            if message.error() is not None:
                return values
            values.append(message.value() or b"")
    finally:
        consumer.close()


@pytest.mark.parametrize("version", [0, 2])
def test_commit_abort_and_open_transactions(port: int, version: int) -> None:
    """10:TX-1, 10:TX-2 and 10:TX-3."""
    with (
        RawTransaction(port, f"a-{version}", version=version) as first,
        RawTransaction(port, f"b-{version}", version=version) as second,
    ):
        for producer in (first, second):
            producer.init()
            if version < 2:
                assert producer.add(0) == [NONE]
        mine, yours = b"open-%d" % version, b"committed-%d" % version
        assert first.produce(0, mine) is NONE
        assert second.produce(0, yours) is NONE
        assert second.end(is_commit=True) is NONE
        assert yours not in read_values(port, 0), "behind the open transaction"
        assert yours in read(port, 0, is_committed=False)[0]
        assert first.end(is_commit=False) is NONE
        wait_until(lambda: yours in read_values(port, 0))
        assert mine not in read_values(port, 0)
        values, answer = read(port, 0)
        assert mine in values, "the reader drops what the answer lists as aborted"
        aborted = answer.responses[0].partitions[0].aborted_transactions or ()
        assert first.producer_id in [row.producer_id for row in aborted]


def test_a_second_producer_of_the_id_fences_the_first(port: int) -> None:
    """10:TX-4."""
    with RawTransaction(port, "fenced") as old, RawTransaction(port, "fenced") as new:
        old.init()
        assert old.produce(1, b"of the old one") is NONE
        assert new.init_once() is ErrorCode.CONCURRENT_TRANSACTIONS
        wait_until(lambda: new.init_once() is NONE)
        assert new.epoch == old.epoch + 2
        assert old.produce(1, b"late") is ErrorCode.INVALID_PRODUCER_EPOCH
        assert old.end(is_commit=True) is ErrorCode.PRODUCER_FENCED
        assert b"of the old one" not in read_values(port, 1)


def test_a_batch_without_a_transaction_is_refused(port: int) -> None:
    """10:TX-11."""
    with RawTransaction(port, "unverified", version=0) as producer:
        producer.init()
        for version, error in (
            (11, ErrorCode.TRANSACTION_ABORTABLE),
            (10, ErrorCode.INVALID_TXN_STATE),
        ):
            assert producer.produce(1, b"nobody knows", version=version) is error
        assert b"nobody knows" not in read(port, 1, is_committed=False)[0]


def test_verification_is_switched_while_the_broker_runs(tmp_path: Path) -> None:
    """transaction.partition.verification.enable, for the cluster and for one broker (10, 9.9)."""
    name = "transaction.partition.verification.enable"
    with EmbeddedBroker(data_dir=tmp_path, settings=SETTINGS) as broker:
        server = broker.bootstrap_servers
        number = port_of(server)
        create_topic(number, "t", 2)
        with Admin(bootstrap_servers=server) as admin:
            [own] = admin.describe_cluster().nodes
            ids = itertools.count()

            def is_refused() -> bool:
                """Whether a batch that no coordinator knows is refused; of a new producer."""
                with RawTransaction(number, f"switched-{next(ids)}", version=0) as producer:
                    producer.init()
                    told = producer.produce(0, b"not added", version=11)
                    assert told in (NONE, ErrorCode.TRANSACTION_ABORTABLE)
                    return told is not NONE

            def is_switched(is_on: bool) -> bool:
                return is_refused() == is_on

            assert is_switched(True)
            for resource_name in ("", str(own.id)):
                resource = ConfigResource(ConfigResourceType.BROKER, resource_name)
                for is_on in (False, True):
                    change = ConfigOperation.set(name, str(is_on).lower())
                    assert admin.incremental_alter_configs({resource: [change]}) == {resource: None}
                    wait_until(partial(is_switched, is_on))


def test_compressed_batches_that_wait_for_their_coordinator(port: int) -> None:
    """15:KAFKA-15653: each is stored as it came, though others arrive before it is appended."""
    with RawTransaction(port, "compressed") as producer, RawConnection(port) as connection:
        producer.init()
        expected = []
        for number in range(2 * 4):
            partition, sequence = number % 2, number // 2
            value = b"compressed-%d-" % number * 3_000
            expected.append((partition, value))
            batch = build_batch(
                [(time.time_ns() // 1_000_000, None, value, ())],
                codec=Codec.GZIP if number % 4 < 2 else Codec.LZ4,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                base_sequence=sequence,
                is_transactional=True,
            )
            rows = [PartitionProduceData(index=partition, records=batch)]
            request = ProduceRequest(
                transactional_id="compressed",
                acks=-1,
                timeout_ms=5_000,
                topic_data=[TopicProduceData(name="t", partition_data=rows)],
            )
            connection.send_request(ApiKey.PRODUCE, 12, number, request)
        for number in range(len(expected)):
            found, answer = parse_response(connection.receive_frame(), ApiKey.PRODUCE, 12)
            assert isinstance(answer, ProduceResponse)
            assert found == number
            assert answer.responses[0].partition_responses[0].error_code == NONE
        assert producer.end(is_commit=True) is NONE
        for partition in range(2):
            mine = [value for where, value in expected if where == partition]
            wait_until(partial(has_all, port, partition, mine))


def has_all(port: int, partition: int, wanted: list[bytes]) -> bool:
    found = read_values(port, partition)
    return [value for value in found if value in wanted] == wanted


def test_of_a_wrong_partition_nothing_is_added(port: int) -> None:
    with RawTransaction(port, "wrong") as producer:
        producer.init()
        unknown, rest = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED
        assert producer.add(0, 1, 7) == [rest, rest, unknown]
        assert producer.add(0, topic="nowhere") == [unknown]
        assert described(port, "wrong") == ("Empty", [])
        assert producer.add(*range(10_000))[-1] is unknown
        assert producer.add(0, 1, 0) == [NONE, NONE]
        assert described(port, "wrong") == ("Ongoing", [("t", [0, 1])])
        assert producer.end(is_commit=False) is NONE


def described(port: int, transactional_id: str) -> tuple[str, list[tuple[str, list[int]]]]:
    with RawConnection(port) as connection:
        answer = connection.call(
            ApiKey.DESCRIBE_TRANSACTIONS, 0,
            DescribeTransactionsRequest(transactional_ids=[transactional_id]),
        )  # fmt: skip
    assert isinstance(answer, DescribeTransactionsResponse)
    [row] = answer.transaction_states
    assert row.error_code == NONE
    return row.transaction_state, [(one.topic, list(one.partitions)) for one in row.topics]


def test_transactions_are_listed_by_state_age_and_pattern(port: int) -> None:
    with RawTransaction(port, "listed-1") as producer, RawTransaction(port, "listed-2") as idle:
        producer.init()
        idle.init()
        assert producer.add(0) == [NONE]
        assert listed(port, transactional_id_pattern="listed-.") == ["listed-1", "listed-2"]
        assert listed(port, transactional_id_pattern="liste") == []
        assert "listed-1" in listed(port, state_filters=["Ongoing"])
        assert listed(port, producer_id_filters=[idle.producer_id]) == ["listed-2"]
        assert listed(port, duration_filter=3_600_000) == []
        assert producer.end(is_commit=True) is NONE
        with RawConnection(port) as connection:
            message = ListTransactionsRequest(state_filters=["Odd"], transactional_id_pattern="(")
            answer = connection.call(ApiKey.LIST_TRANSACTIONS, 2, message)
            assert isinstance(answer, ListTransactionsResponse)
            assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
            message = ListTransactionsRequest(state_filters=["Odd"])
            answer = connection.call(ApiKey.LIST_TRANSACTIONS, 2, message)
            assert isinstance(answer, ListTransactionsResponse)
            assert list(answer.unknown_state_filters) == ["Odd"]
            assert list(answer.transaction_states) == []


def listed(port: int, **filters: object) -> list[str]:
    with RawConnection(port) as connection:
        message = ListTransactionsRequest(**filters)  # type: ignore[arg-type]  # by their names
        answer = connection.call(ApiKey.LIST_TRANSACTIONS, 2, message)
    assert isinstance(answer, ListTransactionsResponse)
    assert answer.error_code == NONE
    return sorted(row.transactional_id for row in answer.transaction_states)


def test_the_level_moves_while_a_producer_runs(port: int) -> None:
    assert finalized(port) == {"transaction.version": 2}
    with RawTransaction(port, "levels") as producer:
        producer.init()
        for level, kind, error in (
            (1, 1, ErrorCode.INVALID_UPDATE_VERSION),  # A downgrade that is not asked for as such.
            (3, 1, ErrorCode.INVALID_UPDATE_VERSION),
            (1, 2, NONE),
            (0, 3, NONE),
            (2, 1, NONE),
        ):
            assert producer.produce(0, b"level %d" % level) is NONE
            assert update(port, level, kind) is error
            assert producer.end(is_commit=True) is NONE
            wait_until(lambda: described(port, "levels")[0] == "CompleteCommit")
    wait_until(lambda: finalized(port) == {"transaction.version": 2})


def test_producers_of_both_protocols_go_on_while_the_level_moves(port: int) -> None:
    """Ours takes the protocol of the level with its next transaction; librdkafka keeps to one."""
    server = f"127.0.0.1:{port}"
    theirs = ForeignProducer({"bootstrap.servers": server, "transactional.id": "moved-librdkafka"})
    theirs.init_transactions(60)
    kept = []
    with Producer(
        bootstrap_servers=server, transactional_id="moved-ours", metadata_max_age_ms=100
    ) as ours:
        ours.init_transactions()
        for turn, (level, kind) in enumerate([(2, 1), (1, 2), (0, 3), (2, 1)]):
            for is_commit in (True, False):
                values = [b"moved-%d-%d-%d" % (turn, is_commit, number) for number in range(2)]
                theirs.begin_transaction()
                theirs.produce("t", values[0], partition=0)
                theirs.flush(60)
                ours.begin_transaction()
                ours.send("t", values[1], partition=0).result(60)
                if is_commit:
                    assert update(port, level, kind) is NONE
                    ours.commit_transaction()
                    theirs.commit_transaction(60)
                    kept += values
                else:
                    ours.abort_transaction()
                    theirs.abort_transaction(60)
    wait_until(lambda: finalized(port) == {"transaction.version": 2})

    def found() -> list[bytes]:
        return sorted(one for one in read_values(port, 0) if one.startswith(b"moved-"))

    wait_until(lambda: found() == sorted(kept))


def finalized(port: int) -> dict[str, int]:
    with RawConnection(port) as connection:
        message = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
        answer = connection.call(ApiKey.API_VERSIONS, 4, message)
    assert isinstance(answer, ApiVersionsResponse)
    assert [(row.name, row.min_version, row.max_version) for row in answer.supported_features] == [
        ("transaction.version", 0, 2)
    ]
    assert answer.finalized_features_epoch >= 0
    return {row.name: row.max_version_level for row in answer.finalized_features}


def update(port: int, level: int, kind: int) -> ErrorCode:
    with RawConnection(port) as connection:
        change = FeatureUpdateKey(
            feature="transaction.version", max_version_level=level, upgrade_type=kind
        )
        answer = connection.call(
            ApiKey.UPDATE_FEATURES, 2, UpdateFeaturesRequest(feature_updates=[change])
        )
    assert isinstance(answer, UpdateFeaturesResponse)
    return ErrorCode(answer.error_code)


def test_a_decided_transaction_survives_the_broker(tmp_path: Path) -> None:
    with EmbeddedBroker(data_dir=tmp_path, settings=SETTINGS) as broker:
        number = port_of(broker.bootstrap_servers)
        create_topic(number, "t", 2)
        with RawTransaction(number, "kept") as producer:
            producer.init()
            assert producer.produce(0, b"first") is NONE
            assert producer.end(is_commit=True) is NONE
            assert producer.produce(1, b"second") is NONE
            kept = producer
    with EmbeddedBroker(data_dir=tmp_path, settings=SETTINGS) as broker:
        number = port_of(broker.bootstrap_servers)
        with RawTransaction(number, "kept") as producer:
            producer.producer_id, producer.epoch = kept.producer_id, kept.epoch
            wait_until(lambda: described(number, "kept")[0] == "Ongoing")
            assert producer.end(is_commit=True) is NONE
        wait_until(lambda: read_values(number, 1) == [b"second"])
        assert read_values(number, 0) == [b"first"]


# Producers of others


def transact_by_librdkafka(server: str, name: str, count: int) -> list[bytes]:
    """Commits every other transaction, over two partitions; returns what is committed."""
    producer = ForeignProducer(
        {"bootstrap.servers": server, "transactional.id": name, "linger.ms": 0}
    )
    producer.init_transactions(60)
    committed = []
    for number in range(count):
        producer.begin_transaction()
        values = [b"%s-%d-%d" % (name.encode(), number, index) for index in range(4)]
        for index, value in enumerate(values):
            producer.produce("t", value, partition=index % 2)
        if number % 2:
            # Else the coordinator may not know of the transaction yet, while the one before ends:
            # librdkafka ends it all the same, and is told INVALID_TXN_STATE, as by Kafka.
            producer.flush(60)
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)
            committed += values
    return committed


def transact_by_kafka_python(server: str, name: str, count: int) -> list[bytes]:
    producer = kafka.KafkaProducer(bootstrap_servers=server, transactional_id=name)
    producer.init_transactions()
    committed = []
    for number in range(count):
        producer.begin_transaction()
        values = [b"%s-%d-%d" % (name.encode(), number, index) for index in range(4)]
        for index, value in enumerate(values):
            producer.send("t", value, partition=index % 2)
        if number % 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
            committed += values
    producer.close()
    return committed


def transact_by_aiokafka(server: str, name: str, count: int) -> list[bytes]:
    async def transact() -> list[bytes]:
        committed = []
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=server, transactional_id=name
        ) as producer:
            for number in range(count):
                await producer.begin_transaction()
                values = [b"%s-%d-%d" % (name.encode(), number, index) for index in range(4)]
                for index, value in enumerate(values):
                    await producer.send("t", value, partition=index % 2)
                if number % 2:
                    await producer.abort_transaction()
                else:
                    await producer.commit_transaction()
                    committed += values
        return committed

    return asyncio.run(transact())


@pytest.fixture(params=[2, 0], ids=["version-2", "version-0"])
def level(request: pytest.FixtureRequest, port: int) -> Iterator[int]:
    """The `transaction.version` of the cluster."""
    wanted: int = request.param
    if wanted != 2:
        assert update(port, wanted, 3) is NONE
        wait_until(lambda: finalized(port).get("transaction.version", 0) == wanted)
    yield wanted
    if wanted != 2:
        assert update(port, 2, 1) is NONE
        wait_until(lambda: finalized(port) == {"transaction.version": 2})


@pytest.mark.parametrize(
    "transact", [transact_by_librdkafka, transact_by_kafka_python, transact_by_aiokafka]
)
def test_foreign_producers(
    port: int, level: int, transact: Callable[[str, str, int], list[bytes]]
) -> None:
    """10:TX-1, 10:TX-2."""
    name = f"{transact.__name__}-{level}"
    committed = transact(f"127.0.0.1:{port}", name, 6)
    assert len(committed) == 12

    def found() -> list[bytes]:
        values = read_values(port, 0) + read_values(port, 1)
        return sorted(value for value in values if value.startswith(name.encode()))

    wait_until(lambda: found() == sorted(committed))


def offsets_by_librdkafka(server: str, group: str, steps: Sequence[tuple[int, bool]]) -> None:
    producer = ForeignProducer({"bootstrap.servers": server, "transactional.id": group})
    producer.init_transactions(60)
    consumer = ForeignConsumer({"bootstrap.servers": server, "group.id": group})
    for offset, is_commit in steps:
        producer.begin_transaction()
        producer.produce("t", b"with offsets", partition=1)
        producer.send_offsets_to_transaction(
            [Place("t", 0, offset)], consumer.consumer_group_metadata(), 60
        )
        if is_commit:
            producer.commit_transaction(60)
        else:
            producer.abort_transaction(60)
    consumer.close()


def offsets_by_kafka_python(server: str, group: str, steps: Sequence[tuple[int, bool]]) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=server, transactional_id=group)
    producer.init_transactions()
    for offset, is_commit in steps:
        producer.begin_transaction()
        producer.send("t", b"with offsets", partition=1)
        place = kafka.TopicPartition("t", 0)
        offsets = {place: kafka.structs.OffsetAndMetadata(offset, "", -1)}
        producer.send_offsets_to_transaction(offsets, group)
        if is_commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    producer.close()


def offsets_by_aiokafka(server: str, group: str, steps: Sequence[tuple[int, bool]]) -> None:
    async def transact() -> None:
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=server, transactional_id=group
        ) as producer:
            for offset, is_commit in steps:
                await producer.begin_transaction()
                await producer.send("t", b"with offsets", partition=1)
                place = aiokafka.TopicPartition("t", 0)
                await producer.send_offsets_to_transaction({place: offset}, group)
                if is_commit:
                    await producer.commit_transaction()
                else:
                    await producer.abort_transaction()

    asyncio.run(transact())


@pytest.mark.parametrize(
    "transact", [offsets_by_librdkafka, offsets_by_kafka_python, offsets_by_aiokafka]
)
def test_offsets_are_committed_with_their_transaction(
    port: int, level: int, transact: Callable[[str, str, Sequence[tuple[int, bool]]], None]
) -> None:
    """10:TX-12."""
    server, group = f"127.0.0.1:{port}", f"{transact.__name__}-{level}"
    consumer = ForeignConsumer({"bootstrap.servers": server, "group.id": group})
    try:
        for steps, expected in (([(3, True)], 3), ([(4, False)], 3), ([(4, False), (5, True)], 5)):
            transact(server, group, steps)
            [place] = consumer.committed([Place("t", 0)], timeout=60)
            assert place.offset == expected
    finally:
        consumer.close()


# A cluster


def test_coordinator_and_leaders_on_different_brokers(tmp_path: Path) -> None:
    """10:TX-6 and 10:TX-8 across brokers: the coordinator's broker stops, another one goes on."""
    with EmbeddedCluster(3, data_dir=tmp_path, settings=SETTINGS) as cluster:
        server = cluster.bootstrap_servers
        new = NewTopic("t", num_partitions=2, replication_factor=3)
        admin = AdminClient({"bootstrap.servers": server})  # Kept until the answer is there.
        admin.create_topics([new])["t"].result(60)
        committed = transact_by_librdkafka(server, "librdkafka", 4)
        wait_until(lambda: sorted(read_by_consumer(server)) == sorted(committed))
        coordinator = coordinator_of(port_of(server.split(",")[0]), "librdkafka")
        cluster.kill(coordinator)
        left = ",".join(cluster.bootstrap_server(one) for one in range(3) if one != coordinator)
        committed += transact_by_librdkafka(left, "librdkafka", 4)
        wait_until(lambda: sorted(read_by_consumer(left)) == sorted(committed))


def coordinator_of(port: int, transactional_id: str) -> int:
    with RawConnection(port) as connection:
        answer = connection.call(
            ApiKey.FIND_COORDINATOR, 4,
            FindCoordinatorRequest(key_type=1, coordinator_keys=[transactional_id]),
        )  # fmt: skip
    assert isinstance(answer, FindCoordinatorResponse)
    return answer.coordinators[0].node_id


def read_by_consumer(server: str) -> list[bytes]:
    consumer = ForeignConsumer(
        {
            "bootstrap.servers": server,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([Place("t", 0, 0), Place("t", 1, 0)])
    values, ends = [], 0
    with contextlib.closing(consumer):
        while ends < 2:
            message = consumer.poll(10)
            assert message is not None, "neither a message nor the end"
            if message.error() is None:
                values.append(message.value() or b"")
            else:
                ends += 1
    return values
