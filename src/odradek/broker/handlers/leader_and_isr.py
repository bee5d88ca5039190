"""LeaderAndIsr: the controller gives replicas of this broker their roles."""

from collections.abc import Coroutine
from typing import Any

from odradek.broker.context import BrokerContext, reply
from odradek.broker.handlers._control_requests import obey, parse_peer_request
from odradek.broker.peers.control_messages import FIRST_LEADER_AND_ISR_BY_ID, answer_by_topic_name
from odradek.network.request import Request, Response
from odradek.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse

__all__ = ["handle_leader_and_isr"]


def handle_leader_and_isr(
    request: Request, context: BrokerContext
) -> Response | Coroutine[Any, Any, Response]:
    """Takes the roles; answered when all of them are taken or refused."""
    message = parse_peer_request(LeaderAndIsrRequest, LeaderAndIsrResponse, request, context)
    return message if isinstance(message, Response) else _handle(message, request, context)


async def _handle(
    message: LeaderAndIsrRequest, request: Request, context: BrokerContext
) -> Response:
    response = await obey(message, request, context)
    if isinstance(response, Response):
        return response
    assert isinstance(response, LeaderAndIsrResponse), "the feed answers in the request's kind"
    if request.header.api_version < FIRST_LEADER_AND_ISR_BY_ID:
        response = answer_by_topic_name(response)
    return reply(request, response)
