"""The numbers of batches: nothing is taken for a repetition, and nothing overtakes."""

from odradek.aio import Producer
from odradek.errors import ErrorCode
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.init_producer_id import InitProducerIdResponse
from odradek.protocol.schema import replace
from tests.support.network import eventually
from tests.support.produced import (
    PRODUCER_EPOCH,
    PRODUCER_ID,
    Log,
    producer_of,
    refuse,
    script,
    sent_batches,
)
from tests.support.scripted_broker import scripted, told_topic
from tests.unit.client.producer.test_partitioning import accumulator


def forget_topics(producer: Producer) -> None:
    """As if nothing had been sent for `metadata.max.idle.ms`."""
    sender = producer._sender
    assert sender is not None
    for topic in producer.accumulator.topics.values():
        topic.used_s = float("-inf")
    sender._topics._due_s = 0.0
    sender.look()
    assert not producer.accumulator.topics


async def test_the_second_batch_waits_until_the_broker_knows_the_producer() -> None:
    """09:CL-14: who is not known may begin with any number, so the second could be taken first."""
    log = Log()
    async with scripted() as broker:
        script(broker, refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER), log.append)
        async with producer_of(broker, batch_size=0) as producer:
            sent = [await producer.send("t", b"%d" % number) for number in range(5)]
            offsets = [(await one).offset for one in sent]

        assert offsets == [0, 1, 2, 3, 4]
        assert log.values == {0: [b"0", b"1", b"2", b"3", b"4"]}
        epochs = {one.header.producer_epoch for one in sent_batches(broker)}
        assert epochs == {PRODUCER_EPOCH}  # Nothing was out of order.


def test_nor_does_it_overtake_in_a_new_epoch() -> None:
    """09:CL-14: the broker may have forgotten the producer, or the topic may be another one."""
    made, topic = accumulator(1, batch_size=0)
    queue = topic.queues[0]
    for number in range(3):
        assert made.append("t", b"%d" % number, None, (), 0, None) is not None
    made.close_batch(queue)
    first, second, third = queue.closed
    queue.begin_anew(7, 0)
    for batch in (first, second):
        queue.number(batch)
    queue.is_known = True
    assert queue.may_leave(third, max_unanswered=5)

    queue.begin_anew(7, 1)
    assert [batch.sequence for batch in queue.unanswered] == [0, 1]
    assert queue.may_leave(first, max_unanswered=5)
    assert not queue.may_leave(second, max_unanswered=5)
    queue.forget(first)
    queue.forget(second)
    queue.number(second)
    assert not queue.may_leave(third, max_unanswered=5)
    queue.is_known = True
    assert queue.may_leave(third, max_unanswered=5)


def test_no_batch_gets_further_than_brokers_remember_from_one_without_an_answer() -> None:
    """10:PR-2: the former leader keeps the first request, and the new one answers all others.

    When the first is sent again, the new leader must still know it: it remembers five batches.
    """
    made, topic = accumulator(1, batch_size=0)
    queue = topic.queues[0]
    for number in range(6):
        assert made.append("t", b"%d" % number, None, (), 0, None) is not None
    made.close_batch(queue)
    first, *others, sixth = queue.closed
    queue.begin_anew(7, 0)
    queue.is_known = True
    queue.number(first)
    for batch in others:
        assert queue.may_leave(batch, max_unanswered=5)
        queue.number(batch)
        queue.forget(batch)
    assert queue.unanswered == [first]
    assert not queue.may_leave(sixth, max_unanswered=5)
    queue.forget(first)
    assert queue.may_leave(sixth, max_unanswered=5)


async def test_nothing_leaves_between_the_last_epoch_and_the_next_id() -> None:
    """09:CL-14: a partition that begins just then would send without a number."""
    log = Log()
    async with scripted() as broker:
        broker.will_answer(
            ApiKey.INIT_PRODUCER_ID, InitProducerIdResponse(producer_id=5, producer_epoch=32767)
        )
        script(broker, log.append, partitions=2)
        async with producer_of(broker) as producer:
            await (await producer.send("t", b"a", partition=0))
            # As if a batch of it had been given up: it needs an epoch that there is not.
            producer.accumulator.topics["t"].queues[0].is_broken = True
            sent = [await producer.send("t", b"b", partition=number) for number in (0, 1)]
            assert [(await one).offset for one in sent] == [1, 0]
        numbers = [
            (one.partition, one.header.producer_id, one.header.producer_epoch)
            for one in sent_batches(broker)
        ]

        assert numbers[0] == (0, 5, 32767)
        assert sorted(numbers[1:]) == [
            (partition, PRODUCER_ID, PRODUCER_EPOCH) for partition in (0, 1)
        ]
        assert log.values == {0: [b"a", b"b"], 1: [b"b"]}


async def test_a_topic_that_was_idle_does_not_begin_with_the_numbers_it_had() -> None:
    """09:CL-14: the leader would take the record for a repetition, and it would be lost."""
    log = Log()
    async with scripted() as broker:
        script(broker, log.append)
        async with producer_of(broker) as producer:
            await (await producer.send("t", b"a"))
            await eventually(lambda: not producer.accumulator.incomplete)
            forget_topics(producer)
            assert (await (await producer.send("t", b"b"))).offset == 1
        last = sent_batches(broker)[-1].header

        assert log.values == {0: [b"a", b"b"]}
        assert (last.producer_epoch, last.base_sequence) == (PRODUCER_EPOCH + 1, 0)


async def test_a_topic_that_is_forgotten_while_a_record_comes_is_asked_about_again() -> None:
    """09:CL-4: between the look at the topic and the lock of its queues."""
    log = Log()
    async with scripted() as broker:
        script(broker, log.append)
        async with producer_of(broker) as producer:
            await (await producer.send("t", b"a"))
            await eventually(lambda: not producer.accumulator.incomplete)
            accumulator = producer.accumulator
            known = accumulator.topics["t"]
            forget_topics(producer)
            assert accumulator._append_slowly(known, b"b", None, (), None, 0, None) is None
            assert not accumulator.incomplete
            await (await producer.send("t", b"b"))

        assert log.values == {0: [b"a", b"b"]}


async def test_a_topic_that_was_made_anew_with_fewer_partitions() -> None:
    """09:CL-4: keys choose among those there are; those that come back do not count anew."""
    log = Log()
    async with scripted() as broker:
        script(broker, log.append, partitions=3)
        async with producer_of(broker) as producer:
            sender = producer._sender
            assert sender is not None
            for number in range(3):
                await (await producer.send("t", b"a%d" % number, partition=number))
            broker.topics["t"] = replace(told_topic("t"), topic_id=b"another one.    ")
            await sender._topics.refresh()
            places = [await (await producer.send("t", b"b", b"%d" % key)) for key in range(10)]
            assert {place.partition for place in places} == {0}
            broker.topics["t"] = told_topic("t", partitions=3)
            await sender._topics.refresh()
            await (await producer.send("t", b"c", partition=2))

        assert log.values[2] == [b"a2", b"c"]
        assert producer.metrics()["buffer-available-bytes"] == 32 * 1024 * 1024
