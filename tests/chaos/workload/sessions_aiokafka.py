"""Transactions on aiokafka.

It commits offsets without the member's generation, so it reads partitions by hand: those that
belong to its transactional id, from the offsets that are committed once its predecessor is fenced.
It commits a transaction although a record of it has failed, so the records are looked at before.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import IllegalOperation, KafkaError, ProducerFenced

from tests.chaos.workload.pipelines import AbortableError, BrokenError, Done
from tests.chaos.workload.recording import Recorder

__all__ = ["open_session"]

CALL_S = 30
POLL_MS = 200
CLOSE_S = 5


def open_session(recorder: Recorder, *, is_pipeline: bool) -> "_Session":
    """A producer, and a consumer if it is for a pipeline."""
    return _Session(recorder, is_pipeline=is_pipeline)


class _Session:
    def __init__(self, recorder: Recorder, *, is_pipeline: bool) -> None:
        self._settings = recorder.settings
        self._is_pipeline = is_pipeline
        self._runner = asyncio.Runner()
        self._producer: AIOKafkaProducer | None = None
        self._consumer: AIOKafkaConsumer | None = None
        self._sent: list[asyncio.Future[Any]] = []

    def init(self) -> None:
        self._call(self._start)

    async def _start(self) -> None:
        settings = self._settings
        self._producer = AIOKafkaProducer(
            bootstrap_servers=settings.bootstrap,
            client_id=settings.process,
            transactional_id=settings.transactional_id,
            transaction_timeout_ms=settings.transaction_timeout_ms,
            request_timeout_ms=5_000,
        )
        await self._producer.start()
        if not self._is_pipeline:
            return
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=settings.bootstrap,
            client_id=settings.process,
            group_id=settings.group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        await self._consumer.start()
        self._consumer.assign(
            [TopicPartition(settings.topic, number) for number in settings.numbers]
        )

    def poll(self) -> list[tuple[int, int, bytes]]:
        consumer = self._consumer
        assert consumer is not None

        async def poll() -> list[tuple[int, int, bytes]]:
            came = await consumer.getmany(timeout_ms=POLL_MS, max_records=200)
            records = (one for some in came.values() for one in some)
            return [(one.partition, one.offset, one.value) for one in records]

        came: list[tuple[int, int, bytes]] = self._call(poll)
        return came

    def begin(self) -> None:
        self._sent.clear()
        self._call(lambda: self._made.begin_transaction())

    @property
    def _made(self) -> AIOKafkaProducer:
        assert self._producer is not None
        return self._producer

    def send(self, topic: str, partition: int, value: str, done: Done) -> None:
        async def send() -> None:
            future = await self._made.send(topic, value.encode(), partition=partition)
            self._sent.append(future)
            future.add_done_callback(lambda told: _note(told, done))

        self._call(send)

    def send_offsets(self, positions: Mapping[int, int]) -> None:
        settings = self._settings
        offsets = {
            TopicPartition(settings.topic, number): offset for number, offset in positions.items()
        }
        self._call(lambda: self._made.send_offsets_to_transaction(offsets, settings.group))

    def commit(self) -> None:
        async def commit() -> None:
            for told in await asyncio.gather(*self._sent, return_exceptions=True):
                if isinstance(told, BaseException):
                    # The sequence numbers have a hole now: another producer goes on.
                    raise BrokenError(f"a record was not sent: {told!r}")
            await self._made.commit_transaction()

        self._call(commit)

    def abort(self) -> None:
        self._call(lambda: self._made.abort_transaction())

    def rewind(self, positions: Mapping[int, int]) -> None:
        assert self._consumer is not None
        for number, offset in positions.items():
            self._consumer.seek(TopicPartition(self._settings.topic, number), offset)

    def close(self) -> None:
        async def close() -> None:
            for one in (self._consumer, self._producer):
                if one is not None:
                    with contextlib.suppress(KafkaError, TimeoutError):
                        async with asyncio.timeout(CLOSE_S):
                            await one.stop()

        self._runner.run(close())
        self._runner.close()

    def _call(self, call: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        async def bounded() -> Any:
            async with asyncio.timeout(CALL_S):
                return await call()

        try:
            return self._runner.run(bounded())
        except (ProducerFenced, IllegalOperation, AssertionError) as error:
            # Fenced meanwhile, or it has given up: there is no transaction to abort.
            raise BrokenError(repr(error)) from error
        except TimeoutError as error:
            # Whether it was done is not known, and it cannot be called again.
            raise BrokenError("no answer in time") from error
        except KafkaError as error:
            raise AbortableError(repr(error)) from error


def _note(told: "asyncio.Future[Any]", done: Done) -> None:
    if told.cancelled():
        done(None, "cancelled")
    elif (error := told.exception()) is not None:
        done(None, repr(error))
    else:
        done(told.result().offset, None)
