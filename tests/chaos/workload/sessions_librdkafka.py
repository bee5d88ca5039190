"""Transactions on librdkafka."""

import contextlib
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.chaos.workload.librdkafka import _common, _consume
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
        self._topic = settings.topic
        self._producer = Producer(
            _common(recorder)
            | {
                "transactional.id": settings.transactional_id,
                "transaction.timeout.ms": settings.transaction_timeout_ms,
                "request.timeout.ms": 5_000,
                # Below the timeout of a transaction, as librdkafka wants it.
                "socket.timeout.ms": 5_000,
                # Otherwise it forgets all brokers once none can be reached, and a call for the
                # offsets of a transaction that waits for one of them waits for good.
                "metadata.recovery.strategy": "none",
                "linger.ms": 5,
            }
        )
        self._consumer: Consumer | None = None
        if is_pipeline:
            self._consumer = Consumer(
                _common(recorder)
                | {
                    "group.id": settings.group,
                    "enable.auto.commit": False,
                    "auto.offset.reset": "earliest",
                    "isolation.level": "read_committed",
                    "session.timeout.ms": settings.session_ms,
                    "heartbeat.interval.ms": settings.session_ms // 6,
                }
            )
            self._consumer.subscribe([settings.topic])

    def init(self) -> None:
        _call(lambda: self._producer.init_transactions(CALL_S))

    def poll(self) -> list[tuple[int, int, bytes]]:
        self._producer.poll(0)
        assert self._consumer is not None
        return _consume(self._consumer)

    def begin(self) -> None:
        _call(self._producer.begin_transaction)

    def send(self, topic: str, partition: int, value: str, done: Done) -> None:
        def on_delivery(error: KafkaError | None, message: Any) -> None:
            done(
                message.offset() if error is None else None,
                None if error is None else error.name(),
            )

        while True:
            try:
                _call(
                    lambda: self._producer.produce(
                        topic, value.encode(), partition=partition, on_delivery=on_delivery
                    )
                )
            except BufferError:
                self._producer.poll(0.1)
            else:
                break
        self._producer.poll(0)

    def send_offsets(self, positions: Mapping[int, int]) -> None:
        consumer = self._consumer
        assert consumer is not None
        offsets = [TopicPartition(self._topic, *one) for one in sorted(positions.items())]
        metadata = consumer.consumer_group_metadata()
        _call(lambda: self._producer.send_offsets_to_transaction(offsets, metadata, CALL_S))

    def commit(self) -> None:
        _call(lambda: self._producer.commit_transaction(CALL_S))

    def abort(self) -> None:
        _call(lambda: self._producer.abort_transaction(CALL_S))

    def rewind(self, positions: Mapping[int, int]) -> None:
        assert self._consumer is not None
        for partition, offset in positions.items():
            with contextlib.suppress(KafkaException):  # It may have been taken away.
                self._consumer.seek(TopicPartition(self._topic, partition, offset))

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()


def _call(call: Callable[[], object]) -> None:
    try:
        call()
    except KafkaException as failed:
        error = failed.args[0]
        if error.txn_requires_abort():
            raise AbortableError(error) from failed
        if error.retriable():
            raise RetriableError(error) from failed
        print(f"{time.monotonic():.3f} {error!r}", file=sys.stderr)
        raise BrokenError(error) from failed
