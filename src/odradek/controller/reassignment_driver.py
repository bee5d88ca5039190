"""Driver of reassignments: carries out what `odradek.controller.reassignment` decides.

Requests come by the API and by the node /admin/reassign_partitions; both start the same steps, and
the later one counts. The node keeps the partitions that it names until they have moved, or another
request overrides them; it is deleted when none is left.

Many partitions take each step together: their topics are written once, their states are read and
written in pipelined portions.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping

from odradek.controller import reassignment
from odradek.controller.context import (
    ControllerContext,
    PartitionAndReplica,
    PartitionStatus,
    ReplicaStatus,
)
from odradek.controller.election import Strategy
from odradek.controller.machine_driver import MachineDriver
from odradek.controller.topic_deletion_driver import TopicDeletions
from odradek.errors import ApiError, ErrorCode
from odradek.metadata.admin_requests import ReassignmentOutcome
from odradek.metadata.changes import AssignmentChanged, StoredReassignmentsChanged
from odradek.metadata.ports import Hint, HintKind
from odradek.model import LeaderAndIsr, ReplicaAssignment, TopicPartition

__all__ = ["Reassignments"]

logger = logging.getLogger(__name__)

# Attempts at a change of a topic whose node is changed by others meanwhile.
MAX_ATTEMPTS = 10

_DONE = ReassignmentOutcome(ErrorCode.NONE)


class Reassignments:
    """Moves replicas to other brokers.

    Args:
        machines: The machines, and their driver.
        deletion: Waits for the end of a topic's reassignments.
        follow_topic: Reads a topic that others have changed, and acts on partitions they added.
    """

    def __init__(
        self,
        machines: MachineDriver,
        deletion: TopicDeletions,
        *,
        follow_topic: Callable[[str], Awaitable[None]],
    ) -> None:
        self._machines = machines
        self._deletion = deletion
        self._follow_topic = follow_topic
        self._context: ControllerContext = machines.context
        # The content of /admin/reassign_partitions: targets of partitions that have yet to move.
        self._stored: dict[TopicPartition, tuple[int, ...]] = {}

    # Requests

    async def alter(
        self,
        targets: Mapping[TopicPartition, tuple[int, ...] | None],
        *,
        allows_other_count: bool = True,
    ) -> dict[TopicPartition, ReassignmentOutcome]:
        """Begins, overrides and, where the target is None, cancels reassignments."""
        wanted: dict[TopicPartition, ReplicaAssignment] = {}
        outcomes: dict[TopicPartition, ReassignmentOutcome] = {}
        for tp, target in targets.items():
            try:
                wanted[tp] = reassignment.decide_reassignment(
                    self._context, tp, target, allows_other_count=allows_other_count
                )
            except ApiError as error:
                outcomes[tp] = ReassignmentOutcome(error.code, str(error))
        await self._forget_stored(wanted)
        for tp, assignment in list(wanted.items()):
            current = self._context.partition_full_assignment(tp)
            if assignment == current and not current.is_being_reassigned:
                outcomes[tp] = _DONE  # It is there already.
                del wanted[tp]
        outcomes.update(await self._begin(wanted))
        return {tp: outcomes[tp] for tp in targets}

    async def process_stored(self) -> None:
        """Handles the hint that a tool wrote /admin/reassign_partitions, or that we did."""
        state = await self._machines.persistence.load(Hint(HintKind.REASSIGNMENTS))
        await self._take_stored(state.reassignments)

    async def start(self, stored: Mapping[TopicPartition, tuple[int, ...]]) -> None:
        """Continues the reassignments that a new controller finds in topics and in the node."""
        under_way = set(self._context.partitions_being_reassigned)
        under_way -= await self._take_stored(stored)
        await self._advance(sorted(under_way & self._context.partitions_being_reassigned))

    def reset(self) -> None:
        """Forgets what the node contained, on resignation."""
        self._stored.clear()

    async def _take_stored(
        self, stored: Mapping[TopicPartition, tuple[int, ...]]
    ) -> set[TopicPartition]:
        """Begins the reassignments of the node that are new or changed; returns them."""
        context = self._context
        self._stored = dict(stored)
        wanted: dict[TopicPartition, ReplicaAssignment] = {}
        obsolete: set[TopicPartition] = set()
        for tp, target in sorted(stored.items()):
            current = context.partition_full_assignment(tp)
            if current.replicas and current.reassign_to(target) == current:
                if not current.is_being_reassigned:
                    obsolete.add(tp)  # It has moved; otherwise it is on its way.
                continue
            try:
                wanted[tp] = reassignment.decide_reassignment(context, tp, target)
            except ApiError as error:
                logger.warning("a stored reassignment is refused: %s", error)
                obsolete.add(tp)
        await self._forget_stored(obsolete)
        await self._begin(wanted)
        return set(wanted)

    async def _forget_stored(self, partitions: Iterable[TopicPartition]) -> None:
        """Removes partitions from the node that have moved, or are overridden."""
        gone = self._stored.keys() & set(partitions)
        if gone:
            self._stored = {tp: t for tp, t in self._stored.items() if tp not in gone}
            await self._machines.commit([StoredReassignmentsChanged(dict(self._stored))])

    # Steps

    async def _begin(
        self, wanted: Mapping[TopicPartition, ReplicaAssignment]
    ) -> dict[TopicPartition, ReassignmentOutcome]:
        context = self._context
        before = {tp: context.partition_full_assignment(tp) for tp in wanted}
        outcomes = await self._store(
            {tp: assignment for tp, assignment in wanted.items() if assignment != before[tp]}
        )
        begun = [tp for tp in wanted if outcomes.get(tp, _DONE).error is ErrorCode.NONE]
        for tp in begun:
            logger.info(
                "partition %s moves from %s to %s",
                tp,
                list(wanted[tp].origin),
                list(wanted[tp].target),
                extra={"topic": tp.topic, "partition": tp.partition},
            )
        # Replicas that the overridden or cancelled reassignment had added.
        unneeded = [
            PartitionAndReplica(tp, replica)
            for tp in begun
            for replica in before[tp].replicas
            if replica not in wanted[tp].replicas
        ]
        led = [r.tp for r in unneeded if reassignment.leader_of(context, r.tp) == r.replica]
        await self._machines.move_partitions(led, PartitionStatus.ONLINE, Strategy.OFFLINE)
        await self._stop(unneeded)
        await self._advance(begun)
        return {tp: outcomes.get(tp, _DONE) for tp in wanted}

    async def _store(
        self, wanted: Mapping[TopicPartition, ReplicaAssignment]
    ) -> dict[TopicPartition, ReassignmentOutcome]:
        """Stores assignments and applies them; a topic that others changed is read and tried again.

        Returns:
            The outcome of each partition.
        """
        outcomes: dict[TopicPartition, ReassignmentOutcome] = {}
        remaining = dict(wanted)
        for _ in range(MAX_ATTEMPTS):
            changes = reassignment.decide_assignments(self._context, remaining)
            if not changes:
                break
            outcome = await self._machines.commit(changes)
            by_topic: dict[str, ReassignmentOutcome] = {}
            for committed in outcome.committed:
                assert isinstance(committed.change, AssignmentChanged)
                by_topic[committed.change.topic] = _DONE
            for change, error in outcome.failed:
                assert isinstance(change, AssignmentChanged)
                code = error.code if isinstance(error, ApiError) else ErrorCode.UNKNOWN_SERVER_ERROR
                by_topic[change.topic] = ReassignmentOutcome(code, str(error))
            for tp in list(remaining):
                if tp.topic in by_topic:
                    outcomes[tp] = by_topic[tp.topic]
                    del remaining[tp]
            for conflict in outcome.conflicts:
                assert isinstance(conflict.change, AssignmentChanged)
                await self._follow_topic(conflict.change.topic)
        for tp in remaining:
            exists = tp.topic in self._context.all_topics
            outcomes[tp] = (
                ReassignmentOutcome(
                    ErrorCode.UNKNOWN_SERVER_ERROR,
                    f"topic {tp.topic!r} was changed by others in each of {MAX_ATTEMPTS} attempts",
                )
                if exists
                else ReassignmentOutcome(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {tp} does not exist"
                )
            )
        return outcomes

    async def resume(self, broker_ids: Iterable[int]) -> None:
        """Continues reassignments to brokers that have just started."""
        started = set(broker_ids)
        await self._advance(
            [
                tp
                for tp in sorted(self._context.partitions_being_reassigned)
                if started.intersection(self._context.partition_full_assignment(tp).target)
            ]
        )

    async def process_isr_change(self, tp: TopicPartition) -> None:
        """Handles the hint that the state of a partition was written, which may be on its way."""
        if tp in self._context.partitions_being_reassigned:
            await self._machines.refresh([tp])
            await self.maybe_complete([tp])

    async def maybe_complete(self, partitions: Iterable[TopicPartition]) -> bool:
        """Ends the reassignments, among those given, whose targets are in the ISR in the context.

        Returns:
            Whether there were any.
        """
        caught_up = [
            tp
            for tp in sorted(self._context.partitions_being_reassigned.intersection(partitions))
            if reassignment.is_complete(self._context, tp)
        ]
        if caught_up:
            await self._complete(caught_up)
        return bool(caught_up)

    async def _advance(self, partitions: list[TopicPartition]) -> None:
        """Takes the next step of reassignments whose assignments are stored."""
        if not partitions:
            return
        context, machines = self._context, self._machines
        await machines.refresh(partitions)
        complete = [tp for tp in partitions if reassignment.is_complete(context, tp)]
        waiting = [tp for tp in partitions if not reassignment.is_complete(context, tp)]
        if waiting:
            await machines.raise_leader_epochs(waiting)
            added = [
                PartitionAndReplica(tp, replica)
                for tp in waiting
                for replica in context.partition_full_assignment(tp).adding
            ]
            unmade = ReplicaStatus.NON_EXISTENT
            await machines.move_replicas(
                [r for r in added if context.replica_state(r) is unmade], ReplicaStatus.NEW
            )
        if complete:
            await self._complete(complete)

    async def _complete(self, partitions: list[TopicPartition]) -> None:
        context, machines = self._context, self._machines
        moving = {tp: context.partition_full_assignment(tp) for tp in partitions}
        await machines.move_replicas(
            [PartitionAndReplica(tp, replica) for tp, a in moving.items() for replica in a.adding],
            ReplicaStatus.ONLINE,
        )
        # In memory only, for the requests that follow: the store has it last.
        for tp, assignment in moving.items():
            context.update_partition_assignment(tp, ReplicaAssignment(assignment.target))
        led = await self._move_leaders(
            [tp for tp in partitions if tp in context.partition_leadership]
        )
        for tp, assignment in list(moving.items()):
            if assignment.is_being_reassigned and tp not in led:
                # No target replica can lead. Nothing is removed: a broker that returns resumes it.
                context.update_partition_assignment(tp, assignment)
                del moving[tp]
        await self._stop(
            PartitionAndReplica(tp, replica) for tp, a in moving.items() for replica in a.removing
        )
        outcomes = await self._store(
            {
                tp: ReplicaAssignment(assignment.target)
                for tp, assignment in moving.items()
                if tp in context.partitions_being_reassigned
            }
        )
        done = [tp for tp in moving if outcomes.get(tp, _DONE).error is ErrorCode.NONE]
        for tp in done:
            logger.info(
                "partition %s has moved to %s",
                tp,
                list(moving[tp].target),
                extra={"topic": tp.topic, "partition": tp.partition},
            )
        await self._forget_stored(
            [tp for tp in done if self._stored.get(tp) in (None, moving[tp].target)]
        )
        machines.send_update_metadata(context.live_or_shutting_down_broker_ids, done)
        await self._deletion.resume_topics({tp.topic for tp in done})

    async def _move_leaders(self, partitions: list[TopicPartition]) -> set[TopicPartition]:
        """Brings leadership into the target replicas; returns the partitions where it is."""
        plan = reassignment.plan_leader_move(self._context, partitions)
        results = await self._machines.raise_leader_epochs(plan.keep)
        results.update(
            await self._machines.move_partitions(
                plan.elect, PartitionStatus.ONLINE, Strategy.REASSIGN
            )
        )
        return {tp for tp, result in results.items() if isinstance(result, LeaderAndIsr)}

    async def _stop(self, replicas: Iterable[PartitionAndReplica]) -> None:
        """Takes replicas out of the ISR and deletes them, without waiting for their brokers."""
        removed = list(replicas)
        for target in (
            ReplicaStatus.OFFLINE,
            ReplicaStatus.DELETION_STARTED,
            ReplicaStatus.DELETION_SUCCESSFUL,
            ReplicaStatus.NON_EXISTENT,
        ):
            await self._machines.move_replicas(removed, target)
