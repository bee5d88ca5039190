"""Runs scenarios of a controller: on metadata in memory, with brokers that obey.

=============================  ================================================================
Command                        Meaning
=============================  ================================================================
brokers 1 2 3                  these register
dies 1                         its registration ends
elect 1                        broker 1 becomes the controller, in the next epoch
fails 1                        the controller stops where it is
create t 0=[1,2] 1=[2,1]       a request for a topic with these replicas
stored t 0=[1,2]               an earlier controller wrote the topic, and nothing of its partitions
delete t                       a request to delete it
refuses 2 t-0                  broker 2 cannot delete its replica
obeys 2 t-0                    it can, again
isr t-0 [1]                    the leader changes the ISR
prefers t-0                    a request to elect the preferred leader
unclean t-0                    a request to elect a leader outside of the ISR
shuts-down 1                   a broker asks to be relieved of its leaderships
bounces 1                      a broker registers again before its death was seen
moves t-0=[3,4]                a request to move replicas there; t-0=null cancels
node t-0=[3,4]                 a tool writes the same to /admin/reassign_partitions
dir-fails 2 t-0                broker 2 reports a failed directory, and had this replica there
dir-heals 2 t-0                the replica is there again, in the broker's next life
=============================  ================================================================

The trace of a step: the answer to a request, what was committed in order, what each broker was
sent in order, then partitions and replicas whose state differs from before.
"""

import asyncio
import uuid
from collections.abc import Iterable, Mapping, Sequence
from random import Random

from odradek.controller import ControlChannel, Controller, LocalChannel, NewTopic
from odradek.controller.context import ControllerContext, PartitionStatus, ReplicaStatus
from odradek.errors import ApiError, ErrorCode
from odradek.metadata.changes import (
    AssignmentChanged,
    Change,
    PartitionChanged,
    StoredReassignmentsChanged,
    TopicCreated,
    TopicDeletionRequested,
    TopicRemoved,
)
from odradek.metadata.control_requests import ControlRequest
from odradek.metadata.image import LiveBroker
from odradek.metadata.ports import ControllerState, Hint, HintKind, RegisteredBroker
from odradek.metrics import MetricRegistry
from odradek.model import Endpoint, LeaderAndIsr, ReplicaAssignment, TopicPartition
from odradek.protocol.enums import ElectionType
from odradek.protocol.messages.leader_and_isr import LeaderAndIsrPartitionState
from odradek.protocol.messages.stop_replica import StopReplicaPartitionState
from odradek.protocol.messages.update_metadata import UpdateMetadataRequest
from odradek.testing import ManualClock
from tests.scenarios.scripts import GIVEN
from tests.support.controllers import RecordingBroker, broker
from tests.support.persistences import QuorumPersistence

__all__ = ["Scenario", "run"]

# More than any chain of events needs: everything here is in memory, and waits for nothing.
_TURNS = 300


class _Persistence(QuorumPersistence):
    """Tells of ISR changes that leaders made, until they were read once."""

    def __init__(self) -> None:
        super().__init__()
        self.isr_changes: set[TopicPartition] = set()
        self.log_dir_failures: set[int] = set()

    async def load(self, hint: Hint | None = None) -> ControllerState:
        if hint is not None and hint.kind is HintKind.LOG_DIR_FAILURES:
            failures = frozenset(self.log_dir_failures)
            self.log_dir_failures.clear()
            return ControllerState(log_dir_failures=failures)
        if hint is None or hint.kind is not HintKind.ISR_CHANGES:
            return await super().load(hint)
        changes = frozenset(self.isr_changes)
        self.isr_changes.clear()
        return ControllerState(
            partitions={tp: self.partitions[tp] for tp in changes}, isr_changes=changes
        )


class Scenario:
    """One controller, its metadata, and the brokers that obey."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.persistence = _Persistence()
        self.recorders: dict[int, RecordingBroker] = {}
        self.epochs: dict[int, int] = {}  # How often each broker registered.
        self.active: Controller | None = None
        self.answers: list[str] = []
        self.states: dict[str, str] = {}

    @property
    def controller(self) -> Controller:
        assert self.active is not None, "elect comes first"
        return self.active

    def recorder(self, broker_id: int) -> RecordingBroker:
        return self.recorders.setdefault(broker_id, RecordingBroker(broker_id))

    def open_channel(self, target: LiveBroker, _endpoint: Endpoint | None) -> ControlChannel:
        return LocalChannel(self.recorder(target.id).handle)

    async def settle(self) -> None:
        for _ in range(_TURNS):
            await asyncio.sleep(0)

    async def perform(self, command: str) -> None:
        name, *arguments = command.split()
        match name:
            case "brokers":
                for broker_id in map(int, arguments):
                    epoch = self.epochs[broker_id] = self.epochs.get(broker_id, 0) + 1
                    self.persistence.brokers[broker_id] = RegisteredBroker(broker(broker_id), epoch)
                self.tell(HintKind.BROKERS)
            case "bounces":
                for broker_id in map(int, arguments):
                    self.epochs[broker_id] += 1
                    self.persistence.brokers[broker_id] = RegisteredBroker(
                        broker(broker_id), self.epochs[broker_id]
                    )
                self.tell(HintKind.BROKERS)
            case "node":
                moves = _moves(arguments)
                self.persistence.reassignments = {tp: t for tp, t in moves.items() if t is not None}
                self.tell(HintKind.REASSIGNMENTS)
            case "dir-fails":
                failing = self.recorder(int(arguments[0]))
                failing.leader_errors[_partition(arguments[1])] = ErrorCode.KAFKA_STORAGE_ERROR
                self.persistence.log_dir_failures.add(failing.broker_id)
                self.tell(HintKind.LOG_DIR_FAILURES)
            case "dir-heals":
                self.recorder(int(arguments[0])).leader_errors.clear()
            case "dies":
                for broker_id in map(int, arguments):
                    del self.persistence.brokers[broker_id]
                self.tell(HintKind.BROKERS)
            case "elect":
                self.active = Controller(
                    int(arguments[0]),
                    self.persistence,
                    self.open_channel,
                    clock=self.clock,
                    metrics=MetricRegistry(self.clock, Random(1)),
                    random=Random(1),
                )
                await self.active.start()
                self.persistence.elect()
            case "fails":
                await self.controller.stop()
                self.active, self.states = None, {}
            case "stored":
                topic = _new_topic(*arguments)
                assert topic.assignment is not None
                self.persistence.make(
                    TopicCreated(
                        topic=topic.name,
                        topic_id=uuid.UUID(int=1),
                        assignment={
                            number: ReplicaAssignment(tuple(replicas))
                            for number, replicas in topic.assignment.items()
                        },
                    )
                )
            case "refuses" | "obeys":
                code = ErrorCode.KAFKA_STORAGE_ERROR if name == "refuses" else ErrorCode.NONE
                self.recorder(int(arguments[0])).delete_errors[_partition(arguments[1])] = code
            case "isr":
                self.change_isr(_partition(arguments[0]), _replicas(arguments[1]))
            case _:
                self.answers.append(await self.ask(name, arguments))
        await self.settle()

    async def ask(self, name: str, arguments: Sequence[str]) -> str:
        controller = self.controller
        try:
            match name:
                case "create":
                    [created] = await controller.create_topics([_new_topic(*arguments)])
                    return created.error.name
                case "delete":
                    [deleted] = await controller.delete_topics(arguments)
                    return deleted.error.name
                case "moves":
                    moved = await controller.alter_reassignments(_moves(arguments))
                    return _listed(f"{tp} {outcome.error.name}" for tp, outcome in moved.items())
                case "prefers" | "unclean":
                    tp = _partition(arguments[0])
                    kind = ElectionType.PREFERRED if name == "prefers" else ElectionType.UNCLEAN
                    return (await controller.elect_leaders([tp], kind))[tp].error.name
                case "shuts-down":
                    broker_id = int(arguments[0])
                    left = await controller.controlled_shutdown(broker_id, self.epochs[broker_id])
                    return f"still leads {_listed(sorted(map(str, left))) or 'nothing'}"
        except ApiError as error:
            return error.code.name
        raise ValueError(f"unknown command {name}")

    def tell(self, kind: HintKind) -> None:
        if self.active is not None:
            self.persistence.told.put_nowait(Hint(kind))

    def change_isr(self, tp: TopicPartition, isr: tuple[int, ...]) -> None:
        record = self.persistence.partitions[tp]
        old = record.leader_and_isr
        new = LeaderAndIsr(
            leader=old.leader,
            leader_epoch=old.leader_epoch,
            isr=isr,
            partition_version=old.partition_version + 1,
        )
        self.persistence.partitions[tp] = record._replace(leader_and_isr=new)
        self.persistence.isr_changes.add(tp)
        self.tell(HintKind.ISR_CHANGES)

    # The trace

    def take_trace(self) -> list[str]:
        trace = [f"answer: {answer}" for answer in self.answers]
        trace += [f"committed: {_change(change)}" for change in self.persistence.commits]
        self.answers.clear()
        self.persistence.commits.clear()
        sent: dict[tuple[str, ...], list[int]] = {}
        for broker_id in sorted(self.recorders):
            requests = tuple(_request(r) for r in self.recorders[broker_id].take())
            if requests:
                sent.setdefault(requests, []).append(broker_id)
        for requests, broker_ids in sent.items():
            trace.append(f"sent to {_listed(broker_ids)}:")
            trace += [f"  {line}" for request in requests for line in request.split("\n")]
        states = {} if self.active is None else _states(self.active.context)
        for name in sorted(states.keys() | self.states.keys()):
            if states.get(name) != self.states.get(name):
                trace.append(f"state of {states.get(name, f'{name}: gone')}")
        self.states = states
        return trace


def _states(context: ControllerContext) -> dict[str, str]:
    """Partition to its state and those of its replicas."""
    states = {}
    for tp, partition in context.partition_states.items():
        replicas = (
            f"{replica.replica} {_words(status)}"
            for replica, status in sorted(context.replica_states.items())
            if replica.tp == tp
        )
        states[str(tp)] = f"{tp}: {_words(partition)}; replicas {_listed(replicas)}"
    return states


def _words(status: PartitionStatus | ReplicaStatus) -> str:
    return status.name.lower().replace("_", " ")


def _change(change: Change) -> str:
    match change:
        case TopicCreated():
            replicas = (f"{n} on {list(a.replicas)}" for n, a in sorted(change.assignment.items()))
            return f"topic {change.topic} with {_listed(replicas)}"
        case PartitionChanged(tp=tp, state=state):
            return f"{tp} {_leadership(state.leader, state.leader_epoch, state.isr)}"
        case AssignmentChanged(topic=topic, assignment=assignment):
            rows = (f"{n} {_assignment(a)}" for n, a in sorted(assignment.items()))
            return f"topic {topic} with {_listed(rows)}"
        case StoredReassignmentsChanged(reassignments=left):
            return f"node names {_listed(f'{tp}={list(t)}' for tp, t in left.items()) or 'nothing'}"
        case TopicDeletionRequested(topic=topic):
            return f"topic {topic} is to be deleted"
        case TopicRemoved(topic=topic):
            return f"topic {topic} is gone"
    return repr(change)


def _assignment(assignment: ReplicaAssignment) -> str:
    parts = [f"on {list(assignment.replicas)}"]
    if assignment.adding:
        parts.append(f"adding {list(assignment.adding)}")
    if assignment.removing:
        parts.append(f"removing {list(assignment.removing)}")
    return " ".join(parts)


def _request(request: ControlRequest) -> str:
    name = type(request).__name__.removesuffix("Request")
    rows = []
    for topic in request.topic_states:
        for partition in topic.partition_states:
            tp = f"{topic.topic_name}-{partition.partition_index}"
            if isinstance(partition, StopReplicaPartitionState):
                rows.append(f"{tp} and delete it" if partition.delete_partition else tp)
                continue
            row = f"{tp} {_leadership(partition.leader, partition.leader_epoch, partition.isr)}"
            if isinstance(partition, LeaderAndIsrPartitionState):
                if partition.adding_replicas or partition.removing_replicas:
                    moving = ReplicaAssignment(
                        tuple(partition.replicas),
                        tuple(partition.adding_replicas),
                        tuple(partition.removing_replicas),
                    )
                    row += f", {_assignment(moving)}"
                rows.append(f"{row}, new" if partition.is_new else row)
            else:
                offline = list(partition.offline_replicas)
                rows.append(f"{row}, offline {offline}" if offline else row)
    if isinstance(request, UpdateMetadataRequest) and not rows:
        rows.append(f"brokers {sorted(broker.id for broker in request.live_brokers)}")
    return "\n".join(f"{name} {row}" for row in rows)


def _leadership(leader: int, epoch: int, isr: Sequence[int]) -> str:
    who = {-1: "no leader", -2: "being deleted"}.get(leader, f"leader {leader}")
    return f"{who}, epoch {epoch}, isr {list(isr)}"


def _listed(items: Iterable[object]) -> str:
    return ", ".join(map(str, items))


def _partition(text: str) -> TopicPartition:
    topic, _, number = text.rpartition("-")
    return TopicPartition(topic, int(number))


def _replicas(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.strip("[]").split(",") if part)


def _moves(arguments: Sequence[str]) -> dict[TopicPartition, tuple[int, ...] | None]:
    pairs = (argument.split("=") for argument in arguments)
    return {_partition(tp): None if row == "null" else _replicas(row) for tp, row in pairs}


def _new_topic(name: str, *partitions: str) -> NewTopic:
    rows = dict(partition.split("=") for partition in partitions)
    assignment: Mapping[int, Sequence[int]] = {int(n): _replicas(row) for n, row in rows.items()}
    return NewTopic(name=name, assignment=assignment)


async def _run(steps: Sequence[Sequence[str]]) -> list[list[str]]:
    scenario = Scenario()
    traces = []
    for commands in steps:
        for command in commands:
            await scenario.perform(command.removeprefix(GIVEN))
            if command.startswith(GIVEN):
                scenario.take_trace()
        traces.append(scenario.take_trace())
    if scenario.active is not None:
        await scenario.active.stop()
    return traces


def run(steps: Sequence[Sequence[str]]) -> list[list[str]]:
    """The trace of each step."""
    return asyncio.run(_run(steps))
