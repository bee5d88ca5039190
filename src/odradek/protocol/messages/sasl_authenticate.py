"""SaslAuthenticate (key 36): carry one token of a SASL mechanism."""

from odradek.protocol.primitives import BYTES, INT16, INT64, STRING
from odradek.protocol.schema import Message, wire

__all__ = ["SaslAuthenticateRequest", "SaslAuthenticateResponse"]


class SaslAuthenticateRequest(Message, versions="0-2", flexible="2+"):
    """The client's token."""

    # 2: flexible.

    auth_bytes: bytes = wire(BYTES, is_secret=True)


class SaslAuthenticateResponse(Message, versions="0-2", flexible="2+"):
    """The broker's token, or the error."""

    # 1: how long the session lasts, 0 for ever (KIP-368).
    # 2: flexible.

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+")
    auth_bytes: bytes = wire(BYTES, is_secret=True)
    session_lifetime_ms: int = wire(INT64, "1+", ignorable=True)
