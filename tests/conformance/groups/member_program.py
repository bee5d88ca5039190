"""A member of a consumer group that prints what happens to it, on one of three Python clients.

Kafka's verifiable consumer does so for Java, and its lines are the model of these: JSON objects
with a ``name``. Run as ``python -m tests.conformance.groups.member_program CLIENT SETTINGS``; the
settings are JSON, see `Settings`. SIGTERM closes the client in order; so does the end of standard
input at once, so that a member never outlives the test that started it.

A commit may fail for reasons that the clients document as passing: a rebalance is on, the
generation is over, the coordinator moves or is slow. A member then says ``commit_failed``, polls
on, and commits again; it never ends for that. Whether a failure was of that kind is for the
reader of its lines to judge.
"""

import asyncio
import json
import logging
import os
import re
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

POLL_S = 0.2
# A commit without news now and then. It tells a client that no longer heartbeats, as kafka-python
# does at times after a rebalance, that its generation is over; on time it also keeps it a member.
COMMIT_ANYWAY_S = 1.0
CALL_S = 20
# kafka-python at times never ends a rebalance when metadata arrives in the middle of it: it does
# not heartbeat any more, refuses to commit, and its polls do not join. Only a new one helps.
STUCK_S = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a member is told."""

    bootstrap: str
    group: str
    client_id: str
    topic: str | None = None
    pattern: str | None = None  # A regular expression, instead of `topic`.
    strategy: str = "range"
    instance_id: str | None = None
    session_ms: int = 30_000
    commit: str = "sync"  # or async, or auto
    pause_s: float = 0  # Taken once, when the first records have come.


class Member:
    """What all clients share: lines out, when to commit, when to stop."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.is_stopping = threading.Event()
        self._lock = threading.Lock()
        self._has_news = False
        self._commit_at = time.monotonic() + COMMIT_ANYWAY_S
        self._has_paused = settings.pause_s == 0
        self._owned: set[tuple[str, int]] = set()
        self._without_since: float | None = time.monotonic()  # None: it was assigned partitions

    def say(self, name: str, **facts: Any) -> None:
        with self._lock:
            print(json.dumps({"name": name, **facts}), flush=True)

    def partitions(self, name: str, partitions: Iterable[tuple[str, int]]) -> None:
        changed = sorted(partitions)
        if name == "partitions_assigned":
            self._owned |= set(changed)
            self._without_since = None
        else:
            self._owned -= set(changed)
            self._without_since = time.monotonic()
        rows = [{"topic": topic, "partition": number} for topic, number in changed]
        self.say(name, partitions=rows)

    def is_stuck(self) -> bool:
        """Whether a rebalance began long ago and the client has heard no end of it."""
        since = self._without_since
        return since is not None and time.monotonic() > since + STUCK_S

    def start_anew(self) -> None:
        """Says that its client is closed and opened again, and so owns nothing."""
        self.say("started_anew")
        self.partitions("partitions_revoked", list(self._owned))

    def records(self, records: Iterable[tuple[str, int, int]]) -> None:
        """Topic, partition and offset of each that came."""
        runs: dict[tuple[str, int], list[int]] = {}
        for topic, partition, offset in records:
            runs.setdefault((topic, partition), []).append(offset)
        if not runs:
            return
        rows = [
            {"topic": t, "partition": p, "minOffset": min(some), "maxOffset": max(some)}
            for (t, p), some in runs.items()
        ]
        self.say("records_consumed", partitions=rows)
        self._has_news = True

    def pause_is_due(self) -> bool:
        """Whether to process slowly now, which is so once."""
        if self._has_paused or not self._has_news:
            return False
        self._has_paused = True
        return True

    def commit_is_due(self) -> bool:
        if self.settings.commit == "auto":
            return False
        return self._has_news or time.monotonic() >= self._commit_at

    def committing(self) -> None:
        self._has_news = False
        self._commit_at = time.monotonic() + COMMIT_ANYWAY_S

    def commit_failed(self, error: object) -> None:
        self.say("commit_failed", error=repr(error))
        self._has_news = True
        time.sleep(0.05)


def run_librdkafka(member: Member) -> None:
    from confluent_kafka import Consumer, KafkaError, KafkaException

    settings = member.settings

    def on_commit(error: KafkaError | None, _: object) -> None:
        if error is not None and error.code() != KafkaError._NO_OFFSET:
            member.commit_failed(error)

    config: dict[str, Any] = {
        "bootstrap.servers": settings.bootstrap,
        "group.id": settings.group,
        "client.id": settings.client_id,
        "partition.assignment.strategy": settings.strategy,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": settings.commit == "auto",
        "auto.commit.interval.ms": 200,
        "session.timeout.ms": settings.session_ms,
        "heartbeat.interval.ms": 300,
        "topic.metadata.refresh.interval.ms": 500,
        "on_commit": on_commit,
    }
    if settings.instance_id:
        config["group.instance.id"] = settings.instance_id
    consumer = Consumer(config)
    commit: Any = consumer.commit  # Its types want a literal.

    def told(name: str) -> Callable[[Any, list[Any]], None]:
        return lambda _, rows: member.partitions(name, [(tp.topic, tp.partition) for tp in rows])

    consumer.subscribe(
        ["^" + settings.pattern.removeprefix("^") if settings.pattern else str(settings.topic)],
        on_assign=told("partitions_assigned"),
        on_revoke=told("partitions_revoked"),
        on_lost=told("partitions_revoked"),
    )
    try:
        while not member.is_stopping.is_set():
            came: list[Any] = consumer.consume(500, POLL_S)
            member.records((m.topic(), m.partition(), m.offset()) for m in came if not m.error())
            for failed in (m.error() for m in came if m.error()):
                member.say("poll_failed", error=repr(failed))
            if member.pause_is_due():
                time.sleep(settings.pause_s)
                member.say("paused")
            if member.commit_is_due():
                member.committing()
                try:
                    commit(asynchronous=settings.commit == "async")
                except KafkaException as error:
                    if error.args[0].code() != KafkaError._NO_OFFSET:
                        member.commit_failed(error)
    finally:
        consumer.close()


def run_kafka_python(member: Member) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # It reads its schemas in an old way.
        import kafka
        import kafka.errors
        from kafka.coordinator.assignors.range import RangePartitionAssignor
        from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

    settings = member.settings
    assignors = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}

    class Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]  # untyped
        def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
            pairs = [(tp.topic, tp.partition) for tp in revoked]
            member.partitions("partitions_revoked", pairs)

        def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
            pairs = [(tp.topic, tp.partition) for tp in assigned]
            member.partitions("partitions_assigned", pairs)

    def open_consumer() -> Any:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=settings.bootstrap,
            group_id=settings.group,
            client_id=settings.client_id,
            group_instance_id=settings.instance_id,
            partition_assignment_strategy=[assignors[settings.strategy]],
            auto_offset_reset="earliest",
            enable_auto_commit=settings.commit == "auto",
            auto_commit_interval_ms=200,
            session_timeout_ms=settings.session_ms,
            heartbeat_interval_ms=300,
            metadata_max_age_ms=500 if settings.pattern else 300_000,
        )
        if settings.pattern:
            consumer.subscribe(pattern=settings.pattern, listener=Listener())
        else:
            consumer.subscribe([settings.topic], listener=Listener())
        return consumer

    def on_commit(_: object, answer: object) -> None:
        if isinstance(answer, Exception):
            member.commit_failed(answer)

    def open_until_it_works() -> Any:
        while not member.is_stopping.is_set():
            try:
                return open_consumer()
            except kafka.errors.KafkaError as error:  # Nobody answers yet, or any more.
                member.say("open_failed", error=repr(error))
                time.sleep(POLL_S)
        return None

    consumer = open_until_it_works()
    try:
        while not member.is_stopping.is_set():
            if member.is_stuck():
                member.start_anew()
                consumer.close()
                consumer = open_until_it_works()
                continue
            try:
                came = consumer.poll(timeout_ms=1000)
            except kafka.errors.KafkaError as error:
                member.say("poll_failed", error=repr(error))
                continue
            member.records((r.topic, r.partition, r.offset) for some in came.values() for r in some)
            if member.commit_is_due():
                member.committing()
                try:
                    if settings.commit == "async":
                        consumer.commit_async(callback=on_commit)
                    else:
                        consumer.commit(timeout_ms=CALL_S * 1000)
                except kafka.errors.KafkaError as error:
                    member.commit_failed(error)
    finally:
        if consumer is not None:
            consumer.close()


def run_aiokafka(member: Member) -> None:
    import aiokafka
    import aiokafka.errors
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

    settings = member.settings
    assignors = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}

    class Listener(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]  # untyped
        def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
            pairs = [(tp.topic, tp.partition) for tp in revoked]
            member.partitions("partitions_revoked", pairs)

        def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
            pairs = [(tp.topic, tp.partition) for tp in assigned]
            member.partitions("partitions_assigned", pairs)

    async def open_consumer() -> Any:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=settings.bootstrap,
            group_id=settings.group,
            client_id=settings.client_id,
            group_instance_id=settings.instance_id,
            partition_assignment_strategy=[assignors[settings.strategy]],
            auto_offset_reset="earliest",
            enable_auto_commit=settings.commit == "auto",
            auto_commit_interval_ms=200,
            session_timeout_ms=settings.session_ms,
            heartbeat_interval_ms=300,
            metadata_max_age_ms=500 if settings.pattern else 300_000,
        )
        if settings.pattern:
            consumer.subscribe(pattern=settings.pattern, listener=Listener())
        else:
            consumer.subscribe([settings.topic], listener=Listener())
        try:
            await consumer.start()
        except aiokafka.errors.KafkaError as error:  # Nobody answers yet, or any more.
            member.say("open_failed", error=repr(error))
            await consumer.stop()
            await asyncio.sleep(POLL_S)
            return None
        return consumer

    async def run() -> None:
        consumer = None
        while consumer is None:
            if member.is_stopping.is_set():
                return
            consumer = await open_consumer()
        try:
            while not member.is_stopping.is_set():
                try:
                    came = await consumer.getmany(timeout_ms=int(POLL_S * 1000))
                except aiokafka.errors.KafkaError as error:
                    member.say("poll_failed", error=repr(error))
                    await asyncio.sleep(POLL_S)
                    continue
                member.records(
                    (r.topic, r.partition, r.offset) for some in came.values() for r in some
                )
                if member.commit_is_due():
                    member.committing()
                    try:
                        await asyncio.wait_for(consumer.commit(), CALL_S)
                    except (aiokafka.errors.KafkaError, TimeoutError) as error:
                        member.commit_failed(error)
        finally:
            await consumer.stop()

    asyncio.run(run())


CLIENTS: dict[str, Callable[[Member], None]] = {
    "librdkafka": run_librdkafka,
    "kafka-python": run_kafka_python,
    "aiokafka": run_aiokafka,
}


def main() -> None:
    client, settings = sys.argv[1:]
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    member = Member(Settings(**json.loads(settings)))
    if member.settings.pattern:
        re.compile(member.settings.pattern)
    signal.signal(signal.SIGTERM, lambda *_: member.is_stopping.set())

    def end_with_the_test() -> None:
        # The descriptor itself: a buffered stream would be locked when this process ends.
        os.read(0, 1)
        os._exit(3)

    threading.Thread(target=end_with_the_test, daemon=True).start()
    member.say("startup_complete")
    CLIENTS[client](member)
    member.say("shutdown_complete")


if __name__ == "__main__":
    main()
