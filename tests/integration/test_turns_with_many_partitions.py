"""02 section 12 on a broker with thousands of partitions: no turn of the loop is long.

The work of these requests grows with the partitions that they name or that the broker has: logs are
made and removed, checkpoints have an entry for each. Turns are measured as in
`test_turns_of_every_api`: in CPU time of the loop's thread.
"""

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.errors import ErrorCode
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.delete_topics import DeleteTopicsRequest
from odradek.protocol.messages.describe_transactions import DescribeTransactionsRequest
from odradek.protocol.messages.end_txn import EndTxnRequest
from odradek.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest
from odradek.protocol.messages.metadata import MetadataRequest
from tests.conformance.clients.raw import RawConnection
from tests.integration.test_turns_of_every_api import LIMIT_NS, MeasuredBroker, attempts
from tests.support.group_members import wait_until
from tests.support.logs import LogFixture

PARTITIONS = 1_000  # Of each topic.
TOPICS = ("first", "second", "third")
_NUMBERS = itertools.count()


class Crowd:
    """A broker with thousands of partitions, a client, and a bystander that asks for little."""

    def __init__(self, broker: MeasuredBroker, client: RawConnection, other: RawConnection) -> None:
        self._broker = broker
        self._client = client
        self._other = other
        self.ids: dict[str, bytes] = {}

    def call(self, api_key: ApiKey, version: int, message: Any) -> Any:
        """Asks and waits for the answer; then the bystander is served."""
        answer = self._client.call(api_key, version, message)
        for _ in range(3):
            self._other.call(ApiKey.API_VERSIONS, 0, ApiVersionsRequest())
        return answer

    def create(self, topic: str) -> None:
        created = CreatableTopic(name=topic, num_partitions=PARTITIONS, replication_factor=1)
        answer = self.call(
            ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(timeout_ms=120_000, topics=[created])
        )
        assert [row.error_code for row in answer.topics] == [ErrorCode.NONE]
        self.ids[topic] = answer.topics[0].topic_id

    def delete(self, topic: str) -> None:
        answer = self.call(
            ApiKey.DELETE_TOPICS, 4, DeleteTopicsRequest(timeout_ms=120_000, topic_names=[topic])
        )
        assert [row.error_code for row in answer.responses] == [ErrorCode.NONE]

    def fetch(self, *, session_id: int = 0, epoch: int, topics: tuple[str, ...] = TOPICS) -> Any:
        rows = [
            FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1 << 20)
            for number in range(PARTITIONS)
        ]
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=50 << 20,
            session_id=session_id,
            session_epoch=epoch,
            topics=[FetchTopic(topic_id=self.ids[name], partitions=rows) for name in topics],
        )
        answer = self.call(ApiKey.FETCH, 17, request)
        assert answer.error_code == ErrorCode.NONE
        return answer

    def longest_turn_ns(self, do: Callable[[], object]) -> int:
        self._broker.loop.turns.longest_ns = 0
        do()
        return self._broker.loop.turns.longest_ns


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crowd]:
    broker = MeasuredBroker(tmp_path_factory.mktemp("many"))
    broker.start()
    with RawConnection(broker.port) as client, RawConnection(broker.port) as other:
        made = Crowd(broker, client, other)
        for topic in TOPICS:
            made.create(topic)
        # As `odradek serve` does it: a collection counts as a turn of the request it falls into.
        with broker.paced_collector():
            yield made
    broker.stop()


def check(crowd: Crowd, do: Callable[[], object]) -> None:
    longest_ns = min(attempts(lambda: crowd.longest_turn_ns(do)))
    assert longest_ns <= LIMIT_NS, f"{longest_ns / 1e6:.0f} ms"


def test_partitions_are_made_and_removed_in_short_turns(crowd: Crowd) -> None:
    def make_and_remove() -> None:
        name = f"more-{next(_NUMBERS)}"
        crowd.create(name)
        crowd.delete(name)

    check(crowd, make_and_remove)


def test_checkpoints_of_many_logs_are_begun_in_a_short_turn(tmp_path: Path) -> None:
    """What is written is taken in one step: offsets of one moment; a thread writes them."""
    with LogFixture(tmp_path) as fixture:
        directory = fixture.log_directory
        log = fixture.open()
        # One log in the place of many: each is asked for all that is written of it.
        directory.logs.update({f"copy-{number}": log for number in range(25_000)})

        def begin() -> int:
            started_ns = time.thread_time_ns()
            directory.prepare_recovery_points()
            directory.prepare_log_starts()
            return time.thread_time_ns() - started_ns

        longest_ns = min(attempts(begin))
        for number in range(25_000):
            del directory.logs[f"copy-{number}"]
    assert longest_ns <= LIMIT_NS, f"{longest_ns / 1e6:.0f} ms"


def test_all_partitions_are_told_of_in_short_turns(crowd: Crowd) -> None:
    def ask() -> None:
        answer = crowd.call(ApiKey.METADATA, 12, MetadataRequest(topics=None))
        assert sum(len(topic.partitions) for topic in answer.topics) >= len(TOPICS) * PARTITIONS

    check(crowd, ask)


def test_all_partitions_are_fetched_in_short_turns(crowd: Crowd) -> None:
    """Without a session, at the beginning of one, and in its course."""

    def fetch() -> None:
        alone = crowd.fetch(epoch=-1)
        assert sum(len(topic.partitions) for topic in alone.responses) == len(TOPICS) * PARTITIONS
        begun = crowd.fetch(epoch=0)
        assert begun.session_id != 0
        crowd.fetch(session_id=begun.session_id, epoch=1, topics=())
        crowd.fetch(session_id=begun.session_id, epoch=-1, topics=())

    check(crowd, fetch)


def test_a_hundred_thousand_partitions_in_one_transaction(crowd: Crowd) -> None:
    """Those that do not exist are named, and nothing is added; those that do are, at once."""
    unknown, rest = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED

    def find_coordinator() -> bool:
        request = FindCoordinatorRequest(key_type=1, coordinator_keys=["crowd"])
        answer = crowd.call(ApiKey.FIND_COORDINATOR, 4, request)
        return not answer.coordinators[0].error_code

    wait_until(find_coordinator, "the coordinator is found")
    request = InitProducerIdRequest(transactional_id="crowd", transaction_timeout_ms=60_000)
    producer = crowd.call(ApiKey.INIT_PRODUCER_ID, 4, request)
    assert producer.error_code == ErrorCode.NONE

    def add(count: int, *topics: str) -> dict[int, int]:
        """The numbers of the errors, by code."""
        answer = crowd.call(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            3,
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id="crowd",
                v3_and_below_producer_id=producer.producer_id,
                v3_and_below_producer_epoch=producer.producer_epoch,
                v3_and_below_topics=[
                    AddPartitionsToTxnTopic(name=topic, partitions=range(count)) for topic in topics
                ],
            ),
        )
        return Counter(
            row.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for row in topic.results_by_partition
        )

    def state() -> tuple[str, int]:
        request = DescribeTransactionsRequest(transactional_ids=["crowd"])
        [row] = crowd.call(ApiKey.DESCRIBE_TRANSACTIONS, 0, request).transaction_states
        return row.transaction_state, sum(len(one.partitions) for one in row.topics)

    def add_too_many() -> None:
        assert add(100_000, TOPICS[0]) == {unknown: 100_000 - PARTITIONS, rest: PARTITIONS}

    nothing = AddPartitionsToTxnTransaction(transactional_id="crowd", verify_only=True, topics=[])
    in_vain = AddPartitionsToTxnRequest(transactions=[nothing] * 50_000)
    check(crowd, lambda: crowd.call(ApiKey.ADD_PARTITIONS_TO_TXN, 4, in_vain))
    check(crowd, add_too_many)
    assert state() == ("Empty", 0)
    check(crowd, lambda: add(PARTITIONS, *TOPICS))
    assert state() == ("Ongoing", len(TOPICS) * PARTITIONS)
    request_end = EndTxnRequest(
        transactional_id="crowd",
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        committed=False,
    )
    assert crowd.call(ApiKey.END_TXN, 4, request_end).error_code == ErrorCode.NONE
    wait_until(lambda: state()[0] == "CompleteAbort", "the markers are written")
