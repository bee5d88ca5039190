"""The TLS contexts of listeners, of the way to other brokers, and to ZooKeeper, from settings.

A file must be a regular file of moderate size: clients that may change settings choose the path,
and OpenSSL would wait for a pipe, or read a device, forever.
"""

import os
import ssl
import stat
from typing import Final

from odradek.broker.config.tls import TlsSettings
from odradek.broker.config.zookeeper import ZooKeeperSettings
from odradek.errors import ConfigError
from odradek.files import memory_file

__all__ = ["check_material", "client_context", "server_context", "zookeeper_context"]

_MAX_FILE_BYTES: Final = 4 << 20  # Far above any chain, and above all authorities of a system.

_CLIENT_AUTH: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
_VERSIONS: Final = {
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}


def server_context(settings: TlsSettings) -> ssl.SSLContext:
    """The context of a listener with these settings.

    Raises:
        ConfigError: A file cannot be read, is no PEM, or key and certificate do not match.
    """
    context = _context(ssl.PROTOCOL_TLS_SERVER, settings)
    context.verify_mode = _CLIENT_AUTH[settings.client_auth]
    return context


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """The context of connections to the same listener of other brokers.

    This broker shows the certificate of its own listener, and trusts those that the listener
    trusts; without a truststore, those that the system trusts.

    Raises:
        ConfigError: As `server_context`.
    """
    context = _context(ssl.PROTOCOL_TLS_CLIENT, settings)
    context.check_hostname = bool(settings.endpoint_identification_algorithm)
    context.verify_mode = ssl.CERT_REQUIRED
    if settings.truststore_location is None and settings.truststore_certificates is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    return context


def _context(kind: int, settings: TlsSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(kind)
    versions = [_VERSIONS[name] for name in settings.enabled_protocols]
    context.minimum_version = min(versions)
    context.maximum_version = max(versions)
    context.options |= ssl.OP_NO_RENEGOTIATION
    if settings.cipher_suites:
        try:
            context.set_ciphers(":".join(settings.cipher_suites))
        except ssl.SSLError:
            raise ConfigError(
                "ssl.cipher.suites", ",".join(settings.cipher_suites), "OpenSSL knows none of them"
            ) from None
    _load_key(context, settings)
    _load_trust(context, settings)
    return context


def check_material(settings: TlsSettings) -> None:
    """Loads the given key, certificates and trust, only to find errors.

    Raises:
        ConfigError: As `server_context`.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if settings.keystore_location is not None or settings.keystore_key is not None:
        _load_key(context, settings)
    _load_trust(context, settings)


def zookeeper_context(settings: ZooKeeperSettings) -> ssl.SSLContext | None:
    """The context for connections to ZooKeeper; None: they are plain.

    Raises:
        ConfigError: A file cannot be read, is no PEM, or key and certificate do not match.
    """
    if not settings.tls_enabled:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = bool(settings.endpoint_identification)
    versions = [_VERSIONS[name] for name in settings.enabled_protocols or _VERSIONS]
    context.minimum_version = min(versions)
    context.maximum_version = max(versions)
    name, location = "zookeeper.ssl.cipher.suites", ",".join(settings.cipher_suites or ())
    try:
        if settings.cipher_suites:
            context.set_ciphers(":".join(settings.cipher_suites))
        name, location = "zookeeper.ssl.truststore.location", settings.truststore_location or ""
        if location:
            _check_file(location)
            context.load_verify_locations(cafile=location)
        else:
            context.load_default_certs()
        name, location = "zookeeper.ssl.keystore.location", settings.keystore_location or ""
        if location:
            password = settings.keystore_password
            secret = password.reveal() if password is not None else ""
            _check_file(location)
            context.load_cert_chain(location, password=lambda: secret)
    except (OSError, ValueError) as error:
        raise ConfigError(name, location, f"cannot be used: {error}") from None
    return context


def _check_file(path: str) -> None:
    found = os.stat(path)
    if not stat.S_ISREG(found.st_mode):
        raise ValueError("not a regular file")
    if found.st_size > _MAX_FILE_BYTES:
        raise ValueError(f"{found.st_size} bytes, expected at most {_MAX_FILE_BYTES}")


def _load_key(context: ssl.SSLContext, settings: TlsSettings) -> None:
    # Without a callback OpenSSL would ask at the terminal for the password of an encrypted key.
    secret = settings.key_password.reveal() if settings.key_password is not None else ""
    location = settings.keystore_location
    try:
        if location is not None:
            _check_file(location)
            context.load_cert_chain(location, password=lambda: secret)
            return
        assert settings.keystore_key is not None, "check_usable was called"
        assert settings.keystore_certificate_chain is not None, "the key does not come alone"
        parts = (settings.keystore_key.reveal(), settings.keystore_certificate_chain.reveal())
        with memory_file("\n".join(parts)) as path:
            context.load_cert_chain(path, password=lambda: secret)
    except (OSError, ValueError) as error:
        name = "ssl.keystore.location" if location is not None else "ssl.keystore.key"
        raise ConfigError(name, location, f"cannot be used: {error}") from None


def _load_trust(context: ssl.SSLContext, settings: TlsSettings) -> None:
    location, inline = settings.truststore_location, settings.truststore_certificates
    try:
        if location is not None:
            _check_file(location)
            context.load_verify_locations(cafile=location)
        elif inline is not None:
            context.load_verify_locations(cadata=inline.reveal())
    except (OSError, ValueError) as error:
        name = "ssl.truststore.location" if location is not None else "ssl.truststore.certificates"
        raise ConfigError(name, location, f"cannot be used: {error}") from None
