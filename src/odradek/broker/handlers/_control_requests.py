"""What the handlers of the controller's requests share: the checks before, and the failures after.

They are not counted against quotas: only the controller sends them.
"""

import logging
from typing import TypeVar

from odradek.broker.authorization import check_is_peer
from odradek.broker.context import BrokerContext, note_local_end, reply
from odradek.broker.slices import body_of
from odradek.errors import ApiError, ErrorCode, StoreError
from odradek.metadata.control_requests import ControlRequest, ControlResponse
from odradek.network.request import CloseConnectionResponse, Request, Response
from odradek.protocol.schema import Message

__all__ = ["obey", "parse_peer_request"]

logger = logging.getLogger(__name__)

_MessageT = TypeVar("_MessageT", bound=Message)


def parse_peer_request(
    message_type: type[_MessageT],
    refusal_type: type[Message],
    request: Request,
    context: BrokerContext,
) -> "_MessageT | Response":
    """Reads a request between brokers; the answer of a refusal if the sender is no broker."""
    try:
        check_is_peer(request, context)
    except ApiError as error:
        logger.warning("Refused %s: %s", request, error)
        return reply(request, refusal_type(error_code=error.code))
    message = body_of(message_type, request)
    sender = getattr(message, "controller_id", getattr(message, "broker_id", None))
    if sender == context.broker_id:  # This broker sends nothing to itself through a socket.
        logger.warning("Refused %s: it claims to come from this broker itself", request)
        return reply(request, refusal_type(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    return message


async def obey(
    message: ControlRequest, request: Request, context: BrokerContext
) -> ControlResponse | Response:
    """Carries out a request of the controller.

    The connection ends if the store could not be read: the controller sends the request again.
    """
    note_local_end(request, context)
    try:
        return await context.control(message)
    except StoreError as error:
        return CloseConnectionResponse(request, f"{request} could not be carried out: {error}")
