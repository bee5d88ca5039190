"""WriteTxnMarkers and TxnOffsetCommit: rights, versions and answers (10 section 9, 11)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from odradek.broker.handlers.add_partitions_to_txn import handle_add_partitions_to_txn
from odradek.broker.handlers.txn_offset_commit import handle_txn_offset_commit
from odradek.broker.handlers.write_txn_markers import handle_write_txn_markers
from odradek.coordinator.group.transactional_commits import TransactionalCommit
from odradek.coordinator.transaction.decisions import ProducerIdentity
from odradek.errors import ErrorCode
from odradek.model import TopicPartition, TransactionMarker
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
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
from odradek.protocol.primitives import MAX_ELEMENTS
from odradek.security.operations import CLUSTER_NAME, Operation, ResourceType
from tests.unit.broker.handlers.handler_fakes import BrokerFixture
from tests.unit.broker.handlers.test_produce_and_fetch_rights import Rights

_NONE = ErrorCode.NONE
ALTER = (Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
ACTION = (Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)


class Markers:
    """A `MarkerWriter` that writes all, and keeps what it got."""

    def __init__(self) -> None:
        self.written: list[TransactionMarker] = []

    def steps(
        self,
        markers: Sequence[TransactionMarker],
        respond: Callable[[list[dict[TopicPartition, ErrorCode]]], None],
    ) -> Iterator[None]:
        self.written.extend(markers)
        yield
        respond([dict.fromkeys(marker.partitions, _NONE) for marker in markers])


class Written:
    """A broker, and the markers that a client has it write."""

    def __init__(self, *denied: tuple[Operation, ResourceType, str]) -> None:
        self.broker = BrokerFixture(authorizer=Rights(*denied))
        self.markers = Markers()
        self.broker.context = replace(self.broker.context, markers=self.markers)

    def write(
        self, *, version: int = 2, listener: str | None = None
    ) -> list[list[tuple[str, int, int]]]:
        """Two markers: topic, partition and error of each."""
        topics = [
            WritableTxnMarkerTopic(name="a", partition_indexes=[0, 1, 0]),
            WritableTxnMarkerTopic(name="b", partition_indexes=[5]),
        ]
        message = WriteTxnMarkersRequest(
            markers=[
                WritableTxnMarker(
                    producer_id=producer_id,
                    producer_epoch=3,
                    transaction_result=producer_id == 1,
                    topics=topics,
                    coordinator_epoch=9,
                    transaction_version=2 if version >= 2 else 0,
                )
                for producer_id in (1, 2)
            ]
        )
        fields = {} if listener is None else {"listener": listener}
        request = self.broker.request(ApiKey.WRITE_TXN_MARKERS, message, version, **fields)
        answer = self.broker.call(handle_write_txn_markers, request)
        if answer is not None:
            self.broker.sent.append(answer)
        response = self.broker.last_sent(WriteTxnMarkersResponse)
        assert [marker.producer_id for marker in response.markers] == [1, 2]
        return [
            [
                (topic.name, row.partition_index, row.error_code)
                for topic in marker.topics
                for row in topic.partitions
            ]
            for marker in response.markers
        ]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_markers_of_a_request(version: int) -> None:
    """10 section 9.7: a partition that is named twice is written once."""
    written = Written()
    rows = [("a", 0, 0), ("a", 1, 0), ("b", 5, 0)]
    assert written.write(version=version) == [rows, rows]
    partitions = (TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 5))
    assert written.markers.written == [
        TransactionMarker(
            producer_id=producer_id,
            producer_epoch=3,
            coordinator_epoch=9,
            is_commit=producer_id == 1,
            transaction_version=2 if version == 2 else 0,
            partitions=partitions,
        )
        for producer_id in (1, 2)
    ]


@pytest.mark.parametrize(
    ("denied", "listener", "is_allowed"),
    [
        pytest.param((ALTER,), None, True, id="broker"),
        pytest.param((ACTION,), None, True, id="administrator-there"),
        pytest.param((ACTION,), "EXTERNAL", True, id="administrator"),
        pytest.param((ALTER,), "EXTERNAL", False, id="action-on-a-listener-of-clients"),
        pytest.param((ALTER, ACTION), None, False, id="neither"),
    ],
)
def test_brokers_and_administrators_write_markers(
    denied: tuple[tuple[Operation, ResourceType, str], ...],
    listener: str | None,
    is_allowed: bool,
) -> None:
    """11: CLUSTER_ACTION between brokers, or ALTER on the cluster."""
    written = Written(*denied)
    error = _NONE if is_allowed else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    for rows in written.write(listener=listener):
        assert {row[2] for row in rows} == {error}
    assert bool(written.markers.written) is is_allowed


# AddPartitionsToTxn


class Joined:
    """A coordinator to which every partition may be added; it counts them."""

    def __init__(self) -> None:
        self.partition_counts: list[int] = []

    def begin_adding(
        self,
        _transactional_id: str,
        _producer: ProducerIdentity,
        partitions: Mapping[str, frozenset[int]],
        answer: Callable[[ErrorCode], object],
        **_: int,
    ) -> None:
        self.partition_counts.append(sum(map(len, partitions.values())))
        answer(_NONE)


@pytest.mark.parametrize("version", [3, 4])
def test_a_transaction_gets_so_many_partitions_at_once(version: int) -> None:
    """02 section 12: more are refused as a whole."""
    broker, joined = BrokerFixture(), Joined()
    broker.publish_topic("t", MAX_ELEMENTS + 1)
    broker.context = replace(broker.context, transactions=joined)  # type: ignore[arg-type]  # what the handler needs of it
    for count, error in (
        (MAX_ELEMENTS, _NONE),
        (MAX_ELEMENTS + 1, ErrorCode.INVALID_REQUEST),
        (MAX_ELEMENTS + 2, ErrorCode.OPERATION_NOT_ATTEMPTED),  # One does not exist.
    ):
        topics = [AddPartitionsToTxnTopic(name="t", partitions=range(count))]
        if version < 4:
            message = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id="x", v3_and_below_topics=topics
            )
        else:
            one = AddPartitionsToTxnTransaction(transactional_id="x", topics=topics)
            message = AddPartitionsToTxnRequest(transactions=[one])
        request = broker.request(ApiKey.ADD_PARTITIONS_TO_TXN, message, version)
        assert broker.call(handle_add_partitions_to_txn, request) is None
        response = broker.last_sent(AddPartitionsToTxnResponse)
        rows = response.results_by_topic_v3_and_below
        if version >= 4:
            [result] = response.results_by_transaction
            rows = result.topic_results
        [row] = rows
        errors = [one.partition_error_code for one in row.results_by_partition]
        assert len(errors) == count
        assert set(errors[: MAX_ELEMENTS + 1]) == {error}
    assert joined.partition_counts == [MAX_ELEMENTS]


# TxnOffsetCommit


class Gate:
    """A `TransactionGate` that refuses with an error, or lets everything pass."""

    def __init__(self) -> None:
        self.error = _NONE
        self.asked: list[TransactionalCommit] = []

    def confirm(
        self, _partition: int, commit: TransactionalCommit, respond: Callable[[ErrorCode], None]
    ) -> None:
        self.asked.append(commit)
        respond(self.error)


class Committed:
    """A broker that coordinates all groups, and clients that commit."""

    def __init__(self, *denied: tuple[Operation, ResourceType, str]) -> None:
        self.broker = BrokerFixture(authorizer=Rights(*denied))
        self.broker.publish_topic("t", 250)
        self.groups = self.broker.coordination
        self.groups.lead_all()
        self.gate = Gate()
        self.groups.groups.transaction_gate = self.gate

    def commit(
        self,
        *,
        topics: Sequence[tuple[str, Sequence[int]]] = (("t", (0,)),),
        version: int = 5,
        **fields: Any,
    ) -> list[ErrorCode]:
        message = TxnOffsetCommitRequest(
            **{
                "transactional_id": "x",
                "group_id": "g",
                "producer_id": 4000,
                "producer_epoch": 0,
                **fields,
            },
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=name,
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=number, committed_offset=7, committed_metadata=None
                        )
                        for number in numbers
                    ],
                )
                for name, numbers in topics
            ],
        )
        request = self.broker.request(ApiKey.TXN_OFFSET_COMMIT, message, version)
        answer = self.broker.call(handle_txn_offset_commit, request)
        if answer is not None:
            self.broker.sent.append(answer)
        response = self.broker.last_sent(TxnOffsetCommitResponse)
        assert [topic.name for topic in response.topics] == [name for name, _ in topics]
        return [ErrorCode(row.error_code) for topic in response.topics for row in topic.partitions]

    @property
    def staged(self) -> int:
        if "g" not in self.groups.registry.groups:
            return 0
        return len(self.groups.registry.offsets.of("g").staged_keys())


@pytest.mark.parametrize("version", range(6))
def test_every_version_stages_offsets(version: int) -> None:
    committed = Committed()
    assert committed.commit(version=version) == [_NONE]
    assert committed.staged == 1
    assert committed.gate.asked[0].version == version


@pytest.mark.parametrize(
    ("denied", "error"),
    [
        ((Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "x"), 53),
        ((Operation.READ, ResourceType.GROUP, "g"), 30),
        ((Operation.READ, ResourceType.TOPIC, "t"), 29),
    ],
    ids=["id", "group", "topic"],
)
def test_rights_of_a_commit(denied: tuple[Operation, ResourceType, str], error: int) -> None:
    """10 section 9.5."""
    committed = Committed(denied)
    assert committed.commit() == [error]
    assert committed.staged == 0


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"producer_id": -1}, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ({"producer_epoch": -1}, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
    ],
    ids=str,
)
def test_commits_of_no_producer_or_group(fields: dict[str, Any], error: ErrorCode) -> None:
    committed = Committed()
    assert committed.commit(**fields) == [error]
    assert committed.staged == 0


def test_partitions_that_do_not_exist() -> None:
    committed = Committed()
    errors = committed.commit(topics=[("t", (0, 999)), ("gone", (0,))])
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert errors == [_NONE, unknown, unknown]
    assert committed.staged == 1
    assert committed.commit(topics=[("gone", (0,))]) == [unknown]
    assert committed.commit(topics=[]) == []


@pytest.mark.parametrize(("version", "told"), [(0, 15), (1, 15), (2, 14), (5, 14)])
def test_old_clients_do_not_know_of_loads(version: int, told: int) -> None:
    """10 section 9.5: 15 in place of 14."""
    committed = Committed()
    committed.gate.error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert committed.commit(version=version) == [told]


def test_a_long_commit_is_made_in_portions() -> None:
    """02 section 12: the first asks the coordinator, the others follow it."""
    committed = Committed()
    assert committed.commit(topics=[("t", range(250))]) == [_NONE] * 250
    assert committed.staged == 250
    assert [len(commit.topics[0][1]) for commit in committed.gate.asked] == [100, 100, 50]
