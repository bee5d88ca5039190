"""Damaged and hostile transactions on a broker's socket.

Each gets an error by its name; nothing of it is stored, and no reader of committed records waits.
"""

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from odradek import Admin
from odradek.coordinator.transaction.records import (
    TransactionRecord,
    encode_transaction_key,
    encode_transaction_value,
    parse_transaction_key,
    parse_transaction_value,
)
from odradek.errors import DecodeError, ErrorCode
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.envelope import encode_request
from odradek.protocol.headers import RequestHeader
from odradek.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from odradek.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from odradek.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from odradek.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from odradek.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from odradek.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from odradek.records.batch import iter_headers
from odradek.records.builder import build_batch
from odradek.records.record import read_records
from odradek.testing import EmbeddedBroker
from tests.conformance.clients.raw import RawConnection
from tests.integration.test_transactions import (
    NONE,
    SETTINGS,
    RawTransaction,
    described,
    port_of,
    read,
    read_values,
    wait_until,
)
from tests.support.group_members import create_topic, wait_for_coordinator

pytestmark = pytest.mark.slow

LONGEST_ID = "i" * 32_767
FOREIGN_ID = ErrorCode.INVALID_PRODUCER_ID_MAPPING
FENCED = ErrorCode.PRODUCER_FENCED
OLD_EPOCH = ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with EmbeddedBroker(data_dir=tmp_path_factory.mktemp("bad"), settings=SETTINGS) as broker:
        number = port_of(broker.bootstrap_servers)
        create_topic(number, "t", 2)
        with RawTransaction(number, "first") as producer:
            producer.init()
        wait_for_coordinator(number, "g")
        yield number


@pytest.fixture(autouse=True)
def nobody_waits(port: int) -> Iterator[None]:
    """Nothing bad is stored, and readers get what comes next."""
    yield
    for number in range(2):
        assert b"bad" not in read(port, number, is_committed=False)[0]
        with RawTransaction(port, f"bystander-{number}") as producer:
            producer.init()
            value = b"%d" % time.monotonic_ns()
            assert producer.produce(number, value) is NONE
            assert producer.end(is_commit=True) is NONE
            wait_until(partial(is_read, port, number, value))


def is_read(port: int, number: int, value: bytes) -> bool:
    return value in read(port, number)[0]


def transactional(
    producer_id: int,
    *,
    epoch: int = 0,
    sequence: int = 0,
    is_transactional: bool = True,
    value: bytes = b"bad",
) -> bytes:
    record = (time.time_ns() // 1_000_000, None, value, ())
    return bytes(
        build_batch(
            [record],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=is_transactional,
        )
    )


def produce(
    port: int, transactional_id: str | None, batches: Mapping[int, bytes], *, version: int = 12
) -> list[ErrorCode]:
    """The error of each partition of `t`."""
    rows = [PartitionProduceData(index=index, records=data) for index, data in batches.items()]
    with RawConnection(port) as connection:
        answer = connection.call(
            ApiKey.PRODUCE,
            version,
            ProduceRequest(
                transactional_id=transactional_id,
                acks=-1,
                timeout_ms=5_000,
                topic_data=[TopicProduceData(name="t", partition_data=rows)],
            ),
        )
    assert isinstance(answer, ProduceResponse)
    return [ErrorCode(row.error_code) for row in answer.responses[0].partition_responses]


@pytest.mark.parametrize("version", [11, 12])
def test_a_transactional_batch_without_an_id(port: int, version: int) -> None:
    with RawTransaction(port, "without-id") as producer:
        producer.init()
        batch = transactional(producer.producer_id, epoch=producer.epoch)
        for missing in (None, ""):
            errors = produce(port, missing, {0: batch}, version=version)
            assert errors == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]
        assert described(port, "without-id") == ("Empty", [])


@pytest.mark.parametrize("version", [10, 11, 12])
def test_a_batch_with_the_id_of_another_producer(port: int, version: int) -> None:
    with RawTransaction(port, "mine") as mine, RawTransaction(port, "yours") as yours:
        mine.init()
        yours.init()
        batch = transactional(mine.producer_id, epoch=mine.epoch)
        assert produce(port, "yours", {0: batch}, version=version) == [FOREIGN_ID]
        assert produce(port, "nobody's", {0: batch}, version=version) == [FOREIGN_ID]
        for name in ("mine", "yours"):
            assert described(port, name) == ("Empty", [])


def test_two_producers_in_one_request(port: int) -> None:
    with RawTransaction(port, "one-of-two") as one, RawTransaction(port, "two-of-two") as two:
        one.init()
        two.init()
        for other in (
            transactional(two.producer_id, epoch=two.epoch),
            transactional(one.producer_id, epoch=one.epoch + 1),
        ):
            batches = {0: transactional(one.producer_id, epoch=one.epoch), 1: other}
            assert produce(port, "one-of-two", batches) == [FOREIGN_ID] * 2
        assert described(port, "one-of-two") == ("Empty", [])


def test_a_plain_batch_in_a_transactional_request(port: int) -> None:
    """15:KAFKA-14916: it is a plain one, unless its producer has a transaction open there."""
    with RawTransaction(port, "plain") as producer:
        producer.init()
        batches = {
            0: transactional(producer.producer_id, epoch=producer.epoch, value=b"open"),
            1: bytes(build_batch([(time.time_ns() // 1_000_000, None, b"plain", ())])),
        }
        assert produce(port, "plain", batches) == [NONE] * 2
        assert b"plain" in read(port, 1)[0]
        assert described(port, "plain") == ("Ongoing", [("t", [0])])
        outside = transactional(
            producer.producer_id, epoch=producer.epoch, sequence=1, is_transactional=False
        )
        assert produce(port, "plain", {0: outside}) == [ErrorCode.INVALID_TXN_STATE]
        assert producer.end(is_commit=False) is NONE


def ask(port: int, api_key: ApiKey, version: int, message: Any) -> Any:
    with RawConnection(port) as connection:
        return connection.call(api_key, version, message)


def init(port: int, transactional_id: str, producer_id: int = -1, epoch: int = -1) -> ErrorCode:
    answer = ask(
        port, ApiKey.INIT_PRODUCER_ID, 4,
        InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=60_000,
            producer_id=producer_id, producer_epoch=epoch,
        ),
    )  # fmt: skip
    assert isinstance(answer, InitProducerIdResponse)
    return ErrorCode(answer.error_code)


def add(port: int, transactional_id: str, producer_id: int, epoch: int) -> ErrorCode:
    answer = ask(
        port, ApiKey.ADD_PARTITIONS_TO_TXN, 3,
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
        ),
    )  # fmt: skip
    assert isinstance(answer, AddPartitionsToTxnResponse)
    [topic] = answer.results_by_topic_v3_and_below
    return ErrorCode(topic.results_by_partition[0].partition_error_code)


def add_offsets(port: int, transactional_id: str, producer_id: int, epoch: int) -> ErrorCode:
    answer = ask(
        port, ApiKey.ADD_OFFSETS_TO_TXN, 3,
        AddOffsetsToTxnRequest(
            transactional_id=transactional_id, producer_id=producer_id, producer_epoch=epoch,
            group_id="g",
        ),
    )  # fmt: skip
    assert isinstance(answer, AddOffsetsToTxnResponse)
    return ErrorCode(answer.error_code)


def end(
    port: int, transactional_id: str, producer_id: int, epoch: int, *, version: int = 5
) -> ErrorCode:
    answer = ask(
        port, ApiKey.END_TXN, version,
        EndTxnRequest(
            transactional_id=transactional_id, producer_id=producer_id, producer_epoch=epoch,
            committed=True,
        ),
    )  # fmt: skip
    assert isinstance(answer, EndTxnResponse)
    return ErrorCode(answer.error_code)


def commit_offset(
    port: int, transactional_id: str, producer_id: int, epoch: int, *, version: int = 5
) -> ErrorCode:
    offset = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    answer = ask(
        port, ApiKey.TXN_OFFSET_COMMIT, version,
        TxnOffsetCommitRequest(
            transactional_id=transactional_id, group_id="g", producer_id=producer_id,
            producer_epoch=epoch,
            topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[offset])],
        ),
    )  # fmt: skip
    assert isinstance(answer, TxnOffsetCommitResponse)
    return ErrorCode(answer.topics[0].partitions[0].error_code)


def test_an_empty_id(port: int) -> None:
    invalid = ErrorCode.INVALID_REQUEST
    assert init(port, "") is invalid
    assert add(port, "", 4000, 0) is invalid
    assert add_offsets(port, "", 4000, 0) is invalid
    assert end(port, "", 4000, 0) is invalid
    assert commit_offset(port, "", 4000, 0) is invalid


def test_the_longest_id_is_one_like_others(port: int) -> None:
    """32 KB, the longest string of the protocol: it is stored, and found by the next broker."""
    with RawTransaction(port, LONGEST_ID) as producer:
        producer.init()
        assert add(port, LONGEST_ID, producer.producer_id, producer.epoch) is NONE
        assert producer.produce(0, b"of the longest id") is NONE
        assert producer.end(is_commit=True) is NONE
    wait_until(lambda: b"of the longest id" in read(port, 0)[0])
    longest = encode_request(
        RequestHeader(ApiKey.INIT_PRODUCER_ID, 4, 1, "raw"),
        InitProducerIdRequest(transactional_id=LONGEST_ID, transaction_timeout_ms=60_000),
    )
    # Behind a compact length, which could be any.
    longer = longest.replace(b"\x80\x80\x02i", b"\x81\x80\x02ii")
    assert len(longer) == len(longest) + 1
    with RawConnection(port) as connection:
        connection.send_frame(longer)
        assert connection.is_closed_by_peer()


@pytest.mark.parametrize("epoch", [-1, 32_767])
def test_impossible_epochs(port: int, epoch: int) -> None:
    with RawTransaction(port, f"epoch {epoch}") as producer:
        producer.init()
        name, producer_id = producer.transactional_id, producer.producer_id
        half_given = ErrorCode.INVALID_REQUEST
        assert init(port, name, producer_id, epoch) is (half_given if epoch < 0 else FENCED)
        assert add(port, name, producer_id, epoch) is FENCED
        assert add_offsets(port, name, producer_id, epoch) is FENCED
        for version, refused in ((1, OLD_EPOCH), (4, FENCED), (5, FENCED)):
            assert end(port, name, producer_id, epoch, version=version) is refused
        refused = FOREIGN_ID if epoch < 0 else OLD_EPOCH
        for version in (3, 4, 5):
            assert commit_offset(port, name, producer_id, epoch, version=version) is refused
        batch = transactional(producer_id, epoch=epoch)
        refused = ErrorCode.INVALID_RECORD if epoch < 0 else OLD_EPOCH
        for version in (10, 11, 12):
            assert produce(port, name, {0: batch}, version=version) == [refused]
        assert described(port, name) == ("Empty", [])
        assert producer.produce(0, b"of the right epoch") is NONE
        assert producer.end(is_commit=False) is NONE


# Markers


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"producer_id": -1}, ErrorCode.INVALID_REQUEST),
        ({"producer_epoch": -1}, ErrorCode.INVALID_REQUEST),
        ({"coordinator_epoch": -1}, ErrorCode.INVALID_REQUEST),
        ({"transaction_version": -1}, ErrorCode.INVALID_REQUEST),
        ({"producer_epoch": 3}, OLD_EPOCH),
        ({"producer_epoch": 4, "transaction_version": 2}, OLD_EPOCH),
        ({"partition": 7}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition": -1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"topic": "nowhere"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"topic": ""}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
    ids=str,
)
def test_malformed_markers_end_nothing(
    port: int, fields: dict[str, Any], expected: ErrorCode
) -> None:
    with RawTransaction(port, "marked") as producer:
        producer.init()
        while producer.epoch < 4:
            producer.init()
        assert producer.produce(0, b"open") is NONE
        defaults = {
            "producer_epoch": producer.epoch, "coordinator_epoch": 0, "transaction_version": 0
        }  # fmt: skip
        marked = {"producer_id": producer.producer_id, **defaults, **fields}
        assert mark(port, **marked) is expected
        assert described(port, "marked") == ("Ongoing", [("t", [0])])
        assert b"open" not in read(port, 0)[0][-1:], "the transaction is open"
        assert producer.end(is_commit=False) is NONE


def mark(
    port: int,
    producer_id: int,
    *,
    topic: str = "t",
    partition: int = 0,
    is_commit: bool = True,
    **fields: int,
) -> ErrorCode:
    marker = WritableTxnMarker(
        producer_id=producer_id,
        transaction_result=is_commit,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])],
        **fields,
    )
    answer = ask(port, ApiKey.WRITE_TXN_MARKERS, 2, WriteTxnMarkersRequest(markers=[marker]))
    assert isinstance(answer, WriteTxnMarkersResponse)
    [row] = answer.markers
    return ErrorCode(row.topics[0].partitions[0].error_code)


# The log of the coordinator


def append_to_log(path: Path, records: list[tuple[bytes | None, bytes | None]]) -> None:
    """Appends batches to a log that no broker has open, as another program might have."""
    content = path.read_bytes()
    headers = [header for _, header in iter_headers(content)]
    offset = headers[-1].next_offset if headers else 0
    epoch = headers[-1].leader_epoch if headers else 0
    with path.open("ab") as file:
        for key, value in records:
            record = (time.time_ns() // 1_000_000, key, value, ())
            file.write(build_batch([record], base_offset=offset, leader_epoch=epoch))
            offset += 1
    # Else the index and the marker of an orderly stop would vouch for the end of before.
    for marker in path.parent.parent.glob(".kafka_cleanshutdown"):
        marker.unlink()


def stored_states(path: Path) -> dict[str, TransactionRecord]:
    content = path.read_bytes()
    found = {}
    for position, header in iter_headers(content):
        for record in read_records(content, position=position, header=header):
            with contextlib.suppress(DecodeError):
                found[parse_transaction_key(record.key or b"")] = parse_transaction_value(
                    record.value or b""
                )
    return found


def test_records_of_the_coordinator_that_cannot_be_read(tmp_path: Path) -> None:
    """Unknown tags and versions, torn values: the rest is served, and what hangs is found."""
    settings = {**SETTINGS, "transaction.state.log.num.partitions": "1"}
    names = ("sound", "torn", "later", "tagged")
    with EmbeddedBroker(data_dir=tmp_path, settings=settings) as broker:
        number = port_of(broker.bootstrap_servers)
        create_topic(number, "t", len(names))
        producers = {}
        for index, name in enumerate(names):
            with RawTransaction(number, name) as producer:
                producer.init()
                assert producer.produce(index, b"by " + name.encode()) is NONE
                producers[name] = producer
    [path] = tmp_path.glob("**/__transaction_state-0/00000000000000000000.log")
    states = stored_states(path)
    assert set(states) == set(names)
    tagged = replace(states["tagged"], unknown_tags=((77, b"of a later release"),))

    def value_of(name: str) -> bytes:
        return encode_transaction_value(states[name], 1)

    append_to_log(
        path,
        [
            (encode_transaction_key("torn"), value_of("torn")[:-3]),
            (encode_transaction_key("later"), b"\x00\x07" + value_of("later")[2:]),
            (encode_transaction_key("tagged"), encode_transaction_value(tagged, 1)),
            (b"\x00\x09" + encode_transaction_key("sound")[2:], b"of a later key"),
            (b"\x00", value_of("sound")),
            (b"", b""),
            (None, value_of("sound")),
        ],
    )
    with EmbeddedBroker(data_dir=tmp_path, settings=settings) as broker:
        number = port_of(broker.bootstrap_servers)
        wait_until(lambda: described(number, "sound") == ("Ongoing", [("t", [0])]))
        for index, name in enumerate(names):
            kept = producers[name]
            ended = end(number, name, kept.producer_id, kept.epoch)
            if name in ("torn", "later"):
                assert ended is FOREIGN_ID
                assert init(number, name) is NONE, "it begins anew"
            else:
                assert ended is NONE
                wait_until(partial(read_values, number, index))
        # What the lost ids left open has no coordinator any more, and an administrator ends it.
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            hanging = admin.find_hanging_transactions(topics=["t"], max_timeout_ms=0)
            assert sorted(one.partition.partition for one in hanging) == [1, 2]
            assert set(admin.abort_transactions(hanging).values()) == {None}
            assert admin.find_hanging_transactions(topics=["t"], max_timeout_ms=0) == []
        for index in (1, 2):
            with RawTransaction(number, f"next-{index}") as producer:
                producer.init()
                assert producer.produce(index, b"next") is NONE
                assert producer.end(is_commit=True) is NONE
            wait_until(partial(read_values, number, index))
            assert read_values(number, index) == [b"next"]
    kept_tags = stored_states(path)["tagged"].unknown_tags
    assert kept_tags == tagged.unknown_tags, "written again as they came"
