"""A follower's fetch of a session with many partitions, as the leader's handler serves it.

The follower has told its wishes; then one partition gets a record before each fetch, or none does.
The cost is CPU time of the handler, from the request's bytes to the answer's chunks. It should
depend on the partitions with news, not on those of the session.
"""

import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence

from benchmarks.table import Row, at_most, benchmark
from odradek.broker.handlers.fetch import handle_fetch
from odradek.metadata.delta import ClusterDelta, HostedPartition, LocalDelta
from odradek.metadata.image import PartitionState
from odradek.model import AppendOrigin, TopicPartition
from odradek.network.request import Request
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ReplicaState,
)
from tests.support.logs import batch
from tests.support.replicas import apply_local
from tests.unit.broker.handlers.handler_fakes import BROKER_ID, BrokerFixture, parsed

_FOLLOWER_ID = BROKER_ID + 1
_TOPIC_ID = uuid.UUID(int=77)
_ACTIVE = TopicPartition("t", 5)
_WARM_UP = 20
_FETCHES = 300
_FETCH_VERSION = 15


class _Leader:
    """A broker without sockets that leads partitions, and a follower's session with it."""

    def __init__(self, directory: str, partition_count: int) -> None:
        self.broker = BrokerFixture(log_dirs=[directory])
        self.broker.log_manager.startup()
        states = tuple(
            PartitionState(
                topic="t",
                partition=number,
                leader=BROKER_ID,
                leader_epoch=0,
                isr=(BROKER_ID, _FOLLOWER_ID),
                replicas=(BROKER_ID, _FOLLOWER_ID),
            )
            for number in range(partition_count)
        )
        self.broker.publish(ClusterDelta(partitions=states, topic_ids={"t": _TOPIC_ID}))
        hosted = tuple(
            HostedPartition(state=state, topic_id=_TOPIC_ID, is_new=True) for state in states
        )
        delta = LocalDelta(controller_id=BROKER_ID, controller_epoch=1, hosted=hosted)
        apply_local(self.broker.replicas, delta)
        self.session_id = self.session_epoch = 0
        first = self.request([(number, 0) for number in range(partition_count)])
        handle_fetch(first, self.broker.context)
        self.session_id = parsed(self.broker.sent.pop(), FetchResponse).session_id

    def request(self, offsets: Sequence[tuple[int, int]]) -> Request:
        """The session's next fetch, which names these partitions."""
        rows = [
            FetchPartition(
                partition=number,
                current_leader_epoch=0,
                fetch_offset=offset,
                last_fetched_epoch=0 if offset else -1,
                log_start_offset=0,
                partition_max_bytes=1 << 20,
            )
            for number, offset in offsets
        ]
        message = FetchRequest(
            replica_state=ReplicaState(replica_id=_FOLLOWER_ID, replica_epoch=1),
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=10 << 20,
            session_id=self.session_id,
            session_epoch=self.session_epoch,
            topics=[FetchTopic(topic_id=_TOPIC_ID.bytes, partitions=rows)] if rows else [],
        )
        self.session_epoch += 1
        return self.broker.request(ApiKey.FETCH, message, _FETCH_VERSION)

    def append(self) -> None:
        self.broker.replicas.appends.append_records(
            timeout_ms=0,
            required_acks=1,
            internal_topics_allowed=False,
            origin=AppendOrigin.CLIENT,
            entries={_ACTIVE: batch(1)},
            respond=lambda _results: None,
        )


@benchmark("follower-fetch")
def follower_fetch() -> Iterator[Row]:
    """Idle fetches, and fetches of one record."""
    for partition_count in (10, 1_000):
        for is_active in (False, True):
            with tempfile.TemporaryDirectory() as directory:
                leader = _Leader(directory, partition_count)
                samples = list(_measure(leader, is_active=is_active))
                leader.broker.log_manager.shutdown()
            what = "one with a new record" if is_active else "none with news"
            yield at_most(
                f"a follower's fetch, {partition_count:,} partitions, {what}",
                samples[_WARM_UP:],
                "us CPU",
            )


def _measure(leader: _Leader, *, is_active: bool) -> Iterator[float]:
    """The CPU time of each fetch, in microseconds."""
    for number in range(_WARM_UP + _FETCHES):
        if is_active:
            leader.append()
        request = leader.request([(_ACTIVE.partition, number)] if is_active and number else [])
        started = time.process_time_ns()
        handle_fetch(request, leader.broker.context)
        yield (time.process_time_ns() - started) / 1000
        leader.broker.sent.clear()
