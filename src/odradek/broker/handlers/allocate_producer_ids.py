"""AllocateProducerIds: a broker asks the controller for a block of producer ids."""

from collections.abc import Coroutine
from typing import Any

from odradek.broker.context import BrokerContext, note_local_end, reply
from odradek.broker.handlers._control_requests import parse_peer_request
from odradek.network.request import Request, Response
from odradek.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)

__all__ = ["handle_allocate_producer_ids"]


def handle_allocate_producer_ids(
    request: Request, context: BrokerContext
) -> Response | Coroutine[Any, Any, Response]:
    """Has the controller decide; answered when its decision is stored."""
    message = parse_peer_request(
        AllocateProducerIdsRequest, AllocateProducerIdsResponse, request, context
    )
    return message if isinstance(message, Response) else _handle(message, request, context)


async def _handle(
    message: AllocateProducerIdsRequest, request: Request, context: BrokerContext
) -> Response:
    note_local_end(request, context)
    return reply(request, await context.controller_services.allocate_producer_ids(message))
