"""Driver of the two machines: decide, commit, apply, announce, for partitions and replicas.

Duties towards the machines, in order:

1. Only legal transitions are handed to them; illegal ones are logged and skipped.
2. A decision is committed before any of it is applied or announced, and committed changes are
   applied here and nowhere else.
3. On a conflict the stored state is adopted and the partition is decided again; other failures are
   final for the call.
4. Requests are sent when all changes of the call are applied. If it fails before that they are
   dropped, and the failure becomes the result of every partition.

`ControllerMoved` is not caught here: the dispatcher resigns.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias, TypeVar

from odradek.controller import partition_machine, reassignment, replica_machine
from odradek.controller.context import (
    ControllerContext,
    PartitionAndReplica,
    PartitionStatus,
    ReplicaStatus,
)
from odradek.controller.election import Strategy
from odradek.controller.folding import apply_committed
from odradek.controller.partition_machine import StateChangeFailed
from odradek.controller.request_batch import OutgoingRequest, RequestBatch
from odradek.controller.stats import ControllerStats
from odradek.errors import ControllerMoved
from odradek.metadata.changes import Change, PartitionChanged
from odradek.metadata.ports import (
    CommitOutcome,
    ControllerState,
    Hint,
    HintKind,
    MetadataPersistence,
)
from odradek.model import LeaderAndIsr, TopicPartition

__all__ = ["MachineDriver", "PartitionResult"]

logger = logging.getLogger(__name__)
_state_change_logger = logging.getLogger("state.change.logger")

_T = TypeVar("_T")

PartitionResult: TypeAlias = LeaderAndIsr | Exception

# Rounds of decide and commit in one call. Every further one means that a partition's leader wrote
# its ISR in between; a hundred times in a row does not happen.
MAX_ROUNDS = 100
MAX_PIPELINED = 200  # Reads in flight at a time.
# Partitions that are decided or applied before other tasks of the loop run; each takes some 40 us.
ITEMS_PER_TURN = 20

_UNCLEAN_KEY = "unclean.leader.election.enable"


class MachineDriver:
    """The machines of an active controller, and the parts they share.

    Args:
        context: The controller's metadata.
        persistence: Makes changes durable.
        new_batch: Makes an empty request batch.
        send: Queues requests for brokers.
        stats: Counts unclean elections.
        unclean_default: Whether topics without an override permit unclean elections.
    """

    def __init__(
        self,
        context: ControllerContext,
        persistence: MetadataPersistence,
        *,
        new_batch: Callable[[], RequestBatch],
        send: Callable[[Sequence[OutgoingRequest]], None],
        stats: ControllerStats,
        unclean_default: Callable[[], bool],
    ) -> None:
        self.context = context
        self.persistence = persistence
        self._partition_batch = new_batch()
        self._replica_batch = new_batch()
        self._own_batch = new_batch()
        self._send = send
        self._stats = stats
        self._unclean_default = unclean_default

    async def commit(self, changes: Sequence[Change]) -> CommitOutcome:
        """Commits changes under the fence of this controller, and applies the durable ones."""
        if not changes:
            return CommitOutcome()
        outcome = await self.persistence.commit(changes, self.context.fence)
        async for portion in _in_turns(outcome.committed):
            for committed in portion:
                apply_committed(self.context, committed)
        return outcome

    # Partitions

    async def move_partitions(
        self,
        partitions: Iterable[TopicPartition],
        target: PartitionStatus,
        strategy: Strategy | None = None,
    ) -> dict[TopicPartition, PartitionResult]:
        """Moves partitions to a state; returns the results of elections, if there were any."""
        wanted = list(dict.fromkeys(partitions))
        if not wanted:
            return {}
        batch = self._partition_batch
        try:
            batch.begin()
            split = partition_machine.split_partitions(self.context, wanted, target)
            for tp in split.invalid:
                self._log_illegal("partition", tp, self.context.partition_state(tp), target)
            results: dict[TopicPartition, PartitionResult] = {}
            if target is PartitionStatus.ONLINE:
                results = await self._bring_online(split.valid, strategy)
            else:
                async for portion in _in_turns(split.valid):
                    for tp in portion:
                        partition_machine.move_partition(self.context, tp, target)
            self._send(batch.build(self.context.controller_epoch))
        except ControllerMoved:
            batch.clear()
            raise
        except Exception as error:
            logger.exception("partitions could not be taken to %s", target.name)
            batch.clear()
            return dict.fromkeys(wanted, error)
        return results

    async def _bring_online(
        self, partitions: list[TopicPartition], strategy: Strategy | None
    ) -> dict[TopicPartition, PartitionResult]:
        context = self.context
        results: dict[TopicPartition, PartitionResult] = {}
        initialized = {
            tp for tp in partitions if context.partition_state(tp) is PartitionStatus.NEW
        }
        remaining, unread = partitions, set(partitions) - initialized
        for _ in range(MAX_ROUNDS):
            unclean_topics = await self._unclean_topics(remaining, strategy)
            decision = partition_machine.OnlineDecision()
            async for portion in _in_turns(remaining):
                partition_machine.decide_online(
                    context, portion, strategy, unclean_topics=unclean_topics, decision=decision
                )
            results.update(decision.failures)
            outcome = await self.commit(decision.changes)
            async for committed in _in_turns(outcome.committed):
                results.update(partition_machine.apply_online(context, committed))
                partition_machine.announce_online(
                    context, self._partition_batch, decision.elections, committed
                )
            self._count_unclean(decision, outcome)
            remaining = self._learn(outcome, results)
            # A leader may have expanded its ISR, which the context does not show yet.
            doubtful = [tp for tp in decision.failures if tp in unread]
            remaining += await self._refresh(doubtful, results)
            unread.difference_update(doubtful)
            if not remaining:
                break
        results.update((tp, StateChangeFailed(f"{tp}: changes all the time")) for tp in remaining)
        self._log_failures(r for r in results.values() if isinstance(r, Exception))
        return {tp: result for tp, result in results.items() if tp not in initialized}

    def _learn(
        self, outcome: CommitOutcome, results: dict[TopicPartition, PartitionResult]
    ) -> list[TopicPartition]:
        """Records conflicts and failures; returns the partitions to decide again."""
        for change, error in outcome.failed:
            assert isinstance(change, PartitionChanged)
            results[change.tp] = error
        again: list[TopicPartition] = []
        for conflict in outcome.conflicts:
            assert isinstance(conflict.change, PartitionChanged)
            failure = partition_machine.learn_conflict(self.context, conflict)
            if failure is None:
                again.append(conflict.change.tp)
            else:
                results[conflict.change.tp] = failure
        return again

    async def _refresh(
        self, partitions: list[TopicPartition], results: dict[TopicPartition, PartitionResult]
    ) -> list[TopicPartition]:
        """Reads partitions that got no leader; returns those to decide again."""
        changed, failures = await self.refresh(partitions)
        results.update(failures)
        return changed

    async def refresh(
        self, partitions: Sequence[TopicPartition]
    ) -> tuple[list[TopicPartition], dict[TopicPartition, StateChangeFailed]]:
        """Reads leader and ISR, and leaves watches on them.

        Returns:
            The partitions whose state was another than the context knew, and now does; and those
            that a later controller has written.
        """
        changed: list[TopicPartition] = []
        failures: dict[TopicPartition, StateChangeFailed] = {}
        states = await self._load_all(
            Hint(HintKind.PARTITION, None, tp.topic, tp.partition) for tp in partitions
        )
        for tp, state in zip(partitions, states, strict=True):
            found = state.partitions.get(tp)
            if found is None or found == self.context.partition_leadership.get(tp):
                continue
            if found.controller_epoch > self.context.controller_epoch:
                failures[tp] = StateChangeFailed(
                    f"{tp}: written by a controller of epoch {found.controller_epoch}"
                )
                continue
            self.context.partition_leadership[tp] = found
            changed.append(tp)
        return changed, failures

    async def raise_leader_epochs(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, PartitionResult]:
        """Raises leader epochs, and announces them with the replicas as the context has them.

        A replica that is being added is announced as new: it may be made in any directory.
        """
        context = self.context
        remaining = [tp for tp in partitions if tp in context.partition_leadership]
        results: dict[TopicPartition, PartitionResult] = {}
        for _ in range(MAX_ROUNDS):
            outcome = await self.commit(reassignment.decide_epoch_bump(context, remaining))
            for committed in outcome.committed:
                assert isinstance(committed.change, PartitionChanged)
                tp = committed.change.tp
                results[tp] = context.partition_leadership[tp].leader_and_isr
            remaining = self._learn(outcome, results)
            if not remaining:
                break
        results.update((tp, StateChangeFailed(f"{tp}: changes all the time")) for tp in remaining)
        self._log_failures(e for e in results.values() if isinstance(e, Exception))
        with self._announcement() as batch:
            async for portion in _in_turns(list(results)):
                for tp in portion:
                    if isinstance(results[tp], LeaderAndIsr):
                        reassignment.announce_replicas(context, batch, tp)
        return results

    def _count_unclean(
        self, decision: partition_machine.OnlineDecision, outcome: CommitOutcome
    ) -> None:
        for change, _ in outcome.committed:
            assert isinstance(change, PartitionChanged)
            if decision.elections[change.tp].is_unclean:
                self._stats.unclean_leader_elections.mark()
                _state_change_logger.warning(
                    "%s: unclean leader %d, records may be lost", change.tp, change.state.leader
                )

    async def _unclean_topics(
        self, partitions: Iterable[TopicPartition], strategy: Strategy | None
    ) -> frozenset[str]:
        """Topics that permit an unclean election, among those that need one."""
        if strategy is not Strategy.OFFLINE:
            return frozenset()
        topics = partition_machine.topics_without_live_isr(self.context, partitions)
        states = await self._load_all(Hint(HintKind.TOPIC, topic=topic) for topic in topics)
        permitted = []
        for topic, state in zip(topics, states, strict=True):
            configs = state.topic_configs.get(topic)
            if configs is None:
                continue  # Unreadable setting: better no leader than one that loses records.
            override = configs.get(_UNCLEAN_KEY)
            is_permitted = (
                self._unclean_default() if override is None else override.lower() == "true"
            )
            if is_permitted:
                permitted.append(topic)
        return frozenset(permitted)

    async def _load_all(self, hints: Iterable[Hint]) -> list[ControllerState]:
        """Loads in pipelined portions; all loads end before an error is raised."""
        wanted = list(hints)
        loaded: list[ControllerState] = []
        for start in range(0, len(wanted), MAX_PIPELINED):
            portion = wanted[start : start + MAX_PIPELINED]
            outcomes = await asyncio.gather(
                *(self.persistence.load(hint) for hint in portion), return_exceptions=True
            )
            for outcome in outcomes:
                if isinstance(outcome, BaseException):
                    raise outcome
                loaded.append(outcome)
        return loaded

    async def trigger_online(self, topic: str | None = None) -> None:
        """Tries to bring all partitions online that are not, of one topic or of all."""
        states = (PartitionStatus.NEW, PartitionStatus.OFFLINE)
        await self.move_partitions(
            [
                tp
                for tp in self.context.partitions_in_states(states, topic)
                if not self.context.is_topic_queued_for_deletion(tp.topic)
            ],
            PartitionStatus.ONLINE,
            Strategy.OFFLINE,
        )

    async def on_new_partition_creation(self, partitions: Iterable[TopicPartition]) -> None:
        """Brings partitions online that were just assigned, by this controller or by a tool."""
        created = sorted(partitions)
        replicas = self.context.replicas_for_partitions(created)
        await self.move_partitions(created, PartitionStatus.NEW)
        await self.move_replicas(replicas, ReplicaStatus.NEW)
        await self.move_partitions(created, PartitionStatus.ONLINE, Strategy.OFFLINE)
        await self.move_replicas(replicas, ReplicaStatus.ONLINE)

    async def startup(self) -> None:
        """Starts both machines on a context that was just loaded."""
        replica_machine.initial_states(self.context)
        online, offline = self.context.online_and_offline_replicas()
        await self.move_replicas(online, ReplicaStatus.ONLINE)
        # Otherwise a partition whose leader died with the old controller would keep that leader.
        await self.move_replicas(offline, ReplicaStatus.OFFLINE)
        partition_machine.initial_states(self.context)
        await self.trigger_online()

    # Replicas

    async def move_replicas(
        self, replicas: Iterable[PartitionAndReplica], target: ReplicaStatus
    ) -> None:
        """Moves replicas to a state, broker by broker."""
        batch = self._replica_batch
        try:
            batch.begin()
            for broker_id, hosted in replica_machine.by_broker(replicas).items():
                await self._move_replicas_of(broker_id, hosted, target)
            self._send(batch.build(self.context.controller_epoch))
        except ControllerMoved:
            batch.clear()
            raise
        except Exception:
            logger.exception("replicas could not be taken to %s", target.name)
            batch.clear()

    async def _move_replicas_of(
        self, broker_id: int, replicas: list[PartitionAndReplica], target: ReplicaStatus
    ) -> None:
        split = replica_machine.split_replicas(self.context, replicas, target)
        for replica in split.invalid:
            self._log_illegal("replica", replica, self.context.replica_state(replica), target)
        if target is ReplicaStatus.OFFLINE:
            await self._take_offline(broker_id, split.valid)
            return
        async for portion in _in_turns(split.valid):
            moved = replica_machine.move_replicas(self.context, portion, target)
            replica_machine.announce_moves(
                self.context, self._replica_batch, moved.to_announce, target
            )
            self._log_failures(moved.failures.values())

    async def _take_offline(self, broker_id: int, replicas: list[PartitionAndReplica]) -> None:
        context, batch = self.context, self._replica_batch
        async for portion in _in_turns(replicas):
            replica_machine.announce_stops(batch, portion)
        remaining = [r.tp for r in replicas if r.tp in context.partition_leadership]
        without = [r.tp for r in replicas if r.tp not in context.partition_leadership]
        results: dict[TopicPartition, PartitionResult] = {}
        for _ in range(MAX_ROUNDS):
            removal = replica_machine.decide_isr_removal(
                context,
                broker_id,
                remaining,
                raises_leader_epoch=self.persistence.raises_leader_epoch_on_isr_change,
            )
            outcome = await self.commit(removal.changes)
            written = [
                c.change.tp for c in outcome.committed if isinstance(c.change, PartitionChanged)
            ]
            async for done in _in_turns([*written, *removal.unchanged]):
                replica_machine.apply_offline(context, broker_id, done)
                replica_machine.announce_isr_removal(context, batch, broker_id, done)
            remaining = self._learn(outcome, results)
            if not remaining:
                break
        self._log_failures(e for e in results.values() if isinstance(e, Exception))
        async for stateless in _in_turns(without):
            replica_machine.apply_offline(context, broker_id, stateless)
            replica_machine.announce_without_state(context, batch, stateless)

    # Announcements

    def send_update_metadata(
        self, broker_ids: Iterable[int], partitions: Iterable[TopicPartition] = ()
    ) -> None:
        """Announces the live brokers, and the states of partitions, to brokers."""
        with self._announcement() as batch:
            batch.add_update_metadata(broker_ids, partitions)

    def send_stop_replicas(self, replicas: Iterable[PartitionAndReplica], *, deletes: bool) -> None:
        """Makes brokers stop replicas, without a change of the replicas' states."""
        with self._announcement() as batch:
            for replica in replicas:
                batch.add_stop_replica([replica.replica], replica.tp, deletes=deletes)

    @contextmanager
    def _announcement(self) -> Iterator[RequestBatch]:
        """A batch that is sent on success and cleared on failure."""
        batch = self._own_batch
        try:
            batch.begin()
            yield batch
            self._send(batch.build(self.context.controller_epoch))
        finally:
            batch.clear()

    def _log_failures(self, failures: Iterable[Exception]) -> None:
        for failure in failures:
            _state_change_logger.error(
                "controller epoch %d: %s", self.context.controller_epoch, failure
            )

    def _log_illegal(
        self,
        what: str,
        item: TopicPartition | PartitionAndReplica,
        current: PartitionStatus | ReplicaStatus,
        target: PartitionStatus | ReplicaStatus,
    ) -> None:
        _state_change_logger.error(
            "controller epoch %d: %s %s cannot go from %s to %s",
            self.context.controller_epoch,
            what,
            item,
            current.name,
            target.name,
        )


async def _in_turns(items: Sequence[_T]) -> AsyncIterator[Sequence[_T]]:
    """Portions of many items; other tasks of the loop run in between.

    No other event of the controller is handled in between: each is handled to its end first.
    """
    for start in range(0, len(items), ITEMS_PER_TURN):
        if start:
            await asyncio.sleep(0)
        yield items[start : start + ITEMS_PER_TURN]
