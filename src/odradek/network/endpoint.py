"""Listeners as an operator writes them: `NAME://host:port`, their protocols and their peers.

A listener's name is compared in upper case everywhere. The four protocol names are listeners of
their own protocol; any other name needs an entry in `listener.security.protocol.map`.
"""

from collections.abc import Iterable, Mapping, Sequence
from ipaddress import ip_address
from typing import Final, NamedTuple

from odradek.errors import ConfigError
from odradek.model import Endpoint, SecurityProtocol

__all__ = [
    "DEFAULT_PROTOCOL_MAP",
    "Planes",
    "parse_endpoints",
    "parse_protocol_map",
    "published_endpoints",
    "select_planes",
    "unreachable_endpoints",
]

_LISTENERS: Final = "listeners"
_ADVERTISED: Final = "advertised.listeners"
_PROTOCOL_MAP: Final = "listener.security.protocol.map"
_CONTROL_PLANE: Final = "control.plane.listener.name"
_INTER_BROKER: Final = "inter.broker.listener.name"


DEFAULT_PROTOCOL_MAP: Final[Mapping[str, SecurityProtocol]] = {
    protocol.name: protocol for protocol in SecurityProtocol
}


class Planes(NamedTuple):
    """Which listeners serve the controller, the other brokers, and clients."""

    control: Endpoint | None
    data: tuple[Endpoint, ...]


def parse_protocol_map(text: str) -> dict[str, SecurityProtocol]:
    """Reads `NAME:PROTOCOL,…`.

    Raises:
        ConfigError: An entry has another form, or names no protocol.
    """
    protocols: dict[str, SecurityProtocol] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, colon, protocol = entry.partition(":")
        listener = name.strip().upper()
        if not colon or not listener:
            raise ConfigError(_PROTOCOL_MAP, text, f"{entry!r} is not NAME:PROTOCOL")
        known = DEFAULT_PROTOCOL_MAP.get(protocol.strip().upper())
        if known is None:
            raise ConfigError(
                _PROTOCOL_MAP,
                text,
                f"{protocol.strip()!r} is none of {', '.join(DEFAULT_PROTOCOL_MAP)}",
            )
        if listener in protocols:
            raise ConfigError(_PROTOCOL_MAP, text, f"{listener} is mapped twice")
        protocols[listener] = known
    return protocols


def parse_endpoints(
    entries: Iterable[str],
    protocols: Mapping[str, SecurityProtocol],
    *,
    key: str = _LISTENERS,
) -> tuple[Endpoint, ...]:
    """Reads the entries of `listeners` or `advertised.listeners`, given by `key`.

    Raises:
        ConfigError: An entry has another form, a name is unknown or comes twice, or a port does.
    """
    endpoints: list[Endpoint] = []
    for entry in filter(None, (part.strip() for part in entries)):
        endpoint = _parse_endpoint(entry, protocols, key)
        for other in endpoints:
            if other.listener == endpoint.listener:
                raise ConfigError(key, entry, f"listener {endpoint.listener} is given twice")
            if key == _LISTENERS and _is_same_socket(other, endpoint):
                raise ConfigError(key, entry, f"{other.connection_string} has the same port")
        endpoints.append(endpoint)
    return tuple(endpoints)


def _is_same_socket(one: Endpoint, other: Endpoint) -> bool:
    if one.port == 0 or one.port != other.port:
        return False
    return one.host == other.host or one.is_wildcard or other.is_wildcard


def _parse_endpoint(entry: str, protocols: Mapping[str, SecurityProtocol], key: str) -> Endpoint:
    name, separator, address = entry.partition("://")
    host, colon, port_text = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        colon = ""
    listener = name.upper()
    if not (name and separator and colon and port_text.isdecimal() and port_text.isascii()):
        raise ConfigError(key, entry, "a listener is NAME://host:port, an IPv6 host in brackets")
    port = int(port_text)
    if port > 65535:
        raise ConfigError(key, entry, f"port {port} is above 65535")
    protocol = protocols.get(listener)
    if protocol is None:
        raise ConfigError(key, entry, f"{_PROTOCOL_MAP} does not say what {listener} speaks")
    return Endpoint(host, port, listener, protocol)


def select_planes(
    endpoints: Sequence[Endpoint],
    advertised: Sequence[Endpoint],
    protocols: Mapping[str, SecurityProtocol],
    *,
    inter_broker_name: str,
    control_plane_name: str | None = None,
) -> Planes:
    """Separates the control plane's listener from the others, and checks that the names agree.

    Raises:
        ConfigError: Names disagree; it names the key to change.
    """
    bound = {endpoint.listener for endpoint in endpoints}
    published = {endpoint.listener for endpoint in advertised}
    for endpoint in advertised:
        if endpoint.listener not in bound:
            raise ConfigError(
                _ADVERTISED, endpoint.connection_string, f"{_LISTENERS} has no such listener"
            )
        if endpoint.host and endpoint.is_wildcard:
            raise ConfigError(
                _ADVERTISED, endpoint.connection_string, "no peer can connect to that address"
            )
    inter_broker = inter_broker_name.upper()
    if inter_broker not in published:
        raise ConfigError(_INTER_BROKER, inter_broker_name, f"{_ADVERTISED} has no such listener")
    if control_plane_name is None:
        return Planes(None, tuple(endpoints))
    name = control_plane_name.upper()
    if name not in protocols:
        raise ConfigError(
            _CONTROL_PLANE, control_plane_name, f"{_PROTOCOL_MAP} does not say what {name} speaks"
        )
    if name not in published:
        raise ConfigError(_CONTROL_PLANE, control_plane_name, f"{_ADVERTISED} has no such listener")
    if name == inter_broker:
        raise ConfigError(_CONTROL_PLANE, control_plane_name, f"{_INTER_BROKER} is the same")
    control = next(endpoint for endpoint in endpoints if endpoint.listener == name)
    data = tuple(endpoint for endpoint in endpoints if endpoint.listener != name)
    return Planes(control, data)


def published_endpoints(
    advertised: Iterable[Endpoint], bound_ports: Mapping[str, int], canonical_host: str
) -> tuple[Endpoint, ...]:
    """The endpoints to tell clients, once the ports are known: no empty host, no port 0."""
    return tuple(
        endpoint._replace(
            host=endpoint.host or canonical_host,
            port=endpoint.port or bound_ports[endpoint.listener],
        )
        for endpoint in advertised
    )


def unreachable_endpoints(
    bound: Iterable[Endpoint], published: Iterable[Endpoint]
) -> tuple[Endpoint, ...]:
    """The published endpoints of listeners on every interface that only this machine can reach."""
    open_to_all = {endpoint.listener for endpoint in bound if endpoint.is_wildcard}
    return tuple(
        endpoint
        for endpoint in published
        if endpoint.listener in open_to_all and _is_loopback(endpoint.host)
    )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        labels = host.lower().rstrip(".").split(".")
        return labels[0] in ("localhost", "ip6-localhost") or labels[-1] == "localhost"
