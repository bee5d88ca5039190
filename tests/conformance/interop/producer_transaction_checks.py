"""Transactions of our producer, judged by readers of other makes."""

import asyncio
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import confluent_kafka
import pytest

from odradek import Admin, Consumer, Producer, aio
from odradek.client.admin import NewTopic
from odradek.client.consumer import CommitFailedError, ConsumerGroupMetadata, OffsetAndMetadata
from odradek.client.producer import (
    AbortableTransactionError,
    FatalTransactionError,
    ProducerFencedError,
    TransactionAbortedError,
    TransactionStateError,
    TransactionTicket,
)
from odradek.errors import ApiError, ErrorCode
from odradek.model import TopicPartition
from tests.conformance.clients.adaptors import kafka
from tests.conformance.interop.suite import Check
from tests.support.group_readers import DEADLINE_S, create_topic, new_name, produce

__all__ = ["PRODUCER_TRANSACTION_CHECKS", "committed_values", "eventually_true", "transactional"]

_WAIT_S: Final = 60


def transactional(bootstrap: str, name: str | None = None, **settings: Any) -> Producer:
    """A producer that has initialized its transactions."""
    defaults: dict[str, Any] = {"linger_ms": 0, "transaction_timeout_ms": 600_000}
    producer = Producer(
        bootstrap_servers=bootstrap,
        transactional_id=name or new_name("tx"),
        **defaults | settings,
    )
    try:
        producer.init_transactions()
    except BaseException:
        producer.close(0)
        raise
    return producer


def eventually_true(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def until_stable(bootstrap: str, topic: str) -> None:
    """Until no transaction is open: markers are written after the answer to a commit."""
    with (
        Consumer(bootstrap_servers=bootstrap, isolation_level="read_committed") as clean,
        Consumer(bootstrap_servers=bootstrap, isolation_level="read_uncommitted") as dirty,
    ):
        tps = [TopicPartition(topic, one.partition) for one in dirty.partitions_for(topic, _WAIT_S)]
        eventually_true(
            lambda: clean.end_offsets(tps, _WAIT_S) == dirty.end_offsets(tps, _WAIT_S),
            f"a transaction in {topic} is still open",
        )


def committed_values(bootstrap: str, topic: str) -> list[bytes]:
    """What two readers of other makes find committed, which has to be the same."""
    until_stable(bootstrap, topic)
    first, second = by_librdkafka(bootstrap, topic), by_kafka_python(bootstrap, topic)
    assert first == second
    return first


def by_librdkafka(bootstrap: str, topic: str) -> list[bytes]:
    reader = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": new_name("judge"),
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    try:
        count = len(reader.list_topics(topic, _WAIT_S).topics[topic].partitions)
        reader.assign([confluent_kafka.TopicPartition(topic, one, 0) for one in range(count)])
        values: list[bytes] = []
        ended: set[int | None] = set()
        deadline = time.monotonic() + DEADLINE_S
        while len(ended) < count:
            assert time.monotonic() < deadline, f"read {len(values)} records, {ended} ended"
            message = reader.poll(1)
            if message is None:
                continue
            error = message.error()
            if error is None:
                values.append(message.value() or b"")
            elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                ended.add(message.partition())
            else:
                raise confluent_kafka.KafkaException(error)
        return sorted(values)
    finally:
        reader.close()


def by_kafka_python(bootstrap: str, topic: str) -> list[bytes]:
    reader = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    try:
        numbers = reader.partitions_for_topic(topic) or set()
        tps = [kafka.TopicPartition(topic, number) for number in sorted(numbers)]
        reader.assign(tps)
        ends = reader.end_offsets(tps)
        reader.seek_to_beginning()
        values: list[bytes] = []
        deadline = time.monotonic() + DEADLINE_S
        while any(reader.position(tp) < ends[tp] for tp in tps):
            assert time.monotonic() < deadline, f"read {len(values)} records"
            for records in reader.poll(timeout_ms=500).values():
                values += [record.value for record in records]
        return sorted(values)
    finally:
        reader.close()


def numbered(what: str, count: int) -> list[bytes]:
    return sorted(b"%s-%d" % (what.encode(), number) for number in range(count))


def send_all(producer: Producer, topic: str, values: list[bytes], partitions: int = 3) -> None:
    for index, value in enumerate(values):
        producer.send(topic, value, partition=index % partitions)


def send_and_fail(producer: Producer, topic: str, values: list[bytes]) -> None:
    with producer.transaction():
        send_all(producer, topic, values)
        producer.flush()
        raise ZeroDivisionError


def check_a_transaction_is_seen_whole_or_never(bootstrap: str) -> None:
    """10:TX-1, 10:TX-2, 10:TX-10: over several partitions, one transaction after another."""
    topic = create_topic(bootstrap, 3)
    kept, lost = numbered("kept", 60), numbered("lost", 30)
    with transactional(bootstrap, batch_size=100) as producer:
        for first in range(0, 60, 20):
            with producer.transaction():
                send_all(producer, topic, kept[first : first + 20])
            with pytest.raises(ZeroDivisionError):
                send_and_fail(producer, topic, lost[first // 2 : first // 2 + 10])
        with producer.transaction():
            pass  # Nothing is in it, and no coordinator is asked.
        with pytest.raises(TransactionStateError, match="send is not possible now"):
            producer.send(topic, b"outside")
    assert committed_values(bootstrap, topic) == kept


def check_an_abort_fails_what_was_not_delivered(bootstrap: str) -> None:
    """10:TX-2: a record that still lingers has the reason as its outcome."""
    topic = create_topic(bootstrap, 1)
    with transactional(bootstrap, linger_ms=600_000, delivery_timeout_ms=700_000) as producer:
        producer.begin_transaction()
        delivery = producer.send(topic, b"lingers")
        producer.abort_transaction()
        with pytest.raises(TransactionAbortedError, match="abort_transaction was called"):
            delivery.result(_WAIT_S)
        with producer.transaction():
            producer.send(topic, b"kept")
    assert committed_values(bootstrap, topic) == [b"kept"]


def check_a_refused_record_leads_to_an_abort(bootstrap: str) -> None:
    """10:TX-2: and the next transaction goes on under other numbers."""
    topic = new_name("small")
    with Admin(bootstrap_servers=bootstrap) as admin:
        small = NewTopic(name=topic, partition_count=1, configs={"max.message.bytes": "1000"})
        assert not isinstance(admin.create_topics([small])[topic], ApiError)
    with transactional(bootstrap) as producer:
        for turn in range(2):
            producer.begin_transaction()
            producer.send(topic, b"lost").result(_WAIT_S)
            refused = producer.send(topic, bytes(2_000))
            assert refused.exception(_WAIT_S) is not None
            with pytest.raises(AbortableTransactionError) as failure:
                producer.commit_transaction()
            with pytest.raises(AbortableTransactionError):
                producer.send(topic, b"after the failure")
            producer.abort_transaction()
            assert failure.value.code is ErrorCode.MESSAGE_TOO_LARGE
            with producer.transaction():
                producer.send(topic, b"kept-%d" % turn)
    assert committed_values(bootstrap, topic) == [b"kept-0", b"kept-1"]


def check_a_second_producer_fences_the_first(bootstrap: str) -> None:
    """10:TX-4: in the middle of a transaction, which is aborted, and between two."""
    topic = create_topic(bootstrap, 1)
    name = new_name("tx")
    with transactional(bootstrap, name) as first, transactional(bootstrap, name) as second:
        first.begin_transaction()
        with pytest.raises(ProducerFencedError, match="is fenced: another one has begun"):
            first.send(topic, b"first").result(_WAIT_S)
        with pytest.raises(ProducerFencedError):
            first.commit_transaction()
        with pytest.raises(ProducerFencedError):
            first.begin_transaction()
        second.begin_transaction()
        second.send(topic, b"open").result(_WAIT_S)
        with transactional(bootstrap, name) as third:
            with third.transaction():
                third.send(topic, b"third")
            with pytest.raises(ProducerFencedError):
                second.commit_transaction()
            with pytest.raises(ProducerFencedError):
                second.abort_transaction()
    assert committed_values(bootstrap, topic) == [b"third"]


def check_an_old_transaction_is_aborted_by_its_coordinator(bootstrap: str) -> None:
    """10:TX-5: the producer learns of it at its next call."""
    topic = create_topic(bootstrap, 1)
    with transactional(bootstrap, transaction_timeout_ms=500) as producer:
        producer.begin_transaction()
        producer.send(topic, b"too late").result(_WAIT_S)
        until_stable(bootstrap, topic)
        with pytest.raises(FatalTransactionError):
            producer.commit_transaction()
    assert committed_values(bootstrap, topic) == []


@contextmanager
def member(bootstrap: str, group: str, topic: str, **settings: Any) -> Iterator[Consumer]:
    """A consumer that has its partitions, and the first records."""
    defaults: dict[str, Any] = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
    with Consumer(bootstrap_servers=bootstrap, group_id=group, **defaults | settings) as consumer:
        consumer.subscribe([topic])
        yield consumer


def committed_offset(bootstrap: str, group: str, tp: TopicPartition) -> int | None:
    with Consumer(bootstrap_servers=bootstrap, group_id=group) as consumer:
        # Waits until no offset is pending: it asks for stable ones.
        found = consumer.committed([tp], _WAIT_S)[tp]
        return None if found is None else found.offset


def check_consume_transform_produce(bootstrap: str) -> None:
    """10:TX-12: every input has one output, and offsets move with the records or not at all."""
    source, target, group = create_topic(bootstrap, 2), create_topic(bootstrap, 2), new_name("g")
    produce(bootstrap, source, numbered("in", 40), partitions=2)
    turn, done = 0, 0
    with (
        member(bootstrap, group, source, max_poll_records=7) as consumer,
        transactional(bootstrap) as producer,
    ):
        deadline = time.monotonic() + DEADLINE_S
        while done < 40:
            assert time.monotonic() < deadline, done
            records = consumer.poll(1)
            if not records:
                continue
            turn += 1
            producer.begin_transaction()
            positions: dict[TopicPartition, int] = {}
            for record in records:
                assert record.value is not None
                producer.send(target, record.value.replace(b"in", b"out"))
                positions[TopicPartition(record.topic, record.partition)] = record.offset + 1
            offsets: dict[TopicPartition | tuple[str, int], OffsetAndMetadata | int] = {}
            offsets.update((tp, offset) for tp, offset in positions.items())
            producer.send_offsets(offsets, consumer.group_metadata())
            if turn % 3 == 2:
                producer.abort_transaction()
                for tp in positions:
                    found = consumer.committed([tp], _WAIT_S)[tp]
                    consumer.seek(tp, 0 if found is None else found.offset)
                continue
            producer.commit_transaction()
            done += len(records)
    for number in range(2):
        assert committed_offset(bootstrap, group, TopicPartition(source, number)) == 20
    assert committed_values(bootstrap, target) == numbered("out", 40)


def check_a_member_that_lost_its_partitions_commits_no_offsets(bootstrap: str) -> None:
    """10:TX-12: its transaction can only be aborted, and the producer goes on."""
    source, target, group = create_topic(bootstrap, 1), create_topic(bootstrap, 1), new_name("g")
    produce(bootstrap, source, [b"in"], partitions=1)
    tp = TopicPartition(source, 0)
    with transactional(bootstrap) as producer:
        with member(bootstrap, group, source) as consumer:
            eventually_true(lambda: bool(consumer.poll(1)), "nothing was read")
            former = consumer.group_metadata()
            assert former.group_id == group
            assert former.member_id
            assert former.generation > 0
        with member(bootstrap, group, source) as consumer:
            eventually_true(lambda: bool(consumer.poll(1)), "nothing was read")
            producer.begin_transaction()
            producer.send(target, b"by a zombie")
            with pytest.raises(AbortableTransactionError) as failure:
                producer.send_offsets({tp: 1}, former)
            assert failure.value.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
            with pytest.raises(AbortableTransactionError):
                producer.commit_transaction()
            producer.abort_transaction()
            with producer.transaction():
                producer.send(target, b"by a member")
                offset = OffsetAndMetadata(1, "note", 0)
                producer.send_offsets({tp: offset}, consumer.group_metadata())
        with pytest.raises(CommitFailedError), member(bootstrap, group, source) as consumer:
            consumer.group_metadata()  # It has not joined yet.
        with producer.transaction():
            producer.send_offsets({(source, 0): 1}, new_name("plain"))
    assert committed_offset(bootstrap, group, tp) == 1
    assert committed_values(bootstrap, target) == [b"by a member"]


def check_a_ticket_lets_others_write(bootstrap: str) -> None:
    """12:SP-25, 12:SP-26: each partition through one writer, only the owner commits."""
    topic = create_topic(bootstrap, 3)
    with transactional(bootstrap) as owner:
        for turn in range(3):
            owner.begin_transaction()
            ticket = pickle.loads(pickle.dumps(owner.ticket()))
            assert TransactionTicket.from_json(ticket.to_json()) == ticket
            owner.send(topic, b"%d-owner" % turn, partition=2)
            failures: list[BaseException] = []

            def write(
                number: int,
                *,
                ticket: TransactionTicket = ticket,
                turn: int = turn,
                failures: list[BaseException] = failures,
            ) -> None:
                try:
                    with Producer(bootstrap_servers=bootstrap, ticket=ticket) as writer:
                        for step in range(3):
                            writer.send(topic, b"%d-%d-%d" % (turn, number, step), partition=number)
                        writer.flush(_WAIT_S)
                except BaseException as error:
                    failures.append(error)

            threads = [threading.Thread(target=write, args=(number,)) for number in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert failures == []
            if turn == 1:
                owner.abort_transaction()
            else:
                owner.commit_transaction()
            with Producer(bootstrap_servers=bootstrap, ticket=ticket) as late:
                late.send(topic, b"late", partition=0)
                with pytest.raises(ProducerFencedError):
                    late.flush(_WAIT_S)
        with pytest.raises(TransactionStateError, match="only the owner"):
            Producer(bootstrap_servers=bootstrap, ticket=ticket).commit_transaction()
        owner.begin_transaction()
        owner.ticket()
        owner.commit_transaction()  # Nobody has used it.
        with owner.transaction():
            owner.send(topic, b"last", partition=0)
    expected = [b"%d-%d-%d" % (t, n, s) for t in (0, 2) for n in range(2) for s in range(3)]
    assert committed_values(bootstrap, topic) == sorted(
        [*expected, b"0-owner", b"2-owner", b"last"]
    )


def check_transactions_are_awaited(bootstrap: str) -> None:
    """10:TX-1, 10:TX-2."""
    topic = create_topic(bootstrap, 1)

    async def fail_in_transaction(producer: aio.Producer) -> None:
        async with producer.transaction():
            await producer.send(topic, b"lost")
            raise ZeroDivisionError

    async def main() -> None:
        settings: dict[str, Any] = {"bootstrap_servers": bootstrap, "linger_ms": 0}
        async with aio.Producer(transactional_id=new_name("tx"), **settings) as producer:
            await producer.init_transactions()
            async with producer.transaction():
                await producer.send(topic, b"kept")
                await producer.send_offsets({(topic, 0): 1}, ConsumerGroupMetadata(new_name("g")))
            with pytest.raises(ZeroDivisionError):
                await fail_in_transaction(producer)
            await producer.begin_transaction()
            await producer.send(topic, b"open when the producer is closed")

    asyncio.run(main())
    assert committed_values(bootstrap, topic) == [b"kept"]


PRODUCER_TRANSACTION_CHECKS: tuple[Check, ...] = (
    check_a_transaction_is_seen_whole_or_never,
    check_an_abort_fails_what_was_not_delivered,
    check_a_refused_record_leads_to_an_abort,
    check_a_second_producer_fences_the_first,
    check_an_old_transaction_is_aborted_by_its_coordinator,
    check_consume_transform_produce,
    check_a_member_that_lost_its_partitions_commits_no_offsets,
    check_a_ticket_lets_others_write,
    check_transactions_are_awaited,
)
