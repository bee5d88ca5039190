"""How a client reaches its cluster and how long it tries."""

import ssl
from dataclasses import dataclass
from typing import Final

from odradek.errors import ConfigError
from odradek.network.outbound import OutboundOptions

__all__ = ["ClientOptions", "parse_addresses"]

_MAX_PORT: Final = 65535


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """What every part of a client reads. The defaults are Kafka's, as are the names behind them."""

    # Where to learn of the brokers: bootstrap.servers.
    bootstrap: tuple[tuple[str, int], ...]
    client_id: str = "odradek"
    # One request, from the wire to its answer: request.timeout.ms.
    request_timeout_ms: int = 30_000
    # One call with all its attempts: default.api.timeout.ms.
    api_timeout_ms: int = 60_000
    # Doubles from the first to the second with each failure of an address in a row.
    connect_timeout_ms: int = 10_000
    connect_timeout_max_ms: int = 30_000
    # Pauses before an address that failed is tried again; they double in the same way.
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1_000
    # A connection that nobody uses for so long is closed; negative: never.
    connections_max_idle_ms: int = 540_000
    # A topic that nobody knows may be one that was made a moment ago: how long to ask again.
    unknown_topic_timeout_ms: int = 3_000
    # Pauses between attempts double from the first to the last, each off by up to a fifth.
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    metadata_max_age_ms: int = 300_000
    # Whether the bootstrap list is tried again when no known broker answers.
    is_rebootstrapping: bool = True
    # Requests that one connection may have unanswered.
    max_in_flight: int = 5
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1
    tls: ssl.SSLContext | None = None

    def outbound(self, connect_timeout_ms: int | None = None) -> OutboundOptions:
        """The same for one connection."""
        return OutboundOptions(
            client_id=self.client_id,
            connect_timeout_ms=connect_timeout_ms or self.connect_timeout_ms,
            request_timeout_ms=self.request_timeout_ms,
            max_in_flight=self.max_in_flight,
            send_buffer_bytes=self.send_buffer_bytes,
            receive_buffer_bytes=self.receive_buffer_bytes,
            tls=self.tls,
        )


def parse_addresses(text: str) -> tuple[tuple[str, int], ...]:
    """Read `host:port,…`, an IPv6 host in brackets.

    Raises:
        ConfigError: an entry has another form, or there is none.
    """
    addresses = tuple(
        _parse_address(entry, text) for entry in map(str.strip, text.split(",")) if entry
    )
    if not addresses:
        raise ConfigError("bootstrap.servers", text, "no address; expected HOST:PORT")
    return addresses


def _parse_address(entry: str, text: str) -> tuple[str, int]:
    host, colon, port = entry.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        colon = ""
    is_number = port.isdecimal() and port.isascii()
    if not (colon and host and is_number and 0 < int(port) <= _MAX_PORT):
        raise ConfigError(
            "bootstrap.servers", text, f"{entry!r} is not HOST:PORT, an IPv6 host in brackets"
        )
    return host, int(port)
