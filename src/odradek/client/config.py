"""Settings of clients: Kafka's names, as a mapping or as keywords with underscores. Pure.

``Producer({"linger.ms": "5"})`` and ``Producer(linger_ms=5)`` are the same. Values may be text or
have their type already; lists may be lists or text with commas. An unknown name is an error that
suggests the nearest known one; a setting that only has a meaning in Java is an error that names its
replacement here.

Each client declares its own dataclass beside its code and reads it with `read_settings`.
"""

# ruff: noqa: RUF009 - `key` makes a field; the linter takes a Password for its mutable default.

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from odradek.config import (
    HIDDEN,
    REQUIRED,
    Definition,
    Kind,
    NonEmpty,
    Password,
    Settings,
    SettingSource,
    key,
)
from odradek.errors import ConfigError

__all__ = ["ClientConfig", "parse_addresses", "read_settings"]

_MAX_PORT: Final = 65535

# Settings of the Java clients that name classes, and their replacements.
_REPLACED: Final = {
    "key.serializer": "give a callable: Producer(key_serializer=str.encode)",
    "value.serializer": "give a callable: Producer(value_serializer=str.encode)",
    "key.deserializer": "give a callable: Consumer(key_deserializer=bytes.decode)",
    "value.deserializer": "give a callable: Consumer(value_deserializer=bytes.decode)",
    "interceptor.classes": "give objects: interceptors=[…]",
    "partitioner.class": "give a callable: Producer(partitioner=…)",
    "metric.reporters": "call metrics()",
    "auto.include.jmx.reporter": "there is no JMX; call metrics()",
    "enable.metrics.push": "metrics are not pushed; call metrics()",
    "config.providers": "read the values before they are given",
    "ssl.engine.factory.class": "use the ssl.* settings, or ssl_context=…",
    "ssl.provider": "use the ssl.* settings, or ssl_context=…",
    "security.providers": "use the ssl.* settings, or ssl_context=…",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """The settings of every client."""

    bootstrap_servers: tuple[str, ...] = key(
        "bootstrap.servers",
        kind=Kind.LIST,
        default=REQUIRED,
        checks=(NonEmpty(),),
        doc="Brokers to learn of the others from: host:port,…",
    )
    client_id: str = key(
        "client.id", default="", doc="Name of this client in the brokers' logs, metrics and quotas."
    )
    request_timeout_ms: int = key(
        "request.timeout.ms",
        default=30_000,
        at_least=1,
        doc="How long one request may take; then its connection is closed.",
    )
    default_api_timeout_ms: int = key(
        "default.api.timeout.ms",
        default=60_000,
        at_least=1,
        doc="How long a call may take with all its attempts, unless the call says.",
    )
    metadata_max_age_ms: int = key(
        "metadata.max.age.ms",
        kind=Kind.LONG,
        default=300_000,
        at_least=0,
        doc="Age at which the metadata of a topic is requested again.",
    )
    metadata_recovery_strategy: str = key(
        "metadata.recovery.strategy",
        default="rebootstrap",
        one_of=("none", "rebootstrap"),
        doc="Whether to begin again at bootstrap.servers when no known broker answers.",
    )
    connections_max_idle_ms: int = key(
        "connections.max.idle.ms",
        kind=Kind.LONG,
        default=540_000,
        doc="Time after which an unused connection is closed; negative: never.",
    )
    reconnect_backoff_ms: int = key(
        "reconnect.backoff.ms",
        kind=Kind.LONG,
        default=50,
        at_least=0,
        doc="Pause before a broker that did not answer is tried again; doubles each time.",
    )
    reconnect_backoff_max_ms: int = key(
        "reconnect.backoff.max.ms",
        kind=Kind.LONG,
        default=1_000,
        at_least=0,
        doc="The longest such pause.",
    )
    retry_backoff_ms: int = key(
        "retry.backoff.ms",
        kind=Kind.LONG,
        default=100,
        at_least=0,
        doc="Pause before a failed request is sent again; doubles each time.",
    )
    retry_backoff_max_ms: int = key(
        "retry.backoff.max.ms",
        kind=Kind.LONG,
        default=1_000,
        at_least=0,
        doc="The longest such pause.",
    )
    socket_connection_setup_timeout_ms: int = key(
        "socket.connection.setup.timeout.ms",
        kind=Kind.LONG,
        default=10_000,
        at_least=1,
        doc="How long opening a connection may take; doubles with each failure in a row.",
    )
    socket_connection_setup_timeout_max_ms: int = key(
        "socket.connection.setup.timeout.max.ms",
        kind=Kind.LONG,
        default=30_000,
        at_least=1,
        doc="The longest that it doubles to.",
    )
    send_buffer_bytes: int = key(
        "send.buffer.bytes",
        default=-1,
        at_least=-1,
        doc="SO_SNDBUF of the sockets; -1 leaves it to the system.",
    )
    receive_buffer_bytes: int = key(
        "receive.buffer.bytes",
        default=-1,
        at_least=-1,
        doc="SO_RCVBUF of the sockets; -1 leaves it to the system.",
    )
    security_protocol: str = key(
        "security.protocol",
        default="PLAINTEXT",
        one_of=("PLAINTEXT", "SSL"),
        doc="How to speak to the brokers.",
    )
    ssl_truststore_location: str | None = key(
        "ssl.truststore.location",
        kind=Kind.STRING,
        default=None,
        doc="File with the certificates to trust, as PEM; the system's if not set.",
    )
    ssl_truststore_certificates: Password | None = key(
        "ssl.truststore.certificates",
        kind=Kind.PASSWORD,
        default=None,
        doc="Those certificates themselves, instead of a file.",
    )
    ssl_truststore_type: str = key(
        "ssl.truststore.type", default="PEM", doc="Format of that file; only PEM is read."
    )
    ssl_keystore_location: str | None = key(
        "ssl.keystore.location",
        kind=Kind.STRING,
        default=None,
        doc="File with this client's private key and certificate chain, as PEM.",
    )
    ssl_keystore_key: Password | None = key(
        "ssl.keystore.key",
        kind=Kind.PASSWORD,
        default=None,
        doc="The private key itself, as PEM, instead of a file.",
    )
    ssl_keystore_certificate_chain: Password | None = key(
        "ssl.keystore.certificate.chain",
        kind=Kind.PASSWORD,
        default=None,
        doc="The certificate chain of that key, as PEM.",
    )
    ssl_keystore_type: str = key(
        "ssl.keystore.type", default="PEM", doc="Format of that file; only PEM is read."
    )
    ssl_key_password: Password | None = key(
        "ssl.key.password", kind=Kind.PASSWORD, default=None, doc="Opens an encrypted private key."
    )
    ssl_endpoint_identification_algorithm: str = key(
        "ssl.endpoint.identification.algorithm",
        default="https",
        one_of=("https", ""),
        doc="Whether a broker's certificate must name the host; empty: it need not.",
    )


def read_settings(
    definition: Definition, config: Mapping[str, object] | None, keywords: Mapping[str, object]
) -> Settings:
    """The settings a client was given; build the dataclasses of `definition` from them.

    Raises:
        ConfigError: A name is unknown or given twice, or a value cannot be used.
    """
    given = dict(config or {})
    for word, value in keywords.items():
        name = word.replace("_", ".")
        if name in given:
            raise ConfigError(name, HIDDEN, f"given twice: in the mapping and as {word}=")
        given[name] = value
    for name in given:
        if name in _REPLACED and name not in definition.keys:
            raise ConfigError(name, HIDDEN, f"not a setting here: {_REPLACED[name]}")
    settings = Settings(definition, {SettingSource.COMMAND_LINE: given})
    for unknown in settings.unknown:
        hint = f", did you mean {unknown.suggestion}?" if unknown.suggestion else ""
        # The value may be a secret under a misspelt name.
        raise ConfigError(unknown.name, HIDDEN, f"unknown setting{hint}")
    return settings


def parse_addresses(text: str) -> tuple[tuple[str, int], ...]:
    """Reads `host:port,…`, an IPv6 host in brackets.

    Raises:
        ConfigError: An entry has another form, or there is none.
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
