"""What a producer knows of its topics is asked for again in time, without an error to say so."""

import asyncio

from odradek.client.partitioner import partition_of_key
from odradek.protocol.api_keys import ApiKey
from tests.support.network import eventually
from tests.support.produced import producer_of, script, sent_batches
from tests.support.scripted_broker import scripted, told_topic
from tests.unit.client.consumer.test_consumer_trouble import tell_brokers

AGE_MS = 20


async def test_partitions_that_were_added_are_used_when_metadata_is_old() -> None:
    """09:CL-4, 09:CL-11: nobody sends, nobody refuses; the age alone makes the producer ask."""
    async with scripted() as broker:
        script(broker)
        async with producer_of(broker, metadata_max_age_ms=AGE_MS) as producer:
            await (await producer.send("t", b"a"))
            topic = producer.accumulator.topics["t"]
            broker.topics["t"] = told_topic("t", partitions=3)
            await eventually(lambda: len(topic.queues) == 3)
            assert (await (await producer.send("t", b"b", partition=2))).partition == 2
            keys = [b"%d" % number for number in range(10)]
            places = [(await (await producer.send("t", b"c", key))).partition for key in keys]

        assert places == [partition_of_key(key, 3) for key in keys]
        assert set(topic.available) == set(topic.queues)


async def test_a_leader_that_moved_is_found_when_metadata_is_old() -> None:
    """09:CL-4: before the old one has refused anything."""
    async with scripted() as old, scripted() as new:
        for broker in (old, new):
            script(broker)
            tell_brokers(broker, old.port, new.port)
        async with producer_of(old, metadata_max_age_ms=AGE_MS) as producer:
            await (await producer.send("t", b"a"))
            (queue,) = producer.accumulator.topics["t"].queues
            for broker in (old, new):
                broker.topics["t"] = told_topic("t", leader=1, leader_epoch=1)
            await eventually(lambda: queue.leader == 1)
            await (await producer.send("t", b"b"))

        assert [batch.values for batch in sent_batches(old)] == [[b"a"]]
        assert [batch.values for batch in sent_batches(new)] == [[b"b"]]
        assert producer.metrics()["record-retry-total"] == 0


async def test_no_age_at_all_is_no_reason_to_ask_without_a_pause() -> None:
    """09:CL-2, 09:CL-4: retry.backoff.ms lies between two questions."""
    settings = {"metadata_max_age_ms": 0, "retry_backoff_ms": 600_000}
    async with scripted() as broker:
        script(broker)
        async with producer_of(broker, **settings) as producer:
            await (await producer.send("t", b"a"))
            asked_count = len(broker.received(ApiKey.METADATA))
            for _ in range(100):
                await asyncio.sleep(0)
            await (await producer.send("t", b"b"))

        assert len(broker.received(ApiKey.METADATA)) == asked_count
