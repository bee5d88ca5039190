"""Any sequence of moves, cancellations, losses and failovers ends where the last request wanted."""

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.controller.context import PartitionAndReplica, PartitionStatus, ReplicaStatus
from odradek.model import TopicPartition
from tests.scenarios.controllers import Scenario

T0 = TopicPartition("t", 0)
BROKERS = (1, 2, 3, 4)

targets = st.lists(st.sampled_from(BROKERS), min_size=1, max_size=3, unique=True)
commands = st.one_of(
    targets.map(lambda target: f"moves t-0=[{','.join(map(str, target))}]"),
    st.just("moves t-0=null"),
    st.sampled_from(BROKERS).map(lambda broker: f"bounces {broker}"),
    st.just("catches up"),
    st.just("fails over"),
)


def check(scenario: Scenario) -> None:
    """What holds after each step, however far a move is."""
    context = scenario.controller.context
    assignment = context.partition_full_assignment(T0)
    stored = scenario.persistence.partitions[T0].leader_and_isr
    assert context.partition_leadership[T0].leader_and_isr == stored  # 15:KAFKA-9212.
    assert set(stored.isr) <= set(assignment.replicas)
    assert stored.leader in stored.isr
    assert scenario.persistence.topics["t"].assignment[0] == assignment
    hosted = {PartitionAndReplica(T0, replica) for replica in assignment.replicas}
    assert set(context.replica_states) == hosted
    assert (T0 in context.partitions_being_reassigned) is assignment.is_being_reassigned
    assert context.partition_state(T0) is PartitionStatus.ONLINE


async def walk(steps: list[str]) -> None:
    scenario = Scenario()
    for command in ("brokers 1 2 3 4", "elect 1", "create t 0=[1,2]"):
        await scenario.perform(command)
    wanted: tuple[int, ...] = (1, 2)
    for step in steps:
        if step == "catches up":
            replicas = scenario.controller.context.partition_replica_assignment(T0)
            await scenario.perform(f"isr t-0 [{','.join(map(str, replicas))}]")
        elif step == "fails over":
            await scenario.perform("fails")
            await scenario.perform("elect 2")
        else:
            before = scenario.controller.context.partition_full_assignment(T0)
            scenario.answers.clear()
            await scenario.perform(step)
            if scenario.answers == ["t-0 NONE"]:
                row = step.partition("=")[2].strip("[]")
                wanted = before.origin if row == "null" else tuple(map(int, row.split(",")))
        check(scenario)
    for _ in range(2):
        replicas = scenario.controller.context.partition_replica_assignment(T0)
        await scenario.perform(f"isr t-0 [{','.join(map(str, replicas))}]")
    check(scenario)
    context = scenario.controller.context
    assert context.partition_full_assignment(T0).replicas == wanted
    assert not context.partitions_being_reassigned
    assert set(context.replica_states.values()) == {ReplicaStatus.ONLINE}
    await scenario.controller.stop()


@settings(deadline=None, max_examples=25)
@given(st.lists(commands, max_size=8))
def test_a_walk_of_moves_ends_at_the_last_target(steps: list[str]) -> None:
    asyncio.run(walk(steps))
