"""The way to the coordinator of a transaction (10 section 9.9)."""

import asyncio
from collections.abc import Collection, Coroutine, Mapping
from typing import Any, cast

import pytest

from odradek.broker.peers.connections import PeerConnections
from odradek.broker.transactions.coordinator_router import TRANSACTIONS_TOPIC, CoordinatorRouter
from odradek.errors import ApiError, DisconnectedError, ErrorCode
from odradek.metadata.cache import MetadataCache
from odradek.metadata.delta import ClusterDelta
from odradek.metadata.image import PartitionState
from odradek.model import TopicPartition
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from odradek.protocol.schema import Message
from odradek.protocol.versions import VersionRange
from tests.support.caches import update_cache

A, B, C = (TopicPartition(name, 0) for name in "abc")
LOCAL, REMOTE = 1, 2
Asked = tuple[str, int, int, tuple[TopicPartition, ...], bool]


class Coordinator:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.error: ApiError | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        *,
        verify_only: bool,
    ) -> Mapping[TopicPartition, ErrorCode]:
        asked = (transactional_id, producer_id, producer_epoch, tuple(partitions), verify_only)
        self.asked.append(asked)
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return dict.fromkeys(partitions, ErrorCode.NONE)

    def try_add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        *,
        verify_only: bool,
    ) -> Mapping[TopicPartition, ErrorCode] | None:
        asked = (transactional_id, producer_id, producer_epoch, tuple(partitions), verify_only)
        if not self.gate.is_set():
            return None
        self.asked.append(asked)
        return dict.fromkeys(partitions, ErrorCode.NONE)


class Peer:
    """The connection to another broker, and that broker; a `PeerConnection`."""

    broker_id = REMOTE

    def __init__(self) -> None:
        self.requests: list[tuple[AddPartitionsToTxnRequest, int]] = []
        self.served = VersionRange(0, 5)
        self.error = ErrorCode.NONE
        self.is_broken = False
        self.gate = asyncio.Event()
        self.gate.set()
        self.left_out: set[str] = set()

    async def open(self) -> "Peer":
        return self

    def versions(self, api_key: ApiKey) -> VersionRange:
        assert api_key is ApiKey.ADD_PARTITIONS_TO_TXN
        return self.served

    async def request(self, _api_key: ApiKey, message: Message, version: int) -> Message:
        assert isinstance(message, AddPartitionsToTxnRequest)
        self.requests.append((message, version))
        await self.gate.wait()
        if self.is_broken:
            raise DisconnectedError("gone")
        return AddPartitionsToTxnResponse(
            error_code=self.error,
            results_by_transaction=[
                AddPartitionsToTxnResult(
                    transactional_id=one.transactional_id,
                    topic_results=[
                        AddPartitionsToTxnTopicResult(
                            name=topic.name,
                            results_by_partition=[
                                AddPartitionsToTxnPartitionResult(
                                    partition_index=number, partition_error_code=number
                                )
                                for number in topic.partitions
                            ],
                        )
                        for topic in one.topics
                    ],
                )
                for one in message.transactions
                if one.transactional_id not in self.left_out
            ],
        )


class Peers:
    def __init__(self) -> None:
        self.peer = Peer()

    def to_broker(self, broker_id: int, purpose: str) -> Peer:
        assert (broker_id, purpose) == (REMOTE, "transactions")
        return self.peer


class LoopTasks:
    """Tasks of the running loop."""

    def __init__(self) -> None:
        self.running: list[asyncio.Task[None]] = []

    def spawn(self, work: Coroutine[Any, Any, None], /) -> None:
        self.running.append(asyncio.get_running_loop().create_task(work))

    async def sleep(self, _delay_s: float, /) -> None:
        await asyncio.sleep(0)


class Routed:
    """A router and all that it reaches."""

    def __init__(self, leader: int | None = LOCAL) -> None:
        self.cache = MetadataCache(LOCAL)
        if leader is not None:
            state = PartitionState(
                topic=TRANSACTIONS_TOPIC,
                partition=0,
                leader=leader,
                leader_epoch=0,
                isr=(LOCAL, REMOTE),
                replicas=(LOCAL, REMOTE),
            )
            update_cache(self.cache, 0, ClusterDelta(partitions=(state,)))
        self.peers = Peers()
        self.peer = self.peers.peer
        self.tasks = LoopTasks()
        self.router = CoordinatorRouter(
            LOCAL, self.cache, cast("PeerConnections", self.peers), self.tasks
        )
        self.coordinator = Coordinator()
        self.router.local = self.coordinator

    async def ask(
        self, *partitions: TopicPartition, name: str = "x", epoch: int = 0, verify_only: bool = True
    ) -> Mapping[TopicPartition, ErrorCode]:
        return await self.router.add_partitions(
            name, 4000, epoch, partitions, verify_only=verify_only
        )


async def settle() -> None:
    """Lets all tasks run until they wait."""
    for _ in range(10):
        await asyncio.sleep(0)


def test_a_coordinator_here_is_asked_directly() -> None:
    async def scenario() -> None:
        routed = Routed()
        assert await routed.ask(A, B) == {A: ErrorCode.NONE, B: ErrorCode.NONE}
        assert await routed.ask(A, verify_only=False) == {A: ErrorCode.NONE}
        assert routed.coordinator.asked == [
            ("x", 4000, 0, (A, B), True),
            ("x", 4000, 0, (A,), False),
        ]
        assert not routed.peer.requests

    asyncio.run(scenario())


@pytest.mark.parametrize("leader", [None, -1], ids=["no-topic", "no-leader"])
def test_without_a_coordinator(leader: int | None) -> None:
    async def scenario() -> None:
        assert await Routed(leader).ask(A) == {A: ErrorCode.COORDINATOR_NOT_AVAILABLE}

    asyncio.run(scenario())


def test_a_broker_that_has_no_coordinator_yet() -> None:
    async def scenario() -> None:
        routed = Routed()
        routed.router.local = None
        assert await routed.ask(A) == {A: ErrorCode.COORDINATOR_NOT_AVAILABLE}

    asyncio.run(scenario())


def test_a_coordinator_here_is_asked_at_once_unless_a_question_waits() -> None:
    async def scenario() -> None:
        routed = Routed()

        def ask_now(verify_only: bool) -> Mapping[TopicPartition, ErrorCode] | None:
            return routed.router.try_add_partitions("x", 4000, 0, (A,), verify_only=verify_only)

        assert ask_now(True) == {A: ErrorCode.NONE}
        assert ask_now(False) == {A: ErrorCode.NONE}
        routed.coordinator.gate.clear()
        waiting = asyncio.create_task(routed.ask(B, verify_only=False))
        await settle()
        routed.coordinator.gate.set()
        assert ask_now(False) is None, "it follows the question that waits"
        assert ask_now(True) == {A: ErrorCode.NONE}
        assert await waiting == {B: ErrorCode.NONE}
        assert ask_now(False) == {A: ErrorCode.NONE}

    asyncio.run(scenario())


@pytest.mark.parametrize("leader", [None, -1, REMOTE])
def test_a_coordinator_elsewhere_is_not_asked_at_once(leader: int | None) -> None:
    async def scenario() -> None:
        routed = Routed(leader)
        assert routed.router.try_add_partitions("x", 4000, 0, (A,), verify_only=True) is None
        assert not routed.coordinator.asked
        assert not routed.peer.requests

    asyncio.run(scenario())


def test_waiting_questions_about_one_transaction_are_merged() -> None:
    """10 section 9.9: two that wait are one; one that is under way is left alone."""

    async def scenario() -> None:
        routed = Routed()
        routed.coordinator.gate.clear()
        asked = [asyncio.create_task(routed.ask(tp)) for tp in (A, B, C, B)]
        other = asyncio.create_task(routed.ask(A, name="y"))
        await settle()
        routed.coordinator.gate.set()
        assert [await one for one in asked] == [
            {A: ErrorCode.NONE},
            {B: ErrorCode.NONE},
            {C: ErrorCode.NONE},
            {B: ErrorCode.NONE},
        ]
        assert await other == {A: ErrorCode.NONE}
        assert routed.coordinator.asked == [
            ("x", 4000, 0, (A,), True),
            ("y", 4000, 0, (A,), True),
            ("x", 4000, 0, (B, C), True),
        ]
        assert await routed.ask(A) == {A: ErrorCode.NONE}

    asyncio.run(scenario())


def test_questions_of_different_kinds_are_not_merged() -> None:
    async def scenario() -> None:
        routed = Routed()
        routed.coordinator.gate.clear()
        asked = [
            asyncio.create_task(routed.ask(A, epoch=epoch, verify_only=verify_only))
            for epoch in (0, 1)
            for verify_only in (True, False)
        ]
        await settle()
        assert len(routed.coordinator.asked) == 4
        routed.coordinator.gate.set()
        await asyncio.gather(*asked)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ApiError(ErrorCode.NOT_COORDINATOR, "moved"), ErrorCode.NOT_COORDINATOR),
        (RuntimeError("a bug"), ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
    ids=["refused", "bug"],
)
def test_a_failure_is_told_to_all_that_wait(error: Exception, told: ErrorCode) -> None:
    async def scenario() -> None:
        routed = Routed()
        routed.coordinator.gate.clear()
        routed.coordinator.error = cast("ApiError", error)
        asked = [asyncio.create_task(routed.ask(tp)) for tp in (A, B, C)]
        await settle()
        routed.coordinator.gate.set()
        assert [await one for one in asked] == [{A: told}, {B: told}, {C: told}]
        routed.coordinator.error = None
        assert await routed.ask(A) == {A: ErrorCode.NONE}

    asyncio.run(scenario())


@pytest.mark.parametrize(("last", "sent"), [(5, 5), (4, 4)])
def test_another_broker_is_asked_with_what_it_serves(last: int, sent: int) -> None:
    """11: AddPartitionsToTxn from 4 on is for brokers."""

    async def scenario() -> None:
        routed = Routed(REMOTE)
        routed.peer.served = VersionRange(0, last)
        partition = TopicPartition("t", int(ErrorCode.TRANSACTION_ABORTABLE))
        answers = await routed.ask(A, partition)
        assert answers == {A: ErrorCode.NONE, partition: ErrorCode.TRANSACTION_ABORTABLE}
        [(request, version)] = routed.peer.requests
        assert version == sent
        [asked] = request.transactions
        assert (asked.transactional_id, asked.producer_id, asked.verify_only) == ("x", 4000, True)

    asyncio.run(scenario())


def test_questions_to_another_broker_travel_together() -> None:
    """One request is under way; a transaction is named once in the next one."""

    async def scenario() -> None:
        routed = Routed(REMOTE)
        routed.peer.gate.clear()
        asked = [asyncio.create_task(routed.ask(A, name="first"))]
        await settle()
        asked += [
            asyncio.create_task(routed.ask(A, name=name, verify_only=verify_only))
            for name in ("x", "y")
            for verify_only in (True, False)
        ]
        await settle()
        routed.peer.gate.set()
        assert await asyncio.gather(*asked) == [{A: ErrorCode.NONE}] * 5
        sent = [
            [one.transactional_id for one in request.transactions]
            for request, _ in routed.peer.requests
        ]
        assert sent == [["first"], ["x", "y"], ["x", "y"]]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ],
)
def test_another_broker_refuses(error: ErrorCode, told: ErrorCode) -> None:
    async def scenario() -> None:
        routed = Routed(REMOTE)
        routed.peer.error = error
        assert await routed.ask(A) == {A: told}

    asyncio.run(scenario())


def test_another_broker_is_lost_or_forgets_a_transaction() -> None:
    """Every question is answered."""

    async def scenario() -> None:
        routed = Routed(REMOTE)
        routed.peer.is_broken = True
        assert await routed.ask(A) == {A: ErrorCode.NETWORK_EXCEPTION}
        routed.peer.is_broken = False
        routed.peer.left_out = {"x"}
        assert await routed.ask(A) == {A: ErrorCode.COORDINATOR_NOT_AVAILABLE}
        routed.peer.left_out = set()
        assert await routed.ask(A) == {A: ErrorCode.NONE}

    asyncio.run(scenario())
