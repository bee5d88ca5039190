"""The broker is killed while members commit and rebalance; it comes back, and they go on."""

import contextlib
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
from tests.support.group_members import wait_for_coordinator
from tests.support.odradek_broker import running_odradek
from tests.support.ports import free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

_PARTITIONS = 6
_SETTINGS = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "4"}


def test_groups_go_on_after_kills(new_name: Callable[[str], str], tmp_path: Path) -> None:
    """No committed offset goes back; who committed and who was joining is a member again."""
    topic, group, port = new_name("topic"), new_name("group"), free_port()
    plans = [
        Plan(client="librdkafka", group=group, topic=topic),
        Plan(client="aiokafka", group=group, topic=topic),
        Plan(client="librdkafka", group=group, topic=topic, commit="async", number=1),
    ]
    partitions = {(topic, number) for number in range(_PARTITIONS)}
    with contextlib.ExitStack() as running:
        members: list[Member] = []
        before: dict[tuple[str, int], int] = {}
        for count, plan in enumerate(plans, 1):
            with running_odradek(tmp_path / "broker", _SETTINGS, port=port) as broker:
                judge = Judge(broker)
                wait_for_coordinator(port, group)
                if count == 1:
                    judge.create_topic(topic, _PARTITIONS)
                now = judge.committed(group)
                assert all(now[tp] >= offset for tp, offset in before.items()), (before, now)
                # One more member joins while others commit what they read.
                judge.produce(topic, 20, _PARTITIONS)
                members += running.enter_context(
                    started(judge, tmp_path, plan, may_be_cut_off=True)
                )
                before = _wait_for_commits(judge, group, now, members)
                broker.kill()
        with running_odradek(tmp_path / "broker", _SETTINGS, port=port) as broker:
            judge = Judge(broker)
            wait_for_coordinator(port, group)
            now = judge.committed(group)
            assert all(now[tp] >= offset for tp, offset in before.items()), (before, now)
            wait_until_shared(judge, group, members, partitions)
            ends = dict.fromkeys(range(_PARTITIONS), 20 * len(plans))
            wait_until_read(judge, group, members, topic, ends)


def _wait_for_commits(
    judge: Judge, group: str, before: dict[tuple[str, int], int], members: list[Member]
) -> dict[tuple[str, int], int]:
    """What is committed as soon as that is not what it was."""
    judge.wait_until(
        lambda: judge.committed(group) not in (before, {}),
        lambda: "".join(member.story() for member in members),
    )
    return judge.committed(group)
