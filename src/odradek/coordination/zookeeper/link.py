"""One connection to one server: opened, shaken hands on, and read frame by frame.

A broker with a login proves its identity on every connection, before it sends anything else: a
server forgets it with the connection.
"""

import asyncio
import contextlib
from random import Random
from typing import Final, NamedTuple, Protocol

from odradek.coordination.zookeeper.servers import Server
from odradek.coordination.zookeeper.wire import (
    LENGTH,
    ConnectResponse,
    OpCode,
    ReplyHeader,
    ZooKeeperCode,
    encode_connect,
    encode_sasl,
    frame,
    parse_connect_response,
    parse_reply,
    parse_sasl,
)
from odradek.errors import DecodeError
from odradek.security.digest_md5 import DigestMd5, Login

__all__ = [
    "NO_SESSION",
    "Authentication",
    "Credentials",
    "Link",
    "LinkBroken",
    "LoginRefused",
    "OpenStream",
    "end_session",
]

# Servers do not limit their answers by `jute.maxbuffer`; this is a list of half a million names.
MAX_ANSWER_BYTES: Final = 32 << 20
_CLOSE_XID: Final = 1
# All servers of ZooKeeper have this name for DIGEST-MD5.
_SERVICE: Final = "zookeeper/zk-sasl-md5"
_NONCE_BYTES: Final = 24


class Credentials(NamedTuple):
    """What a server asks for before it continues a session."""

    session_id: int
    password: bytes

    def __repr__(self) -> str:
        return f"Credentials({self.session_id:#x})"


NO_SESSION: Final = Credentials(0, bytes(16))


class LinkBroken(Exception):  # noqa: N818 - names what happened to the link
    """The link cannot be used any more; the message has the reason."""


class LoginRefused(LinkBroken):
    """The server does not accept the broker's login, or is not the server it says it is."""


class Authentication(NamedTuple):
    """The broker's login, and randomness for the exchanges that prove it."""

    login: Login
    random: Random

    def begin(self) -> DigestMd5:
        """An exchange for one connection."""
        return DigestMd5(self.login, _SERVICE, self.random.randbytes(_NONCE_BYTES).hex())


class OpenStream(Protocol):
    """Connects to a server, with TLS if the ensemble speaks it."""

    async def __call__(
        self, server: Server, /
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """The two halves of the connection.

        Raises:
            OSError: The server cannot be reached.
        """
        ...


class Link:
    """A connection on which a server has answered the connect request."""

    __slots__ = ("_reader", "_writer", "response", "server")

    def __init__(
        self,
        server: Server,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        response: ConnectResponse,
    ) -> None:
        self.server = server
        self.response = response
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(
        cls,
        open_stream: OpenStream,
        server: Server,
        credentials: Credentials,
        *,
        last_zxid: int,
        timeout_ms: int,
        authentication: Authentication | None = None,
    ) -> "Link":
        """Connects, and asks for a session; session id 0 in the response means it has expired.

        Raises:
            OSError: The server cannot be reached.
            LoginRefused: It does not accept the login.
            LinkBroken: It is no server that serves: it closed the connection, or answered nonsense.
        """
        reader, writer = await open_stream(server)
        try:
            writer.write(
                encode_connect(
                    last_zxid=last_zxid,
                    timeout_ms=timeout_ms,
                    session_id=credentials.session_id,
                    password=credentials.password,
                )
            )
            data = await _read_frame(reader, server)
            try:
                response = parse_connect_response(data)
            except DecodeError as error:
                raise LinkBroken(f"{server} is no ZooKeeper server: {error}") from None
            link = cls(server, reader, writer, response)
            if authentication is not None and response.session_id != 0:
                await link._authenticate(authentication)
        except BaseException:
            await _abort(writer)
            raise
        return link

    async def _authenticate(self, authentication: Authentication) -> None:
        exchange, user = authentication.begin(), authentication.login.username
        try:
            challenge = await self._sasl(1, b"")
            if challenge is None:
                raise LoginRefused(
                    f"{self.server} has no SASL; give it a JAAS file with a section Server"
                )
            outcome = await self._sasl(2, exchange.respond(challenge))
        except DecodeError as error:
            raise LoginRefused(f"{self.server}: {error}") from None
        if outcome is None:
            raise LoginRefused(f"{self.server} refused the login of user {user!r}")
        if not exchange.is_proven_by(outcome):
            raise LoginRefused(
                f"{self.server} did not prove that it knows the password of {user!r}"
            )

    async def _sasl(self, xid: int, token: bytes) -> bytes | None:
        """The server's answer to a token; None if it refuses."""
        self.send(frame(xid, OpCode.SASL, encode_sasl(token)))
        while True:
            header, record = _parse(await self.read(), self.server)
            if header.xid == xid:
                break  # Anything else is a notice about the session.
        match header.error:
            case ZooKeeperCode.OK:
                return parse_sasl(record)
            case ZooKeeperCode.AUTH_FAILED | ZooKeeperCode.SASL_REQUIRED:
                return None
            case error:
                raise LinkBroken(f"{self.server}: error {error} at the login")

    def send(self, framed: bytes) -> None:
        """Sends a request; the caller bounds what may be under way."""
        self._writer.write(framed)

    async def read(self) -> bytes:
        """The next frame.

        Raises:
            LinkBroken: There is none, or it is too long.
        """
        return await _read_frame(self._reader, self.server)

    def break_off(self) -> None:
        """Ends the connection; a reader gets LinkBroken."""
        self._writer.transport.abort()

    async def close(self) -> None:
        """Ends the connection and waits until its socket is closed."""
        await _abort(self._writer)


async def end_session(
    open_stream: OpenStream,
    server: Server,
    credentials: Credentials,
    *,
    timeout_ms: int,
    authentication: Authentication | None = None,
) -> bool:
    """Ends a session of a former life, with its ephemeral nodes; returns whether it still lived.

    Raises:
        OSError, LinkBroken: The server cannot be used; the session may live on.
    """
    # Zxid 0: the server must not be refused for lagging behind.
    link = await Link.open(
        open_stream,
        server,
        credentials,
        last_zxid=0,
        timeout_ms=timeout_ms,
        authentication=authentication,
    )
    try:
        if link.response.session_id == 0:
            return False
        link.send(frame(_CLOSE_XID, OpCode.CLOSE))
        while True:
            header, _ = _parse(await link.read(), server)
            if header.xid == _CLOSE_XID:
                return True
    finally:
        await link.close()


def _parse(data: bytes, server: Server) -> tuple[ReplyHeader, bytes]:
    try:
        return parse_reply(data)
    except DecodeError as error:
        raise LinkBroken(f"{server}: {error}") from None


async def _read_frame(reader: asyncio.StreamReader, server: Server) -> bytes:
    try:
        (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
        if not 0 <= length <= MAX_ANSWER_BYTES:
            raise LinkBroken(
                f"{server}: expected a frame of at most {MAX_ANSWER_BYTES} bytes, found {length}"
            )
        return await reader.readexactly(length)
    except asyncio.IncompleteReadError:
        raise LinkBroken(f"{server} closed the connection") from None
    except OSError as error:
        raise LinkBroken(f"{server}: {error}") from None


async def _abort(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
