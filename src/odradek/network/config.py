"""Settings of the network layer, under Kafka's names."""

from dataclasses import dataclass
from functools import cached_property
from typing import Final

from odradek.config import Kind, Update, key
from odradek.errors import ConfigError
from odradek.model import Endpoint, SecurityProtocol
from odradek.network.connection_quotas import UNLIMITED
from odradek.network.endpoint import (
    Planes,
    parse_endpoints,
    parse_protocol_map,
    select_planes,
)

__all__ = ["ListenerLimits", "NetworkConfig", "check_resize", "parse_ip_overrides"]

_DEFAULT_MAP: Final = ",".join(f"{protocol.name}:{protocol.name}" for protocol in SecurityProtocol)


@dataclass(frozen=True, kw_only=True)
class NetworkConfig:
    """Listeners, numbers of processors and handlers, buffers and limits of connections."""

    listeners: tuple[str, ...] = key(
        "listeners",
        default=("PLAINTEXT://127.0.0.1:9092",),
        non_empty=True,
        dynamic=Update.PER_BROKER,
        doc="Where the broker listens, as NAME://host:port; an empty host is every interface, "
        "port 0 any free port.",
    )
    advertised_listeners: tuple[str, ...] | None = key(
        "advertised.listeners",
        kind=Kind.LIST,
        default=None,
        dynamic=Update.PER_BROKER,
        doc="Addresses that clients and brokers are told to connect to; `listeners` if not set.",
    )
    protocol_map: str = key(
        "listener.security.protocol.map",
        default=_DEFAULT_MAP,
        dynamic=Update.PER_BROKER,
        doc="The protocol of each listener, as NAME:PROTOCOL.",
    )
    inter_broker_listener_name: str | None = key(
        "inter.broker.listener.name",
        kind=Kind.STRING,
        default=None,
        agreed=True,
        doc="Listener of the other brokers; by default the one named after "
        "security.inter.broker.protocol.",
    )
    inter_broker_protocol: str = key(
        "security.inter.broker.protocol",
        default="PLAINTEXT",
        one_of=tuple(protocol.name for protocol in SecurityProtocol),
        agreed=True,
        doc="Names the listener of the other brokers if inter.broker.listener.name is not set.",
    )
    control_plane_listener_name: str | None = key(
        "control.plane.listener.name",
        kind=Kind.STRING,
        default=None,
        doc="Listener of the controller alone, so that its requests never wait behind others; "
        "none if not set.",
    )
    network_threads: int = key(
        "num.network.threads",
        default=3,
        at_least=1,
        dynamic=True,
        doc="Processors per listener: owners of connections that share one event loop.",
    )
    io_threads: int = key(
        "num.io.threads",
        default=8,
        at_least=1,
        dynamic=True,
        doc="Requests that may wait inside their handler at a time.",
    )
    queued_max_requests: int = key(
        "queued.max.requests",
        default=500,
        at_least=1,
        doc="Requests that may wait for a handler before connections are no longer read.",
    )
    queued_max_request_bytes: int = key(
        "queued.max.request.bytes",
        kind=Kind.LONG,
        default=-1,
        doc="Memory for unanswered requests before connections are no longer read; -1: no limit.",
    )
    send_buffer_bytes: int = key(
        "socket.send.buffer.bytes",
        default=-1,
        at_least=-1,
        doc="SO_SNDBUF of connections; -1: what the system chooses, which grows with the "
        "connection's speed. Kafka's 102400 nearly doubles the cost of a produced megabyte here.",
    )
    receive_buffer_bytes: int = key(
        "socket.receive.buffer.bytes",
        default=-1,
        at_least=-1,
        doc="SO_RCVBUF of connections; -1: what the system chooses, as above.",
    )
    request_max_bytes: int = key(
        "socket.request.max.bytes",
        default=104_857_600,
        at_least=1,
        doc="Largest request; a connection that announces more is closed.",
    )
    listen_backlog: int = key(
        "socket.listen.backlog.size",
        default=50,
        at_least=1,
        doc="Connections that the system queues until the broker accepts them.",
    )
    max_connections_per_ip: int = key(
        "max.connections.per.ip",
        default=UNLIMITED,
        at_least=0,
        dynamic=True,
        doc="Connections from one address; 0 only together with overrides.",
    )
    max_connections_per_ip_overrides: str = key(
        "max.connections.per.ip.overrides",
        default="",
        dynamic=True,
        doc="Other limits for some addresses, as address:count,….",
    )
    max_connections: int = key(
        "max.connections",
        default=UNLIMITED,
        at_least=0,
        dynamic=True,
        per_listener=True,
        doc="Connections of the broker, or of a listener.",
    )
    max_creation_rate: int = key(
        "max.connection.creation.rate",
        default=UNLIMITED,
        at_least=1,
        dynamic=True,
        per_listener=True,
        doc="New connections per second of the broker, or of a listener.",
    )
    max_idle_ms: int = key(
        "connections.max.idle.ms",
        kind=Kind.LONG,
        default=600_000,
        doc="A connection without traffic for this long is closed; negative: never.",
    )
    failed_authentication_delay_ms: int = key(
        "connection.failed.authentication.delay.ms",
        default=100,
        at_least=0,
        doc="How long a connection that failed to authenticate stays open, unread.",
    )

    def __post_init__(self) -> None:
        if 0 < self.queued_max_request_bytes < self.request_max_bytes:
            raise ConfigError(
                "queued.max.request.bytes",
                self.queued_max_request_bytes,
                f"must not be below socket.request.max.bytes ({self.request_max_bytes})",
            )
        overrides = parse_ip_overrides(self.max_connections_per_ip_overrides)
        if self.max_connections_per_ip == 0 and not overrides:
            raise ConfigError(
                "max.connections.per.ip", 0, "without overrides no peer could connect"
            )
        if 0 <= self.max_idle_ms <= self.failed_authentication_delay_ms:
            raise ConfigError(
                "connection.failed.authentication.delay.ms",
                self.failed_authentication_delay_ms,
                f"must be below connections.max.idle.ms ({self.max_idle_ms})",
            )

    @cached_property
    def protocols(self) -> dict[str, SecurityProtocol]:
        return parse_protocol_map(self.protocol_map)

    @cached_property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """The endpoints to bind."""
        return parse_endpoints(self.listeners, self.protocols)

    @cached_property
    def advertised_endpoints(self) -> tuple[Endpoint, ...]:
        """The endpoints to publish; hosts may be empty and ports 0 until the sockets are bound."""
        if self.advertised_listeners is None:
            return tuple(
                endpoint._replace(host="") if endpoint.is_wildcard else endpoint
                for endpoint in self.endpoints
            )
        return parse_endpoints(
            self.advertised_listeners, self.protocols, key="advertised.listeners"
        )

    @cached_property
    def inter_broker_listener(self) -> str:
        return (self.inter_broker_listener_name or self.inter_broker_protocol).upper()

    @cached_property
    def peer_listeners(self) -> frozenset[str]:
        """The listeners of other brokers."""
        control = self.control_plane_listener_name
        names = [self.inter_broker_listener, *([] if control is None else [control.upper()])]
        return frozenset(names)

    @cached_property
    def planes(self) -> Planes:
        """Control plane and data plane.

        Raises:
            ConfigError: Names of listeners do not fit together.
        """
        return select_planes(
            self.endpoints,
            self.advertised_endpoints,
            self.protocols,
            inter_broker_name=self.inter_broker_listener,
            control_plane_name=self.control_plane_listener_name,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerLimits:
    """Limits of one listener, from `listener.name.<name>.…`."""

    max_connections: int = UNLIMITED
    max_creation_rate: int = UNLIMITED


def parse_ip_overrides(text: str) -> dict[str, int]:
    """Reads `address:count,…`; an IPv6 address may have brackets.

    Raises:
        ConfigError: An entry has another form.
    """
    limits: dict[str, int] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        address, colon, count = entry.rpartition(":")
        if not (address and colon and count.strip().isdecimal()):
            raise ConfigError(
                "max.connections.per.ip.overrides", text, f"{entry!r} is not address:count"
            )
        limits[address.strip().strip("[]")] = int(count)
    return limits


def check_resize(name: str, old: int, new: int) -> None:
    """Refuses a change of `num.network.threads` or `num.io.threads` that is too large a step.

    Raises:
        ConfigError: Below 1, below half (rounded down) of the current value, or above twice of it.
    """
    if new < 1:
        raise ConfigError(name, new, "must be at least 1")
    if new < old // 2:
        raise ConfigError(name, new, f"must be at least half of the current {old}")
    if new > old * 2:
        raise ConfigError(name, new, f"must be at most twice the current {old}")
