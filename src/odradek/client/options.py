"""How a client reaches its cluster and how long it tries."""

import ssl
from dataclasses import dataclass
from typing import Final

from odradek.client.config import ClientConfig, parse_addresses
from odradek.config import HIDDEN, Password
from odradek.errors import ConfigError
from odradek.files import memory_file
from odradek.network.outbound import OutboundOptions
from odradek.network.sockets import SYSTEM_STREAMS, ByteStreams

__all__ = ["ClientOptions", "client_options"]

_PEM_ONLY: Final = "only PEM is read; `openssl pkcs12 -in IN -out store.pem -nodes` converts PKCS12"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """The settings that every part of a client reads. Defaults and names are Kafka's."""

    # Addresses at which to learn of the brokers: bootstrap.servers.
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
    # A connection that is unused for so long is closed; negative: never.
    connections_max_idle_ms: int = 540_000
    # How long to ask again for an unknown topic, which may have been created a moment ago.
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
    # Makes the connections.
    streams: ByteStreams = SYSTEM_STREAMS

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
            streams=self.streams,
        )


def client_options(
    config: ClientConfig,
    *,
    max_in_flight: int = 5,
    unknown_topic_timeout_ms: int = 3_000,
    ssl_context: ssl.SSLContext | None = None,
    streams: ByteStreams = SYSTEM_STREAMS,
) -> ClientOptions:
    """Makes the options of a client out of its settings.

    Raises:
        ConfigError: An address or a file cannot be used.
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
        streams=streams,
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
    context = _trusting(config.ssl_truststore_location, config.ssl_truststore_certificates)
    context.check_hostname = bool(config.ssl_endpoint_identification_algorithm)
    _load_identity(context, config)
    return context


def _trusting(location: str | None, inline: Password | None) -> ssl.SSLContext:
    if location is not None and inline is not None:
        raise ConfigError("ssl.truststore.certificates", HIDDEN, "ssl.truststore.location is set")
    try:
        return ssl.create_default_context(
            cafile=location, cadata=None if inline is None else inline.reveal()
        )
    except (OSError, ValueError) as error:
        if inline is None:
            raise ConfigError("ssl.truststore.location", location, str(error)) from error
        raise ConfigError(
            "ssl.truststore.certificates", HIDDEN, f"expected certificates as PEM: {error}"
        ) from error


def _load_identity(context: ssl.SSLContext, config: ClientConfig) -> None:
    """Loads the certificate that shows brokers the client, if there is one."""
    location, private, chain = (
        config.ssl_keystore_location,
        config.ssl_keystore_key,
        config.ssl_keystore_certificate_chain,
    )
    if (private is None) is not (chain is None):
        given, missing = "ssl.keystore.key", "ssl.keystore.certificate.chain"
        if private is None:
            given, missing = missing, given
        raise ConfigError(missing, None, f"required, since {given} is set")
    if private is None or chain is None:
        if location is not None:
            _load_key(context, "ssl.keystore.location", location, location, config.ssl_key_password)
        return
    if location is not None:
        raise ConfigError("ssl.keystore.location", location, "ssl.keystore.key is set, too")
    with memory_file(f"{private.reveal()}\n{chain.reveal()}") as path:
        _load_key(context, "ssl.keystore.key", HIDDEN, path, config.ssl_key_password)


def _load_key(
    context: ssl.SSLContext, name: str, shown: object, path: str, password: Password | None
) -> None:
    is_encrypted = False

    def secret() -> str:
        nonlocal is_encrypted
        is_encrypted = True
        return password.reveal() if password is not None else ""

    try:
        # Without a callback OpenSSL would ask at the terminal for the password of an encrypted key.
        context.load_cert_chain(path, password=secret)
    except (OSError, ValueError) as error:
        why = f"cannot be used: {error}; expected a private key and its certificate chain, as PEM"
        if is_encrypted:
            how = "set" if password is None else "check"
            why = f"cannot be used: {error}; the private key is encrypted, {how} ssl.key.password"
        raise ConfigError(name, shown, why) from error
