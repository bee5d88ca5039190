"""The roles on librdkafka."""

import contextlib
import struct
import sys
import time
from functools import partial
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from tests.chaos.workload.recording import Recorder

__all__ = ["final", "member", "observer", "producer", "reader"]

POLL_S = 0.2
CALL_S = 5
COMMIT_S = 0.5
LOOK_S = 1.0
FLUSH_S = 40
# librdkafka's metadata of a member, which has no other way to its generation: a mark, the number
# in the byte order of this machine, then the names of group and member, each ended by a zero byte.
_METADATA_MARK = b"CGMDv2:"


def _common(recorder: Recorder) -> dict[str, Any]:
    return {
        "bootstrap.servers": recorder.settings.bootstrap,
        "client.id": recorder.settings.process,
        "socket.timeout.ms": 10_000,
        "socket.connection.setup.timeout.ms": 5_000,
        "reconnect.backoff.max.ms": 1_000,
        "topic.metadata.refresh.interval.ms": 5_000,
        "error_cb": lambda error: print(f"{time.monotonic():.3f} {error}", file=sys.stderr),
        "log_level": 4,
    }


def _isolated(recorder: Recorder) -> dict[str, Any]:
    """The setting of a reader, which is written down."""
    level = recorder.settings.isolation
    if not level:
        return {}
    recorder.say("isolation", level=level)
    return {"isolation.level": level}


def producer(recorder: Recorder) -> None:
    """Writes numbers in turn to all partitions.

    A producer that librdkafka declares broken for good is replaced, under another name: batches of
    the former one may still be under way, and no order holds between the two.
    """
    n = 0
    life = 0
    while not recorder.is_stopping.is_set():
        life += 1
        recorder.process = recorder.settings.process + (f".{life}" if life > 1 else "")
        n = _produce(recorder, n)
        if recorder.settings.count and n >= recorder.settings.count:
            break
    recorder.say("ended")


def _produce(recorder: Recorder, n: int) -> int:
    settings = recorder.settings
    process = recorder.process
    fatal: list[KafkaError] = []

    def on_error(error: KafkaError) -> None:
        print(f"{time.monotonic():.3f} {error}", file=sys.stderr)
        if error.fatal():
            fatal.append(error)

    config = _common(recorder) | {
        "acks": settings.acks,
        "enable.idempotence": settings.is_idempotent,
        # When a record times out, librdkafka takes a new epoch and sends what is left under new
        # numbers, also what the broker may have: that would be a duplicate of its own making.
        "message.timeout.ms": 300_000,
        "request.timeout.ms": 5_000,
        "linger.ms": 5,
        "queue.buffering.max.messages": 20_000,
        "error_cb": on_error,
    }
    client = Producer(config)

    def on_delivery(number: int, error: KafkaError | None, message: Any) -> None:
        if error is None:
            offset = message.offset()
            told = offset if offset is not None and offset >= 0 else None
            recorder.say("sent", n=number, outcome="ok", offset=told, error=None)
        else:
            # Earlier attempts may have been written, whatever the last one was told.
            recorder.say("sent", n=number, outcome="unknown", offset=None, error=error.name())
        if error is not None and error.fatal():
            fatal.append(error)

    due = time.monotonic()
    while not recorder.is_stopping.is_set() and not fatal:
        if settings.count and n >= settings.count:
            break
        n += 1
        number = n
        value = f"{process}/{number}"
        partition = number % settings.partitions
        recorder.say(
            "send", n=number, topic=settings.label, partition=partition, key=str(n), value=value
        )
        try:
            client.produce(
                settings.topic,
                value.encode(),
                str(n).encode(),
                partition,
                on_delivery=partial(on_delivery, number),
            )
        except (BufferError, KafkaException) as error:
            recorder.say("sent", n=number, outcome="fail", offset=None, error=repr(error))
        due += 1 / settings.rate
        client.poll(max(0.0, due - time.monotonic()))
    client.flush(FLUSH_S)
    if len(client):
        client.purge()
        client.flush(1)
    return n


def reader(recorder: Recorder) -> None:
    """Reads all partitions from their beginning."""
    settings = recorder.settings
    numbers = range(settings.partitions)
    recorder.say("assign", positions=[[settings.label, number, 0] for number in numbers])
    consumer = Consumer(
        _common(recorder)
        | _isolated(recorder)
        | {
            "group.id": f"{settings.process}-alone",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "client.rack": settings.rack,
        }
    )
    consumer.assign([TopicPartition(settings.topic, number, 0) for number in numbers])
    try:
        while not recorder.is_stopping.is_set():
            recorder.poll(_consume(consumer))
    finally:
        consumer.close()


def _consume(consumer: Consumer) -> list[tuple[int, int, bytes]]:
    came: list[Any] = consumer.consume(500, POLL_S)
    for failed in (message.error() for message in came if message.error()):
        print(f"{time.monotonic():.3f} poll: {failed}", file=sys.stderr)
    return [(one.partition(), one.offset(), one.value()) for one in came if not one.error()]


def _identity(consumer: Consumer) -> tuple[int | None, str]:
    """The generation and the name of a member."""
    data: Any = consumer.consumer_group_metadata()
    assert data.startswith(_METADATA_MARK), data
    rest = data[len(_METADATA_MARK) :]
    (generation,) = struct.unpack_from("=i", rest)
    _, name, *_ = rest[4:].split(b"\0")
    return (generation if generation >= 0 else None), name.decode()


def member(recorder: Recorder) -> None:
    """Reads as a member of the group, and commits what it has read."""
    settings = recorder.settings
    consumer = Consumer(
        _common(recorder)
        | {
            "group.id": settings.group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": "range",
            "session.timeout.ms": settings.session_ms,
            "heartbeat.interval.ms": settings.session_ms // 6,
        }
    )
    positions: dict[int, int] = {}
    generation: int | None = None

    def on_assign(_: object, partitions: list[TopicPartition]) -> None:
        nonlocal generation
        generation, name = _identity(consumer)
        positions.clear()
        recorder.say(
            "joined",
            group=settings.group,
            generation=generation,
            member=name,
            partitions=recorder.rows(one.partition for one in partitions),
        )

    def on_revoke(_: object, partitions: list[TopicPartition]) -> None:
        nonlocal generation
        recorder.say(
            "revoked",
            group=settings.group,
            generation=generation,
            partitions=recorder.rows(one.partition for one in partitions),
        )
        generation = None
        positions.clear()

    consumer.subscribe(
        [settings.topic], on_assign=on_assign, on_revoke=on_revoke, on_lost=on_revoke
    )
    commits = 0
    commit_at = time.monotonic()
    try:
        while not recorder.is_stopping.is_set():
            records = _consume(consumer)
            recorder.poll(records)
            for partition, offset, _value in records:
                positions[partition] = offset + 1
            if positions and generation is not None and time.monotonic() >= commit_at:
                commits += 1
                _commit(recorder, consumer, commits, generation, dict(positions))
                commit_at = time.monotonic() + COMMIT_S
    finally:
        consumer.close()


def _commit(
    recorder: Recorder, consumer: Consumer, n: int, generation: int, positions: dict[int, int]
) -> None:
    settings = recorder.settings
    rows = [[settings.label, number, offset] for number, offset in sorted(positions.items())]
    recorder.say("commit", n=n, group=settings.group, generation=generation, offsets=rows)
    offsets = [TopicPartition(settings.topic, *one) for one in sorted(positions.items())]
    try:
        done = consumer.commit(offsets=offsets, asynchronous=False) or []
        errors = [repr(one.error) for one in done if one.error is not None]
    except KafkaException as error:
        errors = [repr(error)]
    # A refused commit may be the second try of one that was accepted.
    recorder.say(
        "commit-done",
        n=n,
        outcome="unknown" if errors else "ok",
        error=errors[0] if errors else None,
    )


def observer(recorder: Recorder) -> None:
    """Looks at committed offsets, if there is a group, and at starts and ends of partitions.

    Where records are read by committed transactions, the end of these, too.
    """
    settings = recorder.settings
    plain = {"group.id": settings.group or settings.process, "enable.auto.commit": False}
    # ListOffsets has the isolation of its consumer.
    consumer = Consumer(_common(recorder) | plain | {"isolation.level": "read_uncommitted"})
    stable = None
    if settings.isolation:
        stable = Consumer(_common(recorder) | plain | {"isolation.level": settings.isolation})
    partitions = [TopicPartition(settings.topic, number) for number in range(settings.partitions)]
    try:
        while not recorder.is_stopping.is_set():
            if settings.group:
                # A transaction is acknowledged before its marker is with the offsets; librdkafka
                # waits for that if it reads committed records.
                _look_at_offsets(recorder, stable or consumer, partitions)
            for one in partitions:
                with contextlib.suppress(KafkaException):
                    _look_at_ends(recorder, consumer, stable, one)
            recorder.is_stopping.wait(LOOK_S)
    finally:
        for one_consumer in (consumer, stable):
            if one_consumer is not None:
                one_consumer.close()


def _look_at_offsets(
    recorder: Recorder, consumer: Consumer, partitions: list[TopicPartition]
) -> None:
    settings = recorder.settings
    since = time.monotonic()
    with contextlib.suppress(KafkaException):
        told = consumer.committed(partitions, CALL_S)
        if all(one.error is None for one in told):
            rows = [
                [settings.label, one.partition, one.offset if one.offset >= 0 else None]
                for one in told
            ]
            recorder.say("committed", since=since, group=settings.group, offsets=rows)


def _look_at_ends(
    recorder: Recorder, consumer: Consumer, stable: Consumer | None, one: TopicPartition
) -> None:
    since = time.monotonic()
    low, high = consumer.get_watermark_offsets(one, CALL_S)
    facts: dict[str, int] = {}
    if stable is not None:
        _, facts["stable"] = stable.get_watermark_offsets(one, CALL_S)
    recorder.say(
        "watermarks",
        since=since,
        topic=recorder.settings.label,
        partition=one.partition,
        low=low,
        high=high,
        **facts,
    )


def final(recorder: Recorder) -> None:
    """Reads each partition as a whole; ends when it has, or when its time is over."""
    settings = recorder.settings
    deadline = time.monotonic() + settings.limit_s
    for number in range(settings.partitions):
        consumer = Consumer(
            _common(recorder)
            | {
                "group.id": f"{settings.process}-alone",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                "isolation.level": settings.isolation or "read_uncommitted",
            }
        )
        try:
            _read_out(recorder, consumer, number, deadline)
        finally:
            consumer.close()


def _read_out(recorder: Recorder, consumer: Consumer, number: int, deadline: float) -> None:
    settings = recorder.settings
    bounds = None
    while bounds is None and time.monotonic() < deadline:
        with contextlib.suppress(KafkaException):
            bounds = consumer.get_watermark_offsets(TopicPartition(settings.topic, number), CALL_S)
    if bounds is None:
        return
    low, high = bounds
    consumer.assign([TopicPartition(settings.topic, number, low)])
    rows: list[list[Any]] = []
    end = low  # A partition that ends in markers has no record before its end.
    while end < high and time.monotonic() < deadline:
        for message in consumer.consume(500, POLL_S):
            error = message.error()
            if error is None:
                rows.append([_place(message), (message.value() or b"").decode()])
                end = _place(message) + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                end = _place(message)
            else:
                print(f"{time.monotonic():.3f} final: {error}", file=sys.stderr)
    if end >= high:
        facts: dict[str, Any] = {}
        if settings.isolation:
            facts["isolation"] = settings.isolation
        recorder.say(
            "final-read",
            topic=settings.label,
            partition=number,
            low=low,
            high=high,
            records=rows,
            **facts,
        )


def _place(message: Message) -> int:
    offset = message.offset()
    assert offset is not None, "of a record or of the end of a partition"
    return offset
