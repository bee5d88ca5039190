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
    connect_timeout_ms: int = 10_000
    # A topic that nobody knows may be one that was made a moment ago: how long to ask again.
    unknown_topic_timeout_ms: int = 3_000
    # Pauses between attempts double from the first to the last, each off by up to a fifth.
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    metadata_max_age_ms: int = 300_000
    tls: ssl.SSLContext | None = None

    def outbound(self) -> OutboundOptions:
        """The same for one connection."""
        return OutboundOptions(
            client_id=self.client_id,
            connect_timeout_ms=self.connect_timeout_ms,
            request_timeout_ms=self.request_timeout_ms,
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
