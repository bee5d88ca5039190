"""Consumers in groups against Odradek and against Apache Kafka: the same checks, the same outcome.

Also with members of other makes, librdkafka and Java, eager and cooperative.
"""

import re
import threading
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from odradek import Consumer, SimpleConsumer
from odradek.client.consumer import (
    ConcurrentModificationError,
    OffsetAndMetadata,
    WakeupError,
)
from odradek.testing import EmbeddedBroker
from tests.support.apache_kafka import KAFKA_VERSIONS, find_kafka, running_broker, why_missing
from tests.support.group_readers import (
    JavaReader,
    LibrdkafkaReader,
    OurReader,
    are_shared,
    create_topic,
    new_name,
    poll_until,
    produce,
)

pytestmark = pytest.mark.slow

COOPERATIVE = "cooperative-sticky"
BROKER = {"group.initial.rebalance.delay.ms": "0"}


def values_of(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


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
        positions = [third.consumer.position((topic, number), 60) for number in range(4)]
        assert positions == [60] * 4


def check_a_cooperative_newcomer_stops_nobody(bootstrap: str) -> None:
    """09:TV-12e, 09:CL-23."""
    topic, group = create_topic(bootstrap, 6), new_name("g")
    settings = {"partition_assignment_strategy": COOPERATIVE}
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


def check_positions_by_hand(bootstrap: str) -> None:
    """09:CL-24, 09:CL-27."""
    topic = create_topic(bootstrap, 1)
    produce(bootstrap, topic, values_of(10), partitions=1)
    tp = (topic, 0)
    with Consumer(bootstrap_servers=bootstrap, group_id=new_name("g")) as consumer:
        consumer.assign([tp])
        assert consumer.beginning_offsets([tp], 60) == {tp: 0}
        assert consumer.end_offsets([tp], 60) == {tp: 10}
        found = consumer.offsets_for_times({tp: 0}, 60)[tp]  # type: ignore[index]  # a tuple is one
        assert found is not None
        assert found.offset == 0
        consumer.seek(tp, 7)
        assert [record.value for record in consumer.poll(60)] == [b"7", b"8", b"9"]
        consumer.seek_to_beginning([tp])
        assert consumer.position(tp, 60) == 0
        consumer.pause([tp])
        assert consumer.poll(0.2) == []
        consumer.resume([tp])
        assert consumer.poll(60)[0].offset == 0
        consumer.commit_sync({tp: OffsetAndMetadata(4, "here")}, 60)
        assert consumer.committed([tp], 60)[tp] == OffsetAndMetadata(4, "here")  # type: ignore[index]
        assert consumer.metrics()["records-consumed-total"] >= 4


def check_columns_are_what_records_are(bootstrap: str) -> None:
    """09:CL-28."""
    pytest.importorskip("pyarrow")
    topic = create_topic(bootstrap, 1)
    produce(bootstrap, topic, values_of(500), partitions=1)
    tp = (topic, 0)
    with Consumer(bootstrap_servers=bootstrap, max_poll_records=7) as consumer:
        consumer.assign([tp])
        consumer.seek_to_beginning()
        rows = [(record.offset, record.value) for record in consumer.poll(60)]
        while len(rows) < 500:
            for part in consumer.poll_arrow(60):
                assert set(part["topic"].to_pylist()) == {topic}
                rows += zip(part["offset"].to_pylist(), part["value"].to_pylist(), strict=True)
        assert rows == list(enumerate(values_of(500)))
        assert consumer.position(tp) == 500
    with SimpleConsumer(bootstrap_servers=bootstrap) as simple:
        raws = list(simple.fetch_batches(topic, 0, 100, timeout=60))
        assert raws[-1].next_offset == 500
        joined = b"".join(bytes(raw.columns(start=100).value.data) for raw in raws)
        assert joined == b"".join(values_of(500)[100:])


def check_one_thread_at_a_time_and_a_wakeup_from_any(bootstrap: str) -> None:
    """09:CL-6, 09:CL-27."""
    topic = create_topic(bootstrap, 1)
    with Consumer(bootstrap_servers=bootstrap) as consumer:
        consumer.assign([(topic, 0)])
        heard: list[type[Exception]] = []

        def poll() -> None:
            try:
                consumer.poll(120)
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
        finally:
            consumer.wakeup()
            polling.join(120)
        assert heard == [WakeupError]


CHECKS = [
    check_a_group_shares_partitions_and_goes_on_where_it_was,
    check_a_cooperative_newcomer_stops_nobody,
    check_a_static_member_comes_back_to_what_it_had,
    check_patterns_find_topics_that_come_later,
    check_positions_by_hand,
    check_columns_are_what_records_are,
    check_one_thread_at_a_time_and_a_wakeup_from_any,
]


def test_groups_on_odradek() -> None:
    with EmbeddedBroker(BROKER) as broker:
        for check in CHECKS:
            check(broker.bootstrap_servers)


@pytest.mark.parametrize("version", KAFKA_VERSIONS[:1])
def test_groups_on_apache_kafka(version: str, tmp_path: Path) -> None:
    install = find_kafka(version)
    if install is None:
        pytest.skip(why_missing(version))
    with running_broker(install, tmp_path / "kafka") as broker:
        for check in CHECKS:
            check(broker.bootstrap)


@pytest.mark.parametrize("strategy", ["range", COOPERATIVE])
def test_one_group_of_ours_librdkafka_and_java(strategy: str, tmp_path: Path) -> None:
    """Members of all makes share the partitions, whoever leads; and again when two have left."""
    pytest.importorskip("confluent_kafka")
    installs = [found for version in KAFKA_VERSIONS if (found := find_kafka(version))]
    settings = {"partition_assignment_strategy": strategy}
    count = 12
    with EmbeddedBroker(BROKER) as broker, ExitStack() as members:
        bootstrap = broker.bootstrap_servers
        topic, group = create_topic(bootstrap, count), new_name("g")
        ours = members.enter_context(OurReader(bootstrap, group, topic, **settings))
        poll_until([ours], lambda: len(ours.partitions) == count, "ours has all")
        others = ExitStack()
        members.push(others)
        readers = [
            ours,
            others.enter_context(LibrdkafkaReader(bootstrap, group, topic, strategy)),
            *(
                others.enter_context(
                    JavaReader(
                        install,
                        tmp_path / f"java-{install.version}.jsonl",
                        bootstrap,
                        group,
                        topic,
                        assignment_strategy=_java_class(strategy),
                    )
                )
                for install in installs
            ),
        ]
        poll_until(readers, lambda: are_shared(readers, count), "all makes share")
        produce(bootstrap, topic, values_of(120), partitions=count)
        poll_until(readers, lambda: bool(ours.values), "ours reads its part")
        # Who leaves waits for a rebalance that is under way, and that waits for ours to poll.
        leaving = threading.Thread(target=others.close)
        leaving.start()
        poll_until([ours], lambda: not leaving.is_alive(), "the others leave")
        poll_until([ours], lambda: len(ours.partitions) == count, "ours has all again")


def _java_class(strategy: str) -> str:
    name = "RangeAssignor" if strategy == "range" else "CooperativeStickyAssignor"
    return f"org.apache.kafka.clients.consumer.{name}"
