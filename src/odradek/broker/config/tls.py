"""Settings of a TLS listener; `odradek.broker.tls` makes the context from them.

Key and certificates are PEM, in a file or in the setting itself, never both. The two Java formats
are refused with the command that converts them.
"""

# ruff: noqa: RUF009 - `key` makes a field; the linter takes a Password for its mutable default.

from dataclasses import dataclass
from typing import Final

from odradek.config import EachOneOf, Kind, NonEmpty, Password, Update, key
from odradek.errors import ConfigError

__all__ = ["TlsSettings"]

_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")
_CONVERSIONS: Final = {
    "JKS": "keytool -importkeystore -srckeystore IN -destkeystore store.p12 -deststoretype PKCS12 "
    "&& openssl pkcs12 -in store.p12 -out store.pem -nodes",
    "PKCS12": "openssl pkcs12 -in IN -out store.pem -nodes",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """TLS of a listener."""

    keystore_type: str = key(
        "ssl.keystore.type",
        default="PEM",
        one_of=("PEM", "PKCS12", "JKS"),
        dynamic=Update.PER_BROKER,
        per_listener=True,
        doc="Format of the key and its certificates. Only PEM is read; for the others the error "
        "tells how to convert them.",
    )
    keystore_location: str | None = key(
        "ssl.keystore.location",
        kind=Kind.STRING,
        default=None,
        dynamic=Update.PER_BROKER,
        per_listener=True,
        doc="File with the private key and the certificate chain.",
    )
    keystore_password: Password | None = key(
        "ssl.keystore.password",
        kind=Kind.PASSWORD,
        default=None,
        dynamic=Update.PER_BROKER,
        per_listener=True,
        doc="Must not be set with PEM; an encrypted key has `ssl.key.password`.",
    )
    keystore_key: Password | None = key(
        "ssl.keystore.key",
        kind=Kind.PASSWORD,
        default=None,
        dynamic=Update.PER_BROKER,
        per_listener=True,
        doc="The private key itself, instead of a file.",
    )
    keystore_certificate_chain: Password | None = key(
        "ssl.keystore.certificate.chain",
        kind=Kind.PASSWORD,
        default=None,
        dynamic=Update.PER_BROKER,
        per_listener=True,
        doc="The certificate chain itself, instead of a file.",
    )
    key_password: Password | None = key(
        "ssl.key.password",
        kind=Kind.PASSWORD,
        default=None,
        dynamic=Update.PER_BROKER,
        per_listener=True,
        doc="Opens an encrypted private key.",
    )
    truststore_type: str = key(
        "ssl.truststore.type",
        default="PEM",
        one_of=("PEM", "PKCS12", "JKS"),
        dynamic=Update.PER_BROKER,
        per_listener=True,
        doc="Format of the trusted certificates; as `ssl.keystore.type`.",
    )
    truststore_location: str | None = key(
        "ssl.truststore.location",
        kind=Kind.STRING,
        default=None,
        dynamic=Update.PER_BROKER,
        per_listener=True,
        doc="File with the trusted certificates.",
    )
    truststore_certificates: Password | None = key(
        "ssl.truststore.certificates",
        kind=Kind.PASSWORD,
        default=None,
        dynamic=Update.PER_BROKER,
        per_listener=True,
        doc="Those certificates themselves, instead of a file.",
    )
    client_auth: str = key(
        "ssl.client.auth",
        default="none",
        one_of=("none", "requested", "required"),
        per_listener=True,
        doc="Whether clients are asked for a certificate. A wrong one is refused even if none is "
        "required.",
    )
    enabled_protocols: tuple[str, ...] = key(
        "ssl.enabled.protocols",
        default=_VERSIONS,
        checks=(NonEmpty(), EachOneOf(_VERSIONS)),
        dynamic=Update.PER_BROKER,
        per_listener=True,
        doc="Versions of TLS that are spoken; older ones are unsafe and not offered.",
    )
    cipher_suites: tuple[str, ...] = key(
        "ssl.cipher.suites",
        default=(),
        dynamic=Update.PER_BROKER,
        per_listener=True,
        doc="Cipher suites for TLS 1.2, under OpenSSL's names; empty: the library's choice.",
    )

    endpoint_identification_algorithm: str = key(
        "ssl.endpoint.identification.algorithm",
        default="https",
        one_of=("https", ""),
        per_listener=True,
        doc="Whether a broker that connects to another one compares its certificate with the host "
        "name: https compares, empty does not.",
    )

    def __post_init__(self) -> None:
        _check_format("ssl.keystore", self.keystore_type, self.keystore_location)
        _check_format("ssl.truststore", self.truststore_type, self.truststore_location)
        if self.keystore_password is not None:
            raise ConfigError(
                "ssl.keystore.password",
                self.keystore_password,
                "PEM has none; the password of the key is ssl.key.password",
            )
        if (self.keystore_key is None) != (self.keystore_certificate_chain is None):
            raise ConfigError(
                "ssl.keystore.key",
                self.keystore_key,
                "goes with ssl.keystore.certificate.chain, and either is useless alone",
            )
        if self.keystore_location is not None and self.keystore_key is not None:
            raise ConfigError(
                "ssl.keystore.location", self.keystore_location, "ssl.keystore.key is set, too"
            )
        if self.truststore_location is not None and self.truststore_certificates is not None:
            raise ConfigError(
                "ssl.truststore.location",
                self.truststore_location,
                "ssl.truststore.certificates is set, too",
            )

    def check_usable(self, listener: str) -> None:
        """Refuses settings with which a listener could not speak TLS.

        Raises:
            ConfigError: There is no key, or clients need certificates and none are trusted.
        """
        if self.keystore_location is None and self.keystore_key is None:
            raise ConfigError(
                "ssl.keystore.location", None, f"required: listener {listener} speaks TLS"
            )
        has_trust = self.truststore_location or self.truststore_certificates
        if self.client_auth != "none" and not has_trust:
            raise ConfigError(
                "ssl.truststore.location",
                None,
                f"required: listener {listener} has ssl.client.auth={self.client_auth}",
            )


def _check_format(store: str, store_type: str, location: str | None) -> None:
    conversion = _CONVERSIONS.get(store_type)
    if conversion is not None:
        command = conversion.replace("IN", location or "IN")
        raise ConfigError(f"{store}.type", store_type, f"only PEM is read; convert it: {command}")
