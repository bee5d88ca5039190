"""Transactions on kafka-python."""

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import (
    IllegalStateError,
    InvalidProducerEpochError,
    KafkaError,
    KafkaTimeoutError,
    ProducerFencedError,
)
from kafka.structs import OffsetAndMetadata, TopicPartition

from tests.chaos.workload.pipelines import AbortableError, BrokenError, Done, RetriableError
from tests.chaos.workload.recording import Recorder

__all__ = ["open_session"]

POLL_MS = 200


def open_session(recorder: Recorder, *, is_pipeline: bool) -> "_Session":
    """A producer, and a consumer if it is for a pipeline."""
    return _Session(recorder, is_pipeline=is_pipeline)


class _Session:
    def __init__(self, recorder: Recorder, *, is_pipeline: bool) -> None:
        self._settings = recorder.settings
        self._is_pipeline = is_pipeline
        self._producer: Any = None
        self._consumer: Any = None

    def init(self) -> None:
        """Connects, too: constructing a client fails while no broker is there."""
        _call(self._open)

    def _open(self) -> None:
        settings = self._settings
        common = {"bootstrap_servers": settings.bootstrap, "client_id": settings.process}
        if self._producer is None:
            self._producer = KafkaProducer(
                **common,
                transactional_id=settings.transactional_id,
                transaction_timeout_ms=settings.transaction_timeout_ms,
                request_timeout_ms=5_000,
                linger_ms=5,
            )
        self._producer.init_transactions()
        if self._is_pipeline:
            self._consumer = KafkaConsumer(
                settings.topic,
                **common,
                group_id=settings.group,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                isolation_level="read_committed",
                session_timeout_ms=settings.session_ms,
                heartbeat_interval_ms=settings.session_ms // 6,
            )

    def poll(self) -> list[tuple[int, int, bytes]]:
        came = _call(lambda: self._consumer.poll(POLL_MS, max_records=200))
        records = (one for some in came.values() for one in some)
        return [(one.partition, one.offset, one.value) for one in records]

    def begin(self) -> None:
        _call(self._producer.begin_transaction)

    def send(self, topic: str, partition: int, value: str, done: Done) -> None:
        future = _call(lambda: self._producer.send(topic, value.encode(), partition=partition))
        future.add_callback(lambda told: done(told.offset if told.offset >= 0 else None, None))
        future.add_errback(lambda error: done(None, repr(error)))

    def send_offsets(self, positions: Mapping[int, int]) -> None:
        topic = self._settings.topic
        offsets = {
            TopicPartition(topic, number): OffsetAndMetadata(offset, "", -1)
            for number, offset in positions.items()
        }
        metadata = self._consumer.group_metadata()
        _call(lambda: self._producer.send_offsets_to_transaction(offsets, metadata))

    def commit(self) -> None:
        _call(self._producer.commit_transaction)

    def abort(self) -> None:
        _call(self._producer.abort_transaction)

    def rewind(self, positions: Mapping[int, int]) -> None:
        for number, offset in positions.items():
            tp = TopicPartition(self._settings.topic, number)
            if tp in self._consumer.assignment():
                self._consumer.seek(tp, offset)

    def close(self) -> None:
        with contextlib.suppress(KafkaError):
            if self._consumer is not None:
                self._consumer.close(timeout_ms=5_000)
            if self._producer is not None:
                self._producer.close(timeout=0)


def _call(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except (ProducerFencedError, InvalidProducerEpochError, IllegalStateError) as error:
        raise BrokenError(repr(error)) from error
    except KafkaTimeoutError as error:
        raise RetriableError(repr(error)) from error
    except (KafkaError, AssertionError) as error:
        raise AbortableError(repr(error)) from error
