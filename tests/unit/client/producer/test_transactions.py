"""Transactions of a producer, against a coordinator that has its bad days."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from odradek.aio import Producer
from odradek.client.producer import (
    AbortableTransactionError,
    FatalTransactionError,
    ProducerFencedError,
    RetriableTransactionError,
    TransactionAbortedError,
    TransactionStateError,
    TransactionTicket,
)
from odradek.client.producer.sender import Sender
from odradek.errors import ErrorCode
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from odradek.protocol.messages.end_txn import EndTxnResponse
from odradek.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from tests.support.network import eventually
from tests.support.produced import (
    PRODUCER_EPOCH,
    PRODUCER_ID,
    Log,
    accept,
    producer_of,
    refuse,
    sent_batches,
)
from tests.support.scripted_broker import HANG_UP, ScriptedBroker, scripted
from tests.support.transactions import add_partitions, commit_offsets, script_transactions

# Without the requests for metadata and coordinators.
_OTHERS = (ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.FIND_COORDINATOR)
BOTH = pytest.mark.parametrize("version", [0, 2])


def told(broker: ScriptedBroker) -> list[tuple[ApiKey, int]]:
    """The requests and their versions, in order."""
    return [(key, version) for key, version, _ in broker.requests if key not in _OTHERS]


@asynccontextmanager
async def transactional(broker: ScriptedBroker, **settings: Any) -> AsyncIterator[Producer]:
    async with producer_of(broker, transactional_id="tx", **settings) as producer:
        await producer.init_transactions()
        yield producer


def next_init(request: InitProducerIdRequest) -> InitProducerIdResponse:
    """The epoch after the one that the producer has."""
    return InitProducerIdResponse(
        producer_id=PRODUCER_ID, producer_epoch=max(request.producer_epoch + 1, PRODUCER_EPOCH)
    )


def numbers(broker: ScriptedBroker) -> list[tuple[int, int, int]]:
    """Partition, epoch and first number of every batch that was sent."""
    return [
        (one.partition, one.header.producer_epoch, one.header.base_sequence)
        for one in sent_batches(broker)
    ]


async def send_all(producer: Producer, *values: bytes, partition: int = 0) -> None:
    for value in values:
        await producer.send("t", value, partition=partition)


async def test_version_2_adds_nothing_and_takes_the_epoch_of_the_answer() -> None:
    """10:TX-1: Produce 12 and later, TxnOffsetCommit 5, EndTxn 5."""
    async with scripted() as broker:
        script_transactions(broker, version=2, partitions=2)
        async with transactional(broker) as producer:
            for _ in range(2):
                async with producer.transaction():
                    await send_all(producer, b"a", partition=0)
                    await send_all(producer, b"b", partition=1)
                    await producer.flush()
                    await producer.send_offsets({("in", 0): 7}, "g")
        assert told(broker) == [
            (ApiKey.INIT_PRODUCER_ID, 5),
            *[(ApiKey.PRODUCE, 13), (ApiKey.TXN_OFFSET_COMMIT, 5), (ApiKey.END_TXN, 5)] * 2,
        ]
        # In the second, both partitions begin anew in the next epoch.
        assert numbers(broker) == [(0, 2, 0), (1, 2, 0), (0, 3, 0), (1, 3, 0)]
        assert all(one.header.is_transactional for one in sent_batches(broker))
        assert {one.transactional_id for one in broker.received(ApiKey.PRODUCE)} == {"tx"}
        epochs = [one.producer_epoch for one in broker.received(ApiKey.END_TXN)]
        assert epochs == [2, 3]


async def test_below_version_2_partitions_and_groups_are_added_first() -> None:
    """10:TX-1, 10:TX-11: and the numbers go on in the next transaction."""
    async with scripted() as broker:
        script_transactions(broker, version=0, partitions=2)
        async with transactional(broker) as producer:
            for _ in range(2):
                async with producer.transaction():
                    await send_all(producer, b"a", partition=0)
                    await send_all(producer, b"b", partition=1)
                    await producer.flush()
                    await send_all(producer, b"c", partition=0)
                    await producer.flush()
                    await producer.send_offsets({("in", 0): 7}, "g")
        one_transaction = [
            (ApiKey.ADD_PARTITIONS_TO_TXN, 3),
            (ApiKey.PRODUCE, 11),
            (ApiKey.PRODUCE, 11),
            (ApiKey.ADD_OFFSETS_TO_TXN, 4),
            (ApiKey.TXN_OFFSET_COMMIT, 4),
            (ApiKey.END_TXN, 4),
        ]
        assert told(broker) == [(ApiKey.INIT_PRODUCER_ID, 5), *one_transaction * 2]
        added = broker.received(ApiKey.ADD_PARTITIONS_TO_TXN)[0].v3_and_below_topics
        assert [(topic.name, sorted(topic.partitions)) for topic in added] == [("t", [0, 1])]
        first = [(0, 2, 0), (1, 2, 0), (0, 2, 1)]
        assert numbers(broker) == [*first, (0, 2, 2), (1, 2, 1), (0, 2, 3)]


@BOTH
async def test_an_empty_transaction_asks_nobody(version: int) -> None:
    """10:TX-9: an EndTxn of nothing would be refused."""
    async with scripted() as broker:
        script_transactions(broker, version=version)
        async with transactional(broker) as producer:
            async with producer.transaction():
                await producer.send_offsets({}, "g")
            await producer.begin_transaction()
            await producer.abort_transaction()
        assert told(broker) == [(ApiKey.INIT_PRODUCER_ID, 5)]


def _answer_with(make: Callable[..., Any], code: ErrorCode, request: Any) -> Any:
    return make(request, code)


async def test_errors_that_pass_are_tried_again() -> None:
    """10:TX-7: each request until its answer is definite; a coordinator that moved is looked up."""
    passing = (
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    )
    async with scripted() as broker:
        script_transactions(
            broker,
            version=0,
            add_partitions_to_txn=[
                *(partial(_answer_with, add_partitions, code) for code in passing),
                HANG_UP,
            ],
            add_offsets_to_txn=[AddOffsetsToTxnResponse(error_code=code) for code in passing],
            txn_offset_commit=[
                partial(_answer_with, commit_offsets, code)
                for code in (*passing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            ],
            end_txn=[*(EndTxnResponse(error_code=code) for code in passing), HANG_UP],
        )
        async with transactional(broker) as producer, producer.transaction():
            await send_all(producer, b"a")
            await producer.send_offsets({("in", 0): 7}, "g")
        counts = {key: len(broker.received(key)) for key, _ in told(broker)}
        assert counts[ApiKey.ADD_PARTITIONS_TO_TXN] == 5
        assert counts[ApiKey.ADD_OFFSETS_TO_TXN] == 4
        assert counts[ApiKey.TXN_OFFSET_COMMIT] == 5
        assert counts[ApiKey.END_TXN] == 5
        # Once for the id and the group, and once more for each that has moved or hung up.
        assert len(broker.received(ApiKey.FIND_COORDINATOR)) >= 7


@BOTH
async def test_a_failed_batch_fails_the_transaction_and_those_behind_it(version: int) -> None:
    """10:TX-2: the abort ends it, and the next transaction has another epoch."""
    async with scripted() as broker:
        script_transactions(
            broker, refuse(ErrorCode.INVALID_RECORD), accept, version=version, partitions=2
        )
        broker.script[ApiKey.INIT_PRODUCER_ID].clear()
        broker.will_answer(ApiKey.INIT_PRODUCER_ID, next_init)
        async with transactional(broker, batch_size=0) as producer:
            await producer.begin_transaction()
            sent = [await producer.send("t", b"%d" % number, partition=0) for number in range(4)]
            reasons = await asyncio.gather(*sent, return_exceptions=True)
            assert "INVALID_RECORD" in str(reasons[0])
            assert {type(reason) for reason in reasons[1:]} == {TransactionAbortedError}
            assert all("INVALID_RECORD" in str(reason) for reason in reasons)
            with pytest.raises(AbortableTransactionError, match="INVALID_RECORD"):
                await producer.send("t", b"more")
            with pytest.raises(AbortableTransactionError, match="INVALID_RECORD"):
                await producer.commit_transaction()
            with pytest.raises(TransactionStateError, match="begin_transaction is not possible"):
                await producer.begin_transaction()
            await producer.abort_transaction()
            async with producer.transaction():
                await send_all(producer, b"next")
        assert [one.committed for one in broker.received(ApiKey.END_TXN)] == [False, True]
        assert numbers(broker)[-1] == (0, PRODUCER_EPOCH + 1, 0)
        # EndTxn 5 has raised the epoch; below, InitProducerId has to.
        inits = [one.producer_epoch for one in broker.received(ApiKey.INIT_PRODUCER_ID)]
        assert inits == ([-1] if version == 2 else [-1, PRODUCER_EPOCH])


async def test_an_abort_waits_for_the_answers_of_what_was_sent() -> None:
    """10:TX-2: what arrives later could not be told from the next transaction."""
    async with scripted() as broker:
        script_transactions(broker, version=2)
        async with transactional(broker) as producer:
            await producer.begin_transaction()
            broker.slow = {ApiKey.PRODUCE}
            sent = await producer.send("t", b"on its way")
            await eventually(lambda: bool(broker.held))
            aborting = asyncio.ensure_future(producer.abort_transaction())
            with pytest.raises(RetriableTransactionError):
                await producer.abort_transaction(timeout=0)
            assert not broker.received(ApiKey.END_TXN)
            broker.slow = set()
            broker.answer_held()
            with pytest.raises(TransactionStateError):
                await asyncio.gather(aborting, producer.abort_transaction())
            assert (await sent).offset == 100
            assert len(broker.received(ApiKey.END_TXN)) == 1


@BOTH
async def test_a_commit_of_unknown_outcome_is_made_again(version: int) -> None:
    """10:TX-7: the same request; nothing else is possible meanwhile."""
    async with scripted() as broker:
        script_transactions(broker, version=version)
        async with transactional(broker) as producer:
            await producer.begin_transaction()
            await send_all(producer, b"a")
            await producer.flush()
            broker.slow = {ApiKey.END_TXN}
            with pytest.raises(RetriableTransactionError, match="no definite answer"):
                await producer.commit_transaction(timeout=0.05)
            with pytest.raises(TransactionStateError, match="call commit_transaction again"):
                await producer.abort_transaction()
            broker.slow = set()
            broker.held.clear()
            await producer.commit_transaction()
            async with producer.transaction():
                await send_all(producer, b"b")
        epochs = [one.producer_epoch for one in broker.received(ApiKey.END_TXN)]
        assert epochs == [2, 3 if version == 2 else 2]


@pytest.mark.parametrize("code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED])
async def test_a_fenced_producer_is_at_its_end(code: ErrorCode) -> None:
    """10:TX-4: by the answer to a batch, and to every later call."""
    async with scripted() as broker:
        script_transactions(broker, refuse(code), version=2)
        async with transactional(broker) as producer:
            await producer.begin_transaction()
            with pytest.raises(ProducerFencedError, match=r"transactional\.id 'tx'"):
                await (await producer.send("t", b"a"))
            for call in (
                producer.commit_transaction,
                producer.abort_transaction,
                producer.begin_transaction,
                partial(producer.send, "t", b"b"),
            ):
                with pytest.raises(ProducerFencedError):
                    await call()
        assert not broker.received(ApiKey.END_TXN)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ErrorCode.PRODUCER_FENCED, ProducerFencedError),
        (ErrorCode.INVALID_TXN_STATE, FatalTransactionError),
        (ErrorCode.TRANSACTION_ABORTABLE, AbortableTransactionError),
    ],
)
async def test_a_refused_commit(code: ErrorCode, expected: type[Exception]) -> None:
    """10:TX-4, 10:TX-9: after 120 the transaction can be aborted."""
    async with scripted() as broker:
        script_transactions(broker, version=2, end_txn=[EndTxnResponse(error_code=code)])
        async with transactional(broker) as producer:
            await producer.begin_transaction()
            await send_all(producer, b"a")
            with pytest.raises(expected):
                await producer.commit_transaction()
            if expected is AbortableTransactionError:
                await producer.abort_transaction()
                await producer.begin_transaction()


async def test_a_partition_that_may_not_be_added_is_named() -> None:
    """10:TX-11: not the neighbours, which were only not attempted."""
    codes = (ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    async with scripted() as broker:
        script_transactions(
            broker,
            version=0,
            partitions=2,
            add_partitions_to_txn=[lambda request: add_partitions(request, *codes)],
        )
        async with transactional(broker) as producer:
            await producer.begin_transaction()
            await send_all(producer, b"a", partition=0)
            await send_all(producer, b"b", partition=1)
            with pytest.raises(AbortableTransactionError, match="TOPIC_AUTHORIZATION_FAILED"):
                await producer.commit_transaction()
            await producer.abort_transaction()
        assert not broker.received(ApiKey.PRODUCE)


async def test_an_id_that_was_forgotten_begins_anew() -> None:
    """10:TX-13: EndTxn would be refused like everything else."""
    code = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    async with scripted() as broker:
        script_transactions(
            broker,
            version=0,
            add_partitions_to_txn=[lambda request: add_partitions(request, code)],
        )
        broker.script[ApiKey.INIT_PRODUCER_ID].clear()
        broker.will_answer(ApiKey.INIT_PRODUCER_ID, next_init)
        async with transactional(broker) as producer:
            await producer.begin_transaction()
            await send_all(producer, b"a")
            with pytest.raises(AbortableTransactionError):
                await producer.commit_transaction()
            await producer.abort_transaction()
            async with producer.transaction():
                await send_all(producer, b"b")
        assert [one.committed for one in broker.received(ApiKey.END_TXN)] == [True]
        assert numbers(broker) == [(0, PRODUCER_EPOCH + 1, 0)]


async def test_out_of_order_numbers_end_the_transaction_only_if_nothing_is_before_them() -> None:
    """10:PR-3: those behind a batch that is sent again are sent again, too."""
    log = Log()
    async with scripted() as broker:
        script_transactions(
            broker, log.append, refuse(ErrorCode.NOT_ENOUGH_REPLICAS), log.append, version=2
        )
        async with transactional(broker, batch_size=0) as producer:
            async with producer.transaction():
                await (await producer.send("t", b"first"))
                await send_all(producer, *(b"%d" % number for number in range(5)))
            assert log.values == {0: [b"first", b"0", b"1", b"2", b"3", b"4"]}
            broker.script[ApiKey.PRODUCE].clear()
            broker.will_answer(ApiKey.PRODUCE, refuse(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER))
            await producer.begin_transaction()
            await send_all(producer, b"lost")
            with pytest.raises(AbortableTransactionError, match="OUT_OF_ORDER"):
                await producer.commit_transaction()
            await producer.abort_transaction()


async def test_a_failed_start_is_told_apart() -> None:
    """10:TX-4: refused for good, or not yet."""
    code = ErrorCode.INVALID_TRANSACTION_TIMEOUT
    async with scripted() as broker:
        script_transactions(broker, version=2)
        broker.script[ApiKey.INIT_PRODUCER_ID].clear()
        broker.will_answer(
            ApiKey.INIT_PRODUCER_ID,
            InitProducerIdResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS),
            InitProducerIdResponse(error_code=code),
        )
        async with producer_of(broker, transactional_id="tx") as producer:
            with pytest.raises(TransactionStateError, match="call init_transactions first"):
                await producer.begin_transaction()
            with pytest.raises(RetriableTransactionError):
                await producer.init_transactions(timeout=0)
            with pytest.raises(FatalTransactionError, match="INVALID_TRANSACTION_TIMEOUT"):
                await producer.init_transactions()
        async with producer_of(broker) as plain:
            with pytest.raises(TransactionStateError, match=r"without a transactional\.id"):
                await plain.begin_transaction()


async def test_a_writer_with_a_ticket_uses_its_numbers() -> None:
    """12:SP-25: and below version 2 adds its partitions; it asks for no id."""
    for version, first in ((2, ApiKey.PRODUCE), (0, ApiKey.ADD_PARTITIONS_TO_TXN)):
        ticket = TransactionTicket(
            transactional_id="tx", producer_id=77, producer_epoch=5, transaction_version=version
        )
        async with scripted() as broker:
            script_transactions(broker, version=2, partitions=2)
            async with producer_of(broker, ticket=ticket) as writer:
                await send_all(writer, b"a", partition=1)
                await writer.flush()
                await send_all(writer, b"b", partition=1)
                await writer.flush()
                with pytest.raises(TransactionStateError, match="only the owner"):
                    await writer.commit_transaction()
            assert told(broker)[0][0] is first
            assert not broker.received(ApiKey.END_TXN)
            assert not broker.received(ApiKey.INIT_PRODUCER_ID)
            assert numbers(broker) == [(1, 5, 0), (1, 5, 1)]
            assert {one.header.producer_id for one in sent_batches(broker)} == {77}


async def test_the_flush_of_a_writer_with_a_ticket_tells_of_failures() -> None:
    """12:SP-25: else the owner would commit without its records."""
    ticket = TransactionTicket(
        transactional_id="tx", producer_id=77, producer_epoch=5, transaction_version=2
    )
    async with scripted() as broker:
        script_transactions(broker, refuse(ErrorCode.INVALID_RECORD), version=2)
        async with producer_of(broker, ticket=ticket) as writer:
            await send_all(writer, b"a")
            with pytest.raises(AbortableTransactionError, match="INVALID_RECORD"):
                await writer.flush()
            with pytest.raises(AbortableTransactionError, match="INVALID_RECORD"):
                await send_all(writer, b"b")


async def test_a_ticket_is_for_one_epoch() -> None:
    """12:SP-26: below version 2 the epoch is raised before it is used again."""
    async with scripted() as broker:
        script_transactions(
            broker,
            version=0,
            end_txn=[
                lambda request: EndTxnResponse(),
                EndTxnResponse(error_code=ErrorCode.INVALID_TXN_STATE),
            ],
        )
        broker.script[ApiKey.INIT_PRODUCER_ID].clear()
        broker.will_answer(ApiKey.INIT_PRODUCER_ID, next_init)
        async with transactional(broker) as producer:
            async with producer.transaction():
                await send_all(producer, b"a")
            await producer.begin_transaction()
            first = await producer.ticket()  # This epoch was used before.
            await producer.commit_transaction()  # And nobody has written under it.
            await producer.begin_transaction()
            await send_all(producer, b"b")
            second = await producer.ticket()
            await producer.commit_transaction()
            async with producer.transaction():
                await send_all(producer, b"c")
            await producer.begin_transaction()
            await send_all(producer, b"d")
            await producer.flush()
            with pytest.raises(TransactionStateError, match="take the ticket first"):
                await producer.ticket()
        assert [first.producer_epoch, second.producer_epoch] == [3, 4]
        assert [epoch for _, epoch, _ in numbers(broker)] == [2, 4, 5, 5]


async def test_the_protocol_is_chosen_for_each_transaction() -> None:
    """10:TX-1: a new connection tells that the cluster has gone over to version 2."""
    async with scripted() as broker:
        script_transactions(broker, version=0, end_txn=[HANG_UP])
        broker.script[ApiKey.INIT_PRODUCER_ID].clear()
        broker.will_answer(ApiKey.INIT_PRODUCER_ID, next_init)
        async with transactional(broker) as producer:
            await producer.begin_transaction()
            await send_all(producer, b"a")
            await producer.flush()
            broker.features = {"transaction.version": 2, "another": 1}
            await producer.commit_transaction()
            async with producer.transaction():
                await send_all(producer, b"b")
        ends = [version for key, version in told(broker) if key is ApiKey.END_TXN]
        assert ends == [4, 4, 5]
        # Under another epoch: what is late of the first must not get into the second.
        assert numbers(broker) == [(0, 2, 0), (0, 3, 0)]


async def test_a_topic_of_the_transaction_is_not_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """10:PR-3: its numbers would begin anew under the same epoch."""
    senders: list[Sender] = []
    made: Callable[..., None] = Sender.__init__

    def remember(self: Sender, *args: Any, **kwargs: Any) -> None:
        senders.append(self)
        made(self, *args, **kwargs)

    monkeypatch.setattr(Sender, "__init__", remember)
    async with scripted() as broker:
        script_transactions(broker, version=2)
        async with transactional(broker) as producer:
            await producer.begin_transaction()
            await send_all(producer, b"a")
            await producer.flush()
            senders[0]._topics._forget_idle(asyncio.get_running_loop().time() + 1e9)
            await send_all(producer, b"b")
            await producer.commit_transaction()
        assert numbers(broker) == [(0, 2, 0), (0, 2, 1)]


async def test_a_block_raises_what_has_failed_in_it() -> None:
    """Not that its transaction, which the application has ended, cannot be aborted."""

    async def abort_and(producer: Producer, failure: Exception | None) -> None:
        async with producer.transaction():
            await send_all(producer, b"a")
            await producer.abort_transaction()
            if failure is not None:
                raise failure

    async with scripted() as broker:
        script_transactions(broker, version=2)
        async with transactional(broker) as producer:
            with pytest.raises(ZeroDivisionError):
                await abort_and(producer, ZeroDivisionError())
            with pytest.raises(TransactionStateError, match="commit_transaction is not possible"):
                await abort_and(producer, None)
            async with producer.transaction():
                await send_all(producer, b"b")
        # An abort may find that nothing was sent yet, and needs no request then.
        ends = [one.committed for one in broker.received(ApiKey.END_TXN)]
        assert ends[-1]
        assert not any(ends[:-1])


async def test_a_block_whose_commit_is_cancelled_ends_so() -> None:
    """The commit may have succeeded, so nothing is aborted; a time-out around it stays one."""
    async with scripted() as broker:
        passing = EndTxnResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS)
        script_transactions(broker, version=2, end_txn=[passing] * 1_000)

        async def transact(producer: Producer) -> None:
            async with producer.transaction():
                await send_all(producer, b"a")

        async with transactional(broker) as producer:
            work = asyncio.create_task(transact(producer))
            await eventually(lambda: bool(broker.received(ApiKey.END_TXN)))
            work.cancel()
            with pytest.raises(asyncio.CancelledError):
                await work
        assert all(one.committed for one in broker.received(ApiKey.END_TXN))


async def test_closing_aborts_what_is_open() -> None:
    """10:TX-2: and says so to what still waited."""
    async with scripted() as broker:
        script_transactions(broker, version=2)
        async with transactional(broker, linger_ms=100_000, delivery_timeout_ms=200_000) as one:
            await one.begin_transaction()
            await one.send_offsets({("in", 0): 7}, "g")
            delivery = await one.send("t", b"a")
        with pytest.raises(TransactionAbortedError, match="the producer is closed"):
            await delivery
        assert [one.committed for one in broker.received(ApiKey.END_TXN)] == [False]
