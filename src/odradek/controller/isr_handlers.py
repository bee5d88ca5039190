"""ISR changes at the request of leaders (AlterPartition): decided, committed, announced.

A request is compared with the controller's own state, which only the controller changes; the first
case that applies decides:

| the request                                               | answer                       |
|-----------------------------------------------------------|------------------------------|
| comes from another registration of the broker (whole)     | STALE_BROKER_EPOCH           |
| names a topic or partition that does not exist            | 3, or UNKNOWN_TOPIC_ID by id |
| has a later leader epoch or version: we lag behind        | NOT_CONTROLLER               |
| has an earlier leader epoch                               | FENCED_LEADER_EPOCH          |
| does not come from the leader                             | INVALID_REQUEST              |
| wants what is stored already: its first answer was lost   | the stored state             |
| has an earlier version                                    | INVALID_UPDATE_VERSION       |
| has members that are no replicas, or lacks the leader     | INVALID_REQUEST              |
| knows a later registration of a member: we lag behind     | NOT_CONTROLLER               |
| has members that are dead, shut down, or restarted since  | INELIGIBLE_REPLICA           |

**Why members are checked.** A leader adds a follower that has fetched everything. If that broker
stops or restarts with an emptied disk before the change is stored, it would be a member of the ISR
without the records of the ISR, and could be elected. The controller knows shutdowns and
registrations first, so it refuses (KIP-841, KIP-903).

The leader epoch stays: the leader goes on, and followers need no notice of it.
"""

import logging
from collections.abc import Sequence
from dataclasses import field

from odradek.controller.context import ControllerContext
from odradek.controller.machine_driver import MachineDriver
from odradek.controller.partition_machine import learn_conflict
from odradek.errors import ApiError, ErrorCode
from odradek.lazy_dataclass import dataclass
from odradek.metadata.changes import PartitionChanged
from odradek.metadata.isr_requests import IsrResult, WantedIsr
from odradek.model import LeaderAndIsr, TopicPartition

__all__ = ["IsrDecision", "IsrHandlers", "check_registration", "decide_isr_changes"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrDecision:
    """The changes to commit, and the results that need none; by position in the request."""

    changes: dict[int, PartitionChanged] = field(default_factory=dict)
    results: dict[int, IsrResult] = field(default_factory=dict)


def check_registration(context: ControllerContext, broker_id: int, broker_epoch: int) -> None:
    """Checks that a request comes from the present registration of a broker.

    Raises:
        ApiError: STALE_BROKER_EPOCH.
    """
    known = context.live_broker_epochs.get(broker_id)
    if known is None or broker_epoch != known:
        raise ApiError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"broker {broker_id} asks as of epoch {broker_epoch}, registered is epoch {known}",
        )


def decide_isr_changes(
    context: ControllerContext, broker_id: int, wanted: Sequence[WantedIsr]
) -> IsrDecision:
    """Decides which ISRs are to be stored."""
    decision = IsrDecision()
    names = {topic_id: name for name, topic_id in context.topic_ids.items()}
    seen: set[TopicPartition] = set()
    for position, request in enumerate(wanted):
        topic = request.topic if request.topic_id is None else names.get(request.topic_id)
        if topic is None:
            decision.results[position] = IsrResult(ErrorCode.UNKNOWN_TOPIC_ID)
            continue
        tp = TopicPartition(topic, request.partition)
        error = ErrorCode.INVALID_REQUEST if tp in seen else None
        seen.add(tp)
        outcome = error or _decide(context, broker_id, tp, request)
        if isinstance(outcome, PartitionChanged):
            decision.changes[position] = outcome
        elif isinstance(outcome, LeaderAndIsr):
            decision.results[position] = IsrResult(ErrorCode.NONE, outcome)
        else:
            logger.info(
                "%s: ISR %s of leader %d refused: %s", tp, request.isr, broker_id, outcome.name
            )
            decision.results[position] = IsrResult(outcome)
    return decision


def _decide(
    context: ControllerContext, broker_id: int, tp: TopicPartition, request: WantedIsr
) -> PartitionChanged | LeaderAndIsr | ErrorCode:
    """The change to commit, the stored state if it is the wanted one, or the error."""
    record = context.partition_leadership.get(tp)
    if record is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    current = record.leader_and_isr
    if (
        request.leader_epoch > current.leader_epoch
        or request.partition_version > current.partition_version
    ):
        return ErrorCode.NOT_CONTROLLER
    if request.leader_epoch < current.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if broker_id != current.leader:
        return ErrorCode.INVALID_REQUEST
    if set(request.isr) == set(current.isr):
        return current
    if request.partition_version < current.partition_version:
        return ErrorCode.INVALID_UPDATE_VERSION
    members = set(request.isr)
    if (
        len(members) < len(request.isr)
        or broker_id not in members
        or not members.issubset(context.partition_replica_assignment(tp))
    ):
        return ErrorCode.INVALID_REQUEST
    registered, named = context.live_broker_epochs, request.broker_epochs
    known = members & registered.keys() & named.keys()
    if any(named[member] > registered[member] for member in known):
        return ErrorCode.NOT_CONTROLLER
    if not members <= context.live_broker_ids or any(
        0 <= named[member] < registered[member] for member in known
    ):
        return ErrorCode.INELIGIBLE_REPLICA
    return PartitionChanged(
        tp=tp,
        topic_id=context.topic_ids.get(tp.topic),
        state=LeaderAndIsr(
            leader=current.leader,
            leader_epoch=current.leader_epoch,
            isr=request.isr,
            partition_version=current.partition_version,
        ),
        controller_epoch=context.controller_epoch,
        is_first=False,
    )


class IsrHandlers:
    """Handles the ISR changes that leaders request.

    Args:
        machines: Commits, and announces to brokers.
    """

    def __init__(self, machines: MachineDriver) -> None:
        self._machines = machines
        self._context: ControllerContext = machines.context
        # Partitions whose ISR the last request changed; a reassignment may end by that.
        self.stored: list[TopicPartition] = []

    async def alter(
        self, broker_id: int, broker_epoch: int, wanted: Sequence[WantedIsr]
    ) -> list[IsrResult]:
        """Stores the ISRs that a leader may have; the results in the order of the request.

        Raises:
            ApiError: STALE_BROKER_EPOCH.
        """
        context = self._context
        self.stored = []
        check_registration(context, broker_id, broker_epoch)
        decision = decide_isr_changes(context, broker_id, wanted)
        results = decision.results
        position_of = {change.tp: position for position, change in decision.changes.items()}
        outcome = await self._machines.commit(list(decision.changes.values()))
        stored = self.stored
        for change, _ in outcome.committed:
            assert isinstance(change, PartitionChanged)
            state = context.partition_leadership[change.tp].leader_and_isr
            results[position_of[change.tp]] = IsrResult(ErrorCode.NONE, state)
            stored.append(change.tp)
        for conflict in outcome.conflicts:
            assert isinstance(conflict.change, PartitionChanged)
            learn_conflict(context, conflict)
            results[position_of[conflict.change.tp]] = IsrResult(ErrorCode.INVALID_UPDATE_VERSION)
        for change, error in outcome.failed:
            assert isinstance(change, PartitionChanged)
            logger.warning("%s: its ISR could not be stored: %s", change.tp, error)
            results[position_of[change.tp]] = IsrResult(ErrorCode.UNKNOWN_SERVER_ERROR)
        if stored:
            self._machines.send_update_metadata(context.live_or_shutting_down_broker_ids, stored)
        return [results[position] for position in range(len(wanted))]
