"""Calls the handler of each event, and answers each event that has a caller.

`ControllerMoved` from anywhere makes the controller resign. An event that violates an invariant of
the controller's state makes it give leadership up: the next controller loads all state again. An
event without a caller that meets `ConnectionLost` is handled again later: the change it is about is
still unknown. Any other failure concerns its event alone.
"""

import logging
from collections.abc import Callable
from typing import assert_never

from odradek.controller.broker_handlers import BrokerHandlers
from odradek.controller.events import (
    AlterIsrs,
    AutoPreferredReplicaLeaderElection,
    BrokerChange,
    BrokerModifications,
    ControlledShutdown,
    ControllerEvent,
    ControllerResignation,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    Elected,
    Expire,
    IsrChangeNotification,
    LeaderAndIsrResponseReceived,
    ListPartitionReassignments,
    LogDirEventNotification,
    PartitionModifications,
    PreferredReplicaElectionRequested,
    ReplicaLeaderElection,
    ShutdownEventThread,
    TopicChange,
    TopicDeletion,
    TopicDeletionStopReplicaResponseReceived,
    TopicUncleanLeaderElectionEnable,
    UncleanLeaderElectionEnable,
    UpdateMetadataResponseReceived,
)
from odradek.controller.isr_handlers import IsrHandlers
from odradek.controller.leader_handlers import LeaderHandlers
from odradek.controller.leadership import Leadership
from odradek.controller.machine_driver import MachineDriver
from odradek.controller.topic_deletion_driver import TopicDeletions
from odradek.controller.topic_handlers import TopicHandlers
from odradek.errors import (
    ApiError,
    ConnectionLost,
    ControllerMoved,
    ErrorCode,
    InvariantViolation,
)
from odradek.metadata.admin_requests import ElectionOutcome

__all__ = ["EventDispatcher"]

logger = logging.getLogger(__name__)


class EventDispatcher:
    """Calls the handler of each event.

    Args:
        leadership: Whether this broker is the controller.
        machines: The machines, and their driver.
        topics: Handles events about topics.
        deletion: Handles events about deletions.
        brokers: Handles events about brokers.
        leaders: Handles events that move leadership.
        repeat: Puts an event into the queue again, after a pause.
        on_deletion_step: Called when a broker's answer on deleted replicas was handled.
    """

    def __init__(
        self,
        leadership: Leadership,
        machines: MachineDriver,
        topics: TopicHandlers,
        deletion: TopicDeletions,
        brokers: BrokerHandlers,
        leaders: LeaderHandlers,
        *,
        repeat: Callable[[ControllerEvent], None],
        on_deletion_step: Callable[[], None],
    ) -> None:
        self._leadership = leadership
        self._machines = machines
        self._topics = topics
        self._deletion = deletion
        self._brokers = brokers
        self._leaders = leaders
        self._isrs = IsrHandlers(machines)
        self._repeat = repeat
        self._on_deletion_step = on_deletion_step

    async def process(self, event: ControllerEvent) -> None:
        """Handles one event, to its end; called by the event queue only."""
        try:
            if isinstance(event, Elected | Expire) or self._leadership.is_active:
                await self._dispatch(event)
            else:
                self.preempt(event)
        except ControllerMoved as error:
            logger.info("not controller any more: %s", error)
            self._fail(event, _not_controller())
            await self._leadership.resign()
        except ApiError as error:
            self._fail(event, error)
        except InvariantViolation as error:
            # The state contradicts itself: the next controller loads all of it again.
            logger.exception("controller event %s failed", type(event).__name__)
            self._fail(event, ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)))
            fence = self._machines.context.fence
            await self._leadership.resign()
            await self._machines.persistence.resign(fence)
        except Exception as error:
            if isinstance(error, ConnectionLost) and not hasattr(event, "reply"):
                logger.warning("controller event %s is repeated: %s", type(event).__name__, error)
                self._repeat(event)
                return
            logger.exception("controller event %s failed", type(event).__name__)
            self._fail(event, ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)))

    def preempt(self, event: ControllerEvent) -> None:
        """Answers the caller of an event that will not be handled."""
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
                | AlterIsrs(reply=reply)
                | ListPartitionReassignments(reply=reply)
                | ControllerResignation(reply=reply)
            ):
                reply.fail(error)
            case _:
                pass

    async def _dispatch(self, event: ControllerEvent) -> None:  # noqa: C901 - a flat table
        match event:
            case Elected():
                await self._leadership.take(event)
            case Expire():
                await self._leadership.resign()
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
                    logger.error(
                        "broker %d refused UpdateMetadata: %d", broker_id, update.error_code
                    )
            case TopicDeletionStopReplicaResponseReceived():
                await self._deletion.process_stop_replica_response(
                    event.broker_id, event.request_error, event.partition_errors
                )
                self._on_deletion_step()
            case PreferredReplicaElectionRequested():
                await self._leaders.process_stored_election()
            case UncleanLeaderElectionEnable():
                await self._machines.trigger_online()
            case TopicUncleanLeaderElectionEnable(topic=topic):
                await self._machines.trigger_online(topic)
            case AutoPreferredReplicaLeaderElection():
                await self._leadership.rebalance()
            case ShutdownEventThread():
                logger.error("the end of the event task reached the controller")
            case _:
                await self._dispatch_request(event)

    async def _dispatch_request(
        self,
        event: CreateTopics
        | CreatePartitions
        | DeleteTopics
        | ReplicaLeaderElection
        | ControlledShutdown
        | AlterIsrs
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
            case DeleteTopics(topics=names, ids=ids):
                event.reply.complete(await self._topics.delete_topics(names, ids))
            case ReplicaLeaderElection(partitions=partitions):
                event.reply.complete(
                    await self._leaders.elect(partitions, event.election_type, event.trigger)
                )
            case ControlledShutdown(broker_id=broker_id, broker_epoch=broker_epoch):
                event.reply.complete(
                    await self._brokers.controlled_shutdown(broker_id, broker_epoch)
                )
            case AlterIsrs(broker_id=broker_id, broker_epoch=broker_epoch):
                event.reply.complete(await self._isrs.alter(broker_id, broker_epoch, event.wanted))
            case ControllerResignation():
                event.reply.complete(await self._leadership.give_up())
            case ListPartitionReassignments(partitions=partitions):
                event.reply.complete(self._leaders.list_reassignments(partitions))
            case _:
                assert_never(event)


def _not_controller() -> ApiError:
    return ApiError(ErrorCode.NOT_CONTROLLER, "this broker is not the active controller")
