"""Groups whose members are of all makes: librdkafka, kafka-python, aiokafka and Java."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance.groups.judge import Judge
from tests.conformance.groups.members import (
    PYTHON_CLIENTS,
    Plan,
    started,
    wait_until_read,
    wait_until_shared,
)
from tests.support.apache_kafka import KAFKA_VERSIONS, KafkaInstall, find_kafka, why_missing

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.timeout(900)]

Names = Callable[[str], str]


@pytest.fixture(scope="module")
def both_kafkas() -> list[KafkaInstall]:
    """Java clients of both versions; skips where one was not fetched."""
    found = {version: find_kafka(version) for version in KAFKA_VERSIONS}
    for version, install in found.items():
        if install is None:
            pytest.skip(why_missing(version))
    return [install for install in found.values() if install is not None]


@pytest.mark.parametrize("strategy", ["range", "roundrobin"])
def test_all_makes_share_a_group(
    judge: Judge,
    new_name: Names,
    both_kafkas: list[KafkaInstall],
    tmp_path: Path,
    strategy: str,
) -> None:
    """08:F-2: eager; and who remains takes over when one dies, when one leaves."""
    topic, group, count = new_name("topic"), new_name("group"), 10
    partitions = judge.create_topic(topic, count)
    judge.produce(topic, 20, count)
    clients: list[str | KafkaInstall] = [*PYTHON_CLIENTS, *both_kafkas]
    plans = [
        Plan(
            client=client,
            group=group,
            topic=topic,
            strategy=strategy,
            # The one that is killed is missed soon.
            session_ms=10_000 if client == "librdkafka" else 30_000,
        )
        for client in clients
    ]
    with started(judge, tmp_path, *plans) as members:
        owned = wait_until_shared(judge, group, members, partitions)
        assert {len(some) for some in owned.values()} == {2}
        wait_until_read(judge, group, members, topic, dict.fromkeys(range(count), 20))
        gone, *remaining = members
        if strategy == "range":
            gone.kill()
        else:
            gone.stop()
        wait_until_shared(judge, group, remaining, partitions)
        judge.produce(topic, 10, count)
        wait_until_read(judge, group, members, topic, dict.fromkeys(range(count), 30))


def test_cooperative_rebalances(
    judge: Judge, new_name: Names, both_kafkas: list[KafkaInstall], tmp_path: Path
) -> None:
    """Who is there gives up a part when others join, never all: librdkafka and Java."""
    topic, group, count = new_name("topic"), new_name("group"), 12
    partitions = judge.create_topic(topic, count)
    judge.produce(topic, 10, count)
    clients: list[str | KafkaInstall] = ["librdkafka", *both_kafkas]
    first, *others = (
        Plan(client=client, group=group, topic=topic, strategy="cooperative-sticky")
        for client in clients
    )
    with started(judge, tmp_path, first) as early:
        wait_until_shared(judge, group, early, partitions)
        with started(judge, tmp_path, *others) as late:
            everybody = [*early, *late]
            owned = wait_until_shared(judge, group, everybody, partitions)
            assert {len(some) for some in owned.values()} == {4}
            judge.wait_until(
                lambda: {member.name: member.owned() for member in everybody} == owned,
                lambda: f"members know what they own: {[m.story() for m in everybody]}",
            )
            [member] = early
            assert all(member.owned_over_time()), member.story()
            judge.produce(topic, 10, count)
            wait_until_read(judge, group, everybody, topic, dict.fromkeys(range(count), 20))
            for one in late:
                one.stop()
            wait_until_shared(judge, group, early, partitions)
