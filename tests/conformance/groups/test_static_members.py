"""Static members restart: within their session nobody notices, after it they are missed."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance.groups.judge import Judge
from tests.conformance.groups.members import (
    Member,
    Plan,
    started,
    wait_until_read,
    wait_until_shared,
)
from tests.support.apache_kafka import KafkaInstall, find_kafka, why_missing

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.timeout(900)]

Names = Callable[[str], str]


@pytest.fixture(scope="module")
def java() -> KafkaInstall:
    install = find_kafka("4.3.1")
    if install is None:
        pytest.skip(why_missing("4.3.1"))
    return install


def test_a_restart_within_the_session(
    judge: Judge, new_name: Names, java: KafkaInstall, tmp_path: Path
) -> None:
    """They get back what they had, and no other member is rebalanced."""
    topic, group, count = new_name("topic"), new_name("group"), 8
    partitions = judge.create_topic(topic, count)
    clients: list[str | KafkaInstall] = ["librdkafka", "aiokafka", java]
    plans = [
        Plan(client=client, group=group, topic=topic, instance_id=f"i{n}", session_ms=300_000)
        for n, client in enumerate(clients)
    ]
    other = Plan(client="librdkafka", group=group, topic=topic, number=1)
    with started(judge, tmp_path, *plans, other) as members:
        *static, watcher = members
        owned = wait_until_shared(judge, group, members, partitions)
        _wait_until_known(judge, owned, members)
        before = watcher.changes()
        for member in static:
            member.kill()
        for member in static:
            member.start()
        _wait_until_known(judge, owned, members)
        judge.produce(topic, 5, count)
        wait_until_read(judge, group, members, topic, dict.fromkeys(range(count), 5))
        assert judge.ownership(group) == ("Stable", owned)
        assert watcher.changes() == before


def test_a_restart_after_the_session(
    judge: Judge, new_name: Names, java: KafkaInstall, tmp_path: Path
) -> None:
    """Their partitions go to who is there, and they come back as new members."""
    topic, group, count = new_name("topic"), new_name("group"), 6
    partitions = judge.create_topic(topic, count)
    clients: list[str | KafkaInstall] = ["librdkafka", java]
    plans = [
        Plan(client=client, group=group, topic=topic, instance_id=f"i{n}", session_ms=6_000)
        for n, client in enumerate(clients)
    ]
    other = Plan(client="librdkafka", group=group, topic=topic, number=1)
    with started(judge, tmp_path, *plans, other) as members:
        *static, watcher = members
        wait_until_shared(judge, group, members, partitions)
        for member in static:
            member.kill()
        wait_until_shared(judge, group, [watcher], partitions)
        for member in static:
            member.start()
        owned = wait_until_shared(judge, group, members, partitions)
        assert {len(some) for some in owned.values()} == {2}
        judge.produce(topic, 5, count)
        wait_until_read(judge, group, members, topic, dict.fromkeys(range(count), 5))


def _wait_until_known(
    judge: Judge, owned: dict[str, set[tuple[str, int]]], members: list[Member]
) -> None:
    """Until each member knows of its partitions."""
    judge.wait_until(
        lambda: {member.name: member.owned() for member in members} == owned,
        lambda: f"{owned}\n" + "\n".join(member.story() for member in members),
    )
