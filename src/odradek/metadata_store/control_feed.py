"""The control feed of store mode: the controller's requests, fenced and turned into deltas.

| request        | delta                                     | answer                            |
|----------------|-------------------------------------------|-----------------------------------|
| LeaderAndIsr   | local: roles, with new topics' configs    | an error per partition            |
| StopReplica    | local: stops                              | an error per partition            |
| UpdateMetadata | cluster: brokers, partitions, ids         | one error                         |

A request of an older controller (11), for an earlier registration of this broker (77), or with
invalid content (42) changes nothing. Topic creation is not notified, so the configs of a topic that
is new here are read before its first log is made; otherwise a compacted topic would run with
deletion by time. A delta is made when the feed reaches its request, and every check comes after the
last wait, since state may have changed after the request arrived.
"""

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeAlias

from odradek.errors import ApiError, ErrorCode
from odradek.metadata.control_requests import ControlRequest, ControlResponse
from odradek.metadata.delta import (
    ClusterDelta,
    ClusterMembership,
    HostedPartition,
    ImageDelta,
    LocalDelta,
    StoppedPartition,
)
from odradek.metadata.image import ClusterImage, ConfigResource, LiveBroker, PartitionState
from odradek.model import Endpoint, SecurityProtocol, TopicPartition
from odradek.protocol.enums import ConfigResourceType
from odradek.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from odradek.protocol.messages.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
)
from odradek.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from odradek.protocol.primitives import ZERO_UUID

__all__ = ["ControlFeed"]

logger = logging.getLogger(__name__)

# Topics whose configs are read at a time.
MAX_PIPELINED = 1000

# Reads the overrides of a topic; None if it has none.
ReadTopicConfigs: TypeAlias = Callable[[str], Awaitable[Mapping[str, str] | None]]
# Queues a delta to be made and published in order; returns the result of each partition.
Offer: TypeAlias = Callable[
    [Callable[[], Awaitable[ImageDelta]]], Awaitable[Mapping[TopicPartition, ErrorCode]]
]


class ControlFeed:
    """Serves control requests, one at a time: its caller is an ordered sender.

    Args:
        offer: The queue of this broker's feed.
        read_topic_configs: Reads the overrides of a topic.
        broker_epoch: The epoch of this broker's registration.
        image: The image that all deltas so far have made.
    """

    def __init__(
        self,
        offer: Offer,
        *,
        read_topic_configs: ReadTopicConfigs,
        broker_epoch: Callable[[], int],
        image: Callable[[], ClusterImage],
    ) -> None:
        self._offer = offer
        self._read_topic_configs = read_topic_configs
        self._broker_epoch = broker_epoch
        self._image = image

    async def handle(self, request: ControlRequest) -> ControlResponse:
        """Serves one control request."""
        if isinstance(request, LeaderAndIsrRequest):
            return await self._handle_leader_and_isr(request)
        if isinstance(request, StopReplicaRequest):
            return await self._handle_stop_replica(request)
        return await self._handle_update_metadata(request)

    def _check_broker_epoch(self, epoch: int) -> None:
        # A controller without broker epochs sends -1.
        if 0 <= epoch < self._broker_epoch():
            raise ApiError(
                ErrorCode.STALE_BROKER_EPOCH,
                f"the request is for broker epoch {epoch}, this is {self._broker_epoch()}",
            )

    # LeaderAndIsr

    async def _handle_leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        hosted = [
            HostedPartition(
                state=PartitionState(
                    topic=topic.topic_name,
                    partition=p.partition_index,
                    leader=p.leader,
                    leader_epoch=p.leader_epoch,
                    isr=tuple(p.isr),
                    replicas=tuple(p.replicas),
                    partition_version=p.partition_epoch,
                    controller_epoch=p.controller_epoch,
                    adding_replicas=tuple(p.adding_replicas),
                    removing_replicas=tuple(p.removing_replicas),
                ),
                topic_id=_topic_id(topic.topic_id),
                is_new=p.is_new,
            )
            for topic in request.topic_states
            for p in topic.partition_states
        ]

        async def make() -> ImageDelta:
            self._check_broker_epoch(request.broker_epoch)
            cluster = await self._configs_of_new_topics(hosted)
            self._check_broker_epoch(request.broker_epoch)
            return ImageDelta(
                cluster=cluster,
                local=LocalDelta(
                    controller_id=request.controller_id,
                    controller_epoch=request.controller_epoch,
                    hosted=tuple(hosted),
                ),
            )

        try:
            results = await self._offer(make)
        except ApiError as error:
            logger.warning("LeaderAndIsr refused: %s", error)
            return LeaderAndIsrResponse(error_code=error.code)
        return LeaderAndIsrResponse(
            error_code=ErrorCode.NONE,
            topics=[
                LeaderAndIsrTopicError(
                    topic_id=topic.topic_id,
                    partition_errors=[
                        LeaderAndIsrPartitionError(
                            topic_name=topic.topic_name,
                            partition_index=p.partition_index,
                            error_code=results[TopicPartition(topic.topic_name, p.partition_index)],
                        )
                        for p in topic.partition_states
                    ],
                )
                for topic in request.topic_states
            ],
        )

    async def _configs_of_new_topics(
        self, hosted: Iterable[HostedPartition]
    ) -> ClusterDelta | None:
        """Reads the overrides of topics whose configs the image does not have, many at a time.

        Raises:
            StoreError: They could not be read; the controller sends its request again.
        """
        new = {
            h.state.topic: h.topic_id
            for h in hosted
            if not self._holds_configs_of(h.state.topic, h.topic_id)
        }
        if not new:
            return None
        names = list(new)
        configs: dict[ConfigResource, Mapping[str, str]] = {}
        for start in range(0, len(names), MAX_PIPELINED):
            portion = names[start : start + MAX_PIPELINED]
            found = await asyncio.gather(*map(self._read_topic_configs, portion))
            for topic, overrides in zip(portion, found, strict=True):
                configs[ConfigResource(ConfigResourceType.TOPIC, topic)] = overrides or {}
        owners = {topic: topic_id for topic, topic_id in new.items() if topic_id is not None}
        return ClusterDelta(configs=configs, config_owners=owners)

    def _holds_configs_of(self, topic: str, topic_id: uuid.UUID | None) -> bool:
        image = self._image()
        if topic_id is None:  # From a controller that sends no ids: only the name can be compared.
            return topic in image.topics
        return image.holds_configs_of(topic, topic_id)

    # StopReplica

    async def _handle_stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse:
        stopped = [
            StoppedPartition(
                tp=TopicPartition(topic.topic_name, p.partition_index),
                leader_epoch=p.leader_epoch,
                deletes_log=p.delete_partition,
            )
            for topic in request.topic_states
            for p in topic.partition_states
        ]

        async def make() -> ImageDelta:
            self._check_broker_epoch(request.broker_epoch)
            return ImageDelta(
                local=LocalDelta(
                    controller_id=request.controller_id,
                    controller_epoch=request.controller_epoch,
                    stopped=tuple(stopped),
                )
            )

        try:
            results = await self._offer(make)
        except ApiError as error:
            logger.warning("StopReplica refused: %s", error)
            return StopReplicaResponse(error_code=error.code)
        return StopReplicaResponse(
            error_code=ErrorCode.NONE,
            partition_errors=[
                StopReplicaPartitionError(
                    topic_name=tp.topic, partition_index=tp.partition, error_code=error
                )
                for tp, error in results.items()
            ],
        )

    # UpdateMetadata

    async def _handle_update_metadata(
        self, request: UpdateMetadataRequest
    ) -> UpdateMetadataResponse:
        async def make() -> ImageDelta:
            self._check_broker_epoch(request.broker_epoch)
            return ImageDelta(cluster=_cluster_delta(request))

        try:
            await self._offer(make)
        except ApiError as error:
            logger.warning("UpdateMetadata refused: %s", error)
            return UpdateMetadataResponse(error_code=error.code)
        return UpdateMetadataResponse(error_code=ErrorCode.NONE)


def _cluster_delta(request: UpdateMetadataRequest) -> ClusterDelta:
    """The delta of an UpdateMetadata.

    Raises:
        ApiError: INVALID_REQUEST, the description of a broker is invalid.
    """
    return ClusterDelta(
        controller_epoch=request.controller_epoch,
        membership=ClusterMembership(
            request.controller_id if request.controller_id >= 0 else None,
            tuple(_broker(broker) for broker in request.live_brokers),
        ),
        partitions=tuple(
            PartitionState(
                topic=topic.topic_name,
                partition=p.partition_index,
                leader=p.leader,
                leader_epoch=p.leader_epoch,
                isr=tuple(p.isr),
                replicas=tuple(p.replicas),
                partition_version=p.zk_version,
                controller_epoch=p.controller_epoch,
                offline_replicas=tuple(p.offline_replicas),
            )
            for topic in request.topic_states
            for p in topic.partition_states
        ),
        topic_ids={
            topic.topic_name: topic_id
            for topic in request.topic_states
            if (topic_id := _topic_id(topic.topic_id)) is not None
        },
    )


def _topic_id(data: bytes) -> uuid.UUID | None:
    return None if data == ZERO_UUID else uuid.UUID(bytes=data)


def _broker(message: UpdateMetadataBroker) -> LiveBroker:
    return LiveBroker(
        message.id,
        tuple(
            Endpoint(
                endpoint.host,
                endpoint.port,
                endpoint.listener,
                _security_protocol(message.id, endpoint.security_protocol),
            )
            for endpoint in message.endpoints
        ),
        message.rack,
    )


def _security_protocol(broker_id: int, number: int) -> SecurityProtocol:
    try:
        return SecurityProtocol(number)
    except ValueError:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"broker {broker_id}: expected a security protocol of 0 to 3, found {number}",
        ) from None
