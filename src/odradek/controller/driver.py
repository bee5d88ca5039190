"""The controller of a broker, active or in standby.

Duties towards the pure parts, in order, for every event:

1. Handle it to its end before the next one: decide, commit, apply, perhaps decide again, enqueue.
2. Apply from the outcome of a commit, never from a watch. After a hint the store is read and
   compared with the context; without a difference nothing happens.
3. `ControllerMoved` from anywhere: resign. A failure while becoming active: resign and give
   leadership up, so that another election starts.
4. Every caller gets an answer, also if its event fails or is never handled.

Other duties are modules of their own: winning and losing leadership
(`odradek.controller.leadership`), calling the handler of an event and answering its caller
(`odradek.controller.dispatcher`), and sending to brokers (`odradek.controller.senders`). This
module starts and stops them, and turns the calls of request handlers into events.
"""

import asyncio
import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from random import Random
from types import TracebackType
from typing import Self, TypeVar

from odradek.clock import Clock
from odradek.controller.broker_handlers import BrokerHandlers
from odradek.controller.channels import OpenChannel, Sleep
from odradek.controller.config import ControllerConfig
from odradek.controller.context import ControllerContext
from odradek.controller.dispatcher import EventDispatcher
from odradek.controller.event_manager import EVENT_TASK_NAME, EventManager
from odradek.controller.events import (
    AlterIsrs,
    ControlledShutdown,
    ControllerActivity,
    ControllerEvent,
    ControllerResignation,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    ElectionTrigger,
    ListPartitionReassignments,
    ReplicaLeaderElection,
    Reply,
    TopicUncleanLeaderElectionEnable,
    UncleanLeaderElectionEnable,
)
from odradek.controller.isr_handlers import check_registration
from odradek.controller.leader_handlers import LeaderHandlers
from odradek.controller.leadership import Leadership
from odradek.controller.machine_driver import MachineDriver
from odradek.controller.senders import Senders
from odradek.controller.stats import ControllerStats, register_gauges, remove_gauges
from odradek.controller.topic_deletion_driver import TopicDeletions
from odradek.controller.topic_handlers import TopicHandlers, TopicSources
from odradek.controller.topic_requests import ConfigCheck, accept_any_config
from odradek.errors import ApiError, ErrorCode
from odradek.metadata.admin_requests import (
    CreatePartitionsResult,
    DeletedTopic,
    ElectionOutcome,
    NewPartitions,
    NewTopic,
    TopicResult,
)
from odradek.metadata.isr_requests import IsrResult, WantedIsr
from odradek.metadata.ports import NO_IDS, MetadataPersistence
from odradek.metrics import MetricRegistry
from odradek.model import ReplicaAssignment, TopicPartition
from odradek.protocol.enums import ElectionType

__all__ = ["Controller"]

logger = logging.getLogger(__name__)

REPEAT_PAUSE_S = 0.1  # Before an event that met a broken link is handled again.

_T = TypeVar("_T")


class Controller:
    """One broker's controller; use it as ``async with``, or call `start` and `stop`.

    Args:
        broker_id: This broker.
        persistence: Stores metadata durably and elects the controller.
        open_channel: Makes the channel to a broker, this one included.
        clock: Time.
        metrics: Gets the controller's metrics.
        random: For placement and topic ids.
        config: Settings.
        check_configs: Checks the overrides of a topic to create, returns those to store.
        unclean_default: Whether topics without an override permit unclean elections.
        sleep: Waits between two attempts to reach a broker.
        name_prefix: Put before the senders' task names.
    """

    # Long because it connects eight parts: which of them knows which is read in one place.
    def __init__(
        self,
        broker_id: int,
        persistence: MetadataPersistence,
        open_channel: OpenChannel,
        *,
        clock: Clock,
        metrics: MetricRegistry,
        random: Random,
        config: ControllerConfig | None = None,
        check_configs: ConfigCheck = accept_any_config,
        unclean_default: Callable[[], bool] = lambda: False,
        sleep: Sleep = asyncio.sleep,
        name_prefix: str | None = None,
    ) -> None:
        self.broker_id = broker_id
        self._sleep = sleep
        self.context = ControllerContext()
        self._metrics = metrics
        self._config = config or ControllerConfig()
        # Called when a broker's answer on deleted replicas was handled.
        self.on_deletion_step: Callable[[], None] = lambda: None
        self._tasks: asyncio.TaskGroup | None = None
        self._listener: asyncio.Task[None] | None = None
        self._worker: asyncio.Task[None] | None = None
        stats = ControllerStats(metrics)
        self._events = EventManager(self, clock=clock, metrics=metrics, stats=stats)
        self._senders = Senders(
            broker_id,
            self.context,
            open_channel,
            self._config,
            self._events.put,
            clock=clock,
            metrics=metrics,
            sleep=sleep,
            name_prefix=name_prefix,
        )
        self._machines = MachineDriver(
            self.context,
            persistence,
            new_batch=self._senders.new_batch,
            send=self._senders.send,
            stats=stats,
            unclean_default=unclean_default,
        )
        self._deletion = TopicDeletions(self._machines, is_enabled=self._config.delete_topic_enable)
        self._topics = TopicHandlers(
            self._machines,
            self._deletion,
            TopicSources(
                config=self._config,
                check_configs=check_configs,
                random=random,
                new_topic_id=lambda: uuid.UUID(bytes=random.randbytes(16), version=4),
            ),
        )
        self._brokers = BrokerHandlers(
            self._machines, self._deletion, channels=self._senders.active
        )
        leaders = LeaderHandlers(self._machines, self._config.leader_balance)
        self._leadership = Leadership(
            broker_id,
            persistence,
            self._events,
            self._machines,
            self._topics,
            self._deletion,
            leaders,
            self._senders,
            open_senders=self._open_senders,
            balance=self._config.leader_balance,
        )
        self._dispatcher = EventDispatcher(
            self._leadership,
            self._machines,
            self._topics,
            self._deletion,
            self._brokers,
            leaders,
            repeat=self._repeat,
            on_deletion_step=lambda: self.on_deletion_step(),
        )
        register_gauges(
            metrics, self.context, is_active=lambda: self.is_active, state=lambda: self.state
        )

    # Life

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Takes part in elections from now on; returns before one is decided."""
        self._tasks = asyncio.TaskGroup()
        await self._tasks.__aenter__()
        self._worker = self._tasks.create_task(self._events.run(), name=EVENT_TASK_NAME)
        self._listener = self._tasks.create_task(
            self._leadership.listen(), name="controller-persistence"
        )

    async def stop(self) -> None:
        """Finishes the current event, resigns, and ends all tasks; may be called twice."""
        if self._tasks is None or self._listener is None or self._worker is None:
            return
        self._listener.cancel()
        self._events.close()
        await asyncio.wait([self._worker])
        await self._leadership.resign()
        tasks, self._tasks = self._tasks, None
        await tasks.__aexit__(None, None, None)
        remove_gauges(self._metrics)

    @property
    def is_active(self) -> bool:
        """Whether this broker is the cluster's controller."""
        return self._leadership.is_active

    @property
    def controller_id(self) -> int:
        """The id of this broker if it is active, else NO_CONTROLLER; the image names the other."""
        return self._leadership.controller_id

    @property
    def state(self) -> ControllerActivity:
        """The activity under way."""
        return self._events.state

    # Requests

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[TopicResult]:
        """Creates topics. Success means: stored, leaders elected, requests to brokers queued.

        Raises:
            ApiError: NOT_CONTROLLER.
        """
        return await self._request(lambda reply: CreateTopics(topics, validate_only, reply))

    async def delete_topics(
        self, topics: Sequence[str], ids: Mapping[str, uuid.UUID] = NO_IDS
    ) -> list[DeletedTopic]:
        """Marks topics for deletion. Success means that they will be deleted.

        Raises:
            ApiError: NOT_CONTROLLER.
        """
        return await self._request(lambda reply: DeleteTopics(topics, ids, reply))

    def is_deleting(self, topic: str) -> bool:
        """Whether the topic is marked for deletion and nothing halts the deletion."""
        return self.context.is_topic_eligible_for_deletion(topic)

    async def create_partitions(
        self, topics: Sequence[NewPartitions], *, validate_only: bool = False
    ) -> list[CreatePartitionsResult]:
        """Enlarges topics.

        Raises:
            ApiError: NOT_CONTROLLER.
        """
        return await self._request(lambda reply: CreatePartitions(topics, validate_only, reply))

    async def elect_leaders(
        self, partitions: Sequence[TopicPartition] | None, election_type: ElectionType
    ) -> dict[TopicPartition, ElectionOutcome]:
        """Elects leaders, for all partitions that need one if None is given.

        Without leadership every partition gets NOT_CONTROLLER.
        """
        return await self._request(
            lambda reply: ReplicaLeaderElection(
                partitions, election_type, ElectionTrigger.ADMIN_CLIENT, reply
            )
        )

    async def list_reassignments(
        self, partitions: Sequence[TopicPartition] | None = None
    ) -> dict[TopicPartition, ReplicaAssignment]:
        """The partitions, of those given or of all, whose replicas are being moved.

        Raises:
            ApiError: NOT_CONTROLLER.
        """
        return await self._request(lambda reply: ListPartitionReassignments(partitions, reply))

    async def controlled_shutdown(
        self, broker_id: int, broker_epoch: int
    ) -> frozenset[TopicPartition]:
        """Moves leadership away from a broker; returns the partitions it still leads.

        Raises:
            ControllerMoved: This broker is not the controller.
            ApiError: STALE_BROKER_EPOCH or BROKER_NOT_AVAILABLE.
        """
        return await self._request(lambda reply: ControlledShutdown(broker_id, broker_epoch, reply))

    async def alter_isrs(
        self, broker_id: int, broker_epoch: int, wanted: Sequence[WantedIsr]
    ) -> list[IsrResult]:
        """Stores the ISRs that a leader wants; the results in the order of the request.

        Raises:
            ApiError: NOT_CONTROLLER or STALE_BROKER_EPOCH.
        """
        return await self._request(lambda reply: AlterIsrs(broker_id, broker_epoch, wanted, reply))

    def check_registration(self, broker_id: int, broker_epoch: int) -> None:
        """Checks that a request comes from the present registration of a broker.

        Raises:
            ApiError: NOT_CONTROLLER or STALE_BROKER_EPOCH.
        """
        if not self.is_active:
            raise ApiError(ErrorCode.NOT_CONTROLLER, "this broker is not the active controller")
        check_registration(self.context, broker_id, broker_epoch)

    async def give_up(self) -> int:
        """Resigns, so that an election follows, which this broker may win; returns the old epoch.

        Raises:
            ApiError: NOT_CONTROLLER.
        """
        return await self._request(ControllerResignation)

    async def told_own_broker(self) -> None:
        """Returns when this broker has received all that its controller decided until now.

        Returns at once if another broker is the controller.
        """
        await self._leadership.is_settled.wait()
        await self._senders.told(self.broker_id)

    def enable_unclean_election(self, topic: str | None = None) -> None:
        """Elects leaders after unclean elections were enabled, for one topic or by default."""
        self._events.put(
            UncleanLeaderElectionEnable()
            if topic is None
            else TopicUncleanLeaderElectionEnable(topic)
        )

    async def _request(self, make_event: Callable[[Reply[_T]], ControllerEvent]) -> _T:
        answer: asyncio.Future[_T] = asyncio.get_running_loop().create_future()

        def complete(value: _T) -> None:
            if not answer.done():  # Otherwise the caller was cancelled.
                answer.set_result(value)

        def fail(error: Exception) -> None:
            if not answer.done():
                answer.set_exception(error)

        event = make_event(Reply(complete, fail))
        if self._tasks is None:
            self.preempt(event)
        else:
            self._events.put(event)
        return await answer

    # Events

    async def process(self, event: ControllerEvent) -> None:
        """Handles one event; called by the event queue only."""
        await self._dispatcher.process(event)

    def preempt(self, event: ControllerEvent) -> None:
        """Answers the caller of an event that will not be handled."""
        self._dispatcher.preempt(event)

    def _repeat(self, event: ControllerEvent) -> None:
        """Puts an event again after a pause; one that comes after the end is preempted."""
        assert self._tasks is not None, "it is started"
        self._tasks.create_task(self._put_later(event), name="controller-repeat")

    async def _put_later(self, event: ControllerEvent) -> None:
        await self._sleep(REPEAT_PAUSE_S)
        self._events.put(event)

    def _open_senders(self) -> None:
        assert self._tasks is not None, "it is started"
        self._senders.open(self._tasks)
