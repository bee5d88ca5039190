"""Settings of clients: Kafka's names, given as a mapping or as keywords with underscores.

``Producer({"linger.ms": "5"})`` and ``Producer(linger_ms=5)`` are the same. Values may be text or
have their type already; lists may be lists or text with commas. A name that nobody declared is an
error with the nearest one; so is a setting that only means something in Java, with what takes its
place here.

Each client declares its own dataclass beside its code and reads it with `read_settings`.
"""

# ruff: noqa: RUF009 - `key` makes a field; the linter takes a Password for its mutable default.

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from odradek.client.options import ClientOptions, parse_addresses
from odradek.config import (
    HIDDEN,
    REQUIRED,
    Definition,
    Kind,
    NonEmpty,
    Password,
    Settings,
    Source,
    key,
)
from odradek.errors import ConfigError

__all__ = ["ClientConfig", "client_options", "read_settings"]

_PEM_ONLY: Final = "only PEM is read; `openssl pkcs12 -in IN -out store.pem -nodes` converts PKCS12"

# Settings of the Java clients that name classes, and what to give instead.
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
    "transactional.id": "transactions are not built yet",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """What every client reads."""

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
        doc="How long one request may take; then its connection is given up.",
    )
    default_api_timeout_ms: int = key(
        "default.api.timeout.ms",
        default=60_000,
        at_least=1,
        doc="How long a call may take with all its attempts, unless it is told.",
    )
    metadata_max_age_ms: int = key(
        "metadata.max.age.ms",
        kind=Kind.LONG,
        default=300_000,
        at_least=0,
        doc="Age at which what is known of a topic is asked for again.",
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
        doc="Time after which a connection that nobody uses is closed; negative: never.",
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
        doc="How long a connection may take to come about; doubles with each failure in a row.",
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
    ssl_truststore_type: str = key(
        "ssl.truststore.type", default="PEM", doc="Format of that file; only PEM is read."
    )
    ssl_keystore_location: str | None = key(
        "ssl.keystore.location",
        kind=Kind.STRING,
        default=None,
        doc="File with this client's private key and certificate chain, as PEM.",
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
        ConfigError: a name is unknown or given twice, or a value cannot be used.
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
    settings = Settings(definition, {Source.COMMAND_LINE: given})
    for unknown in settings.unknown:
        hint = f", did you mean {unknown.suggestion}?" if unknown.suggestion else ""
        # The value may be a secret under a misspelt name.
        raise ConfigError(unknown.name, HIDDEN, f"unknown setting{hint}")
    return settings


def client_options(
    config: ClientConfig,
    *,
    max_in_flight: int = 5,
    unknown_topic_timeout_ms: int = 3_000,
    ssl_context: ssl.SSLContext | None = None,
) -> ClientOptions:
    """What the core of a client reads, out of its settings.

    Raises:
        ConfigError: an address or a file cannot be used.
    """
    return ClientOptions(
        bootstrap=parse_addresses(",".join(config.bootstrap_servers)),
        client_id=config.client_id,
        request_timeout_ms=config.request_timeout_ms,
        api_timeout_ms=config.default_api_timeout_ms,
        connect_timeout_ms=config.socket_connection_setup_timeout_ms,
        connect_timeout_max_ms=max(
            config.socket_connection_setup_timeout_ms, config.socket_connection_setup_timeout_max_ms
        ),
        retry_backoff_ms=config.retry_backoff_ms,
        retry_backoff_max_ms=max(config.retry_backoff_ms, config.retry_backoff_max_ms),
        reconnect_backoff_ms=config.reconnect_backoff_ms,
        reconnect_backoff_max_ms=max(config.reconnect_backoff_ms, config.reconnect_backoff_max_ms),
        connections_max_idle_ms=config.connections_max_idle_ms,
        metadata_max_age_ms=config.metadata_max_age_ms,
        is_rebootstrapping=config.metadata_recovery_strategy == "rebootstrap",
        send_buffer_bytes=config.send_buffer_bytes,
        receive_buffer_bytes=config.receive_buffer_bytes,
        max_in_flight=max_in_flight,
        unknown_topic_timeout_ms=unknown_topic_timeout_ms,
        tls=ssl_context or _ssl_context(config),
    )


def _ssl_context(config: ClientConfig) -> ssl.SSLContext | None:
    if config.security_protocol == "PLAINTEXT":
        return None
    for name, kind in (
        ("ssl.truststore.type", config.ssl_truststore_type),
        ("ssl.keystore.type", config.ssl_keystore_type),
    ):
        if kind != "PEM":
            raise ConfigError(name, kind, _PEM_ONLY)
    try:
        context = ssl.create_default_context(cafile=config.ssl_truststore_location)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            "ssl.truststore.location", config.ssl_truststore_location, str(error)
        ) from error
    context.check_hostname = bool(config.ssl_endpoint_identification_algorithm)
    if config.ssl_keystore_location is not None:
        _load_key(context, config.ssl_keystore_location, config.ssl_key_password)
    return context


def _load_key(context: ssl.SSLContext, location: str, password: Password | None) -> None:
    is_encrypted = False

    def secret() -> str:
        nonlocal is_encrypted
        is_encrypted = True
        return password.reveal() if password is not None else ""

    try:
        # Without a callback OpenSSL would ask at the terminal for the password of an encrypted key.
        context.load_cert_chain(location, password=secret)
    except (OSError, ValueError) as error:
        why = f"cannot be used: {error}; expected a private key and its certificate chain, as PEM"
        if is_encrypted:
            how = "set" if password is None else "check"
            why = f"cannot be used: {error}; the private key is encrypted, {how} ssl.key.password"
        raise ConfigError("ssl.keystore.location", location, why) from error
