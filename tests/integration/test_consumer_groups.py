"""Our consumers in one group with members of other makes: librdkafka and Java, old and new."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from odradek.testing import EmbeddedBroker
from tests.support.apache_kafka import (
    KAFKA_VERSIONS,
    KafkaInstall,
    find_kafka,
    running_broker,
    why_missing,
)
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

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

COOPERATIVE = "cooperative-sticky"
PARTITIONS = 12
ROUND = 10  # Records for each partition in one round.


JAVA_CLASSES = {
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "sticky": "org.apache.kafka.clients.consumer.StickyAssignor",
    COOPERATIVE: "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}


def all_kafkas() -> list[KafkaInstall]:
    """The newest first. Skips if one is missing: a group with fewer makes would prove less."""
    found = {version: find_kafka(version) for version in KAFKA_VERSIONS}
    missing = [why_missing(version) for version, install in found.items() if install is None]
    if missing:
        pytest.skip("; ".join(missing))
    return [install for install in found.values() if install is not None]


@contextmanager
def odradek(_data_dir: Path) -> Iterator[str]:
    with EmbeddedBroker({"group.initial.rebalance.delay.ms": "0"}) as broker:
        yield broker.bootstrap_servers


@contextmanager
def apache_kafka(data_dir: Path) -> Iterator[str]:
    with running_broker(all_kafkas()[0], data_dir) as broker:
        yield broker.bootstrap


BrokerOf = Callable[[Path], AbstractContextManager[str]]


@pytest.mark.parametrize(
    ("strategy", "broker", "has_java"),
    [
        pytest.param("range", odradek, False, id="range, librdkafka"),
        pytest.param(COOPERATIVE, odradek, False, id="cooperative, librdkafka"),
        pytest.param("range", odradek, True, id="range, Java", marks=pytest.mark.kafka),
        pytest.param(COOPERATIVE, odradek, True, id="cooperative, Java", marks=pytest.mark.kafka),
        pytest.param(
            COOPERATIVE, apache_kafka, True, id="cooperative, on Kafka", marks=pytest.mark.kafka
        ),
    ],
)
def test_one_group_of_ours_and_other_makes(
    strategy: str, broker: BrokerOf, has_java: bool, tmp_path: Path
) -> None:
    """09:CL-20, 09:CL-23: all makes share, first led by ours, then ours led by another's."""
    pytest.importorskip("confluent_kafka")
    installs = all_kafkas() if has_java else []
    settings = {"partition_assignment_strategy": strategy}
    with broker(tmp_path / "broker") as bootstrap, ExitStack() as stack:
        topic, group = create_topic(bootstrap, PARTITIONS), new_name("g")
        ours = stack.enter_context(OurReader(bootstrap, group, topic, **settings))
        # Alone, it leads; and goes on to do so.
        poll_until([ours], lambda: len(ours.partitions) == PARTITIONS, "ours has all")
        foreign = ExitStack()
        stack.push(foreign)
        others: list[Any] = [
            foreign.enter_context(LibrdkafkaReader(bootstrap, group, topic, strategy)),
            *(
                foreign.enter_context(_java(install, tmp_path, bootstrap, group, topic, strategy))
                for install in installs
            ),
        ]
        readers: list[Any] = [ours, *others]
        poll_until(readers, lambda: are_shared(readers, PARTITIONS), "all makes share")
        _check_one_round(readers, readers, bootstrap, topic, rounds=1)
        if strategy == COOPERATIVE:
            revoked = [numbers for what, numbers in ours.told if what == "revoked"]
            assert revoked
            assert all(len(numbers) < PARTITIONS for numbers in revoked), "a part, never all"
        assert not any(what == "lost" for what, _ in ours.told)

        ours.consumer.close(60)
        poll_until(others, lambda: are_shared(others, PARTITIONS), "the others share the rest")
        again = stack.enter_context(OurReader(bootstrap, group, topic, **settings))
        readers = [again, *others]
        poll_until(readers, lambda: are_shared(readers, PARTITIONS), "it shares, led by another")
        _check_one_round(readers, [ours, *readers], bootstrap, topic, rounds=2)

        _leave(foreign, [again])
        poll_until([again], lambda: len(again.partitions) == PARTITIONS, "ours has all again")


@pytest.mark.kafka
def test_an_eager_sticky_group_of_ours_and_java(tmp_path: Path) -> None:
    """09:12.3: each make reads what the other remembers, so that who stays keeps what it had.

    Members of `sticky` tell what they had in their user data, whose layout is Java's own.
    """
    newest, oldest = all_kafkas()
    settings = {"partition_assignment_strategy": "sticky"}
    with odradek(tmp_path) as bootstrap, ExitStack() as stack:
        topic, group = create_topic(bootstrap, PARTITIONS), new_name("g")
        ours = stack.enter_context(OurReader(bootstrap, group, topic, **settings))
        poll_until([ours], lambda: len(ours.partitions) == PARTITIONS, "ours has all, and leads")
        java = stack.enter_context(_java(newest, tmp_path, bootstrap, group, topic, "sticky"))
        _check_who_stays_keeps([ours, java], oldest, tmp_path / "1", bootstrap, group, topic)
        _check_one_round([ours, java], [ours, java], bootstrap, topic, rounds=1)

        ours.consumer.close(60)
        poll_until([java], lambda: len(java.partitions) == PARTITIONS, "Java has all, and leads")
        again = stack.enter_context(OurReader(bootstrap, group, topic, **settings))
        _check_who_stays_keeps([again, java], oldest, tmp_path / "2", bootstrap, group, topic)
        _check_one_round([again, java], [ours, again, java], bootstrap, topic, rounds=2)
        assert not any(what == "lost" for what, _ in ours.told + again.told)


def _check_who_stays_keeps(
    readers: list[Any], install: KafkaInstall, out_dir: Path, bootstrap: str, group: str, topic: str
) -> None:
    """A third comes, and goes: the two have all that they had beside it, and its share."""
    out_dir.mkdir()
    with ExitStack() as third:
        guest = third.enter_context(_java(install, out_dir, bootstrap, group, topic, "sticky"))
        three = [*readers, guest]
        poll_until(three, lambda: are_shared(three, PARTITIONS), "three share")
        before = [set(reader.partitions) for reader in readers]
        _leave(third, readers)
    poll_until(readers, lambda: are_shared(readers, PARTITIONS), "two share")
    for had, reader in zip(before, readers, strict=True):
        assert had <= reader.partitions


def _java(
    install: KafkaInstall, out_dir: Path, bootstrap: str, group: str, topic: str, strategy: str
) -> JavaReader:
    out_path = out_dir / f"java-{install.version}.jsonl"
    return JavaReader(install, out_path, bootstrap, group, topic, JAVA_CLASSES[strategy])


def _leave(members: ExitStack, readers: Sequence[Any]) -> None:
    """Close members. That waits for a rebalance under way, which waits for the others to poll."""
    leaving = threading.Thread(target=members.close)
    leaving.start()
    poll_until(readers, lambda: not leaving.is_alive(), "they leave")


def _check_one_round(
    readers: Sequence[Any], all_readers: Sequence[Any], bootstrap: str, topic: str, *, rounds: int
) -> None:
    """What is produced now is read by somebody, and everyone who is there reads some of it."""
    before = [set(reader.seen) for reader in readers]
    values = [b"%d" % number for number in range(ROUND * PARTITIONS)]
    produce(bootstrap, topic, values, partitions=PARTITIONS)
    wanted = {(p, offset) for p in range(PARTITIONS) for offset in range(rounds * ROUND)}
    poll_until(
        readers,
        lambda: wanted <= set().union(*(reader.seen for reader in all_readers)),
        "everything is read",
    )
    poll_until(
        readers,
        lambda: all(reader.seen - seen for reader, seen in zip(readers, before, strict=True)),
        "everyone reads some of it",
    )
