"""SaslAuthenticate: refused, since no listener of this broker speaks SASL."""

from odradek.broker.context import BrokerContext, reply, request_throttle_ms
from odradek.broker.slices import body_of
from odradek.errors import ErrorCode
from odradek.network.request import Request, Response
from odradek.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)

__all__ = ["handle_sasl_authenticate"]


def handle_sasl_authenticate(request: Request, context: BrokerContext) -> Response:
    """Answers ILLEGAL_SASL_STATE; the connection stays open. The token is not read."""
    body_of(SaslAuthenticateRequest, request)
    request_throttle_ms(request, context)  # The answer has no field for it.
    response = SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="this listener speaks no SASL: expected requests without a login",
    )
    return reply(request, response)
