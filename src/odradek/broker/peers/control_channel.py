"""The controller's channels to brokers: over a connection of their own, or inside the process.

A peer that refuses a request has answered it. UNSUPPORTED_VERSION is raised if the peer does not
serve the version, or the version cannot express the request: no further attempt would succeed.
"""

from odradek.broker.peers.connections import PeerConnection
from odradek.broker.peers.control_messages import (
    FIRST_LEADER_AND_ISR_BY_ID,
    FIRST_STOP_REPLICA_BY_PARTITION,
    answer_by_topic_id,
    answer_by_topic_name,
    metadata_by_topic_name,
    roles_by_topic_name,
    stop_by_topic,
)
from odradek.metadata.control_requests import (
    ControlRequest,
    ControlRequestHandler,
    ControlResponse,
)
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.inter_broker import InterBrokerVersions
from odradek.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from odradek.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from odradek.protocol.messages.update_metadata import UpdateMetadataResponse
from odradek.protocol.schema import Message

__all__ = ["NamedTopicsChannel", "WireChannel"]


class NamedTopicsChannel:
    """`ControlChannel` to the controller's own broker while brokers speak a protocol without ids.

    Otherwise that broker alone would show topic ids to clients, and the others refuse them.

    Args:
        handler: Serves the requests.
    """

    __slots__ = ("_handler",)

    def __init__(self, handler: ControlRequestHandler) -> None:
        self._handler = handler

    async def send(self, request: ControlRequest) -> ControlResponse:
        """Passes a request without its ids; the answer has them again."""
        if isinstance(request, StopReplicaRequest):
            return await self._handler(request)
        if not isinstance(request, LeaderAndIsrRequest):
            return await self._handler(metadata_by_topic_name(request))
        answer = await self._handler(roles_by_topic_name(request))
        assert isinstance(answer, LeaderAndIsrResponse), "the feed answers in the request's kind"
        return answer_by_topic_id(answer_by_topic_name(answer), request)

    async def close(self) -> None:
        """Does nothing: there is no connection."""


class WireChannel:
    """`ControlChannel` to another broker.

    Args:
        connection: Used by this channel alone.
        versions: The versions that brokers of this cluster speak.
    """

    __slots__ = ("_connection", "_versions")

    def __init__(self, connection: PeerConnection, versions: InterBrokerVersions) -> None:
        self._connection = connection
        self._versions = versions

    async def send(self, request: ControlRequest) -> ControlResponse:
        """Delivers a request and waits for the answer.

        Raises:
            ApiError: It was not delivered, or the answer is lost. The code is UNSUPPORTED_VERSION
                if no further attempt would succeed.
        """
        if isinstance(request, LeaderAndIsrRequest):
            return await self._send_leader_and_isr(request)
        if isinstance(request, StopReplicaRequest):
            return await self._send_stop_replica(request)
        version = self._versions.update_metadata
        answer = await self._send(ApiKey.UPDATE_METADATA, request, version)
        assert isinstance(answer, UpdateMetadataResponse), "the registry gave another class"
        return answer

    async def close(self) -> None:
        """Drops the connection; a later `send` makes a new one."""
        self._connection.close()

    async def _send_leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        version = self._versions.leader_and_isr
        is_by_name = version < FIRST_LEADER_AND_ISR_BY_ID
        message = roles_by_topic_name(request) if is_by_name else request
        answer = await self._send(ApiKey.LEADER_AND_ISR, message, version)
        assert isinstance(answer, LeaderAndIsrResponse), "the registry gave another class"
        return answer_by_topic_id(answer, request) if is_by_name else answer

    async def _send_stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse:
        version = self._versions.stop_replica
        if version < FIRST_STOP_REPLICA_BY_PARTITION:
            request = stop_by_topic(request)
        answer = await self._send(ApiKey.STOP_REPLICA, request, version)
        assert isinstance(answer, StopReplicaResponse), "the registry gave another class"
        return answer

    async def _send(self, api_key: ApiKey, request: Message, version: int) -> Message:
        return await self._connection.request(api_key, request, version)
