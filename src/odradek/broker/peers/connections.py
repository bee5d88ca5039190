"""Connections of a broker to other brokers, one for each peer and purpose.

A `PeerConnection` is opened by the first request, and again by the next request after it broke.
After a failed attempt the next one waits: 50 ms at first, twice as long each time, a second at
most, and up to a fifth more or less, so that the brokers of a cluster do not return at once.

Requests of one purpose travel in order. Each purpose has its own connection, because a peer answers
the requests of one connection one after another: a fetch that waits for records would delay a
request of the controller.
"""

import asyncio
import ssl
from collections.abc import Callable, Sequence
from random import Random
from typing import Final, Self

from odradek.broker.config import BrokerSettings, TlsSettings
from odradek.broker.tls import client_context
from odradek.clock import Clock
from odradek.errors import DisconnectedError, OdradekError, UnsupportedVersionError
from odradek.lazy_dataclass import dataclass
from odradek.metadata.cache import MetadataCache
from odradek.model import Endpoint
from odradek.network.outbound import OnAnswer, OutboundConnection, OutboundOptions
from odradek.network.send_queue import Chunk
from odradek.network.sockets import ByteStreams
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.schema import Message
from odradek.tasks import Sleep

__all__ = ["FIRST_PAUSE_MS", "LONGEST_PAUSE_MS", "PeerConnection", "PeerConnections"]

FIRST_PAUSE_MS: Final = 50
LONGEST_PAUSE_MS: Final = 1_000
_JITTER: Final = 0.2


class PeerConnection:
    """The connection to one broker for one purpose; made by `PeerConnections`.

    Args:
        peers: Opens the sockets.
        broker_id: The peer.
        purpose: For the client id that the peer sees, such as `controller` or `fetcher-0`.
        locate: The peer's endpoint at the moment.
        timeout_ms: How long a request waits for its answer.
    """

    def __init__(
        self,
        peers: "PeerConnections",
        broker_id: int,
        purpose: str,
        locate: Callable[[], Endpoint],
        *,
        timeout_ms: int,
    ) -> None:
        self.broker_id = broker_id
        self._peers = peers
        self._client_id = f"broker-{peers.broker_id}-{purpose}"
        self._locate = locate
        self._timeout_ms = timeout_ms
        self._connection: OutboundConnection | None = None
        self._opening = asyncio.Lock()
        self._failures = 0  # Attempts to connect since the last success.
        self._not_before_ms = 0  # No attempt to connect before this time.

    async def open(self) -> OutboundConnection:
        """The connection, opened now if there is none.

        Raises:
            ApiError: NETWORK_EXCEPTION or REQUEST_TIMED_OUT, the peer cannot be reached now;
                BROKER_NOT_AVAILABLE, its address is not known.
            ConfigError: The certificates of this broker cannot be used.
        """
        async with self._opening:
            connection = self._connection
            if connection is not None and not connection.is_closed:
                return connection
            peers = self._peers
            pause_ms = self._not_before_ms - peers.clock.monotonic_ms()
            if pause_ms > 0:
                await peers.sleep(pause_ms / 1000)
            try:
                self._connection = await peers.connect(
                    self._locate(), self._client_id, self._timeout_ms
                )
            except OdradekError:
                self._note_failure()
                raise
            self._failures = 0
            peers.keep(self)
            return self._connection

    async def request(
        self, api_key: ApiKey, message: Message, version: int, *, timeout_ms: int | None = None
    ) -> Message:
        """Sends a request in this version and awaits its answer.

        Raises:
            ApiError: NETWORK_EXCEPTION or REQUEST_TIMED_OUT, there was no answer, and whether the
                request was executed is unknown; BROKER_NOT_AVAILABLE; UNSUPPORTED_VERSION, the
                peer does not serve the version, or the version lacks a field that is set.
        """
        connection = await self.open()
        self._check_serves(connection, api_key, version)
        return await connection.request(api_key, message, version, timeout_ms=timeout_ms)

    def ask(
        self, api_key: ApiKey, version: int, body: Sequence[Chunk], on_answer: OnAnswer
    ) -> None:
        """Sends an encoded request over the open connection, and calls back with its answer.

        Raises:
            ApiError: NETWORK_EXCEPTION, there is no connection; UNSUPPORTED_VERSION, the peer does
                not serve the version. There will be no call.
        """
        connection = self._connection
        if connection is None:
            raise DisconnectedError(f"there is no connection to broker {self.broker_id}")
        self._check_serves(connection, api_key, version)
        connection.ask(api_key, version, body, on_answer)

    def _check_serves(self, connection: OutboundConnection, api_key: ApiKey, version: int) -> None:
        served = connection.versions(api_key)
        if version not in served:
            raise UnsupportedVersionError(
                f"broker {self.broker_id} serves {api_key.name} {served}, this broker sends"
                f" {version}: set inter.broker.protocol.version to the oldest release of the"
                " cluster"
            )

    def close(self) -> None:
        """Ends the connection; a later request makes another one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        self._peers.forget(self)

    def _note_failure(self) -> None:
        peers = self._peers
        pause_ms = min(FIRST_PAUSE_MS << min(self._failures, 10), LONGEST_PAUSE_MS)
        self._failures += 1
        jitter = 1 + _JITTER * (2 * peers.random.random() - 1)
        self._not_before_ms = peers.clock.monotonic_ms() + int(pause_ms * jitter)


@dataclass(frozen=True, slots=True)
class _TlsCache:
    """A context and the settings it was made of."""

    settings: TlsSettings
    context: ssl.SSLContext


class PeerConnections:
    """Opens connections to other brokers; use it as ``with``, which closes those left at its end.

    Args:
        broker_id: This broker.
        settings: The effective settings.
        cache: Knows the endpoints of brokers.
        streams: Where connections come from.
        clock: For pauses between attempts.
        random: Spreads these pauses.
        sleep: Waits.
    """

    def __init__(
        self,
        broker_id: int,
        settings: Callable[[], BrokerSettings],
        cache: MetadataCache,
        *,
        streams: ByteStreams,
        clock: Clock,
        random: Random,
        sleep: Sleep,
    ) -> None:
        self.broker_id = broker_id
        self.clock = clock
        self.random = random
        self.sleep = sleep
        self._settings = settings
        self._cache = cache
        self._streams = streams
        self._tls: dict[str, _TlsCache] = {}  # By listener.
        self._open: set[PeerConnection] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        for connection in list(self._open):
            connection.close()

    def to_broker(
        self, broker_id: int, purpose: str, *, timeout_ms: int | None = None
    ) -> PeerConnection:
        """A connection to a broker's inter-broker listener, where metadata locates it."""

        def locate() -> Endpoint:
            listener = self._settings().network.inter_broker_listener
            broker = self._cache.get_alive_broker(broker_id)
            endpoints = () if broker is None else broker.endpoints
            return self._endpoint(broker_id, listener, endpoints)

        return self._make(broker_id, purpose, locate, timeout_ms)

    def to_endpoint(
        self,
        broker_id: int,
        endpoint: Endpoint | None,
        purpose: str,
        *,
        timeout_ms: int | None = None,
    ) -> PeerConnection:
        """A connection to a known endpoint; None: the broker lacks the listener."""

        def locate() -> Endpoint:
            if endpoint is None:
                raise DisconnectedError(f"broker {broker_id} has no listener for {purpose}")
            return endpoint

        return self._make(broker_id, purpose, locate, timeout_ms)

    def _make(
        self,
        broker_id: int,
        purpose: str,
        locate: Callable[[], Endpoint],
        timeout_ms: int | None,
    ) -> PeerConnection:
        if timeout_ms is None:
            timeout_ms = self._settings().inter_broker.controller_socket_timeout_ms
        return PeerConnection(self, broker_id, purpose, locate, timeout_ms=timeout_ms)

    def _endpoint(self, broker_id: int, listener: str, endpoints: tuple[Endpoint, ...]) -> Endpoint:
        for endpoint in endpoints:
            if endpoint.listener == listener:
                return endpoint
        known = [endpoint.listener for endpoint in endpoints]
        raise DisconnectedError(
            f"broker {broker_id} has no listener {listener} in this broker's metadata, only {known}"
        )

    # For the connections

    async def connect(
        self, endpoint: Endpoint, client_id: str, timeout_ms: int
    ) -> OutboundConnection:
        """Opens a socket to an endpoint, with this broker's certificates if it speaks TLS."""
        network = self._settings().network
        return await OutboundConnection.open(
            endpoint.host,
            endpoint.port,
            OutboundOptions(
                client_id=client_id,
                connect_timeout_ms=timeout_ms,
                request_timeout_ms=timeout_ms,
                send_buffer_bytes=network.send_buffer_bytes,
                receive_buffer_bytes=network.receive_buffer_bytes,
                tls=self._tls_context(endpoint),
                streams=self._streams,
            ),
        )

    def keep(self, connection: PeerConnection) -> None:
        """Notes an open connection, to be closed at the end."""
        self._open.add(connection)

    def forget(self, connection: PeerConnection) -> None:
        """Forgets a connection that its user has closed."""
        self._open.discard(connection)

    def _tls_context(self, endpoint: Endpoint) -> ssl.SSLContext | None:
        if not endpoint.security_protocol.uses_tls:
            return None
        settings = self._settings().tls(endpoint.listener)
        kept = self._tls.get(endpoint.listener)
        if kept is None or kept.settings != settings:  # Certificates may be replaced meanwhile.
            kept = _TlsCache(settings, client_context(settings))
            self._tls[endpoint.listener] = kept
        return kept.context
