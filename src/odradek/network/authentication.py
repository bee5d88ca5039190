"""The stage between a connection's first byte and its first request.

A listener may have an authentication: then each frame goes to the connection's `Authenticator`
until that is done, and only afterwards to the handlers. The authenticator implements the mechanisms
and decides which requests are legal meanwhile; this module says what the connection does.

Duties of the connection, in order:

1. It refuses a frame above `max_frame_bytes` before it allocates memory for it.
2. It gives one frame at a time to `receive` and sends the reply, if there is one.
3. On a principal it changes its context and continues with requests.
4. On a failure it sends the reply, stays unread for
   `connection.failed.authentication.delay.ms`, and closes.
5. It closes if authentication has not ended 30 seconds after the connection was accepted.
"""

import ssl
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from odradek.lazy_dataclass import dataclass
from odradek.network.request import ConnectionContext
from odradek.security.principal import Principal

__all__ = [
    "AUTHENTICATION_TIMEOUT_MS",
    "HANDSHAKE_TIMEOUT_MS",
    "AuthenticationStep",
    "Authenticator",
    "ListenerSecurity",
]

HANDSHAKE_TIMEOUT_MS: Final = 10_000
AUTHENTICATION_TIMEOUT_MS: Final = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthenticationStep:
    """The result of one frame; without principal and failure the next frame is awaited."""

    # A frame to send back, without its length; empty for none.
    reply: Sequence[bytes] = ()
    principal: Principal | None = None
    # Why it failed, for the log.
    failure: str | None = None


class Authenticator(Protocol):
    """One connection's authentication."""

    @property
    def max_frame_bytes(self) -> int: ...

    def receive(self, payload: memoryview) -> AuthenticationStep:
        """Takes a frame, without its length.

        Raises:
            DecodeError: The frame is not legal during authentication; the connection closes.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSecurity:
    """How connections of one listener become trusted."""

    # TLS of the listener; None if it speaks plainly. Replaced when certificates are.
    tls: ssl.SSLContext | None = None
    # The principal of a peer by its certificate (DER, None if it gave none).
    principal_of: Callable[[bytes | None], Principal] | None = None
    # Makes the authenticator of a new connection; None if requests may come at once.
    authenticator: Callable[[ConnectionContext], Authenticator] | None = None
