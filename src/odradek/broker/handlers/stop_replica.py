"""StopReplica: the controller stops replicas of this broker, or has them deleted."""

from collections.abc import Coroutine
from typing import Any

from odradek.broker.context import BrokerContext, reply
from odradek.broker.handlers._control_requests import obey, parse_peer_request
from odradek.broker.peers.control_messages import FIRST_STOP_REPLICA_BY_PARTITION, stop_by_partition
from odradek.network.request import Request, Response
from odradek.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse

__all__ = ["handle_stop_replica"]


def handle_stop_replica(
    request: Request, context: BrokerContext
) -> Response | Coroutine[Any, Any, Response]:
    """Stops the replicas; answered when those to delete are put aside."""
    message = parse_peer_request(StopReplicaRequest, StopReplicaResponse, request, context)
    return message if isinstance(message, Response) else _handle(message, request, context)


async def _handle(
    message: StopReplicaRequest, request: Request, context: BrokerContext
) -> Response:
    if request.header.api_version < FIRST_STOP_REPLICA_BY_PARTITION:
        message = stop_by_partition(message)
    response = await obey(message, request, context)
    return response if isinstance(response, Response) else reply(request, response)
