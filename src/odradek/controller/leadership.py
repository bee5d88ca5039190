"""Winning and losing leadership: what a broker does on becoming controller, and on resigning.

A new controller loads all metadata and announces it to all brokers: first the live brokers, since a
broker must know the others before it follows one of them, then the state of every partition. A
failure during that gives leadership up, so that another election starts.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping

from odradek.controller.config import LeaderBalanceConfig
from odradek.controller.context import ControllerContext
from odradek.controller.event_manager import EventManager
from odradek.controller.events import (
    AutoPreferredReplicaLeaderElection,
    BrokerChange,
    BrokerModifications,
    ControllerEvent,
    Elected,
    ElectionTrigger,
    Expire,
    IsrChangeNotification,
    LogDirEventNotification,
    PartitionModifications,
    PartitionReassignmentIsrChange,
    PartitionReassignmentRequested,
    PreferredReplicaElectionRequested,
    TopicChange,
    TopicDeletion,
)
from odradek.controller.leader_handlers import LeaderHandlers
from odradek.controller.machine_driver import MachineDriver
from odradek.controller.reassignment_driver import Reassignments
from odradek.controller.senders import Senders
from odradek.controller.topic_deletion_driver import TopicDeletions
from odradek.controller.topic_handlers import TopicHandlers
from odradek.errors import ControllerMoved
from odradek.metadata.ports import (
    Hint,
    HintKind,
    LeadershipLost,
    LeadershipWon,
    MetadataPersistence,
)
from odradek.model import NO_CONTROLLER, TopicPartition
from odradek.protocol.enums import ElectionType

__all__ = ["Leadership"]

logger = logging.getLogger(__name__)

# Delay of the first check of the balance after an election: brokers that start together with the
# controller should have registered by then.
FIRST_REBALANCE_S = 5.0


class Leadership:
    """The leadership of this broker, and the steps of gaining and losing it.

    Args:
        broker_id: This broker.
        persistence: Stores metadata durably and elects the controller.
        events: The controller's queue.
        machines: The machines, and their driver.
        topics: Gives ids to topics that have none.
        deletion: Continues deletions under way.
        leaders: Holds requested elections, and those for the balance.
        reassignments: Continues reassignments under way.
        senders: Send requests to the brokers.
        open_senders: Opens the senders, when the brokers are known.
        balance: Settings of the balance of leaders.
    """

    def __init__(
        self,
        broker_id: int,
        persistence: MetadataPersistence,
        events: EventManager,
        machines: MachineDriver,
        topics: TopicHandlers,
        deletion: TopicDeletions,
        leaders: LeaderHandlers,
        reassignments: Reassignments,
        senders: Senders,
        *,
        open_senders: Callable[[], None],
        balance: LeaderBalanceConfig,
    ) -> None:
        self._broker_id = broker_id
        self._context: ControllerContext = machines.context
        self._persistence = persistence
        self._events = events
        self._machines = machines
        self._topics = topics
        self._deletion = deletion
        self._leaders = leaders
        self._reassignments = reassignments
        self._senders = senders
        self._open_senders = open_senders
        self._balance = balance
        self.controller_id = NO_CONTROLLER
        # Cleared while a new controller loads and announces: not all brokers know all state then.
        self.is_settled = asyncio.Event()
        self.is_settled.set()
        self._rebalance_timer: asyncio.TimerHandle | None = None

    @property
    def is_active(self) -> bool:
        """Whether this broker is the cluster's controller."""
        return self.controller_id == self._broker_id

    async def listen(self) -> None:
        """Turns the messages of the persistence into events."""
        events = self._persistence.events()
        try:
            async for event in events:
                match event:
                    case LeadershipWon(controller_epoch=epoch, fence=fence):
                        self._events.put(Elected(epoch, fence))
                    case LeadershipLost():
                        # The next message is awaited only after the resignation has begun: a lost
                        # session is not replaced before that.
                        await self._events.clear_and_put(Expire()).await_processing()
                    case Hint():
                        self._put_hint(event)
        finally:
            if isinstance(events, AsyncGenerator):
                await events.aclose()

    def _put_hint(self, hint: Hint) -> None:
        if hint.kind is HintKind.BROKER and hint.broker_id is not None:
            self._events.put(BrokerModifications(hint.broker_id))
        elif hint.kind is HintKind.TOPIC and hint.topic is not None:
            self._events.put(PartitionModifications(hint.topic))
        elif hint.kind is HintKind.PARTITION:
            if hint.topic is not None and hint.partition is not None:
                tp = TopicPartition(hint.topic, hint.partition)
                self._events.put(PartitionReassignmentIsrChange(tp))
        elif hint.kind in _HINT_EVENTS:
            self._events.put(_HINT_EVENTS[hint.kind])

    async def take(self, event: Elected) -> None:
        """Becomes the active controller, or gives leadership up if that fails."""
        self._context.controller_epoch = event.controller_epoch
        self._context.fence = event.fence
        self.controller_id = self._broker_id
        logger.info(
            "broker %d is controller, epoch %d",
            self._broker_id,
            event.controller_epoch,
            extra={"broker": self._broker_id, "epoch": event.controller_epoch},
        )
        try:
            await self._on_failover()
        except ControllerMoved:
            raise
        except Exception:
            logger.exception("broker %d could not become controller", self._broker_id)
            await self.resign()
            await self._persistence.resign(event.fence)

    async def _on_failover(self) -> None:
        self.is_settled.clear()
        try:
            await self._take_over()
        finally:
            self.is_settled.set()

    async def _take_over(self) -> None:
        context = self._context
        state = await self._persistence.load()
        context.add_live_brokers(state.brokers)
        for topic, record in sorted(state.topics.items()):
            identified = await self._topics.ensure_id(topic, record)
            if identified is not None:
                context.put_topic(topic, identified)
        context.partition_leadership.update(
            (tp, record)
            for tp, record in state.partitions.items()
            if tp.topic in context.all_topics
        )
        self._open_senders()
        await self._deletion.start(state.deletions)
        self._machines.send_update_metadata(context.live_or_shutting_down_broker_ids)
        await self._machines.startup()
        await self._reassignments.start(state.reassignments)
        await self._deletion.resume()
        if state.preferred_elections:
            await self._leaders.elect(
                sorted(state.preferred_elections), ElectionType.PREFERRED, ElectionTrigger.STORE
            )
        self._schedule_rebalance(FIRST_REBALANCE_S)

    async def resign(self) -> None:
        """Resets the context and closes the senders; the node of the controller stays."""
        was_active = self.is_active
        self.controller_id = NO_CONTROLLER
        if was_active:
            logger.info("broker %d resigns", self._broker_id, extra={"broker": self._broker_id})
        await self._on_resignation()

    async def give_up(self) -> int:
        """Resigns durably, so that an election follows; returns the epoch that ends."""
        epoch = self._context.controller_epoch
        # First in the store: if that fails, this broker still is the controller for all brokers.
        await self._persistence.resign(self._context.fence)
        await self.resign()
        return epoch

    async def _on_resignation(self) -> None:
        if self._rebalance_timer is not None:
            self._rebalance_timer.cancel()
            self._rebalance_timer = None
        self._context.reset()
        self._reassignments.reset()
        await self._senders.close()

    async def rebalance(self) -> None:
        """Rebalances leaders, and schedules the next check."""
        try:
            await self._leaders.rebalance()
        finally:
            self._schedule_rebalance(self._balance.check_interval_s)

    def _schedule_rebalance(self, delay_s: float) -> None:
        if self._balance.enabled and self.is_active:
            self._rebalance_timer = asyncio.get_running_loop().call_later(
                delay_s, self._events.put, AutoPreferredReplicaLeaderElection()
            )


_HINT_EVENTS: Mapping[HintKind, ControllerEvent] = {
    HintKind.BROKERS: BrokerChange(),
    HintKind.TOPICS: TopicChange(),
    HintKind.DELETIONS: TopicDeletion(),
    HintKind.REASSIGNMENTS: PartitionReassignmentRequested(),
    HintKind.PREFERRED_ELECTION: PreferredReplicaElectionRequested(),
    HintKind.ISR_CHANGES: IsrChangeNotification(),
    HintKind.LOG_DIR_FAILURES: LogDirEventNotification(),
}
