"""Network settings that can change while a broker runs.

| changed                                 | what happens                                         |
|-----------------------------------------|------------------------------------------------------|
| `num.io.threads`, `num.network.threads` | slots and processors are added or removed            |
| `max.connections…`, creation rates      | they apply to the next connection                    |
| `ssl.…`                                 | new connections get new certificates, old ones stay  |
| `listeners`                             | names that are new are opened, those that went closed |
| `advertised.listeners`                  | the broker's registration is written again           |

A listener that stays keeps its address: for another address it needs another name.
"""

import logging
import socket
from collections.abc import Callable, Iterable, Iterator

from odradek.broker.config import BrokerSettings, TlsSettings
from odradek.broker.config.protection import check_tls_is_used
from odradek.broker.tls import check_material, server_context
from odradek.errors import ConfigError
from odradek.model import Endpoint
from odradek.network.authentication import ListenerSecurity
from odradek.network.config import NetworkConfig, parse_ip_overrides
from odradek.network.endpoint import published_endpoints
from odradek.network.socket_server import SocketServer

__all__ = ["apply_network_settings", "check_certificates", "listener_security", "published_by"]

logger = logging.getLogger(__name__)


def listener_security(settings: BrokerSettings, endpoint: Endpoint) -> ListenerSecurity:
    """The security of a listener's connections.

    Raises:
        ConfigError: Its certificates cannot be used.
    """
    if not endpoint.security_protocol.uses_tls:
        return ListenerSecurity()
    return ListenerSecurity(tls=server_context(settings.tls(endpoint.listener)))


def published_by(server: SocketServer, network: NetworkConfig) -> tuple[Endpoint, ...]:
    """The advertised endpoints; the controller's own listener comes last."""
    ports = {name: listener.bound_port for name, listener in server.listeners.items()}
    open_ones = [each for each in network.advertised_endpoints if each.listener in ports]
    control = network.planes.control
    open_ones.sort(key=lambda each: control is not None and each.listener == control.listener)
    return published_endpoints(open_ones, ports, socket.getfqdn())


def check_certificates(
    before: BrokerSettings, after: BrokerSettings, changed: Iterable[str] = ()
) -> None:
    """Refuses certificates that cannot be used, before they are stored.

    Args:
        changed: The names that are set. One that no listener would use is refused: it could not be
            checked, and it would take effect with a listener that is added later.

    Raises:
        ConfigError: A key is invalid; the message names the key and the reason.
    """
    changed = tuple(changed)
    check_tls_is_used(after.settings, after.network.endpoints, changed)
    try:
        if any(name.startswith("ssl.") for name in changed):
            # Every listener may have its own instead; stored values must be valid nevertheless.
            check_material(after.settings.build(TlsSettings))
        for endpoint in _changed_tls(before, after):
            server_context(after.tls(endpoint.listener))
    except ConfigError as error:
        if not error.key.endswith(".location"):
            raise
        # The client chose the path, and must not learn from the answer which files exist.
        logger.warning("Refused to store %s", error)
        why = "cannot be used: expected a PEM file; the broker's log says more"
        raise ConfigError(error.key, error.value, why) from None


def apply_network_settings(
    server: SocketServer, before: BrokerSettings, after: BrokerSettings
) -> None:
    """Applies changed settings to a server; a failure is logged, the others are applied."""
    old, new = before.network, after.network
    _step(server.resize_io_threads, old.io_threads, new.io_threads)
    _step(server.resize_network_threads, old.network_threads, new.network_threads)
    server.quotas.update_limits(
        max_connections=new.max_connections,
        max_per_ip=new.max_connections_per_ip,
        per_ip_overrides=parse_ip_overrides(new.max_connections_per_ip_overrides),
        max_creation_rate=new.max_creation_rate,
    )
    _apply_listeners(server, after)
    for endpoint in new.endpoints:
        if endpoint.listener in server.listeners:
            limits = after.listener_limits(endpoint.listener)
            server.quotas.update_listener_limits(
                endpoint.listener,
                max_connections=limits.max_connections,
                max_creation_rate=limits.max_creation_rate,
            )
    for endpoint in _changed_tls(before, after):
        if endpoint.listener in server.listeners:
            try:
                security = listener_security(after, endpoint)
            except ConfigError as error:  # The file was valid when it was checked.
                logger.error("%s", error)  # noqa: TRY400
            else:
                server.replace_security(endpoint.listener, security)


def _step(resize: Callable[[int], None], old: int, new: int) -> None:
    """Resizes from one number to another in the permitted steps: half, or twice as many.

    A single step was checked before it was stored; several may arrive as one.
    """
    while old != new:
        old = min(new, old * 2) if new > old else max(new, old // 2)
        resize(old)


def _apply_listeners(server: SocketServer, after: BrokerSettings) -> None:
    wanted = {endpoint.listener: endpoint for endpoint in after.network.endpoints}
    for name in [name for name in server.listeners if name not in wanted]:
        logger.info("Closing listener %s", name)
        server.remove_listener(name)
    for name, endpoint in wanted.items():
        if name in server.listeners:
            continue
        logger.info("Opening listener %s", endpoint.connection_string)
        try:
            server.add_listener(endpoint, listener_security(after, endpoint))
        except ConfigError as error:
            logger.error("%s", error)  # noqa: TRY400


def _changed_tls(before: BrokerSettings, after: BrokerSettings) -> Iterator[Endpoint]:
    """TLS listeners whose settings differ, new ones included."""
    known = {endpoint.listener for endpoint in before.network.endpoints}
    for endpoint in after.network.endpoints:
        name = endpoint.listener
        if endpoint.security_protocol.uses_tls and (
            name not in known or before.tls(name) != after.tls(name)
        ):
            yield endpoint
