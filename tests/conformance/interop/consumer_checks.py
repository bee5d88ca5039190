"""What a consumer does in a group and with partitions assigned by hand, whoever made the broker."""

import asyncio
import re
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from odradek import Consumer, Producer, aio
from odradek.client.assignors import Subscription, TopicPartitions
from odradek.client.consumer import (
    ConcurrentModificationError,
    NoOffsetForPartitionError,
    OffsetAndMetadata,
    WakeupError,
)
from odradek.model import TopicPartition
from tests.conformance.interop.suite import Check
from tests.support.group_readers import (
    DEADLINE_S,
    OurReader,
    are_shared,
    create_topic,
    new_name,
    poll_until,
    produce,
)

__all__ = ["CONSUMER_CHECKS"]

COOPERATIVE = "cooperative-sticky"
# Nothing takes so long when it works.
WAIT_S = 60


def values_of(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def read(consumer: Consumer, count: int) -> list[Any]:
    """So many records, or more if they come in one poll."""
    records: list[Any] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(records) < count:
        assert time.monotonic() < deadline, f"{len(records)} records of {count}"
        records += consumer.poll(1)
    return records


# Groups.


def check_a_group_shares_partitions_and_goes_on_where_it_was(bootstrap: str) -> None:
    """09:CL-23, 09:CL-27."""
    topic, group = create_topic(bootstrap, 4), new_name("g")
    produce(bootstrap, topic, values_of(200), partitions=4)
    with OurReader(bootstrap, group, topic, enable_auto_commit=False) as first:
        poll_until([first], lambda: len(first.values) >= 200, "the first reads everything")
        first.commit()
        with OurReader(bootstrap, group, topic) as second:
            poll_until([first, second], lambda: are_shared([first, second], 4), "they share")
            assert ("revoked", frozenset(range(4))) in first.told
            produce(bootstrap, topic, values_of(40), partitions=4)
            # At least once: a rebalance may have a member read again what it had not committed.
            wanted: Counter[bytes | None] = Counter([*values_of(200), *values_of(40)])
            poll_until(
                [first, second],
                lambda: not wanted - Counter([*first.values, *second.values]),
                "both read what came since",
            )
            assert second.values
            first.commit()
            assert first.threads == {threading.get_ident()}
        poll_until([first], lambda: len(first.partitions) == 4, "the first has all again")
        first.commit()
    with OurReader(bootstrap, group, topic) as third:
        poll_until([third], lambda: len(third.partitions) == 4, "the third has all")
        positions = [third.consumer.position((topic, number), WAIT_S) for number in range(4)]
        assert positions == [60] * 4


def check_a_cooperative_newcomer_stops_nobody(bootstrap: str) -> None:
    """09:TV-12e, 09:CL-23."""
    topic, group = create_topic(bootstrap, 6), new_name("g")
    settings: dict[str, Any] = {"partition_assignment_strategy": COOPERATIVE}
    with OurReader(bootstrap, group, topic, **settings) as first:
        poll_until([first], lambda: len(first.partitions) == 6, "the first has all")
        with OurReader(bootstrap, group, topic, **settings) as second:
            readers = [first, second]
            poll_until(readers, lambda: are_shared(readers, 6), "they share")
            poll_until(readers, lambda: len(second.partitions) == 3, "evenly")
        revoked = [numbers for what, numbers in first.told if what == "revoked"]
        assert len(revoked) == 1
        assert len(revoked[0]) == 3
        assert not any(what == "lost" for what, _ in first.told)


def check_a_static_member_comes_back_to_what_it_had(bootstrap: str) -> None:
    """09:CL-27."""
    topic, group = create_topic(bootstrap, 2), new_name("g")
    with OurReader(bootstrap, group, topic, group_instance_id="i-1") as first:
        with OurReader(bootstrap, group, topic, group_instance_id="i-2") as second:
            readers = [first, second]
            poll_until(readers, lambda: are_shared(readers, 2), "they share")
            had, rebalances = second.partitions, len(first.told)
        with OurReader(bootstrap, group, topic, group_instance_id="i-2") as again:
            readers = [first, again]
            poll_until(readers, lambda: bool(again.partitions), "it is back")
            assert again.partitions == had
            assert len(first.told) == rebalances


class ByParity:
    """A strategy of an application: even partitions to its first member, odd ones to its last."""

    name = "by-parity"
    is_cooperative = False

    def __init__(self, told: bytes) -> None:
        self._told = told
        self.heard: set[bytes | None] = set()

    def user_data(self, owned: Iterable[TopicPartition], generation: int) -> bytes | None:
        return self._told

    def assign(
        self, topics: Mapping[str, TopicPartitions], members: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        self.heard = {one.user_data for one in members.values()}
        order = sorted(members, key=lambda member: members[member].user_data or b"")
        assigned: dict[str, list[TopicPartition]] = {member: [] for member in order}
        for topic, found in topics.items():
            for number in range(found.count):
                assigned[order[-(number % 2)]].append(TopicPartition(topic, number))
        return assigned


def check_a_strategy_of_the_application_decides(bootstrap: str) -> None:
    """09:CL-20: who leads runs it, and is given what members say with it."""
    topic, group = create_topic(bootstrap, 6), new_name("g")
    even, odd = ByParity(b"1"), ByParity(b"2")
    with OurReader(bootstrap, group, topic, assignors=[even]) as first:
        poll_until([first], lambda: len(first.partitions) == 6, "the first has all, and leads")
        assert even.heard == {b"1"}
        with OurReader(bootstrap, group, topic, assignors=[odd]) as second:
            readers = [first, second]
            poll_until(readers, lambda: are_shared(readers, 6), "they share")
            assert (first.partitions, second.partitions) == ({0, 2, 4}, {1, 3, 5})
            produce(bootstrap, topic, values_of(60), partitions=6)
            wanted = {(number, offset) for number in range(6) for offset in range(10)}
            poll_until(readers, lambda: first.seen | second.seen == wanted, "all is read")
        assert even.heard == {b"1", b"2"}
        assert odd.heard == set()


def check_patterns_find_topics_that_come_later(bootstrap: str) -> None:
    prefix, group = new_name("p"), new_name("g")
    pattern = re.compile(rf"{prefix}-.*")
    first_topic = create_topic(bootstrap, 1, f"{prefix}-a")
    produce(bootstrap, first_topic, [b"1"], partitions=1)
    with OurReader(bootstrap, group, pattern, metadata_max_age_ms=200) as reader:
        poll_until([reader], lambda: reader.values == [b"1"], "the first topic")
        later = create_topic(bootstrap, 1, f"{prefix}-b")
        produce(bootstrap, later, [b"2"], partitions=1)
        poll_until([reader], lambda: reader.values == [b"1", b"2"], "the later topic")
        assert reader.consumer.subscription() == {first_topic, later}


def check_automatic_commits_are_where_the_next_member_begins(bootstrap: str) -> None:
    """09:CL-18, 09:CL-27: committed when the consumer closes, whatever the interval."""
    topic, group = create_topic(bootstrap, 2), new_name("g")
    produce(bootstrap, topic, values_of(20), partitions=2)
    with OurReader(bootstrap, group, topic, auto_commit_interval_ms=3_600_000) as reader:
        poll_until([reader], lambda: len(reader.values) == 20, "all is read")
    produce(bootstrap, topic, [b"new", b"newer"], partitions=2)
    with OurReader(bootstrap, group, topic) as reader:
        poll_until([reader], lambda: len(reader.values) >= 2, "what came since")
        assert sorted(reader.values, key=str) == [b"new", b"newer"]


# Partitions by hand.


def check_positions_by_hand(bootstrap: str) -> None:
    """09:CL-24, 09:CL-27."""
    topic = create_topic(bootstrap, 1)
    produce(bootstrap, topic, values_of(10), partitions=1)
    tp = TopicPartition(topic, 0)
    with Consumer(bootstrap_servers=bootstrap, group_id=new_name("g")) as consumer:
        consumer.assign([tp])
        assert consumer.beginning_offsets([tp], WAIT_S) == {tp: 0}
        assert consumer.end_offsets([tp], WAIT_S) == {tp: 10}
        consumer.seek(tp, 7)
        assert [record.value for record in read(consumer, 3)] == [b"7", b"8", b"9"]
        assert consumer.lag(tp) == 0
        consumer.seek_to_beginning([tp])
        assert consumer.position(tp, WAIT_S) == 0
        consumer.seek_to_end([tp])
        assert consumer.position(tp, WAIT_S) == 10
        consumer.seek_to_beginning([tp])
        consumer.pause([tp])
        assert consumer.paused() == {tp}
        assert consumer.poll(0.2) == []
        consumer.resume([tp])
        assert read(consumer, 10)[0].offset == 0
        assert consumer.metrics()["records-consumed-total"] >= 13
        assert topic in consumer.topics(WAIT_S)
        assert len(consumer.partitions_for(topic, WAIT_S)) == 1


def check_offsets_for_times(bootstrap: str) -> None:
    """09:CL-27."""
    topic = create_topic(bootstrap, 2)
    first, empty = TopicPartition(topic, 0), TopicPartition(topic, 1)
    base_ms = int(time.time() * 1000) - 60_000
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(5):
            producer.send(topic, b"v", partition=0, timestamp=base_ms + 10 * number)
    with Consumer(bootstrap_servers=bootstrap) as consumer:
        for time_ms, offset in [
            (0, 0), (base_ms, 0), (base_ms + 1, 1), (base_ms + 30, 3), (base_ms + 40, 4),
        ]:  # fmt: skip
            found = consumer.offsets_for_times({first: time_ms}, WAIT_S)[first]
            assert found is not None
            assert found.offset == offset
            assert found.timestamp_ms == base_ms + 10 * offset
        late = consumer.offsets_for_times({first: base_ms + 41, empty: 0}, WAIT_S)
        assert late == {first: None, empty: None}


def check_reading_begins_so_long_ago(bootstrap: str) -> None:
    """09:CL-18, 09:CL-24: with `by_duration`, and at the end where no record is that young."""
    topic = create_topic(bootstrap, 3)
    now_ms = int(time.time() * 1000)
    minutes_ago = {0: (200, 190, 30, 10), 1: (200,), 2: ()}
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number, ages in minutes_ago.items():
            for age in ages:
                time_ms = now_ms - age * 60_000
                producer.send(topic, b"%d" % age, partition=number, timestamp=time_ms)
    # Two hours: far from every record, however slow the machine.
    settings: dict[str, Any] = {"auto_offset_reset": "by_duration:PT2H"}
    with Consumer(bootstrap_servers=bootstrap, **settings) as consumer:
        consumer.assign([(topic, number) for number in minutes_ago])
        assert [record.value for record in read(consumer, 2)] == [b"30", b"10"]
        positions = [consumer.position((topic, number), WAIT_S) for number in minutes_ago]
        assert positions == [4, 1, 0]
        produce(bootstrap, topic, [b"a", b"b", b"c"], partitions=3)
        later = {(record.partition, record.offset): record.value for record in read(consumer, 3)}
        assert later == {(0, 4): b"a", (1, 1): b"b", (2, 0): b"c"}


def check_commits_that_wait_and_commits_that_do_not(bootstrap: str) -> None:
    """09:CL-27, 09:TV-11a, 09:TV-11b."""
    topic, group = create_topic(bootstrap, 2), new_name("g")
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    told: list[tuple[int, Exception | None, int]] = []

    def note(offsets: Mapping[TopicPartition, OffsetAndMetadata], error: Exception | None) -> None:
        told.append((offsets[first].offset, error, threading.get_ident()))

    produce(bootstrap, topic, values_of(20), partitions=2)
    with Consumer(bootstrap_servers=bootstrap, group_id=group) as consumer:
        consumer.assign([first, second])
        assert consumer.committed([first], WAIT_S) == {first: None}
        consumer.commit_sync({first: OffsetAndMetadata(4, "here")}, WAIT_S)
        assert consumer.committed([first, second], WAIT_S) == {
            first: OffsetAndMetadata(4, "here"),
            second: None,
        }
        for offset in (5, 6, 7):
            consumer.commit_async({first: offset}, note)
        deadline = time.monotonic() + DEADLINE_S
        while len(told) < 3:
            assert time.monotonic() < deadline, told
            consumer.poll(0.05)
        assert told == [(offset, None, threading.get_ident()) for offset in (5, 6, 7)]
        consumer.seek(first, 3)
        consumer.seek(second, 8)
        # Positions, not what was fetched: nothing has been handed out.
        consumer.commit_sync(timeout=WAIT_S)
        committed = consumer.committed([first, second], WAIT_S)
        assert [one and one.offset for one in committed.values()] == [3, 8]


def check_no_offset_and_no_policy_is_an_error(bootstrap: str) -> None:
    """09:CL-24."""
    topic = create_topic(bootstrap, 1)
    produce(bootstrap, topic, [b"v"], partitions=1)
    settings: dict[str, Any] = {"group_id": new_name("g"), "auto_offset_reset": "none"}
    with Consumer(bootstrap_servers=bootstrap, **settings) as consumer:
        consumer.assign([(topic, 0)])
        with pytest.raises(NoOffsetForPartitionError):
            read(consumer, 1)
        consumer.seek((topic, 0), 0)
        deadline = time.monotonic() + DEADLINE_S
        records: list[Any] = []
        while not records:
            assert time.monotonic() < deadline
            try:
                records = consumer.poll(1)
            except NoOffsetForPartitionError:
                continue  # It was on its way when the position was set.
        assert [record.value for record in records] == [b"v"]


def check_both_isolation_levels_read_what_no_transaction_wrote(bootstrap: str) -> None:
    """09:CL-25."""
    topic = create_topic(bootstrap, 1)
    produce(bootstrap, topic, values_of(30), partitions=1)
    for level in ("read_uncommitted", "read_committed"):
        settings: dict[str, Any] = {"auto_offset_reset": "earliest", "isolation_level": level}
        with Consumer(bootstrap_servers=bootstrap, **settings) as consumer:
            consumer.assign([(topic, 0)])
            assert [record.value for record in read(consumer, 30)] == values_of(30)
            assert list(consumer.end_offsets([(topic, 0)], WAIT_S).values()) == [30]


def check_records_come_as_they_were_sent(bootstrap: str) -> None:
    """09:CL-21: partitions in turn, the first offset on, keys, headers and all codecs."""
    topic = create_topic(bootstrap, 3)
    headers = [("a", b"1"), ("a", None), ("ü", b"")]
    sent: dict[int, list[tuple[Any, ...]]] = {0: [], 1: [], 2: []}
    now_ms = int(time.time() * 1000)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        with Producer(bootstrap_servers=bootstrap, compression_type=codec) as producer:
            for number in range(30):
                key = None if number % 3 == 0 else b"" if number % 3 == 1 else b"k%d" % number
                value = None if number == 7 else f"{codec} {number}".encode() * 9
                some = headers if number % 2 else []
                partition = number % 3
                producer.send(topic, value, key, some, partition, now_ms + number)
                sent[partition].append(
                    (len(sent[partition]), key, value, tuple(some), now_ms + number)
                )
    settings: dict[str, Any] = {"auto_offset_reset": "earliest", "max_poll_records": 7}
    found: dict[int, list[tuple[Any, ...]]] = {0: [], 1: [], 2: []}
    with Consumer(bootstrap_servers=bootstrap, **settings) as consumer:
        consumer.assign([(topic, number) for number in range(3)])
        for record in read(consumer, 150):
            found[record.partition].append(
                (record.offset, record.key, record.value, tuple(record.headers), record.timestamp)
            )
    assert found == sent


def check_the_awaited_face_does_the_same(bootstrap: str) -> None:
    topic = create_topic(bootstrap, 2)
    produce(bootstrap, topic, values_of(100), partitions=2)

    async def work() -> None:
        settings: dict[str, Any] = {"group_id": new_name("g"), "auto_offset_reset": "earliest"}
        async with aio.Consumer(bootstrap_servers=bootstrap, **settings) as consumer:
            await consumer.subscribe([topic])
            values: list[bytes | None] = []
            async with asyncio.timeout(DEADLINE_S):
                while len(values) < 100:
                    values += [record.value for record in await consumer.poll(1)]
            assert sorted(values, key=str) == sorted(values_of(100), key=str)
            await consumer.commit_sync(timeout=WAIT_S)
            partitions = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
            committed = await consumer.committed(partitions, WAIT_S)
            assert [one and one.offset for one in committed.values()] == [50, 50]

    asyncio.run(work())


def check_one_thread_at_a_time_and_a_wakeup_from_any(bootstrap: str) -> None:
    """09:CL-6, 09:CL-27."""
    topic = create_topic(bootstrap, 1)
    with Consumer(bootstrap_servers=bootstrap) as consumer:
        consumer.assign([(topic, 0)])
        heard: list[type[Exception]] = []

        def poll() -> None:
            while not heard:
                try:
                    consumer.poll(DEADLINE_S)
                except ConcurrentModificationError:
                    continue  # The other thread was first.
                except WakeupError as error:
                    heard.append(type(error))

        polling = threading.Thread(target=poll)
        polling.start()
        try:
            while True:
                try:
                    consumer.pause([])
                except ConcurrentModificationError:
                    break
                time.sleep(0.01)
        finally:
            consumer.wakeup()
            polling.join(DEADLINE_S)
        assert heard == [WakeupError]


CONSUMER_CHECKS: tuple[Check, ...] = (
    check_a_group_shares_partitions_and_goes_on_where_it_was,
    check_a_cooperative_newcomer_stops_nobody,
    check_a_static_member_comes_back_to_what_it_had,
    check_a_strategy_of_the_application_decides,
    check_patterns_find_topics_that_come_later,
    check_automatic_commits_are_where_the_next_member_begins,
    check_positions_by_hand,
    check_offsets_for_times,
    check_reading_begins_so_long_ago,
    check_commits_that_wait_and_commits_that_do_not,
    check_no_offset_and_no_policy_is_an_error,
    check_both_isolation_levels_read_what_no_transaction_wrote,
    check_records_come_as_they_were_sent,
    check_the_awaited_face_does_the_same,
    check_one_thread_at_a_time_and_a_wakeup_from_any,
)
