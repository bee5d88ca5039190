"""AlterPartition: a leader asks the controller to store other ISRs."""

from collections.abc import Coroutine
from typing import Any

from odradek.broker.context import BrokerContext, note_local_end, reply
from odradek.broker.handlers._control_requests import parse_peer_request
from odradek.network.request import Request, Response
from odradek.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse

__all__ = ["handle_alter_partition"]


def handle_alter_partition(
    request: Request, context: BrokerContext
) -> Response | Coroutine[Any, Any, Response]:
    """Has the controller decide; answered when its decision is stored."""
    message = parse_peer_request(AlterPartitionRequest, AlterPartitionResponse, request, context)
    return message if isinstance(message, Response) else _handle(message, request, context)


async def _handle(
    message: AlterPartitionRequest, request: Request, context: BrokerContext
) -> Response:
    note_local_end(request, context)
    return reply(
        request,
        await context.controller_services.alter_partition(message, request.header.api_version),
    )
