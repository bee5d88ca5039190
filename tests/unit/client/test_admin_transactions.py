"""The administrator's calls about transactions, beside a broker that says what it is told to."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from odradek.aio import Admin
from odradek.client.admin import OpenTransaction, TransactionDescription
from odradek.client.surroundings import ClientSurroundings
from odradek.errors import ApiError, ErrorCode
from odradek.model import TopicPartition
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.enums import CoordinatorType
from odradek.protocol.messages import describe_producers as producers
from odradek.protocol.messages import describe_transactions as described
from odradek.protocol.messages import find_coordinator as finding
from odradek.protocol.messages import list_transactions as listed
from odradek.protocol.messages import update_features as features
from odradek.protocol.messages import write_txn_markers as markers
from odradek.protocol.schema import replace
from tests.support.scripted_broker import HANG_UP, ScriptedBroker, scripted, told_topic

T = TypeVar("T")

TP = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)
MINUTE_MS = 60_000


def with_admin(
    work: Callable[[Admin], Awaitable[T]], prepare: Callable[[ScriptedBroker], None]
) -> tuple[T, ScriptedBroker]:
    """Runs calls of an administrator who is patient for five seconds."""

    async def run() -> tuple[T, ScriptedBroker]:
        async with scripted() as broker:
            broker.topics["t"] = told_topic("t", partitions=2)
            broker.will_answer(ApiKey.FIND_COORDINATOR, coordinators)
            prepare(broker)
            settings: dict[str, Any] = {
                "bootstrap_servers": f"127.0.0.1:{broker.port}",
                "default_api_timeout_ms": 5_000,
                "retry_backoff_ms": 1,
                "retry_backoff_max_ms": 2,
            }
            async with Admin(**settings) as admin:
                return await work(admin), broker

    return asyncio.run(run())


def coordinators(request: Any) -> finding.FindCoordinatorResponse:
    assert request.key_type == CoordinatorType.TRANSACTION
    if not request.coordinator_keys:
        return finding.FindCoordinatorResponse(node_id=0, host="127.0.0.1", port=1)
    return finding.FindCoordinatorResponse(
        coordinators=[finding.Coordinator(key=key, node_id=0) for key in request.coordinator_keys]
    )


def description(
    name: str, producer_id: int, *partitions: int, error: int = 0
) -> described.TransactionState:
    return described.TransactionState(
        error_code=error,
        transactional_id=name,
        transaction_state="Ongoing",
        producer_id=producer_id,
        transaction_start_time_ms=7,
        topics=[described.TopicData(topic="t", partitions=list(partitions))] if partitions else (),
    )


def states(*rows: described.TransactionState) -> described.DescribeTransactionsResponse:
    return described.DescribeTransactionsResponse(transaction_states=rows)


# Descriptions


def describe(admin: Admin) -> Awaitable[dict[str, TransactionDescription | ApiError]]:
    return admin.describe_transactions(["a", "b", "a"])


def test_a_coordinator_that_has_moved_is_looked_up_again() -> None:
    """15:16: and an id that is answered is not asked for again."""
    moved = description("b", -1, error=ErrorCode.NOT_COORDINATOR)

    told, broker = with_admin(
        describe,
        lambda broker: broker.will_answer(
            ApiKey.DESCRIBE_TRANSACTIONS,
            states(description("a", 5, 1, 0), moved),
            states(description("b", 6)),
        ),
    )

    assert told["a"] == TransactionDescription("a", 0, 5, 0, "Ongoing", 0, 7, (TP, OTHER))
    assert isinstance(second := told["b"], TransactionDescription)
    assert second.producer_id == 6
    asked = [one.transactional_ids for one in broker.received(ApiKey.DESCRIBE_TRANSACTIONS)]
    assert [list(one) for one in asked] == [["a", "b"], ["b"]]
    assert len(broker.received(ApiKey.FIND_COORDINATOR)) == 2


def test_brokers_that_find_one_coordinator_at_a_time_are_asked_so() -> None:
    def prepare(broker: ScriptedBroker) -> None:
        broker.versions[ApiKey.FIND_COORDINATOR] = (0, 3)
        broker.will_answer(
            ApiKey.DESCRIBE_TRANSACTIONS, states(description("a", 5), description("b", 6))
        )

    told, broker = with_admin(describe, prepare)

    assert [one.key for one in broker.received(ApiKey.FIND_COORDINATOR)] == ["a", "b"]
    assert all(isinstance(one, TransactionDescription) for one in told.values())


def test_an_id_that_is_left_out_of_the_answer_is_an_error() -> None:
    told, _ = with_admin(
        describe,
        lambda broker: broker.will_answer(
            ApiKey.DESCRIBE_TRANSACTIONS, states(description("a", 5))
        ),
    )

    assert isinstance(missing := told["b"], ApiError)
    assert missing.code is ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_duration_below_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="min_duration_ms=-1"):
        with_admin(lambda admin: admin.list_transactions(min_duration_ms=-1), lambda _: None)


# Hanging transactions


def producer(producer_id: int, start: int, *, minutes_ago: int = 60) -> producers.ProducerState:
    """Its time counts from now; `in_partition` adds the time at which the test runs."""
    return producers.ProducerState(
        producer_id=producer_id,
        producer_epoch=3,
        coordinator_epoch=2,
        last_timestamp=-minutes_ago * MINUTE_MS,
        current_txn_start_offset=start,
    )


def in_partition(*rows: producers.ProducerState) -> producers.DescribeProducersResponse:
    now_ms = ClientSurroundings.system().clock.now_ms()
    dated = [replace(row, last_timestamp=now_ms + row.last_timestamp) for row in rows]
    partition = producers.PartitionResponse(partition_index=0, active_producers=dated)
    return producers.DescribeProducersResponse(
        topics=[producers.TopicResponse(name="t", partitions=[partition])]
    )


def known(*rows: tuple[str, int]) -> listed.ListTransactionsResponse:
    return listed.ListTransactionsResponse(
        transaction_states=[
            listed.TransactionState(transactional_id=name, producer_id=producer_id)
            for name, producer_id in rows
        ]
    )


HANGS = producer(1, 10)


@pytest.mark.parametrize(
    ("first", "listing", "descriptions", "second", "expected"),
    [
        pytest.param(HANGS, known(), (), HANGS, [1], id="no id has that producer"),
        pytest.param(
            HANGS,
            known(("a", 1)),
            (description("a", 1, error=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND),),
            HANGS,
            [1],
            id="the coordinator has forgotten the id",
        ),
        pytest.param(
            HANGS, known(("a", 1)), (description("a", 1, 1),), HANGS, [1],
            id="the transaction is in another partition",
        ),
        pytest.param(
            HANGS, known(("a", 1)), (description("a", 1, 0),), HANGS, [],
            id="the coordinator will write a marker here",
        ),
        pytest.param(producer(1, -1), known(), (), HANGS, [], id="nothing is open"),
        pytest.param(HANGS, known(), (), producer(1, -1), [], id="it has ended meanwhile"),
        pytest.param(HANGS, known(), (), producer(1, 99), [], id="another one is open meanwhile"),
    ],
)  # fmt: skip
def test_what_hangs(
    first: producers.ProducerState,
    listing: listed.ListTransactionsResponse,
    descriptions: tuple[described.TransactionState, ...],
    second: producers.ProducerState,
    expected: list[int],
) -> None:
    """10:9.8: Kafka's rule, and another look at the end."""

    def prepare(broker: ScriptedBroker) -> None:
        broker.will_answer(ApiKey.DESCRIBE_PRODUCERS, in_partition(first), in_partition(second))
        broker.will_answer(ApiKey.LIST_TRANSACTIONS, listing)
        broker.will_answer(ApiKey.DESCRIBE_TRANSACTIONS, states(*descriptions))

    found, broker = with_admin(
        lambda admin: admin.find_hanging_transactions(partitions=[TP]), prepare
    )

    assert [one.producer_id for one in found] == expected
    assert all(one[:-1] == (TP, 1, 3, 2, 10) for one in found)
    for request in broker.received(ApiKey.LIST_TRANSACTIONS):
        assert list(request.producer_id_filters) == [1]


def test_what_is_young_does_not_hang() -> None:
    """10:9.8."""
    young = producer(1, 10, minutes_ago=14)  # Made now: the borders are minutes of this clock.
    found, _ = with_admin(
        lambda admin: admin.find_hanging_transactions(partitions=[TP]),
        lambda broker: broker.will_answer(ApiKey.DESCRIBE_PRODUCERS, in_partition(young)),
    )
    assert found == []


def test_a_description_that_fails_is_not_taken_for_an_id_that_is_not_known() -> None:
    def prepare(broker: ScriptedBroker) -> None:
        broker.will_answer(ApiKey.DESCRIBE_PRODUCERS, in_partition(HANGS))
        broker.will_answer(ApiKey.LIST_TRANSACTIONS, known(("a", 1)))
        refused = description("a", 1, error=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        broker.will_answer(ApiKey.DESCRIBE_TRANSACTIONS, states(refused))

    with pytest.raises(ApiError) as caught:
        with_admin(lambda admin: admin.find_hanging_transactions(partitions=[TP]), prepare)

    assert caught.value.code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_a_broker_is_searched_for_the_partitions_that_it_has() -> None:
    def prepare(broker: ScriptedBroker) -> None:
        broker.topics["elsewhere"] = told_topic("elsewhere", leader=7)
        broker.will_answer(ApiKey.DESCRIBE_PRODUCERS, empty)

    def empty(request: Any) -> producers.DescribeProducersResponse:
        return producers.DescribeProducersResponse(
            topics=[
                producers.TopicResponse(
                    name=topic.name,
                    partitions=[
                        producers.PartitionResponse(partition_index=index)
                        for index in topic.partition_indexes
                    ],
                )
                for topic in request.topics
            ]
        )

    found, broker = with_admin(lambda admin: admin.find_hanging_transactions(broker=0), prepare)

    assert found == []
    (request,) = broker.received(ApiKey.DESCRIBE_PRODUCERS)
    assert [(one.name, list(one.partition_indexes)) for one in request.topics] == [("t", [0, 1])]
    assert broker.received(ApiKey.LIST_TRANSACTIONS) == []


# Aborts

OPEN = OpenTransaction(TP, 1, 3, -1, 10, 0)


def written(*codes: ErrorCode) -> list[markers.WriteTxnMarkersResponse]:
    return [
        markers.WriteTxnMarkersResponse(
            markers=[
                markers.WritableTxnMarkerResult(
                    producer_id=1,
                    topics=[
                        markers.WritableTxnMarkerTopicResult(
                            name="t",
                            partitions=[
                                markers.WritableTxnMarkerPartitionResult(
                                    partition_index=0, error_code=code
                                )
                            ],
                        )
                    ],
                )
            ]
        )
        for code in codes
    ]


def abort(*answers: Any) -> tuple[ApiError | None, list[Any]]:
    results, broker = with_admin(
        lambda admin: admin.abort_transactions([OPEN]),
        lambda broker: broker.will_answer(ApiKey.WRITE_TXN_MARKERS, *answers),
    )
    return results[OPEN], broker.received(ApiKey.WRITE_TXN_MARKERS)


def test_an_abort_is_repeated_where_the_leader_has_moved() -> None:
    error, requests = abort(*written(ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE))

    assert error is None
    assert len(requests) == 2
    (marker,) = requests[0].markers
    assert (marker.producer_id, marker.producer_epoch) == (1, 3)
    assert not marker.transaction_result
    # -1 is the epoch of no coordinator.
    assert marker.coordinator_epoch == 0


def test_an_abort_is_not_repeated_after_a_lost_answer() -> None:
    """A second marker could end the producer's next transaction, which has the same epoch."""
    error, requests = abort(HANG_UP)

    assert error is not None
    assert "whether it was done is unknown" in str(error)
    assert len(requests) == 1


@pytest.mark.parametrize(
    "code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED]
)
def test_an_abort_that_a_leader_refuses_is_an_error(code: ErrorCode) -> None:
    """11:27."""
    error, requests = abort(*written(code))

    assert error is not None
    assert error.code is code
    assert "producer 1 in t-0" in str(error)
    assert len(requests) == 1


# Features


def test_older_brokers_tell_an_error_for_each_feature() -> None:
    """11:57."""

    def prepare(broker: ScriptedBroker) -> None:
        broker.versions[ApiKey.UPDATE_FEATURES] = (1, 1)
        broker.will_answer(
            ApiKey.UPDATE_FEATURES,
            features.UpdateFeaturesResponse(error_code=ErrorCode.NOT_CONTROLLER),
            features.UpdateFeaturesResponse(
                results=[
                    features.UpdatableFeatureResult(feature="a"),
                    features.UpdatableFeatureResult(
                        feature="b",
                        error_code=ErrorCode.INVALID_UPDATE_VERSION,
                        error_message="too high",
                    ),
                ]
            ),
        )

    results, broker = with_admin(lambda admin: admin.update_features({"a": 1, "b": 9}), prepare)

    assert results["a"] is None
    assert str(results["b"]) == "feature 'b': too high"
    assert len(broker.received(ApiKey.UPDATE_FEATURES)) == 2


def test_newer_brokers_tell_one_error_for_all() -> None:
    refused = features.UpdateFeaturesResponse(
        error_code=ErrorCode.INVALID_UPDATE_VERSION, error_message="too high"
    )

    results, _ = with_admin(
        lambda admin: admin.update_features({"a": 1, "b": 9}),
        lambda broker: broker.will_answer(ApiKey.UPDATE_FEATURES, refused),
    )

    assert {str(error) for error in results.values()} == {"features: too high"}


def test_no_levels_ask_nobody() -> None:
    results, broker = with_admin(lambda admin: admin.update_features({}), lambda _: None)

    assert results == {}
    assert broker.received(ApiKey.UPDATE_FEATURES) == []
