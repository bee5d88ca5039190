"""The controller of a broker, active or standing by.

Duties towards the pure parts, in order, for every event:

1. Handle it to its end before the next one: decide, commit, apply, perhaps decide again, enqueue.
2. Apply from the outcome of a commit, never from a watch. A hint is read and compared; where
   nothing differs, nothing happens.
3. `ControllerMoved` from anywhere: resign. A failure while becoming active: resign and give
   leadership up, so that another election starts.
4. Whoever waits for an answer gets one, also from an event that fails or is never handled.

Becoming active loads everything and tells everybody: first who is there, since a broker must know
the others before it follows one of them, then the state of every partition.
"""

import asyncio
import logging
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from random import Random
from types import TracebackType
from typing import Self, TypeVar, assert_never

from odradek.clock import Clock
from odradek.controller.broker_handlers import BrokerHandlers
from odradek.controller.channels import ControllerChannels, OpenChannel, Sleep
from odradek.controller.config import ControllerConfig
from odradek.controller.context import ControllerContext
from odradek.controller.event_manager import EVENT_TASK_NAME, EventManager
from odradek.controller.events import (
    AutoPreferredReplicaLeaderElection,
    BrokerChange,
    BrokerModifications,
    ControlledShutdown,
    ControllerActivity,
    ControllerEvent,
    ControllerResignation,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    Elected,
    ElectionTrigger,
    Expire,
    IsrChangeNotification,
    LeaderAndIsrResponseReceived,
    ListPartitionReassignments,
    LogDirEventNotification,
    PartitionModifications,
    PreferredReplicaElectionRequested,
    ReplicaLeaderElection,
    Reply,
    ShutdownEventThread,
    TopicChange,
    TopicDeletion,
    TopicDeletionStopReplicaResponseReceived,
    TopicUncleanLeaderElectionEnable,
    UncleanLeaderElectionEnable,
    UpdateMetadataResponseReceived,
)
from odradek.controller.leader_handlers import LeaderHandlers
from odradek.controller.machine_driver import MachineDriver
from odradek.controller.request_batch import OutgoingRequest, RequestBatch
from odradek.controller.stats import ControllerStats, register_gauges, remove_gauges
from odradek.controller.topic_deletion_driver import TopicDeletions
from odradek.controller.topic_handlers import TopicHandlers, TopicSources
from odradek.controller.topic_requests import ConfigCheck, accept_any_config
from odradek.errors import ApiError, ControllerMoved, ErrorCode, InvariantViolation
from odradek.metadata.admin_requests import (
    CreatePartitionsResult,
    DeletedTopic,
    ElectionOutcome,
    NewPartitions,
    NewTopic,
    TopicResult,
)
from odradek.metadata.control_requests import ControlResponse
from odradek.metadata.ports import (
    Hint,
    HintKind,
    LeadershipLost,
    LeadershipWon,
    MetadataPersistence,
)
from odradek.metrics import MetricRegistry
from odradek.model import NO_CONTROLLER, ReplicaAssignment, TopicPartition
from odradek.protocol.enums import ElectionType
from odradek.protocol.messages.leader_and_isr import LeaderAndIsrResponse
from odradek.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from odradek.protocol.messages.update_metadata import UpdateMetadataResponse

__all__ = ["Controller"]

_logger = logging.getLogger(__name__)

_T = TypeVar("_T")

# Leaders are checked for balance so long after an election: brokers that start together with the
# controller should have come by then.
FIRST_REBALANCE_S = 5.0


class Controller:
    """One broker's controller; use it as ``async with``, or call `start` and `stop`.

    Args:
        broker_id: This broker.
        persistence: Durable metadata, and who is controller.
        open_channel: Makes the way to a broker: to this one, and to others.
        clock: Time.
        metrics: Gets the controller's metrics.
        random: For placement and topic ids.
        config: Settings.
        check_configs: Checks the overrides of a topic to create, returns those to store.
        unclean_default: Whether topics without an override permit unclean elections.
        sleep: Waits between two attempts to reach a broker.
        name_prefix: Put before the senders' task names.
    """

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
        self.context = ControllerContext()
        self._persistence = persistence
        self._open_channel = open_channel
        self._clock = clock
        self._metrics = metrics
        self._config = config or ControllerConfig()
        self._sleep = sleep
        self._name_prefix = name_prefix
        # Called when a broker has answered that it deleted replicas, and that was followed up.
        self.on_deletion_step: Callable[[], None] = lambda: None
        self._active_controller_id = NO_CONTROLLER
        self._channels: ControllerChannels | None = None
        # Set but while an election is being followed up: until then not all brokers are told all.
        self._is_settled = asyncio.Event()
        self._is_settled.set()
        self._rebalance_timer: asyncio.TimerHandle | None = None
        self._tasks: asyncio.TaskGroup | None = None
        self._listener: asyncio.Task[None] | None = None
        self._worker: asyncio.Task[None] | None = None
        stats = ControllerStats(metrics)
        self._events = EventManager(self, clock=clock, metrics=metrics, stats=stats)
        self._machines = MachineDriver(
            self.context,
            persistence,
            new_batch=self._new_batch,
            send=self._send,
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
            self._machines, self._deletion, channels=self._active_channels
        )
        self._leaders = LeaderHandlers(self._machines, self._config.leader_balance)
        register_gauges(
            metrics, self.context, is_active=lambda: self.is_active, state=lambda: self.state
        )

    # -- Life.

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
        self._listener = self._tasks.create_task(self._listen(), name="controller-persistence")

    async def stop(self) -> None:
        """Finishes the event at hand, resigns, and ends all tasks; stopping twice is fine."""
        if self._tasks is None or self._listener is None or self._worker is None:
            return
        self._listener.cancel()
        self._events.close()
        await asyncio.wait([self._worker])
        await self._resign()
        tasks, self._tasks = self._tasks, None
        await tasks.__aexit__(None, None, None)
        remove_gauges(self._metrics)

    @property
    def is_active(self) -> bool:
        """Whether this broker is the cluster's controller."""
        return self._active_controller_id == self.broker_id

    @property
    def controller_id(self) -> int:
        """This broker if it is active, else NO_CONTROLLER: who else is, the image tells."""
        return self._active_controller_id

    @property
    def state(self) -> ControllerActivity:
        """What it is busy with."""
        return self._events.state

    # -- Requests.

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[TopicResult]:
        """Creates topics. A success means: stored, leaders elected, brokers being told.

        Raises:
            ApiError: NOT_CONTROLLER.
        """
        return await self._request(lambda reply: CreateTopics(topics, validate_only, reply))

    async def delete_topics(self, topics: Sequence[str]) -> list[DeletedTopic]:
        """Marks topics for deletion. A success means that it will happen.

        Raises:
            ApiError: NOT_CONTROLLER.
        """
        return await self._request(lambda reply: DeleteTopics(topics, reply))

    def is_deleting(self, topic: str) -> bool:
        """Whether the topic is about to be gone: it is marked, and nothing stands in the way."""
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
        """Those of the partitions, or of all, whose replicas are being moved.

        Raises:
            ApiError: NOT_CONTROLLER.
        """
        return await self._request(lambda reply: ListPartitionReassignments(partitions, reply))

    async def controlled_shutdown(
        self, broker_id: int, broker_epoch: int
    ) -> frozenset[TopicPartition]:
        """Moves leadership away from a broker; returns what it still leads.

        Raises:
            ControllerMoved: this broker is not the controller.
            ApiError: STALE_BROKER_EPOCH or BROKER_NOT_AVAILABLE.
        """
        return await self._request(lambda reply: ControlledShutdown(broker_id, broker_epoch, reply))

    async def give_up(self) -> int:
        """Resigns, so that there is an election, which this broker may win; returns its epoch.

        Raises:
            ApiError: NOT_CONTROLLER.
        """
        return await self._request(ControllerResignation)

    async def told_own_broker(self) -> None:
        """Returns when this broker has been told all that its controller decided until now.

        At once where another broker is the controller.
        """
        await self._is_settled.wait()
        if self._channels is not None:
            await self._channels.told(self.broker_id)

    def enable_unclean_election(self, topic: str | None = None) -> None:
        """Unclean elections were switched on, for one topic or as the default."""
        self._events.put(
            UncleanLeaderElectionEnable()
            if topic is None
            else TopicUncleanLeaderElectionEnable(topic)
        )

    async def _request(self, make_event: Callable[[Reply[_T]], ControllerEvent]) -> _T:
        answer: asyncio.Future[_T] = asyncio.get_running_loop().create_future()

        def complete(value: _T) -> None:
            if not answer.done():  # Else whoever asked was cancelled.
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

    # -- Events.

    async def process(self, event: ControllerEvent) -> None:
        """Handles one event; called by the event queue only."""
        try:
            if isinstance(event, Elected | Expire) or self.is_active:
                await self._dispatch(event)
            else:
                self.preempt(event)
        except ControllerMoved as error:
            _logger.info("not controller any more: %s", error)
            self._fail(event, _not_controller())
            await self._resign()
        except ApiError as error:
            self._fail(event, error)
        except InvariantViolation as error:
            # What we believe contradicts itself: the next controller reads everything anew.
            _logger.exception("controller event %s failed", type(event).__name__)
            self._fail(event, ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)))
            fence = self.context.fence
            await self._resign()
            await self._persistence.resign(fence)
        except Exception as error:
            _logger.exception("controller event %s failed", type(event).__name__)
            self._fail(event, ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)))

    def preempt(self, event: ControllerEvent) -> None:
        """Answers for an event that is not handled."""
        match event:
            case ReplicaLeaderElection(partitions=partitions, reply=reply):
                outcome = ElectionOutcome(ErrorCode.NOT_CONTROLLER, str(_not_controller()))
                reply.complete(dict.fromkeys(partitions or (), outcome))
            case ControlledShutdown(reply=shutdown_reply):
                shutdown_reply.fail(ControllerMoved("this broker is not the controller"))
            case _:
                self._fail(event, _not_controller())

    def _fail(self, event: ControllerEvent, error: Exception) -> None:
        match event:
            case (
                CreateTopics(reply=reply)
                | CreatePartitions(reply=reply)
                | DeleteTopics(reply=reply)
                | ReplicaLeaderElection(reply=reply)
                | ControlledShutdown(reply=reply)
                | ListPartitionReassignments(reply=reply)
                | ControllerResignation(reply=reply)
            ):
                reply.fail(error)
            case _:
                pass

    async def _dispatch(self, event: ControllerEvent) -> None:  # noqa: C901 - a flat table
        match event:
            case Elected():
                await self._process_elected(event)
            case Expire():
                await self._resign()
            case BrokerChange():
                await self._brokers.process_broker_change()
            case BrokerModifications(broker_id=broker_id):
                await self._brokers.process_broker_modification(broker_id)
            case TopicChange():
                await self._topics.process_topic_change()
            case PartitionModifications(topic=topic):
                await self._topics.process_partition_modifications(topic)
            case TopicDeletion():
                await self._deletion.process_topic_deletion()
            case IsrChangeNotification():
                await self._brokers.process_isr_change()
            case LogDirEventNotification():
                await self._brokers.process_log_dir_event()
            case LeaderAndIsrResponseReceived(response=response, broker_id=broker_id):
                await self._brokers.process_leader_and_isr_response(broker_id, response)
            case UpdateMetadataResponseReceived(response=update, broker_id=broker_id):
                if update.error_code != ErrorCode.NONE:
                    _logger.error(
                        "broker %d refused UpdateMetadata: %d", broker_id, update.error_code
                    )
            case TopicDeletionStopReplicaResponseReceived():
                await self._deletion.process_stop_replica_response(
                    event.broker_id, event.request_error, event.partition_errors
                )
                self.on_deletion_step()
            case PreferredReplicaElectionRequested():
                await self._leaders.process_stored_election()
            case UncleanLeaderElectionEnable():
                await self._machines.trigger_online()
            case TopicUncleanLeaderElectionEnable(topic=topic):
                await self._machines.trigger_online(topic)
            case AutoPreferredReplicaLeaderElection():
                await self._process_rebalance()
            case ShutdownEventThread():
                _logger.error("the end of the event task reached the controller")
            case _:
                await self._dispatch_request(event)

    async def _dispatch_request(
        self,
        event: CreateTopics
        | CreatePartitions
        | DeleteTopics
        | ReplicaLeaderElection
        | ControlledShutdown
        | ControllerResignation
        | ListPartitionReassignments,
    ) -> None:
        match event:
            case CreateTopics(topics=new_topics, validate_only=validate_only):
                event.reply.complete(
                    await self._topics.create_topics(new_topics, validate_only=validate_only)
                )
            case CreatePartitions(topics=enlarged, validate_only=validate_only):
                event.reply.complete(
                    await self._topics.create_partitions(enlarged, validate_only=validate_only)
                )
            case DeleteTopics(topics=names):
                event.reply.complete(await self._topics.delete_topics(names))
            case ReplicaLeaderElection(partitions=partitions):
                event.reply.complete(
                    await self._leaders.elect(partitions, event.election_type, event.trigger)
                )
            case ControlledShutdown(broker_id=broker_id, broker_epoch=broker_epoch):
                event.reply.complete(
                    await self._brokers.controlled_shutdown(broker_id, broker_epoch)
                )
            case ControllerResignation():
                event.reply.complete(await self._give_up())
            case ListPartitionReassignments(partitions=partitions):
                event.reply.complete(self._leaders.list_reassignments(partitions))
            case _:
                assert_never(event)

    async def _process_rebalance(self) -> None:
        try:
            await self._leaders.rebalance()
        finally:
            self._schedule_rebalance(self._config.leader_balance.check_interval_s)

    # -- Leadership.

    async def _listen(self) -> None:
        """Turns what the persistence tells into events."""
        events = self._persistence.events()
        try:
            async for event in events:
                match event:
                    case LeadershipWon(controller_epoch=epoch, fence=fence):
                        self._events.put(Elected(epoch, fence))
                    case LeadershipLost():
                        # Not asked for more before the resignation has begun: a lost session is
                        # replaced only then.
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
        elif hint.kind in _HINT_EVENTS:
            self._events.put(_HINT_EVENTS[hint.kind])

    async def _process_elected(self, event: Elected) -> None:
        self.context.controller_epoch = event.controller_epoch
        self.context.fence = event.fence
        self._active_controller_id = self.broker_id
        _logger.info(
            "broker %d is controller, epoch %d",
            self.broker_id,
            event.controller_epoch,
            extra={"broker": self.broker_id, "epoch": event.controller_epoch},
        )
        try:
            await self._on_failover()
        except ControllerMoved:
            raise
        except Exception:
            _logger.exception("broker %d could not become controller", self.broker_id)
            await self._resign()
            await self._persistence.resign(event.fence)

    async def _on_failover(self) -> None:
        self._is_settled.clear()
        try:
            await self._take_over()
        finally:
            self._is_settled.set()

    async def _take_over(self) -> None:
        context = self.context
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
        self._channels = self._new_channels()
        for broker in context.live_or_shutting_down_brokers:
            self._channels.add_broker(broker)
        await self._deletion.start(state.deletions)
        self._machines.send_update_metadata(context.live_or_shutting_down_broker_ids)
        await self._machines.startup()
        await self._deletion.resume()
        if state.preferred_elections:
            await self._leaders.elect(
                sorted(state.preferred_elections), ElectionType.PREFERRED, ElectionTrigger.STORE
            )
        self._schedule_rebalance(FIRST_REBALANCE_S)

    async def _resign(self) -> None:
        was_active = self.is_active
        self._active_controller_id = NO_CONTROLLER
        if was_active:
            _logger.info("broker %d resigns", self.broker_id, extra={"broker": self.broker_id})
        await self._on_resignation()

    async def _give_up(self) -> int:
        epoch = self.context.controller_epoch
        # First in the store: if that fails we are what everybody takes us for, the controller.
        await self._persistence.resign(self.context.fence)
        await self._resign()
        return epoch

    async def _on_resignation(self) -> None:
        if self._rebalance_timer is not None:
            self._rebalance_timer.cancel()
            self._rebalance_timer = None
        self.context.reset()
        channels, self._channels = self._channels, None
        if channels is not None:
            await channels.shutdown()

    def _schedule_rebalance(self, delay_s: float) -> None:
        if self._config.leader_balance.enabled and self.is_active:
            self._rebalance_timer = asyncio.get_running_loop().call_later(
                delay_s, self._events.put, AutoPreferredReplicaLeaderElection()
            )

    # -- Sending.

    def _new_batch(self) -> RequestBatch:
        return RequestBatch(
            self.context,
            controller_id=self.broker_id,
            leader_listener=self._config.inter_broker_listener,
        )

    def _new_channels(self) -> ControllerChannels:
        assert self._tasks is not None
        return ControllerChannels(
            self.broker_id,
            self._open_channel,
            listener=self._config.control_listener,
            tasks=self._tasks,
            clock=self._clock,
            metrics=self._metrics,
            sleep=self._sleep,
            name_prefix=self._name_prefix,
        )

    def _active_channels(self) -> ControllerChannels:
        assert self._channels is not None, "only an active controller has senders"
        return self._channels

    def _send(self, outgoing: Sequence[OutgoingRequest]) -> None:
        for item in outgoing:
            self._active_channels().send(item.broker_id, item.request, self._answer_to(item))

    def _answer_to(self, item: OutgoingRequest) -> Callable[[ControlResponse], None]:
        """What to do with the answer: put an event, nothing else."""
        broker_id, request = item
        epoch = self.context.controller_epoch

        def answered(response: ControlResponse) -> None:
            if epoch != self.context.controller_epoch:
                return  # Sent by a controller we are no more.
            match response:
                case LeaderAndIsrResponse():
                    self._events.put(LeaderAndIsrResponseReceived(response, broker_id))
                case UpdateMetadataResponse():
                    self._events.put(UpdateMetadataResponseReceived(response, broker_id))
                case StopReplicaResponse():
                    assert isinstance(request, StopReplicaRequest)
                    self._put_deletions(broker_id, request, response)

        return answered

    def _put_deletions(
        self, broker_id: int, request: StopReplicaRequest, response: StopReplicaResponse
    ) -> None:
        errors = {
            TopicPartition(e.topic_name, e.partition_index): ErrorCode(e.error_code)
            for e in response.partition_errors
        }
        deleted = {
            tp: errors.get(tp, ErrorCode.NONE)
            for topic in request.topic_states
            if self.context.is_topic_deletion_in_progress(topic.topic_name)
            for partition in topic.partition_states
            if partition.delete_partition
            for tp in [TopicPartition(topic.topic_name, partition.partition_index)]
        }
        if deleted:
            self._events.put(
                TopicDeletionStopReplicaResponseReceived(
                    broker_id, ErrorCode(response.error_code), deleted
                )
            )


def _not_controller() -> ApiError:
    return ApiError(ErrorCode.NOT_CONTROLLER, "this broker is not the active controller")


_HINT_EVENTS: Mapping[HintKind, ControllerEvent] = {
    HintKind.BROKERS: BrokerChange(),
    HintKind.TOPICS: TopicChange(),
    HintKind.DELETIONS: TopicDeletion(),
    HintKind.PREFERRED_ELECTION: PreferredReplicaElectionRequested(),
    HintKind.ISR_CHANGES: IsrChangeNotification(),
    HintKind.LOG_DIR_FAILURES: LogDirEventNotification(),
}
