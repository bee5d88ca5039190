"""Our consumers in one group with members of other makes: librdkafka and Java, old and new."""

import threading
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from odradek.testing import EmbeddedBroker
from tests.support.apache_kafka import KAFKA_VERSIONS, find_kafka
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


@pytest.mark.parametrize("strategy", ["range", COOPERATIVE])
def test_one_group_of_ours_librdkafka_and_java(strategy: str, tmp_path: Path) -> None:
    """09:CL-20, 09:CL-23: all makes share, first led by ours, then ours led by another's."""
    pytest.importorskip("confluent_kafka")
    settings = {"partition_assignment_strategy": strategy}
    with EmbeddedBroker({"group.initial.rebalance.delay.ms": "0"}) as broker, ExitStack() as stack:
        bootstrap = broker.bootstrap_servers
        topic, group = create_topic(bootstrap, PARTITIONS), new_name("g")
        ours = stack.enter_context(OurReader(bootstrap, group, topic, **settings))
        # Alone, it leads; and goes on to do so.
        poll_until([ours], lambda: len(ours.partitions) == PARTITIONS, "ours has all")
        foreign = ExitStack()
        stack.push(foreign)
        others = _others(foreign, bootstrap, group, topic, strategy, tmp_path)
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

        # Who leaves waits for a rebalance that is under way, and that waits for ours to poll.
        leaving = threading.Thread(target=foreign.close)
        leaving.start()
        poll_until([again], lambda: not leaving.is_alive(), "the others leave")
        poll_until([again], lambda: len(again.partitions) == PARTITIONS, "ours has all again")


def _others(
    stack: ExitStack, bootstrap: str, group: str, topic: str, strategy: str, tmp_path: Path
) -> list[Any]:
    name = "RangeAssignor" if strategy == "range" else "CooperativeStickyAssignor"
    java_class = f"org.apache.kafka.clients.consumer.{name}"
    readers: list[Any] = [stack.enter_context(LibrdkafkaReader(bootstrap, group, topic, strategy))]
    for install in filter(None, map(find_kafka, KAFKA_VERSIONS)):
        out_path = tmp_path / f"java-{install.version}.jsonl"
        readers.append(
            stack.enter_context(JavaReader(install, out_path, bootstrap, group, topic, java_class))
        )
    return readers


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
