"""UpdateMetadata: the controller announces brokers and partitions to this broker."""

from collections.abc import Coroutine
from typing import Any

from odradek.broker.context import BrokerContext, reply
from odradek.broker.handlers._control_requests import obey, parse_peer_request
from odradek.network.request import Request, Response
from odradek.protocol.messages.update_metadata import (
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)

__all__ = ["handle_update_metadata"]


def handle_update_metadata(
    request: Request, context: BrokerContext
) -> Response | Coroutine[Any, Any, Response]:
    """Publishes the metadata; answered when clients see it."""
    message = parse_peer_request(UpdateMetadataRequest, UpdateMetadataResponse, request, context)
    return message if isinstance(message, Response) else _handle(message, request, context)


async def _handle(
    message: UpdateMetadataRequest, request: Request, context: BrokerContext
) -> Response:
    response = await obey(message, request, context)
    return response if isinstance(response, Response) else reply(request, response)
