"""What a scripted broker was sent by a producer, and how it answers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeAlias

from odradek.aio import Producer
from odradek.errors import ErrorCode
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.init_producer_id import InitProducerIdResponse
from odradek.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from odradek.records.batch import BatchHeader, parse_header
from odradek.records.record import read_records
from tests.support.scripted_broker import Answer, ScriptedBroker, told_topic

PRODUCER_ID = 9
PRODUCER_EPOCH = 2


class SentBatch(NamedTuple):
    partition: int
    header: BatchHeader
    values: list[bytes | None]
    encoded: bytes


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


# Epoch, next sequence, and the offsets of batches by their first.
_Known: TypeAlias = tuple[int, int, dict[int, int]]


class Log:
    """Partitions that take batches as a leader does: in sequence, each once."""

    def __init__(self) -> None:
        self.values: dict[int, list[bytes | None]] = {}
        # By partition and producer.
        self._producers: dict[tuple[int, int], _Known] = {}

    def append(self, request: ProduceRequest) -> ProduceResponse:
        """The answer of a leader that takes what it can."""
        return ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partition_responses=[
                        self._append(one.index, bytes(one.records or b""))
                        for one in topic.partition_data
                    ],
                )
                for topic in request.topic_data
            ]
        )

    def _append(self, partition: int, encoded: bytes) -> PartitionProduceResponse:
        header = parse_header(encoded)
        assert header is not None
        values = self.values.setdefault(partition, [])
        if header.producer_id >= 0:
            key = (partition, header.producer_id)
            # Who is not known may begin with any sequence.
            nobody: _Known = (header.producer_epoch, header.base_sequence, {})
            epoch, expected, known = self._producers.get(key, nobody)
            if header.producer_epoch > epoch:
                epoch, expected, known = header.producer_epoch, 0, {}
            if header.producer_epoch == epoch and header.base_sequence in known:
                offset = known[header.base_sequence]
                return PartitionProduceResponse(index=partition, base_offset=offset)
            if header.producer_epoch < epoch or header.base_sequence != expected:
                code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
                return PartitionProduceResponse(index=partition, error_code=code, base_offset=-1)
            known[header.base_sequence] = len(values)
            self._producers[key] = (epoch, expected + header.record_count, known)
        offset = len(values)
        values += [record.value for record in read_records(encoded, header=header)]
        return PartitionProduceResponse(index=partition, base_offset=offset)


def script(broker: ScriptedBroker, *answers: Answer, partitions: int = 1) -> None:
    """Topic `t`, a producer id, and answers to what is produced."""
    broker.topics["t"] = told_topic("t", partitions=partitions)
    broker.will_answer(
        ApiKey.INIT_PRODUCER_ID,
        InitProducerIdResponse(producer_id=PRODUCER_ID, producer_epoch=PRODUCER_EPOCH),
    )
    broker.will_answer(ApiKey.PRODUCE, *(answers or (accept,)))


def sent_batches(broker: ScriptedBroker) -> list[SentBatch]:
    """Every batch that came, in order, repetitions too."""
    batches = []
    for request in broker.received(ApiKey.PRODUCE):
        for topic in request.topic_data:
            for one in topic.partition_data:
                encoded = bytes(one.records)
                header = parse_header(encoded)
                assert header is not None
                values = [record.value for record in read_records(encoded, header=header)]
                batches.append(SentBatch(one.index, header, values, encoded))
    return batches


@asynccontextmanager
async def producer_of(broker: ScriptedBroker, **settings: Any) -> AsyncIterator[Producer]:
    """A producer that waits a millisecond where others wait a tenth of a second."""
    defaults: dict[str, Any] = {
        "bootstrap_servers": f"127.0.0.1:{broker.port}",
        "retry_backoff_ms": 1,
        "retry_backoff_max_ms": 2,
        "reconnect_backoff_ms": 1,
        "reconnect_backoff_max_ms": 2,
        "linger_ms": 0,
    }
    async with Producer(**defaults | settings) as producer:
        yield producer
