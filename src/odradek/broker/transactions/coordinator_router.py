"""Finds the coordinator of a transaction: on this broker, or on another one.

A transactional id belongs to a partition of ``__transaction_state``, and its coordinator is the
leader of that partition. Other brokers are asked by AddPartitionsToTxn, whose versions from 4 on
have several transactions.

Questions about one transaction follow each other: those that arrive while one is answered are
merged into the next one, since a coordinator refuses to change a transaction twice at the same
time. To each broker one request is under way; those that wait travel together in the next one.
"""

import asyncio
import logging
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple, TypeAlias

from odradek.broker.peers.connections import PeerConnection, PeerConnections
from odradek.broker.transactions.verification import TransactionPartitions
from odradek.coordinator.partitioning import partition_for
from odradek.errors import ApiError, ErrorCode
from odradek.metadata.cache import MetadataCache
from odradek.model import TopicPartition
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from odradek.tasks import Tasks

__all__ = ["TRANSACTIONS_TOPIC", "CoordinatorRouter"]

logger = logging.getLogger(__name__)

TRANSACTIONS_TOPIC: Final = "__transaction_state"

# Versions with several transactions; the first one lacks TRANSACTION_ABORTABLE.
_VERSIONS: Final = (5, 4)
# Transactions of one request; the other ones wait for the next.
_MAX_SENT: Final = 500
# Questions that wait, of all transactions; beyond it the producers try again.
_MAX_WAITING: Final = 10_000

Answers: TypeAlias = Mapping[TopicPartition, ErrorCode]


class _Key(NamedTuple):
    """Questions that can be merged."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    verify_only: bool


class _Question:
    """Partitions of a transaction, and the answers once they are known."""

    __slots__ = ("answers", "key", "partitions")

    def __init__(self, key: _Key, partitions: Collection[TopicPartition]) -> None:
        self.key = key
        self.partitions = dict.fromkeys(partitions)
        self.answers: asyncio.Future[Answers] = asyncio.get_running_loop().create_future()

    def answer(self, answers: Answers) -> None:
        if not self.answers.done():
            self.answers.set_result(answers)

    def refuse(self, error: ErrorCode) -> None:
        self.answer(dict.fromkeys(self.partitions, error))


class CoordinatorRouter:
    """All coordinators of transactions; a `TransactionPartitions`.

    Args:
        broker_id: This broker.
        cache: Names the leaders.
        peers: Connections to other brokers.
        tasks: Runs the questions.

    Attributes:
        local: The coordinator of this broker; None: it has none yet.
    """

    def __init__(
        self, broker_id: int, cache: MetadataCache, peers: PeerConnections, tasks: Tasks
    ) -> None:
        self.local: TransactionPartitions | None = None
        self._broker_id = broker_id
        self._cache = cache
        self._peers = peers
        self._tasks = tasks
        # The keys with a question under way, each with the next one.
        self._open: dict[_Key, _Question | None] = {}
        self._waiting_count = 0
        self._remote: dict[int, _RemoteCoordinator] = {}

    async def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        *,
        verify_only: bool,
    ) -> Answers:
        """Includes partitions in a transaction, or verifies that it includes them."""
        key = _Key(transactional_id, producer_id, producer_epoch, verify_only)
        if key not in self._open:
            self._open[key] = None
            question = _Question(key, partitions)
            await self._settle(question)
            return await question.answers
        following = self._open[key]
        if following is None:
            if self._waiting_count >= _MAX_WAITING:
                return dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            self._waiting_count += 1
            following = self._open[key] = _Question(key, partitions)
        else:
            following.partitions.update(dict.fromkeys(partitions))
        # Shielded: the answer belongs to several producers.
        answers = await asyncio.shield(following.answers)
        return {tp: answers[tp] for tp in partitions if tp in answers}

    def try_add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        *,
        verify_only: bool,
    ) -> Answers | None:
        """Does it at once, if the coordinator is on this broker; None if something is to wait for.

        Questions that are under way wait for replicas, and later ones follow them.
        """
        if self.local is None or (
            self._open
            and _Key(transactional_id, producer_id, producer_epoch, verify_only) in self._open
        ):
            return None
        try:
            if self._leader_of(transactional_id) != self._broker_id:
                return None
        except ApiError:
            return None  # To be told as the answer.
        return self.local.try_add_partitions(
            transactional_id, producer_id, producer_epoch, partitions, verify_only=verify_only
        )

    async def _settle(self, question: _Question) -> None:
        """Gets the answers to a question, then begins with the next one of its key."""
        try:
            question.answer(await self._route(question))
        except ApiError as error:
            question.refuse(error.code)
        except Exception:  # the border between requests
            logger.exception("The transaction of %s could not be verified", question.key)
            question.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        following = self._open[question.key]
        if following is None:
            del self._open[question.key]
            return
        self._waiting_count -= 1
        self._open[question.key] = None
        self._tasks.spawn(self._settle(following))

    async def _route(self, question: _Question) -> Answers:
        leader = self._leader_of(question.key.transactional_id)
        if leader != self._broker_id:
            remote = self._remote.get(leader)
            if remote is None:
                connection = self._peers.to_broker(leader, "transactions")
                remote = self._remote[leader] = _RemoteCoordinator(connection, self._tasks)
            return await remote.ask(question.key, question.partitions)
        if self.local is None:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no coordinator has started")
        key = question.key
        return await self.local.add_partitions(
            key.transactional_id,
            key.producer_id,
            key.producer_epoch,
            tuple(question.partitions),
            verify_only=key.verify_only,
        )

    def _leader_of(self, transactional_id: str) -> int:
        topic = self._cache.image.topics.get(TRANSACTIONS_TOPIC)
        if topic is not None:
            number = partition_for(transactional_id, len(topic.partitions))
            state = self._cache.get_partition_info(TRANSACTIONS_TOPIC, number)
            if state is not None and state.leader >= 0:
                return state.leader
        raise ApiError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{transactional_id!r} has no coordinator now"
        )


class _RemoteCoordinator:
    """The coordinator on one other broker.

    Args:
        connection: To that broker.
        tasks: Runs the requests.
    """

    def __init__(self, connection: PeerConnection, tasks: Tasks) -> None:
        self._connection = connection
        self._tasks = tasks
        self._waiting: list[_Question] = []
        self._is_sending = False

    async def ask(self, key: _Key, partitions: Collection[TopicPartition]) -> Answers:
        """Asks with the next request."""
        question = _Question(key, partitions)
        self._waiting.append(question)
        if not self._is_sending:
            self._is_sending = True
            self._tasks.spawn(self._send_all())
        return await question.answers

    async def _send_all(self) -> None:
        while self._waiting:
            # By id: an answer names nothing else.
            sent: dict[str, _Question] = {}
            kept: list[_Question] = []
            for question in self._waiting:
                name = question.key.transactional_id
                if name in sent or len(sent) >= _MAX_SENT:
                    kept.append(question)
                else:
                    sent[name] = question
            self._waiting = kept
            try:
                await self._send(sent)
            except ApiError as error:
                logger.info(
                    "broker %d, %d transactions: %s", self._connection.broker_id, len(sent), error
                )
                for question in sent.values():
                    question.refuse(ErrorCode.NETWORK_EXCEPTION)
            except Exception:  # the border between requests
                logger.exception("broker %d could not be asked", self._connection.broker_id)
                for question in sent.values():
                    question.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self._is_sending = False

    async def _send(self, questions: Mapping[str, _Question]) -> None:
        connection = await self._connection.open()
        served = connection.versions(ApiKey.ADD_PARTITIONS_TO_TXN)
        version = next((one for one in _VERSIONS if one in served), _VERSIONS[0])
        request = AddPartitionsToTxnRequest(
            transactions=[_transaction(question) for question in questions.values()]
        )
        answer = await self._connection.request(ApiKey.ADD_PARTITIONS_TO_TXN, request, version)
        assert isinstance(answer, AddPartitionsToTxnResponse)
        if answer.error_code != ErrorCode.NONE:
            error = ErrorCode(answer.error_code)
            if error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                logger.error("broker %d: %s", self._connection.broker_id, error.name)
                error = ErrorCode.INVALID_TXN_STATE
            for question in questions.values():
                question.refuse(error)
            return
        for result in answer.results_by_transaction:
            asked = questions.get(result.transactional_id)
            if asked is not None:
                asked.answer(
                    {
                        TopicPartition(topic.name, row.partition_index): ErrorCode(
                            row.partition_error_code
                        )
                        for topic in result.topic_results
                        for row in topic.results_by_partition
                    }
                )
        for question in questions.values():  # Those that the answer lacks.
            question.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)


def _transaction(question: _Question) -> AddPartitionsToTxnTransaction:
    topics: dict[str, list[int]] = {}
    for topic, number in question.partitions:
        topics.setdefault(topic, []).append(number)
    key = question.key
    return AddPartitionsToTxnTransaction(
        transactional_id=key.transactional_id,
        producer_id=key.producer_id,
        producer_epoch=key.producer_epoch,
        verify_only=key.verify_only,
        topics=[
            AddPartitionsToTxnTopic(name=name, partitions=numbers)
            for name, numbers in topics.items()
        ],
    )
