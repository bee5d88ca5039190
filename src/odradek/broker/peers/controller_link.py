"""Requests of this broker to the active controller, wherever it is.

The controller is the one that metadata names. If this broker is the controller itself, the request
does not travel. A request is sent once: its caller knows whether and when to repeat it, since an
answer that is lost means something else for each of them. Each kind of request has a connection of
its own, so that none waits for the answers of another kind.
"""

from collections.abc import Sequence
from typing import Final, TypeVar

from odradek.broker.peers.connections import PeerConnection, PeerConnections
from odradek.broker.peers.controller_services import ControllerServices
from odradek.errors import ApiError, ErrorCode
from odradek.metadata.admin_requests import NewTopic, TopicResult
from odradek.metadata.cache import MetadataCache
from odradek.metadata.ports import ControllerApi, ProducerIds
from odradek.model import TopicPartition
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.inter_broker import InterBrokerVersions
from odradek.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from odradek.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
)
from odradek.protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)
from odradek.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.protocol.schema import Message

__all__ = ["ControllerLink"]

# CreateTopics of 2.4; later versions add nothing that is used here.
_CREATE_TOPICS_VERSION: Final = 5
# How long the controller waits until its own metadata shows a topic. The caller does not need that.
_CREATE_TOPICS_WAIT_MS: Final = 1_000

_MessageT = TypeVar("_MessageT", bound=Message)


class ControllerLink:
    """Asks the active controller.

    Args:
        broker_id: This broker.
        controller: The controller of this broker, active or not.
        services: The same, as it serves requests of brokers.
        peers: Connections to other brokers.
        cache: Names the controller.
        versions: The versions that brokers of this cluster speak.
    """

    def __init__(
        self,
        broker_id: int,
        controller: ControllerApi,
        services: ControllerServices,
        peers: PeerConnections,
        cache: MetadataCache,
        versions: InterBrokerVersions,
    ) -> None:
        self._broker_id = broker_id
        self._controller = controller
        self._services = services
        self._peers = peers
        self._cache = cache
        self._versions = versions
        self._connections: dict[ApiKey, PeerConnection] = {}

    @property
    def versions(self) -> InterBrokerVersions:
        """The versions that brokers of this cluster speak."""
        return self._versions

    async def reach(self, api_key: ApiKey) -> None:
        """Connects to the controller, for one kind of request.

        Raises:
            ApiError: It cannot be reached now.
        """
        if not self._services.is_active:
            await self._connection(api_key).open()

    async def alter_partition(
        self, message: AlterPartitionRequest, version: int
    ) -> AlterPartitionResponse:
        """Requests other ISRs.

        Raises:
            ApiError: The controller was not reached, or its answer is lost.
        """
        if self._services.is_active:
            return await self._services.alter_partition(message, version)
        return await self._send(ApiKey.ALTER_PARTITION, message, version, AlterPartitionResponse)

    async def allocate_producer_ids(self, broker_epoch: int) -> ProducerIds:
        """Requests a block of producer ids.

        Raises:
            ApiError: The controller was not reached, or refused.
        """
        version = self.versions.allocate_producer_ids
        assert version is not None, "an older protocol takes them from the store"
        message = AllocateProducerIdsRequest(broker_id=self._broker_id, broker_epoch=broker_epoch)
        if self._services.is_active:
            answer = await self._services.allocate_producer_ids(message)
        else:
            answer = await self._send(
                ApiKey.ALLOCATE_PRODUCER_IDS, message, version, AllocateProducerIdsResponse
            )
        _check(answer.error_code, "producer ids")
        first_id = answer.producer_id_start
        return ProducerIds(first_id, first_id + answer.producer_id_len - 1)

    async def controlled_shutdown(
        self, broker_id: int, broker_epoch: int
    ) -> frozenset[TopicPartition]:
        """Requests that leadership moves away; returns the partitions this broker still leads.

        Raises:
            ApiError: The controller was not reached, or refused.
        """
        message = ControlledShutdownRequest(broker_id=broker_id, broker_epoch=broker_epoch)
        if self._services.is_active:
            answer = await self._services.controlled_shutdown(message)
        else:
            answer = await self._send(
                ApiKey.CONTROLLED_SHUTDOWN,
                message,
                self.versions.controlled_shutdown,
                ControlledShutdownResponse,
            )
        _check(answer.error_code, "a controlled shutdown")
        return frozenset(
            TopicPartition(row.topic_name, row.partition_index)
            for row in answer.remaining_partitions
        )

    async def create_topics(self, topics: Sequence[NewTopic]) -> Sequence[TopicResult]:
        """Has topics created, with counts or the defaults of the controller's broker.

        Raises:
            ApiError: The controller was not reached, or its answer is lost.
        """
        if self._controller.is_active:
            return await self._controller.create_topics(topics, validate_only=False)
        message = CreateTopicsRequest(
            topics=[_creatable(topic) for topic in topics], timeout_ms=_CREATE_TOPICS_WAIT_MS
        )
        answer = await self._send(
            ApiKey.CREATE_TOPICS, message, _CREATE_TOPICS_VERSION, CreateTopicsResponse
        )
        return [
            TopicResult(
                name=row.name,
                # The topic is stored; it only takes longer until metadata shows it.
                error=(
                    ErrorCode.NONE
                    if row.error_code == ErrorCode.REQUEST_TIMED_OUT
                    else ErrorCode(row.error_code)
                ),
                message=row.error_message,
            )
            for row in answer.topics
        ]

    def close(self) -> None:
        """Ends the connections to the controller."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    async def _send(
        self, api_key: ApiKey, message: Message, version: int, answer_type: type[_MessageT]
    ) -> _MessageT:
        answer = await self._connection(api_key).request(api_key, message, version)
        assert isinstance(answer, answer_type), "the registry gave another class"
        return answer

    def _connection(self, api_key: ApiKey) -> PeerConnection:
        controller_id = self._cache.get_controller_id()
        if controller_id is None:
            raise ApiError(ErrorCode.NOT_CONTROLLER, "no controller is known at the moment")
        if controller_id == self._broker_id:
            raise ApiError(ErrorCode.NOT_CONTROLLER, "this broker is not the controller any more")
        connection = self._connections.get(api_key)
        if connection is None or connection.broker_id != controller_id:
            if connection is not None:
                connection.close()
            purpose = f"to-controller-{api_key.name.lower().replace('_', '-')}"
            connection = self._peers.to_broker(controller_id, purpose)
            self._connections[api_key] = connection
        return connection


def _creatable(topic: NewTopic) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.partition_count,
        replication_factor=topic.replication_factor,
        configs=[
            CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()
        ],
    )


def _check(error_code: int, what: str) -> None:
    if error_code != ErrorCode.NONE:
        code = ErrorCode(error_code)
        raise ApiError(code, f"the controller refused {what}: {code.name}")
