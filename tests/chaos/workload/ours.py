"""The roles on Odradek's own clients."""

import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from odradek import Consumer, Producer
from odradek.client.producer.delivery import Delivery
from odradek.errors import OdradekError
from odradek.model import TopicPartition
from tests.chaos.workload.recording import Recorder

__all__ = ["member", "producer", "reader"]

POLL_S = 0.2
COMMIT_S = 0.5
CALL_S = 10
FLUSH_S = 40


def producer(recorder: Recorder) -> None:
    """Writes numbers in turn to all partitions."""
    settings = recorder.settings
    client = Producer(
        {
            "bootstrap.servers": settings.bootstrap,
            "client.id": settings.process,
            "acks": settings.acks,
            "enable.idempotence": settings.is_idempotent,
            "delivery.timeout.ms": 30_000,
            "request.timeout.ms": 5_000,
            "max.block.ms": 5_000,
            "linger.ms": 5,
        },
        on_error=lambda failed: print(f"{time.monotonic():.3f} {failed}", file=sys.stderr),
    )

    def on_done(n: int, delivery: Delivery) -> None:
        error = delivery.exception()
        if error is None:
            offset = delivery.result().offset
            told = offset if offset >= 0 else None
            recorder.say("sent", n=n, outcome="ok", offset=told, error=None)
        else:
            recorder.say("sent", n=n, outcome="unknown", offset=None, error=repr(error))

    n = 0
    due = time.monotonic()
    while not recorder.is_stopping.is_set() and not (settings.count and n >= settings.count):
        n += 1
        value = f"{settings.process}/{n}"
        partition = n % settings.partitions
        recorder.say(
            "send", n=n, topic=settings.label, partition=partition, key=str(n), value=value
        )
        try:
            delivery = client.send(
                settings.topic, value.encode(), str(n).encode(), partition=partition
            )
        except OdradekError as error:
            # It never came into the buffer.
            recorder.say("sent", n=n, outcome="fail", offset=None, error=repr(error))
        else:
            delivery.add_done_callback(partial(on_done, n))
        due += 1 / settings.rate
        recorder.is_stopping.wait(max(0.0, due - time.monotonic()))
    client.close(FLUSH_S)
    recorder.say("ended")


def reader(recorder: Recorder) -> None:
    """Reads all partitions from their beginning."""
    settings = recorder.settings
    numbers = range(settings.partitions)
    recorder.say("assign", positions=[[settings.label, number, 0] for number in numbers])
    with Consumer(
        {
            "bootstrap.servers": settings.bootstrap,
            "client.id": settings.process,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "client.rack": settings.rack,
        }
    ) as consumer:
        consumer.assign([TopicPartition(settings.topic, number) for number in numbers])
        for number in numbers:
            consumer.seek(TopicPartition(settings.topic, number), 0)
        while not recorder.is_stopping.is_set():
            recorder.poll(_poll(recorder, consumer))


def _poll(recorder: Recorder, consumer: Consumer) -> list[tuple[int, int, bytes]]:
    try:
        came = consumer.poll(POLL_S)
    except OdradekError as error:
        print(f"{time.monotonic():.3f} poll: {error!r}", file=sys.stderr)
        recorder.is_stopping.wait(POLL_S)
        return []
    return [(one.partition, one.offset, one.value or b"") for one in came]


class _Listener:
    """Writes down what the member is given, and forgets positions that are no longer its own."""

    def __init__(self, recorder: Recorder, consumer: Consumer) -> None:
        self._recorder = recorder
        self._consumer = consumer
        self.positions: dict[int, int] = {}
        self.generation: int | None = None

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        core: Any = self._consumer._core
        membership = core._group.membership
        self.generation = membership.generation
        self.positions.clear()
        self._recorder.say(
            "joined",
            group=self._recorder.settings.group,
            generation=self.generation,
            member=membership.member_id,
            partitions=self._recorder.rows(one.partition for one in partitions),
        )

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self._recorder.say(
            "revoked",
            group=self._recorder.settings.group,
            generation=self.generation,
            partitions=self._recorder.rows(one.partition for one in partitions),
        )
        self.generation = None
        self.positions.clear()

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.on_partitions_revoked(partitions)


def member(recorder: Recorder) -> None:
    """Reads as a member of the group, and commits what it has read."""
    settings = recorder.settings
    with Consumer(
        {
            "bootstrap.servers": settings.bootstrap,
            "client.id": settings.process,
            "group.id": settings.group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "partition.assignment.strategy": "range",
            "session.timeout.ms": settings.session_ms,
            "heartbeat.interval.ms": settings.session_ms // 6,
        }
    ) as consumer:
        listener = _Listener(recorder, consumer)
        consumer.subscribe([settings.topic], listener=listener)
        commits = 0
        commit_at = time.monotonic()
        while not recorder.is_stopping.is_set():
            records = _poll(recorder, consumer)
            recorder.poll(records)
            for partition, offset, _ in records:
                listener.positions[partition] = offset + 1
            if listener.positions and listener.generation is not None:
                if time.monotonic() < commit_at:
                    continue
                commits += 1
                _commit(recorder, consumer, commits, listener)
                commit_at = time.monotonic() + COMMIT_S


def _commit(recorder: Recorder, consumer: Consumer, n: int, listener: _Listener) -> None:
    settings = recorder.settings
    positions = dict(sorted(listener.positions.items()))
    recorder.say(
        "commit",
        n=n,
        group=settings.group,
        generation=listener.generation,
        offsets=[[settings.label, number, offset] for number, offset in positions.items()],
    )
    error = None
    try:
        consumer.commit_sync(
            {
                TopicPartition(settings.topic, number): offset
                for number, offset in positions.items()
            },
            timeout=CALL_S,
        )
    except OdradekError as failed:
        # A refused commit may be the second try of one that was accepted.
        error = repr(failed)
    recorder.say("commit-done", n=n, outcome="unknown" if error else "ok", error=error)
