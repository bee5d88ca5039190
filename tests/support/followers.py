"""A leader and a follower, each with logs of its own, joined by a `LeaderEndpoint` without sockets.

A test drives the follower round by round:

    pair = FollowerPair(tmp_path)
    pair.follow(tp("t"))
    pair.leader.produce({tp("t"): batch(3)}, acks=1)
    await pair.round()
    assert pair.follower.log(tp("t")).log_end_offset == 3

The leader's side is the real one: fetch sessions, reads, watermarks, ISR. Only the bytes between
the two are passed as objects.
"""

import asyncio
import uuid
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Self

from odradek.broker.peers.leader_endpoint import WireEndpoint
from odradek.errors import ApiError, DisconnectedError, ErrorCode, OdradekError
from odradek.model import TopicPartition
from odradek.purgatory import DelayedOperation
from odradek.replication import FetchParams, FetchPartition, FetchResult, FetchResults
from odradek.replication.fetch_session import FetchContext, FetchSessionCache, SessionPartition
from odradek.replication.following.fetcher import ReplicaFetcher
from odradek.replication.following.leader_endpoint import (
    EpochAnswer,
    EpochQuestion,
    FetchAnswer,
    FetchQuestion,
    OffsetAnswer,
    OnFetched,
    PartitionAnswer,
)
from odradek.replication.following.replica_fetchers import FollowingConfig, ReplicaFetchers
from odradek.replication.throttles import ReplicationThrottle
from odradek.storage.log.config import LogConfig
from tests.support.replicas import ReplicaFixture, hosted, state_of

__all__ = [
    "BACKOFF_MS",
    "FOLLOWER_ID",
    "LEADER_ID",
    "FollowerPair",
    "LocalEndpoint",
    "SpawnNothing",
    "ask_through",
]

LEADER_ID, FOLLOWER_ID = 1, 2
BACKOFF_MS = 20


class SpawnNothing:
    """`Tasks` whose tasks a test runs by hand."""

    def spawn(self, work: Coroutine[Any, Any, None], /) -> None:
        work.close()

    async def sleep(self, delay_s: float, /) -> None:
        """Returns at once."""


class _Reader:
    """A fetch of a session, as the broker's handler is one."""

    def __init__(self, leader: ReplicaFixture, context: FetchContext, replica_id: int) -> None:
        self._leader = leader
        self._context = context
        self._replica_id = replica_id
        self.told: list[tuple[SessionPartition, FetchResult]] | None = None

    def take_again(self) -> list[FetchPartition]:
        raise AssertionError("these fetches do not wait")

    def settle(self, results: FetchResults) -> None:
        for one, (wanted, result) in zip(self._context.partitions, results, strict=True):
            partition = self._leader.replicas.find_online(*wanted.tp)
            if partition is not None:
                self._context.watch(one, partition, self._replica_id)
                self._context.settle(one, result)

    def respond(self, results: FetchResults) -> None:
        self.settle(results)
        pairs = zip(self._context.partitions, results, strict=True)
        self.told = self._context.select([(one, result) for one, (_, result) in pairs])

    def park(self, operation: DelayedOperation) -> None:
        raise AssertionError("these fetches do not wait")


class LocalEndpoint:
    """A `LeaderEndpoint` into the replicas of a leader of this process."""

    def __init__(self, leader: ReplicaFixture, replica_id: int) -> None:
        self.leader = leader
        self.replica_id = replica_id
        self.sessions = FetchSessionCache(10, random=Random(1))
        self.finds_divergence = True
        self.knows_topic_ids = True
        self.is_reachable = True
        self.max_bytes = 1 << 20
        self.broker_epoch = -1
        self.questions: list[FetchQuestion] = []
        # Questions that the test answers; None: they are answered at once.
        self.held: list[tuple[FetchQuestion, OnFetched]] | None = None
        self.touched_count = 0  # Partitions that the leader looked at for the last answer.
        self.epoch_questions: list[Mapping[TopicPartition, EpochQuestion]] = []
        # Called before an answer is given: changes it, or something meanwhile.
        self.on_fetch: Callable[[FetchAnswer], FetchAnswer] = lambda answer: answer
        self.on_epochs: Callable[[], None] = lambda: None
        self.on_offset: Callable[[], None] = lambda: None

    async def connect(self) -> None:
        self._check()

    def _check(self) -> None:
        if not self.is_reachable:
            raise DisconnectedError("the link is cut")

    def ask(self, question: FetchQuestion, on_answer: OnFetched) -> None:
        self._check()
        self.questions.append(question)
        if self.held is None:
            on_answer(self._answer(question))
        else:
            self.held.append((question, on_answer))

    def answer_held(self) -> None:
        """Answers the question that is held, in this turn."""
        assert self.held is not None
        [(question, on_answer)] = self.held
        self.held.clear()
        on_answer(self._answer(question))

    def _answer(self, question: FetchQuestion) -> FetchAnswer:
        wanted = {
            w.key: SessionPartition(
                w.key,
                w.leader_epoch,
                w.fetch_offset,
                w.last_fetched_epoch if self.finds_divergence else -1,
                w.log_start_offset,
                1 << 20,
            )
            for w in question.wanted
        }
        try:
            context = self.sessions.begin(
                session_id=question.session_id,
                epoch=question.session_epoch,
                wanted=wanted,
                forgotten=question.forgotten,
                is_from_follower=True,
                uses_topic_ids=question.uses_topic_ids,
                is_known=lambda _key: True,
                now_ms=self.leader.clock.monotonic_ms(),
            )
        except ApiError as error:
            return FetchAnswer(error.code, 0, [])
        names = {
            partition.topic_id.bytes: partition.tp.topic
            for partition in self.leader.replicas.partitions()
            if partition.topic_id is not None
        }
        asked = []
        for one in context.partitions:
            topic, index = one.key
            name = topic if isinstance(topic, str) else names[topic]
            asked.append(
                FetchPartition(
                    TopicPartition(name, index),
                    None if isinstance(topic, str) else uuid.UUID(bytes=topic),
                    one.fetch_offset,
                    one.max_bytes,
                    one.current_leader_epoch,
                    one.log_start_offset,
                    one.last_fetched_epoch,
                )
            )
        params = FetchParams(0, 1, self.max_bytes, self.replica_id, replica_epoch=self.broker_epoch)
        reads = self.leader.replicas.reads
        reader = _Reader(self.leader, context, self.replica_id)
        if context.news is None:
            reads.fetch(params, asked, reader.respond)
        else:
            reads.fetch_news(params, asked, context.news, reader)
        assert reader.told is not None
        told = reader.told
        self.touched_count = len(asked)
        answer = FetchAnswer(
            context.error,
            context.session_id,
            [
                PartitionAnswer(
                    one.key,
                    result.error,
                    result.high_watermark,
                    result.log_start_offset,
                    result.diverging_epoch,
                    memoryview(b"" if result.records is None else result.records.read()),
                )
                for one, result in told
            ],
        )
        return self.on_fetch(answer)

    async def epoch_ends(
        self, questions: Mapping[TopicPartition, EpochQuestion]
    ) -> Mapping[TopicPartition, EpochAnswer]:
        self._check()
        self.epoch_questions.append(questions)
        answers = {}
        for partition, question in questions.items():
            try:
                epoch, end = self.leader.replicas.look_ups.end_offset_for_epoch(
                    partition,
                    current_leader_epoch=question.current_leader_epoch,
                    leader_epoch=question.epoch,
                )
            except ApiError as error:
                answers[partition] = EpochAnswer(error.code, -1, -1)
            else:
                answers[partition] = EpochAnswer(ErrorCode.NONE, epoch, end)
        self.on_epochs()
        return answers

    async def log_end(self, tp: TopicPartition, current_leader_epoch: int) -> OffsetAnswer:
        return self._offset(tp, -1, current_leader_epoch)

    async def log_start(self, tp: TopicPartition, current_leader_epoch: int) -> OffsetAnswer:
        return self._offset(tp, -2, current_leader_epoch)

    def _offset(self, tp: TopicPartition, timestamp: int, epoch: int) -> OffsetAnswer:
        self._check()
        try:
            found = self.leader.replicas.look_ups.list_offset(
                tp,
                timestamp,
                current_leader_epoch=epoch,
                read_committed=False,
                is_from_consumer=False,
            )
        except ApiError as error:
            return OffsetAnswer(error.code, -1)
        assert found is not None
        self.on_offset()
        return OffsetAnswer(ErrorCode.NONE, found.offset)

    def close(self) -> None:
        """Ends the questions that are held."""
        held, self.held = self.held or [], None
        for _, on_answer in held:
            on_answer(DisconnectedError("closed"))


def ask_through(
    gate: asyncio.Event, replica_id: int
) -> Callable[[WireEndpoint, FetchQuestion, OnFetched], None]:
    """A `WireEndpoint.ask` that holds the fetches of one broker while the gate is closed."""
    ask = WireEndpoint.ask
    waiting: set[asyncio.Task[None]] = set()

    def ask_or_wait(self: WireEndpoint, question: FetchQuestion, on_answer: OnFetched) -> None:
        async def ask_later() -> None:
            await gate.wait()
            try:
                ask(self, question, on_answer)
            except OdradekError as error:
                on_answer(error)

        if self._replica_id != replica_id or gate.is_set():
            ask(self, question, on_answer)
            return
        task = asyncio.get_running_loop().create_task(ask_later())
        waiting.add(task)
        task.add_done_callback(waiting.discard)

    return ask_or_wait


class FollowerPair:
    """Broker 1 leads, broker 2 follows; leave it to close the logs."""

    def __init__(
        self,
        root: Path,
        *,
        config: LogConfig | None = None,
        fetcher_count: int = 1,
    ) -> None:
        self.leader = ReplicaFixture(root / "leader", config=config, broker_id=LEADER_ID)
        self.follower = ReplicaFixture(root / "follower", config=config, broker_id=FOLLOWER_ID)
        self.endpoints: dict[tuple[int, int], LocalEndpoint] = {}
        self.moved: list[TopicPartition] = []
        self.fetcher_count = fetcher_count
        # The replicas that each topic names in its throttles, and the throttle of the follower.
        self.throttled: dict[str, tuple[str, ...]] = {}
        self.throttle = ReplicationThrottle(
            FOLLOWER_ID, lambda topic: self.throttled.get(topic, ()), self.follower.clock
        )
        self._use_fetchers()

    def _use_fetchers(self) -> None:
        follower = self.follower
        self.fetchers = ReplicaFetchers(
            FollowingConfig(fetcher_count=self.fetcher_count, backoff_ms=BACKOFF_MS),
            find=lambda partition: follower.replicas.find_online(*partition),
            is_alive=lambda broker_id: broker_id in follower.alive,
            open_endpoint=self._open,
            storage_tasks=follower.services.tasks,
            tasks=SpawnNothing(),
            clock=follower.clock,
            stats=follower.stats,
            on_moved=self.moved.append,
            throttle=self.throttle,
        )
        follower.replicas.fetchers = self.fetchers

    def _open(self, leader_id: int, number: int) -> LocalEndpoint:
        endpoint = LocalEndpoint(self.leader, FOLLOWER_ID)
        self.endpoints[leader_id, number] = endpoint
        return endpoint

    @property
    def endpoint(self) -> LocalEndpoint:
        return self.endpoints[LEADER_ID, 0]

    @property
    def fetcher(self) -> ReplicaFetcher:
        [fetcher] = self.fetchers.fetchers
        return fetcher

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.leader.__exit__(kind, error, trace)
        self.follower.__exit__(kind, error, trace)

    def lead(self, *partitions: TopicPartition, epoch: int = 0, **fields: Any) -> None:
        for partition in partitions:
            self._apply(self.leader, partition, LEADER_ID, epoch, **fields)

    def follow(self, *partitions: TopicPartition, epoch: int = 0, **fields: Any) -> None:
        """Broker 1 leads and broker 2 follows, in this epoch."""
        self.lead(*partitions, epoch=epoch, **fields)
        self.follow_alone(*partitions, epoch=epoch, **fields)

    def follow_alone(self, *partitions: TopicPartition, epoch: int, **fields: Any) -> None:
        """Broker 2 follows; broker 1 has not heard of it."""
        for partition in partitions:
            self._apply(self.follower, partition, LEADER_ID, epoch, **fields)
        self.follower.replicas.start_following()

    def promote_follower(self, partition: TopicPartition, *, epoch: int) -> None:
        """Broker 2 leads."""
        self._apply(self.follower, partition, FOLLOWER_ID, epoch)
        self.follower.replicas.start_following()

    def restart_follower(self) -> None:
        """Begins a new life of the follower's process."""
        self.follower.restart()
        self._use_fetchers()

    def _apply(
        self,
        fixture: ReplicaFixture,
        partition: TopicPartition,
        leader: int,
        epoch: int,
        *,
        topic_id: uuid.UUID | None = None,
        is_new: bool = True,
        **fields: Any,
    ) -> None:
        fields.setdefault("replicas", (LEADER_ID, FOLLOWER_ID))
        state = state_of(partition, leader=leader, leader_epoch=epoch, **fields)
        results = fixture.apply(hosted(state, topic_id=topic_id, is_new=is_new))
        assert results[partition] is ErrorCode.NONE

    async def round(self, count: int = 1) -> None:
        """Lets every fetcher do its work."""
        for _ in range(count):
            for fetcher in self.fetchers.fetchers:
                await fetcher.do_work()

    def end_delays(self) -> None:
        self.follower.clock.advance(BACKOFF_MS)
