"""The controller's channel to another broker: its requests over a connection of their own.

A peer that refuses a request has answered it. UNSUPPORTED_VERSION is raised if the peer does not
serve the version, or the version cannot express the request: no further attempt would succeed.
"""

from odradek.broker.peers.connections import PeerConnection
from odradek.broker.peers.control_messages import (
    FIRST_LEADER_AND_ISR_BY_ID,
    FIRST_STOP_REPLICA_BY_PARTITION,
    answer_by_topic_id,
    stop_by_topic,
)
from odradek.metadata.control_requests import ControlRequest, ControlResponse
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.inter_broker import InterBrokerVersions
from odradek.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from odradek.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from odradek.protocol.messages.update_metadata import UpdateMetadataResponse
from odradek.protocol.schema import Message

__all__ = ["WireChannel"]


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
        answer = await self._send(ApiKey.LEADER_AND_ISR, request, version)
        assert isinstance(answer, LeaderAndIsrResponse), "the registry gave another class"
        if version < FIRST_LEADER_AND_ISR_BY_ID:
            return answer_by_topic_id(answer, request)
        return answer

    async def _send_stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse:
        version = self._versions.stop_replica
        if version < FIRST_STOP_REPLICA_BY_PARTITION:
            request = stop_by_topic(request)
        answer = await self._send(ApiKey.STOP_REPLICA, request, version)
        assert isinstance(answer, StopReplicaResponse), "the registry gave another class"
        return answer

    async def _send(self, api_key: ApiKey, request: Message, version: int) -> Message:
        return await self._connection.request(api_key, request, version)
