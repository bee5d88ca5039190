"""A batch that is full but has to wait goes on taking records, if nobody chose its size."""

from typing import Any

import pytest

from odradek.client.producer.config import read_producer_settings
from odradek.errors import ErrorCode
from odradek.protocol.messages.produce import ProduceRequest
from tests.support.produced import Log, producer_of, refuse, script, sent_batches
from tests.support.scripted_broker import scripted
from tests.unit.client.producer.test_producer_delivery import know_topic

KILOBYTE = b"x" * 1_024


async def test_what_waits_together_leaves_together() -> None:
    """09:CL-13: a batch leaves when it is full; until it does, more may come."""
    log = Log()
    async with scripted() as broker:
        script(broker, log.append)
        async with producer_of(broker) as producer:
            await know_topic(producer)
            # All in one turn of the loop: nothing can leave meanwhile.
            sent = [await producer.send("t", KILOBYTE) for _ in range(600)]
            assert [(await one).offset for one in sent] == list(range(600))
            assert producer.metrics()["buffer-available-bytes"] == 32 * 1024 * 1024
        sizes = [len(batch.encoded) for batch in sent_batches(broker)]

    # 16 KB would have been full; 256 KB is the most.
    assert len(sizes) == 3
    assert 250_000 < sizes[0] <= 256 * 1024
    assert 250_000 < sizes[1] <= 256 * 1024


async def test_a_size_that_was_chosen_is_kept() -> None:
    """09:CL-8: batch.size."""
    async with scripted() as broker:
        script(broker, Log().append)
        async with producer_of(broker, batch_size=16_384) as producer:
            await know_topic(producer)
            for _ in range(100):
                await producer.send("t", KILOBYTE)
            await producer.flush()
        sizes = [len(batch.encoded) for batch in sent_batches(broker)]

    assert len(sizes) == 7
    assert max(sizes) <= 16_384


async def test_a_topic_that_takes_no_large_batches_gets_no_more_of_them() -> None:
    """09:CL-15."""
    log = Log()
    refuse_it: Any = refuse(ErrorCode.MESSAGE_TOO_LARGE)

    def at_most_20_kb(request: ProduceRequest) -> Any:
        largest = max(len(one.records or b"") for one in request.topic_data[0].partition_data)
        return log.append(request) if largest <= 20_000 else refuse_it(request)

    async with scripted() as broker:
        script(broker, at_most_20_kb)
        async with producer_of(broker) as producer:
            await know_topic(producer)
            for number in range(100):
                await producer.send("t", b"%d " % number + KILOBYTE)
            await producer.flush()
            splits = producer.metrics()["batch-split-total"]
            for number in range(100, 200):
                await producer.send("t", b"%d " % number + KILOBYTE)
            await producer.flush()
            assert producer.metrics()["batch-split-total"] == splits > 0

    assert log.values == {0: [b"%d " % number + KILOBYTE for number in range(200)]}


async def test_growing_stays_within_the_buffer() -> None:
    """09:CL-8: buffer.memory bounds batches that grow as well."""
    log = Log()
    async with scripted() as broker:
        script(broker, log.append, partitions=2)
        async with producer_of(broker, buffer_memory=50_000) as producer:
            lowest = 50_000.0
            for number in range(400):
                await producer.send("t", KILOBYTE, partition=number % 2)
                lowest = min(lowest, producer.metrics()["buffer-available-bytes"])
            await producer.flush()
            assert lowest >= 0
            assert producer.metrics()["buffer-available-bytes"] == 50_000

    assert {partition: len(values) for partition, values in log.values.items()} == {0: 200, 1: 200}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, 256 * 1024),
        ({"batch.size": 16_384}, 16_384),
        ({"batch.size": 0}, 0),
        ({"max.request.size": 100_000}, 25_000),
        ({"max.request.size": 20_000}, 16_384),
    ],
    ids=repr,
)
def test_how_far_a_batch_may_grow(settings: dict[str, object], expected: int) -> None:
    _, options = read_producer_settings({"bootstrap.servers": "a:1", **settings}, {})
    assert options.max_batch_bytes == expected
