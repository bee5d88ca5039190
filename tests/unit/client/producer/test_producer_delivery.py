"""Producing: batches, numbers and retries, against a broker that has its bad days."""

import asyncio
import logging
from typing import Any

import pytest

from odradek.aio import Producer
from odradek.client.errors import BufferExhaustedError, CallTimeoutError, ClosedError
from odradek.client.producer import FailedRecords, ProducerRecord, RecordMetadata
from odradek.client.retry import Deadline
from odradek.clock import SystemClock
from odradek.errors import ApiError, ErrorCode, OdradekError, RecordTooLargeError
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.init_producer_id import InitProducerIdResponse
from odradek.protocol.messages.produce import BatchIndexAndErrorMessage, ProduceRequest
from odradek.protocol.schema import replace
from tests.support.network import eventually
from tests.support.produced import (
    PRODUCER_EPOCH,
    PRODUCER_ID,
    Log,
    accept,
    producer_of,
    refuse,
    script,
    sent_batches,
)
from tests.support.scripted_broker import HANG_UP, missing_topic, scripted, told_topic, topic_id

SILENCE = None


def silent(_request: object) -> None:
    """A broker that does not answer."""
    return SILENCE


async def know_topic(producer: Producer) -> None:
    """Connect and learn of the topic, for a producer that has little patience afterwards."""
    await producer.know_topic("t", Deadline(SystemClock(), 60_000))


async def test_a_delivery_tells_where_its_record_is() -> None:
    """09:CL-10."""
    async with scripted() as broker:
        script(broker)
        async with producer_of(broker) as producer:
            first = await producer.send("t", b"value", b"k", timestamp=77)
            second = await producer.send("t", None, headers=[("h", b"1"), ("i", None)])
            found = await first
            assert found == RecordMetadata("t", 0, 100, 77, 1, 5)
            assert first.done()
            assert first.result() == found
            assert first.exception() is None
            assert "at offset 100" in repr(first)
            assert (await second).serialized_value_size == -1


async def test_records_of_one_turn_share_a_batch_and_its_numbers() -> None:
    """09:CL-13, 09:CL-14: sequences are per partition, from 0."""
    async with scripted() as broker:
        script(broker, partitions=2)
        async with producer_of(broker) as producer:
            for turn in range(2):
                sent = [
                    await producer.send("t", b"%d" % number, partition=number % 2)
                    for number in range(6)
                ]
                assert [(await one).offset for one in sent] == [100, 100, 101, 101, 102, 102], turn
        batches = sent_batches(broker)

        assert [batch.values for batch in batches[:2]] == [[b"0", b"2", b"4"], [b"1", b"3", b"5"]]
        sequences = [(batch.partition, batch.header.base_sequence) for batch in batches]
        assert sequences == [(0, 0), (1, 0), (0, 3), (1, 3)]
        identities = {(one.header.producer_id, one.header.producer_epoch) for one in batches}
        assert identities == {(PRODUCER_ID, PRODUCER_EPOCH)}
        assert len(broker.received(ApiKey.PRODUCE)) == 2  # One request for both partitions.


async def test_a_repeated_batch_is_the_same_byte_for_byte() -> None:
    """09:CL-14, 09:TV-15b: resent after a lost answer, one copy in the log."""
    log = Log()

    def store_and_hang_up(request: ProduceRequest) -> str:
        log.append(request)
        return HANG_UP

    async with scripted() as broker:
        script(broker, store_and_hang_up, refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER), log.append)
        async with producer_of(broker) as producer:
            sent = [await producer.send("t", b"a"), await producer.send("t", b"b")]
            assert [(await one).offset for one in sent] == [0, 1]
        first, second, third = sent_batches(broker)

        assert first.encoded == second.encoded == third.encoded
        assert log.values == {0: [b"a", b"b"]}


async def test_five_in_flight_keep_their_order() -> None:
    """09:CL-14, 09:TV-15a: the first of five is answered NOT_LEADER_OR_FOLLOWER."""
    log = Log()
    async with scripted() as broker:
        script(broker, log.append, refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER), log.append)
        async with producer_of(broker, batch_size=0) as producer:
            await (await producer.send("t", b"0"))
            # Without a batch size every record is a batch: all leave before the first answer.
            sent = [await producer.send("t", b"%d" % number) for number in range(1, 6)]
            offsets = [(await one).offset for one in sent]
        first_numbers = [one.header.base_sequence for one in sent_batches(broker)[1:6]]

        assert first_numbers == [1, 2, 3, 4, 5]
        assert offsets == [1, 2, 3, 4, 5]
        assert log.values == {0: [b"0", b"1", b"2", b"3", b"4", b"5"]}
        assert producer.metrics()["record-retry-total"] >= 1


async def test_a_stored_batch_that_is_sent_again_has_no_known_offset() -> None:
    """09:CL-14: DUPLICATE_SEQUENCE_NUMBER is success."""
    async with scripted() as broker:
        script(broker, refuse(ErrorCode.DUPLICATE_SEQUENCE_NUMBER))
        async with producer_of(broker) as producer:
            assert (await (await producer.send("t", b"a"))).offset == -1


async def test_a_batch_that_was_given_up_leaves_no_hole() -> None:
    """09:CL-14: the next epoch, from 0, once everything that left is resolved."""
    log = Log()
    async with scripted() as broker:
        script(broker, refuse(ErrorCode.INVALID_RECORD), log.append)
        async with producer_of(broker, batch_size=0) as producer:
            sent = [await producer.send("t", b"%d" % number) for number in range(3)]
            with pytest.raises(ApiError) as error:
                await sent[0]
            offsets = [(await one).offset for one in sent[1:]]
        last = sent_batches(broker)[-1].header

        assert error.value.code is ErrorCode.INVALID_RECORD
        assert offsets == [0, 1]
        assert log.values == {0: [b"1", b"2"]}
        assert (last.producer_epoch, last.base_sequence) == (PRODUCER_EPOCH + 1, 1)


async def test_a_broker_that_forgot_the_producer_gets_a_new_epoch() -> None:
    """09:CL-14: UNKNOWN_PRODUCER_ID for the first unacknowledged: bump and retry."""
    log = Log()
    async with scripted() as broker:
        script(broker, log.append, refuse(ErrorCode.UNKNOWN_PRODUCER_ID), log.append)
        async with producer_of(broker) as producer:
            await (await producer.send("t", b"a"))
            assert (await (await producer.send("t", b"b"))).offset == 1
        last = sent_batches(broker)[-1].header

        assert log.values == {0: [b"a", b"b"]}
        assert (last.producer_epoch, last.base_sequence) == (PRODUCER_EPOCH + 1, 0)


async def test_after_the_last_epoch_comes_a_new_id() -> None:
    """09:CL-14: at 32767 a new id by InitProducerId."""
    log = Log()
    async with scripted() as broker:
        broker.will_answer(
            ApiKey.INIT_PRODUCER_ID, InitProducerIdResponse(producer_id=5, producer_epoch=32767)
        )
        script(broker, log.append, refuse(ErrorCode.UNKNOWN_PRODUCER_ID), log.append)
        async with producer_of(broker) as producer:
            await (await producer.send("t", b"a"))
            await (await producer.send("t", b"b"))
        identities = [
            (one.header.producer_id, one.header.producer_epoch) for one in sent_batches(broker)
        ]

        assert identities == [(5, 32767), (5, 32767), (PRODUCER_ID, PRODUCER_EPOCH)]
        assert log.values == {0: [b"a", b"b"]}


async def test_a_batch_that_is_too_large_is_split() -> None:
    """09:CL-15: in halves, until they fit."""
    log = Log()

    def at_most_two(request: ProduceRequest) -> Any:
        count = sum(batch.header.record_count for batch in sent_batches(broker)[-1:])
        return log.append(request) if count <= 2 else refuse_it(request)

    refuse_it: Any = refuse(ErrorCode.MESSAGE_TOO_LARGE)
    async with scripted() as broker:
        script(broker, at_most_two)
        async with producer_of(broker) as producer:
            sent = [await producer.send("t", b"%d" % number) for number in range(7)]
            offsets = [(await one).offset for one in sent]

        assert offsets == list(range(7))
        assert log.values == {0: [b"%d" % number for number in range(7)]}


async def test_a_record_that_can_never_be_sent_is_refused_at_once() -> None:
    """09:CL-15."""
    async with scripted() as broker:
        script(broker)
        async with producer_of(broker, max_request_size=1000) as producer:
            with pytest.raises(RecordTooLargeError, match=r"max\.request\.size"):
                await producer.send("t", b"x" * 1000)
            await (await producer.send("t", b"x" * 900))


async def test_a_refused_record_tells_why() -> None:
    """09:CL-10: a failure reaches who asks, `on_error` and the metrics."""
    faults = [BatchIndexAndErrorMessage(batch_index=0, batch_index_error_message="no key")]
    failed: list[FailedRecords] = []
    async with scripted() as broker:
        script(broker, refuse(ErrorCode.INVALID_RECORD, record_errors=faults))
        async with producer_of(broker, on_error=failed.append) as producer:
            delivery = await producer.send("t", b"a")
            with pytest.raises(ApiError, match="t-0: no key"):
                await delivery
            assert isinstance(delivery.exception(), ApiError)
            assert producer.metrics()["record-error-total"] == 1

    assert [(one.topic, one.partition, one.record_count) for one in failed] == [("t", 0, 1)]


async def test_a_failure_that_nobody_asks_for_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """09:CL-10: and never an exception that was not retrieved."""
    async with scripted() as broker:
        script(broker, refuse(ErrorCode.INVALID_RECORD))
        with caplog.at_level(logging.WARNING):
            async with producer_of(broker) as producer:
                await producer.send("t", b"a")

    assert "1 records for t-0 failed" in caplog.text
    assert "never retrieved" not in caplog.text


async def test_a_batch_that_is_given_up_has_the_error_of_its_last_attempt() -> None:
    async with scripted() as broker:
        script(broker, refuse(ErrorCode.NOT_ENOUGH_REPLICAS, error_message="1 in sync, 2 wanted"))
        settings = {"delivery_timeout_ms": 60, "request_timeout_ms": 50}
        async with producer_of(broker, **settings) as producer:
            delivery = await producer.send("t", b"a")
            with pytest.raises(TimeoutError, match=r"within 60 ms.*1 in sync") as told:
                await delivery
        assert isinstance(told.value, ApiError)
        assert told.value.code is ErrorCode.NOT_ENOUGH_REPLICAS


async def test_the_delivery_timeout_bounds_everything() -> None:
    """09:CL-15: from `send` to failure, retries included."""
    async with scripted() as broker:
        script(broker, refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        settings = {"delivery_timeout_ms": 60, "request_timeout_ms": 50}
        async with producer_of(broker, on_error=lambda _: None, **settings) as producer:
            delivery = await producer.send("t", b"a")
            with pytest.raises(CallTimeoutError, match=r"delivery\.timeout\.ms") as error:
                await delivery
            assert isinstance(error.value, TimeoutError)
            assert producer.metrics()["buffer-available-bytes"] == 32 * 1024 * 1024


async def test_a_full_buffer_makes_send_wait_then_fail() -> None:
    """09:CL-8, 09:TV-15c: bounded memory, `BufferExhausted` after max.block.ms."""
    async with scripted() as broker:
        script(broker, silent)
        settings = {"buffer_memory": 3000, "batch_size": 1000, "max_block_ms": 30}
        async with producer_of(broker, on_error=lambda _: None, **settings) as producer:
            await know_topic(producer)
            # Two in each batch of a thousand bytes.
            sent = [await producer.send("t", b"x" * 400) for _ in range(6)]
            with pytest.raises(BufferExhaustedError, match=r"buffer\.memory"):
                await producer.send("t", b"x" * 400)
            assert producer.metrics()["buffer-exhausted-total"] == 1
            await producer.close(timeout=0)
            assert all(isinstance(one.exception(), ClosedError) for one in sent)


async def test_who_waits_for_room_goes_on_when_there_is() -> None:
    """09:CL-8."""
    log = Log()
    async with scripted() as broker:
        script(broker, log.append)
        settings = {"buffer_memory": 1000, "batch_size": 1000, "linger_ms": 60_000}
        settings |= {"delivery_timeout_ms": 120_000}
        async with producer_of(broker, **settings) as producer:
            # 09:CL-13: a buffer that is exhausted sends what lingers.
            sent = [await producer.send("t", b"%03d" % number * 100) for number in range(20)]
            await producer.flush()
            assert all(one.done() for one in sent)

        assert log.values == {0: [b"%03d" % number * 100 for number in range(20)]}


async def test_closing_at_once_fails_what_is_left() -> None:
    """09:TV-15d, 09:CL-5: handles fail, the call returns, use after close raises."""
    async with scripted() as broker:
        script(broker, silent)
        async with producer_of(broker, on_error=lambda _: None) as producer:
            delivery = await producer.send("t", b"a")
            await producer.close(timeout=0)
            assert isinstance(delivery.exception(), ClosedError)
            await producer.close()
            with pytest.raises(ClosedError):
                await producer.send("t", b"b")
            with pytest.raises(ClosedError):
                await producer.flush()


async def test_flush_waits_for_what_was_sent_before_and_lingers() -> None:
    """09:CL-13."""
    async with scripted() as broker:
        script(broker)
        settings = {"linger_ms": 60_000, "delivery_timeout_ms": 120_000}
        async with producer_of(broker, **settings) as producer:
            delivery = await producer.send("t", b"a")
            await producer.flush()
            assert delivery.done()


async def test_flush_honours_its_timeout() -> None:
    """09:CL-5."""
    async with scripted() as broker:
        script(broker, silent)
        async with producer_of(broker, on_error=lambda _: None) as producer:
            await producer.send("t", b"a")
            with pytest.raises(CallTimeoutError, match="flush: 1 of 1 batches"):
                await producer.flush(timeout=0.01)
            with pytest.raises(ValueError, match="timeout"):
                await producer.flush(timeout=-1)
            await producer.close(timeout=0)


async def test_a_topic_that_comes_late_is_waited_for_and_one_that_does_not_is_not() -> None:
    async with scripted() as broker:
        script(broker)
        broker.topics["late"] = missing_topic("late")
        async with producer_of(broker) as producer:
            sending = asyncio.create_task(producer.send("late", b"a"))
            await eventually(lambda: len(broker.received(ApiKey.METADATA)) >= 3)
            broker.topics["late"] = told_topic("late")
            await (await sending)
        async with producer_of(broker, max_block_ms=50) as producer:
            await know_topic(producer)
            with pytest.raises(ApiError, match="'nowhere'"):
                await producer.send("nowhere", b"a")


async def test_a_partition_that_is_not_there() -> None:
    async with scripted() as broker:
        script(broker)
        async with producer_of(broker) as producer:
            with pytest.raises(ApiError, match="partition 1, but topic 't' has 1 partitions"):
                await producer.send("t", b"a", partition=1)
            with pytest.raises(ValueError, match="timestamp=-1"):
                await producer.send("t", b"a", timestamp=-1)
            with pytest.raises(TypeError, match="value is a str, expected bytes"):
                await producer.send("t", "text")
            with pytest.raises(TypeError, match="key of a header is a int"):
                await producer.send("t", b"a", headers=[(1, b"a")])  # type: ignore[list-item]


async def test_a_topic_that_was_made_anew_is_begun_anew() -> None:
    """09:CL-4: another id under the same name drops all state of the old one."""
    log = Log()
    async with scripted() as broker:
        script(broker, log.append, refuse(ErrorCode.UNKNOWN_TOPIC_ID), log.append)
        async with producer_of(broker) as producer:
            await (await producer.send("t", b"a"))
            log.values.clear()
            log._producers.clear()
            broker.topics["t"] = replace(told_topic("t"), topic_id=b"another one.    ")
            assert (await (await producer.send("t", b"b"))).offset == 0
        last = sent_batches(broker)[-1].header

        assert (last.producer_epoch, last.base_sequence) == (PRODUCER_EPOCH + 1, 0)


async def test_without_acknowledgement_flush_waits_until_the_broker_has_read() -> None:
    async with scripted() as broker:
        script(broker, silent)
        async with producer_of(broker, acks=0) as producer:
            delivery = await producer.send("t", b"a")
            assert (await delivery).offset == -1
            await producer.flush()
            (batch,) = sent_batches(broker)

        assert batch.values == [b"a"]
        assert batch.header.producer_id == -1
        assert broker.received(ApiKey.INIT_PRODUCER_ID) == []


async def test_interceptors_see_records_and_outcomes() -> None:
    """09:CL-16: in list order before partitioning; what they raise is not passed on."""
    seen: list[tuple[str, Any]] = []

    class Marks:
        def __init__(self, mark: bytes) -> None:
            self.mark = mark

        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            seen.append(("send", record.value))
            return record._replace(value=record.value + self.mark, partition=1)

        def on_acknowledgement(self, metadata: RecordMetadata, error: OdradekError | None) -> None:
            seen.append(("ack", (metadata.partition, metadata.offset, error)))

    class Fails(Marks):
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            raise ValueError("never mind")

        def on_acknowledgement(self, metadata: RecordMetadata, error: OdradekError | None) -> None:
            raise ValueError("never mind")

    async with scripted() as broker:
        script(broker, partitions=2)
        interceptors = [Marks(b"1"), Fails(b""), Marks(b"2")]
        async with producer_of(broker, interceptors=interceptors) as producer:
            await (await producer.send("t", b"v"))
        (batch,) = sent_batches(broker)

    assert (batch.partition, batch.values) == (1, [b"v12"])
    assert seen == [
        ("send", b"v"),
        ("send", b"v1"),
        ("ack", (1, 100, None)),
        ("ack", (1, 100, None)),
    ]


async def test_serializers_and_a_partitioner_of_ones_own() -> None:
    def last(topic: str, key: bytes | None, value: bytes | None, partition_count: int) -> int:
        assert (topic, key, value) == ("t", b"k", b"7")
        return partition_count - 1

    async with scripted() as broker:
        script(broker, partitions=3)
        settings: dict[str, Any] = {
            "key_serializer": str.encode,
            "value_serializer": lambda number: str(number).encode(),
            "partitioner": last,
        }
        async with producer_of(broker, **settings) as producer:
            assert (await (await producer.send("t", 7, "k"))).partition == 2


@pytest.mark.parametrize(("has_id", "version"), [(True, 13), (False, 12)])
async def test_topics_are_named_by_id_if_they_have_one(has_id: bool, version: int) -> None:
    """09:CL-3."""
    async with scripted() as broker:
        script(broker)
        if not has_id:
            broker.versions[ApiKey.METADATA] = (0, 9)
        async with producer_of(broker) as producer:
            await (await producer.send("t", b"a"))

        (sent,) = [(v, message) for key, v, message in broker.requests if key is ApiKey.PRODUCE]
        assert sent[0] == version
        topic = sent[1].topic_data[0]
        assert (topic.name, bytes(topic.topic_id)) == (
            ("", topic_id("t")) if has_id else ("t", bytes(16))
        )


async def test_a_broker_that_asks_for_a_pause_gets_it() -> None:
    async with scripted() as broker:

        def throttled(request: ProduceRequest) -> Any:
            return replace(accept(request), throttle_time_ms=40)

        script(broker, throttled, accept)
        async with producer_of(broker) as producer:
            loop = asyncio.get_running_loop()
            began_s = loop.time()
            await (await producer.send("t", b"a"))
            await (await producer.send("t", b"b"))
            assert loop.time() - began_s >= 0.04
            assert producer.metrics()["produce-throttle-time-max"] == 40


async def test_a_producer_that_was_not_started_says_so() -> None:
    producer = Producer(bootstrap_servers="127.0.0.1:1")
    with pytest.raises(RuntimeError, match="not started"):
        await producer.send("t", b"a")
    await producer.close()
