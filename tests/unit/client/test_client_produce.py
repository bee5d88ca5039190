"""Producing: partitions, batches, sequences, and answers that get lost."""

from typing import Any

import pytest

from odradek.client import Produced, Producer, ProducerOptions, ProducerRecord
from odradek.errors import ApiError, ErrorCode
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.init_producer_id import InitProducerIdResponse
from odradek.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from odradek.records.batch import BatchHeader, parse_header
from odradek.records.compression import Codec
from odradek.records.record import Record, read_records
from tests.support.scripted_broker import (
    HANG_UP,
    Answer,
    ScriptedBroker,
    client_of,
    scripted,
    told_topic,
    topic_id,
)


def accept(request: ProduceRequest, **fields: Any) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(index=one.index, **{"base_offset": 100} | fields)
                    for one in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


def refuse(code: ErrorCode, **fields: Any) -> Answer:
    return lambda request: accept(request, error_code=code, base_offset=-1, **fields)


def script(broker: ScriptedBroker, *answers: Answer, partitions: int = 1) -> None:
    broker.topics["t"] = told_topic("t", partitions=partitions)
    broker.will_answer(
        ApiKey.INIT_PRODUCER_ID, InitProducerIdResponse(producer_id=9, producer_epoch=2)
    )
    broker.will_answer(ApiKey.PRODUCE, *(answers or (accept,)))


def batches(broker: ScriptedBroker) -> list[tuple[int, BatchHeader, list[Record]]]:
    found = []
    for request in broker.received(ApiKey.PRODUCE):
        for topic in request.topic_data:
            for one in topic.partition_data:
                header = parse_header(one.records)
                assert header is not None
                found.append((one.index, header, list(read_records(one.records))))
    return found


async def test_records_go_where_key_partition_or_turn_say() -> None:
    """09:CL-11: by murmur2 of the key over all partitions."""
    records = [
        ProducerRecord(b"by key", key=b"foobar"),
        ProducerRecord(b"given", partition=1),
        ProducerRecord(b"turn 0"),
        ProducerRecord(b"turn 1"),
        ProducerRecord(b"empty key", key=b""),
        ProducerRecord(None, key=b"foobar", headers=(("h", b"1"),), timestamp_ms=77),
    ]
    async with scripted() as broker:
        script(broker, partitions=3)
        async with client_of(broker) as client:
            produced = await Producer(client, "t").send(records)

        by_key, by_empty_key = (-790332482 & 0x7FFFFFFF) % 3, 275646681 % 3
        expected: dict[int, list[bytes | None]] = {0: [], 1: [], 2: []}
        for partition, value in (
            (by_key, b"by key"),
            (1, b"given"),
            (0, b"turn 0"),
            (1, b"turn 1"),
            (by_empty_key, b"empty key"),
            (by_key, None),
        ):
            expected[partition].append(value)
        sent = {partition: [one.value for one in found] for partition, _, found in batches(broker)}
        assert sent == {partition: values for partition, values in expected.items() if values}
        tombstone = batches(broker)[by_key][2][-1]
        assert (tombstone.timestamp, tombstone.headers) == (77, (("h", b"1"),))
        assert sum(one.record_count for one in produced) == 6
        assert {one.base_offset for one in produced} == {100}


async def test_a_repeated_batch_keeps_its_sequence() -> None:
    """09:CL-14, 09:TV-15b: resent with id, epoch and sequence, byte for byte."""
    async with scripted() as broker:
        script(broker, HANG_UP, refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER), accept)
        async with client_of(broker) as client:
            producer = Producer(client, "t")
            first = await producer.send([ProducerRecord(b"a"), ProducerRecord(b"b")])
            await producer.send([ProducerRecord(b"c")])

        assert first == [Produced(0, 100, 2)]
        requests = [
            request.topic_data[0].partition_data[0].records
            for request in broker.received(ApiKey.PRODUCE)
        ]
        assert bytes(requests[0]) == bytes(requests[1]) == bytes(requests[2])
        headers = [header for _, header, _ in batches(broker)]
        assert [header.base_sequence for header in headers] == [0, 0, 0, 2]
        assert {(header.producer_id, header.producer_epoch) for header in headers} == {(9, 2)}


async def test_a_batch_that_was_stored_before_its_answer_got_lost() -> None:
    """09:CL-14: DUPLICATE_SEQUENCE_NUMBER is success with an unknown offset."""
    async with scripted() as broker:
        script(broker, refuse(ErrorCode.DUPLICATE_SEQUENCE_NUMBER))
        async with client_of(broker) as client:
            assert await Producer(client, "t").send([ProducerRecord(b"a")]) == [Produced(0, -1, 1)]


async def test_without_idempotence_a_lost_answer_is_not_followed_by_a_second_copy() -> None:
    async with scripted() as broker:
        script(broker, HANG_UP, accept)
        async with client_of(broker) as client:
            producer = Producer(client, "t", ProducerOptions(acks=1))
            with pytest.raises(ApiError, match="whether it was done is unknown"):
                await producer.send([ProducerRecord(b"a")])
            with pytest.raises(ApiError, match="this producer has failed"):
                await producer.send([ProducerRecord(b"b")])

        assert len(broker.received(ApiKey.PRODUCE)) == 1
        assert broker.received(ApiKey.INIT_PRODUCER_ID) == []


async def test_a_refused_batch_tells_why() -> None:
    faults = [BatchIndexAndErrorMessage(batch_index=0, batch_index_error_message="no key")]
    async with scripted() as broker:
        script(broker, refuse(ErrorCode.INVALID_RECORD, record_errors=faults))
        async with client_of(broker) as client:
            with pytest.raises(ApiError, match="t-0: no key") as error:
                await Producer(client, "t").send([ProducerRecord(b"a")])

        assert error.value.code is ErrorCode.INVALID_RECORD


async def test_a_partition_that_is_not_there() -> None:
    async with scripted() as broker:
        script(broker)
        async with client_of(broker) as client:
            with pytest.raises(ApiError, match="1 partitions, numbered from 0, so no 1"):
                await Producer(client, "t").send([ProducerRecord(b"a", partition=1)])


async def test_many_records_are_sent_in_batches_of_a_bounded_size() -> None:
    options = ProducerOptions(batch_bytes=1_000, codec=Codec.GZIP)
    async with scripted() as broker:
        script(broker)
        async with client_of(broker) as client:
            records = [ProducerRecord(b"%04d" % number * 25) for number in range(40)]
            await Producer(client, "t", options).send(records)

        values = [record.value for _, _, found in batches(broker) for record in found]
        assert values == [record.value for record in records]
        assert all(len(found) <= 10 for _, _, found in batches(broker))
        sequences = [header.base_sequence for _, header, _ in batches(broker)]
        assert sequences == list(range(0, 40, 8))


async def test_without_acknowledgement_flush_waits_until_the_broker_has_read() -> None:
    async with scripted() as broker:
        script(broker, lambda _request: None)
        async with client_of(broker) as client:
            producer = Producer(client, "t", ProducerOptions(acks=0))
            assert await producer.send([ProducerRecord(b"a")]) == [Produced(0, -1, 1)]
            await producer.flush()

        assert [found[0].value for _, _, found in batches(broker)] == [b"a"]


@pytest.mark.parametrize(("has_id", "version"), [(True, 13), (False, 12)])
async def test_topics_are_named_by_id_if_they_have_one(has_id: bool, version: int) -> None:
    async with scripted() as broker:
        script(broker)
        if not has_id:
            broker.versions[ApiKey.METADATA] = (0, 9)
        async with client_of(broker) as client:
            await Producer(client, "t").send([ProducerRecord(b"a")])

        (sent,) = [(v, message) for key, v, message in broker.requests if key is ApiKey.PRODUCE]
        assert sent[0] == version
        topic = sent[1].topic_data[0]
        assert (topic.name, bytes(topic.topic_id)) == (
            ("", topic_id("t")) if has_id else ("t", bytes(16))
        )
