"""Requests of brokers to the controller, as the active controller serves them.

The handlers serve the requests of other brokers here, and the controller's own broker calls the
same functions without a socket. A broker that is not the controller answers NOT_CONTROLLER: the
asking broker has older metadata, and asks again.
"""

import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from odradek.errors import ApiError, ControllerMoved, ErrorCode, StoreError
from odradek.metadata.isr_requests import IsrResult, WantedIsr
from odradek.metadata.ports import ControllerApi, ProducerIds
from odradek.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from odradek.protocol.messages.alter_partition import (
    AlterPartitionPartition,
    AlterPartitionPartitionResult,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopic,
    AlterPartitionTopicResult,
)
from odradek.protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)

__all__ = ["FIRST_ALTER_PARTITION_BY_ID", "FIRST_ALTER_PARTITION_WITH_EPOCHS", "ControllerServices"]

FIRST_ALTER_PARTITION_BY_ID: Final = 2
FIRST_ALTER_PARTITION_WITH_EPOCHS: Final = 3


class ControllerServices:
    """Serves requests of brokers.

    Args:
        controller: The controller of this broker, active or not.
        take_producer_ids: Takes the next block for a broker.
    """

    def __init__(
        self,
        controller: ControllerApi,
        take_producer_ids: Callable[[int], Awaitable[ProducerIds]],
    ) -> None:
        self._controller = controller
        self._take_producer_ids = take_producer_ids

    @property
    def is_active(self) -> bool:
        """Whether this broker is the active controller."""
        return self._controller.is_active

    async def alter_partition(
        self, message: AlterPartitionRequest, version: int
    ) -> AlterPartitionResponse:
        """Stores the ISRs that a leader wants."""
        wanted = [
            _wanted(topic, partition, version)
            for topic in message.topics
            for partition in topic.partitions
        ]
        try:
            results = await self._controller.alter_isrs(
                message.broker_id, message.broker_epoch, wanted
            )
        except ApiError as error:
            return AlterPartitionResponse(error_code=error.code)
        remaining = iter(results)
        return AlterPartitionResponse(
            topics=[
                AlterPartitionTopicResult(
                    topic_name=topic.topic_name,
                    topic_id=topic.topic_id,
                    partitions=[
                        _result(partition.partition_index, next(remaining), version)
                        for partition in topic.partitions
                    ],
                )
                for topic in message.topics
            ]
        )

    async def allocate_producer_ids(
        self, message: AllocateProducerIdsRequest
    ) -> AllocateProducerIdsResponse:
        """Takes a block of producer ids for a broker."""
        try:
            self._controller.check_registration(message.broker_id, message.broker_epoch)
            first_id, last_id = await self._take_producer_ids(message.broker_id)
        except ApiError as error:
            return AllocateProducerIdsResponse(error_code=error.code)
        except StoreError:
            return AllocateProducerIdsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return AllocateProducerIdsResponse(
            producer_id_start=first_id, producer_id_len=last_id - first_id + 1
        )

    async def controlled_shutdown(
        self, message: ControlledShutdownRequest
    ) -> ControlledShutdownResponse:
        """Moves the leaderships of a broker that is about to stop."""
        try:
            remaining = await self._controller.controlled_shutdown(
                message.broker_id, message.broker_epoch
            )
        except ControllerMoved:
            return ControlledShutdownResponse(error_code=ErrorCode.NOT_CONTROLLER)
        except ApiError as error:
            return ControlledShutdownResponse(error_code=error.code)
        return ControlledShutdownResponse(
            remaining_partitions=[
                RemainingPartition(topic_name=tp.topic, partition_index=tp.partition)
                for tp in sorted(remaining)
            ]
        )


def _wanted(
    topic: AlterPartitionTopic, partition: AlterPartitionPartition, version: int
) -> WantedIsr:
    is_by_id = version >= FIRST_ALTER_PARTITION_BY_ID
    isr: Sequence[int] = partition.new_isr
    if version >= FIRST_ALTER_PARTITION_WITH_EPOCHS:
        isr = [member.broker_id for member in partition.new_isr_with_epochs]
    return WantedIsr(
        topic="" if is_by_id else topic.topic_name,
        topic_id=uuid.UUID(bytes=topic.topic_id) if is_by_id else None,
        partition=partition.partition_index,
        leader_epoch=partition.leader_epoch,
        isr=tuple(isr),
        partition_version=partition.partition_epoch,
        broker_epochs={
            member.broker_id: member.broker_epoch for member in partition.new_isr_with_epochs
        },
    )


def _result(partition: int, result: IsrResult, version: int) -> AlterPartitionPartitionResult:
    error, state = result
    if state is None:
        if error is ErrorCode.INELIGIBLE_REPLICA and version < FIRST_ALTER_PARTITION_BY_ID:
            error = ErrorCode.OPERATION_NOT_ATTEMPTED  # An older leader does not know the other.
        return AlterPartitionPartitionResult(partition_index=partition, error_code=error)
    return AlterPartitionPartitionResult(
        partition_index=partition,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        isr=state.isr,
        partition_epoch=state.partition_version,
    )
