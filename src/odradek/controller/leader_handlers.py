"""Handlers of events that move leadership on purpose, and of queries about reassignments."""

import logging
from collections.abc import Iterable, Sequence

from odradek.controller.config import LeaderBalanceConfig
from odradek.controller.context import ControllerContext, PartitionStatus
from odradek.controller.election import Strategy
from odradek.controller.events import ElectionTrigger
from odradek.controller.machine_driver import MachineDriver
from odradek.errors import ErrorCode
from odradek.metadata.admin_requests import ElectionOutcome
from odradek.metadata.ports import Hint, HintKind
from odradek.model import NO_LEADER, LeaderAndIsr, ReplicaAssignment, TopicPartition
from odradek.protocol.enums import ElectionType

__all__ = ["LeaderHandlers", "imbalanced_partitions"]

logger = logging.getLogger(__name__)


def imbalanced_partitions(
    context: ControllerContext, imbalance_percentage: int
) -> list[TopicPartition]:
    """Partitions whose leadership should return to their preferred replicas.

    A broker is imbalanced when more than `imbalance_percentage` of the partitions that prefer it
    are led by others.
    """
    by_preferred: dict[int, list[TopicPartition]] = {}
    for tp in sorted(context.partition_leadership):
        replicas = context.partition_replica_assignment(tp)
        if replicas and not context.is_topic_queued_for_deletion(tp.topic):
            by_preferred.setdefault(replicas[0], []).append(tp)
    chosen: list[TopicPartition] = []
    for preferred, partitions in sorted(by_preferred.items()):
        astray = [
            tp
            for tp in partitions
            if context.partition_leadership[tp].leader_and_isr.leader != preferred
        ]
        if len(astray) * 100 > imbalance_percentage * len(partitions):
            chosen += [
                tp
                for tp in astray
                if context.is_replica_online(preferred, tp)
                and not context.partition_full_assignment(tp).is_being_reassigned
            ]
    return chosen


class LeaderHandlers:
    """Elections on request, and for the balance of leaders."""

    def __init__(self, machines: MachineDriver, config: LeaderBalanceConfig) -> None:
        self._machines = machines
        self._context: ControllerContext = machines.context
        self._config = config

    async def rebalance(self) -> None:
        """Elects preferred replicas of brokers whose partitions are too often led by others."""
        candidates = imbalanced_partitions(self._context, self._config.imbalance_percentage)
        if candidates:
            logger.info("%d partitions go back to their preferred leaders", len(candidates))
            await self.elect(candidates, ElectionType.PREFERRED, ElectionTrigger.AUTO)

    async def process_stored_election(self) -> None:
        """Holds the preferred elections that a tool requested by writing a node."""
        state = await self._machines.persistence.load(Hint(HintKind.PREFERRED_ELECTION))
        if state.preferred_elections:
            await self.elect(
                sorted(state.preferred_elections), ElectionType.PREFERRED, ElectionTrigger.STORE
            )

    async def elect(
        self,
        partitions: Sequence[TopicPartition] | None,
        election_type: ElectionType,
        trigger: ElectionTrigger,
    ) -> dict[TopicPartition, ElectionOutcome]:
        """Elects leaders. None means all partitions; then only those in need have a result."""
        context = self._context
        wanted = sorted(context.partition_leadership) if partitions is None else partitions
        outcomes: dict[TopicPartition, ElectionOutcome] = {}
        candidates: list[TopicPartition] = []
        for tp in dict.fromkeys(wanted):
            refusal = self._refusal(tp, election_type)
            if refusal is None:
                candidates.append(tp)
            elif partitions is not None or refusal.error is not ErrorCode.ELECTION_NOT_NEEDED:
                outcomes[tp] = refusal
        strategy = Strategy.PREFERRED
        if election_type is ElectionType.UNCLEAN:
            is_asked_for = trigger is ElectionTrigger.ADMIN_CLIENT
            strategy = Strategy.OFFLINE_UNCLEAN if is_asked_for else Strategy.OFFLINE
        results = await self._machines.move_partitions(candidates, PartitionStatus.ONLINE, strategy)
        for tp in candidates:
            outcomes[tp] = _outcome(results.get(tp), election_type)
        return outcomes

    def _refusal(self, tp: TopicPartition, election_type: ElectionType) -> ElectionOutcome | None:
        context = self._context
        if not context.partition_replica_assignment(tp):
            return ElectionOutcome(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {tp} does not exist"
            )
        if context.is_topic_queued_for_deletion(tp.topic):
            return ElectionOutcome(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {tp.topic!r} is being deleted"
            )
        record = context.partition_leadership.get(tp)
        leader = NO_LEADER if record is None else record.leader_and_isr.leader
        is_led = context.is_replica_online(leader, tp)
        if election_type is ElectionType.PREFERRED:
            is_led = is_led and leader == context.partition_replica_assignment(tp)[0]
        if is_led:
            return ElectionOutcome(
                ErrorCode.ELECTION_NOT_NEEDED, f"leader election not needed for {tp}", leader
            )
        return None

    def list_reassignments(
        self, partitions: Iterable[TopicPartition] | None
    ) -> dict[TopicPartition, ReplicaAssignment]:
        """The partitions, of those given or of all, whose replicas are being moved."""
        wanted = self._context.all_partitions() if partitions is None else partitions
        return {
            tp: assignment
            for tp in sorted(set(wanted))
            if (assignment := self._context.partition_full_assignment(tp)).is_being_reassigned
        }


def _outcome(result: LeaderAndIsr | Exception | None, kind: ElectionType) -> ElectionOutcome:
    if isinstance(result, LeaderAndIsr):
        return ElectionOutcome(ErrorCode.NONE, None, result.leader)
    code = (
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        if kind is ElectionType.PREFERRED
        else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    )
    return ElectionOutcome(code, str(result) if result is not None else code.name)
