"""SaslHandshake: refused, since no listener of this broker speaks SASL."""

from odradek.broker.context import BrokerContext, reply, request_throttle_ms
from odradek.broker.slices import body_of
from odradek.errors import ErrorCode
from odradek.network.request import Request, Response
from odradek.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

__all__ = ["handle_sasl_handshake"]


def handle_sasl_handshake(request: Request, context: BrokerContext) -> Response:
    """Answers ILLEGAL_SASL_STATE without mechanisms; the connection stays open (13 section 18)."""
    body_of(SaslHandshakeRequest, request)
    request_throttle_ms(request, context)  # The answer has no field for it.
    return reply(request, SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE))
