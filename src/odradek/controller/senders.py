"""The senders of an active controller: requests to brokers, and events made of their answers."""

import asyncio
from collections.abc import Callable, Sequence

from odradek.clock import Clock
from odradek.controller.channels import ControllerChannels, OpenChannel, Sleep
from odradek.controller.config import ControllerConfig
from odradek.controller.context import ControllerContext
from odradek.controller.events import (
    ControllerEvent,
    LeaderAndIsrResponseReceived,
    TopicDeletionStopReplicaResponseReceived,
    UpdateMetadataResponseReceived,
)
from odradek.controller.request_batch import OutgoingRequest, RequestBatch
from odradek.errors import ErrorCode
from odradek.metadata.control_requests import ControlResponse
from odradek.metrics import MetricRegistry
from odradek.model import TopicPartition
from odradek.protocol.messages.leader_and_isr import LeaderAndIsrResponse
from odradek.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from odradek.protocol.messages.update_metadata import UpdateMetadataResponse

__all__ = ["Senders"]


class Senders:
    """The senders of one controller, open while it is active.

    Args:
        broker_id: This broker.
        context: The controller's metadata.
        open_channel: Makes the channel to a broker, this one included.
        config: Settings.
        put: Puts an event into the controller's queue.
        clock: Time.
        metrics: Gets the senders' metrics.
        sleep: Waits between two attempts to reach a broker.
        name_prefix: Put before the senders' task names.
    """

    def __init__(
        self,
        broker_id: int,
        context: ControllerContext,
        open_channel: OpenChannel,
        config: ControllerConfig,
        put: Callable[[ControllerEvent], object],
        *,
        clock: Clock,
        metrics: MetricRegistry,
        sleep: Sleep,
        name_prefix: str | None,
    ) -> None:
        self._broker_id = broker_id
        self._context = context
        self._open_channel = open_channel
        self._config = config
        self._put = put
        self._clock = clock
        self._metrics = metrics
        self._sleep = sleep
        self._name_prefix = name_prefix
        self.channels: ControllerChannels | None = None  # None: not active.

    def new_batch(self) -> RequestBatch:
        """An empty batch of requests."""
        return RequestBatch(
            self._context,
            controller_id=self._broker_id,
            leader_listener=self._config.inter_broker_listener,
        )

    def open(self, tasks: asyncio.TaskGroup) -> None:
        """Makes a sender for each broker of the context."""
        self.channels = ControllerChannels(
            self._broker_id,
            self._open_channel,
            listener=self._config.control_listener,
            tasks=tasks,
            clock=self._clock,
            metrics=self._metrics,
            sleep=self._sleep,
            name_prefix=self._name_prefix,
        )
        for broker in self._context.live_or_shutting_down_brokers:
            self.channels.add_broker(broker)

    async def close(self) -> None:
        """Ends all senders; requests they have not sent are dropped."""
        channels, self.channels = self.channels, None
        if channels is not None:
            await channels.shutdown()

    def active(self) -> ControllerChannels:
        """The senders, which only an active controller has."""
        assert self.channels is not None, "only an active controller has senders"
        return self.channels

    async def told(self, broker_id: int) -> None:
        """Returns when a broker has answered all its requests; at once without senders."""
        if self.channels is not None:
            await self.channels.told(broker_id)

    def send(self, outgoing: Sequence[OutgoingRequest]) -> None:
        """Queues requests, each for its broker."""
        for item in outgoing:
            self.active().send(item.broker_id, item.request, self._answer_to(item))

    def _answer_to(self, item: OutgoingRequest) -> Callable[[ControlResponse], None]:
        """The callback for the answer: it puts an event, nothing else."""
        broker_id, request = item
        epoch = self._context.controller_epoch

        def answered(response: ControlResponse) -> None:
            if epoch != self._context.controller_epoch:
                return  # This broker is no longer the controller that sent the request.
            match response:
                case LeaderAndIsrResponse():
                    self._put(LeaderAndIsrResponseReceived(response, broker_id))
                case UpdateMetadataResponse():
                    self._put(UpdateMetadataResponseReceived(response, broker_id))
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
            if self._context.is_topic_deletion_in_progress(topic.topic_name)
            for partition in topic.partition_states
            if partition.delete_partition
            for tp in [TopicPartition(topic.topic_name, partition.partition_index)]
        }
        if deleted:
            self._put(
                TopicDeletionStopReplicaResponseReceived(
                    broker_id, ErrorCode(response.error_code), deleted
                )
            )
