"""Transactions on Odradek's clients."""

from collections.abc import Callable, Mapping
from functools import partial

from odradek import Consumer, Producer
from odradek.client.consumer import OffsetAndMetadata
from odradek.client.producer.delivery import Delivery
from odradek.client.producer.errors import (
    AbortableTransactionError,
    RetriableTransactionError,
)
from odradek.errors import OdradekError
from odradek.model import TopicPartition
from tests.chaos.workload.ours import _poll
from tests.chaos.workload.pipelines import AbortableError, BrokenError, Done, RetriableError
from tests.chaos.workload.recording import Recorder

__all__ = ["open_session"]

CALL_S = 10


def open_session(recorder: Recorder, *, is_pipeline: bool) -> "_Session":
    """A producer, and a consumer if it is for a pipeline."""
    return _Session(recorder, is_pipeline=is_pipeline)


class _Session:
    def __init__(self, recorder: Recorder, *, is_pipeline: bool) -> None:
        settings = recorder.settings
        self._recorder = recorder
        self._producer = Producer(
            {
                "bootstrap.servers": settings.bootstrap,
                "client.id": settings.process,
                "transactional.id": settings.transactional_id,
                "transaction.timeout.ms": settings.transaction_timeout_ms,
                "request.timeout.ms": 5_000,
                "delivery.timeout.ms": 30_000,
                "max.block.ms": CALL_S * 1000,
                "linger.ms": 5,
            }
        )
        self._consumer: Consumer | None = None
        if is_pipeline:
            self._consumer = Consumer(
                {
                    "bootstrap.servers": settings.bootstrap,
                    "client.id": settings.process,
                    "group.id": settings.group,
                    "auto.offset.reset": "earliest",
                    "enable.auto.commit": False,
                    "isolation.level": "read_committed",
                    "partition.assignment.strategy": "range",
                    "session.timeout.ms": settings.session_ms,
                    "heartbeat.interval.ms": settings.session_ms // 6,
                }
            )
            self._consumer.subscribe([settings.topic])

    def init(self) -> None:
        _call(lambda: self._producer.init_transactions(CALL_S))

    def poll(self) -> list[tuple[int, int, bytes]]:
        assert self._consumer is not None
        return _poll(self._recorder, self._consumer)

    def begin(self) -> None:
        _call(self._producer.begin_transaction)

    def send(self, topic: str, partition: int, value: str, done: Done) -> None:
        def send() -> None:
            delivery = self._producer.send(topic, value.encode(), partition=partition)
            delivery.add_done_callback(partial(_note, done))

        _call(send)

    def send_offsets(self, positions: Mapping[int, int]) -> None:
        consumer = self._consumer
        assert consumer is not None
        topic = self._recorder.settings.topic
        offsets: dict[TopicPartition | tuple[str, int], OffsetAndMetadata | int] = {
            TopicPartition(topic, number): offset for number, offset in positions.items()
        }
        metadata = consumer.group_metadata()
        _call(lambda: self._producer.send_offsets(offsets, metadata, CALL_S))

    def commit(self) -> None:
        _call(lambda: self._producer.commit_transaction(CALL_S))

    def abort(self) -> None:
        _call(lambda: self._producer.abort_transaction(CALL_S))

    def rewind(self, positions: Mapping[int, int]) -> None:
        assert self._consumer is not None
        topic = self._recorder.settings.topic
        mine = self._consumer.assignment()
        for number, offset in positions.items():
            tp = TopicPartition(topic, number)
            if tp in mine:
                self._consumer.seek(tp, offset)

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close(CALL_S)
        self._producer.close(0)


def _note(done: Done, delivery: Delivery) -> None:
    error = delivery.exception()
    if error is None:
        offset = delivery.result().offset
        done(offset if offset >= 0 else None, None)
    else:
        done(None, repr(error))


def _call(call: Callable[[], object]) -> None:
    try:
        call()
    except RetriableTransactionError as error:
        raise RetriableError(error) from error
    except AbortableTransactionError as error:
        raise AbortableError(error) from error
    except OdradekError as error:
        raise BrokenError(repr(error)) from error
