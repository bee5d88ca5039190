"""ControlledShutdown: a broker that stops asks the controller to move its leaderships."""

from collections.abc import Coroutine
from typing import Any

from odradek.broker.context import BrokerContext, note_local_end, reply
from odradek.broker.handlers._control_requests import parse_peer_request
from odradek.network.request import Request, Response
from odradek.protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)

__all__ = ["handle_controlled_shutdown"]


def handle_controlled_shutdown(
    request: Request, context: BrokerContext
) -> Response | Coroutine[Any, Any, Response]:
    """Has the controller decide; answered when its decision is stored."""
    message = parse_peer_request(
        ControlledShutdownRequest, ControlledShutdownResponse, request, context
    )
    return message if isinstance(message, Response) else _handle(message, request, context)


async def _handle(
    message: ControlledShutdownRequest, request: Request, context: BrokerContext
) -> Response:
    note_local_end(request, context)
    return reply(request, await context.controller_services.controlled_shutdown(message))
