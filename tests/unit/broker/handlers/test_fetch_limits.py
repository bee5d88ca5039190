"""What one Fetch may cost: partitions named twice, bytes, pieces of files."""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from odradek.broker.handlers.fetch import handle_fetch
from odradek.metadata.delta import HostedPartition, LocalDelta
from odradek.metadata.image import PartitionState
from odradek.model import AppendOrigin, TopicPartition
from odradek.network.request import SendResponse
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.envelope import parse_response
from odradek.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from odradek.replication.reading import MAX_PIECES
from odradek.storage.segments.file_slice import FileSlice
from tests.support.logs import batch
from tests.support.replicas import apply_local
from tests.unit.broker.handlers.handler_fakes import BROKER_ID, BrokerFixture

pytestmark = pytest.mark.slow  # Many logs.

PARTITIONS = MAX_PIECES + 20
SIZE = len(batch(1))
FOLLOWER_ID = 1


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerFixture]:
    """Leads all partitions of topic t, with one batch in each."""
    made = BrokerFixture(log_dirs=[str(tmp_path)])
    made.log_manager.startup()
    made.publish_topic("t", PARTITIONS)
    states = [
        PartitionState(
            topic="t",
            partition=number,
            leader=BROKER_ID,
            leader_epoch=0,
            isr=(BROKER_ID,),
            replicas=(BROKER_ID, FOLLOWER_ID),
        )
        for number in range(PARTITIONS)
    ]
    hosted = tuple(HostedPartition(state=state, topic_id=None, is_new=True) for state in states)
    apply_local(
        made.replicas, LocalDelta(controller_id=BROKER_ID, controller_epoch=1, hosted=hosted)
    )
    for number in range(PARTITIONS):
        made.replicas.appends.append_records(
            timeout_ms=0,
            required_acks=1,
            internal_topics_allowed=False,
            origin=AppendOrigin.CLIENT,
            entries={TopicPartition("t", number): memoryview(bytearray(batch(1)))},
            respond=lambda _results: None,
        )
    yield made
    made.log_manager.shutdown()


def fetch(
    broker: BrokerFixture,
    partitions: Sequence[int],
    *,
    topic: str = "t",
    max_wait_ms: int = 0,
    session: tuple[int, int] = (0, -1),
    **fields: int,
) -> None:
    rows = [
        FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1 << 20)
        for number in partitions
    ]
    message = FetchRequest(
        replica_id=fields.get("replica_id", -1),
        max_wait_ms=max_wait_ms,
        min_bytes=fields.get("min_bytes", 1),
        max_bytes=1 << 30,
        session_id=session[0],
        session_epoch=session[1],
        topics=[FetchTopic(topic=topic, partitions=rows)],
    )
    assert broker.call(handle_fetch, broker.request(ApiKey.FETCH, message, 12)) is None


def pieces(broker: BrokerFixture) -> list[FileSlice]:
    """Those of the answer that was given last."""
    response = broker.sent.pop()
    assert isinstance(response, SendResponse)
    return [chunk for chunk in response.chunks if isinstance(chunk, FileSlice)]


def test_a_partition_that_comes_twice_is_read_once(broker: BrokerFixture) -> None:
    """02 §12: 11 KB that named one partition 700 times made every produce to it take 0.7 s."""
    fetch(broker, [0] * 700 + [1])
    assert len(pieces(broker)) == 2


def test_a_partition_that_comes_twice_is_waited_for_once(broker: BrokerFixture) -> None:
    fetch(broker, [0] * 700, max_wait_ms=1_000, min_bytes=1 << 20)
    assert broker.replicas.purgatories.fetch.watched == 1


@pytest.mark.parametrize("replica_id", [-1, FOLLOWER_ID])
def test_fetch_max_bytes_bounds_every_answer(broker: BrokerFixture, replica_id: int) -> None:
    """fetch.max.bytes is for consumers and followers alike."""
    broker.context = dataclasses.replace(broker.context, max_fetch_bytes=3 * SIZE)
    fetch(broker, range(10), replica_id=replica_id)
    assert sum(piece.length for piece in pieces(broker)) == 3 * SIZE


def test_an_answer_has_so_many_pieces_at_most(broker: BrokerFixture) -> None:
    """02 §12: each keeps a descriptor until it is sent."""
    fetch(broker, range(PARTITIONS))
    assert len(pieces(broker)) == MAX_PIECES


@pytest.mark.parametrize("min_bytes", [(MAX_PIECES + 1) * SIZE, 1 << 30])
def test_an_answer_that_can_hold_no_more_pieces_is_not_waited_for(
    broker: BrokerFixture, min_bytes: int
) -> None:
    fetch(broker, range(PARTITIONS), max_wait_ms=1_000, min_bytes=min_bytes)
    assert len(pieces(broker)) == MAX_PIECES


def test_partitions_beyond_the_pieces_come_first_the_next_time(broker: BrokerFixture) -> None:
    fetch(broker, range(PARTITIONS), session=(0, 0))
    response = broker.sent.pop()
    assert isinstance(response, SendResponse)
    payload = b"".join(
        chunk.read() if isinstance(chunk, FileSlice) else bytes(chunk)  # type: ignore[arg-type]
        for chunk in response.chunks
    )
    answer = parse_response(payload, ApiKey.FETCH, 12)[1]
    assert isinstance(answer, FetchResponse)
    session_id = answer.session_id
    seen = set()
    for epoch in (1, 2):
        fetch(broker, [], session=(session_id, epoch))
        seen |= {piece.fd for piece in pieces(broker)}
    assert len(seen) == PARTITIONS


def test_partitions_that_do_not_exist_are_not_remembered(broker: BrokerFixture) -> None:
    fetch(broker, range(500), topic="nowhere", session=(0, 0))
    assert len(broker.context.fetch_sessions) == 0
