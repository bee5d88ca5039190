"""SaslHandshake (key 17): choose a SASL mechanism. No version is flexible."""

from collections.abc import Sequence

from odradek.protocol.primitives import INT16, STRING
from odradek.protocol.schema import Message, array, wire

__all__ = ["SaslHandshakeRequest", "SaslHandshakeResponse"]


class SaslHandshakeRequest(Message, versions="0-1"):
    """The mechanism wanted."""

    # 0: raw tokens follow. 1: SaslAuthenticate requests follow (KIP-152).

    mechanism: str = wire(STRING)


class SaslHandshakeResponse(Message, versions="0-1"):
    """The mechanisms this listener offers."""

    error_code: int = wire(INT16)
    mechanisms: Sequence[str] = wire(array(STRING))
