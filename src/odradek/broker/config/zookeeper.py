"""Settings of the way to a ZooKeeper ensemble; without `zookeeper.connect` none is used.

Key and certificates are PEM files, as those of listeners are (`odradek.broker.config.tls`). A login
by SASL is in a JAAS file, as Kafka's is; Kafka takes the three keys about it from properties of
Java, so those in `KAFKA_OPTS` count, too.
"""

# ruff: noqa: RUF009 - `key` makes a field; the linter takes a Password for its mutable default.

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from odradek.broker.config.tls import CONVERSIONS, TLS_VERSIONS
from odradek.config import EachOneOf, Kind, OneOf, Password, Value, key
from odradek.config.declaration import environment_name
from odradek.errors import ConfigError

__all__ = ["ZooKeeperSettings", "with_java_properties"]

_NETTY: Final = "org.apache.zookeeper.ClientCnxnSocketNetty"
_NIO: Final = "org.apache.zookeeper.ClientCnxnSocketNIO"
# The formats that Java recognises by the ending of a file.
_ENDINGS: Final = {".jks": "JKS", ".p12": "PKCS12", ".pfx": "PKCS12", ".bcfks": "BCFKS"}
_TYPES: Final = ("PEM", "PKCS12", "JKS")
_JAVA_VARIABLE: Final = "KAFKA_OPTS"
_JAVA_PROPERTIES: Final = ("java.security.auth.login.config", "zookeeper.sasl.")


def with_java_properties(environment: Mapping[str, str]) -> Mapping[str, str]:
    """The variables, with one for each property about SASL that `KAFKA_OPTS` gives to Java.

    A variable of that name that exists is stronger.
    """
    words = environment.get(_JAVA_VARIABLE, "").split()
    given = (word.removeprefix("-D").partition("=") for word in words if word.startswith("-D"))
    found = {
        environment_name(name): value
        for name, _, value in given
        if name.startswith(_JAVA_PROPERTIES)
    }
    return {**found, **environment}


class _ConnectString:
    """Check of a list of servers, with a path after the last."""

    def why_not(self, value: Value) -> str | None:
        # Brokers without ZooKeeper do not import its client.
        from odradek.metadata_store.zookeeper import parse_connect_string

        try:
            parse_connect_string(str(value))
        except ConfigError as error:
            return error.why
        return None

    def __str__(self) -> str:
        return "host:port, several separated by commas, then optionally a path"


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperSettings:
    """The ensemble that holds the cluster's metadata."""

    connect: str | None = key(
        "zookeeper.connect",
        kind=Kind.STRING,
        default=None,
        checks=(_ConnectString(),),
        doc="Servers of a ZooKeeper ensemble that holds the cluster's metadata, such as "
        "`zk1:2181,zk2:2181/kafka`; the path is made if it does not exist. Not set: the metadata "
        "is in the first directory of `log.dirs`.",
    )
    session_timeout_ms: int = key(
        "zookeeper.session.timeout.ms",
        default=18_000,
        at_least=1,
        doc="How long a broker may be silent before ZooKeeper takes it for dead; the servers may "
        "grant another time.",
    )
    connection_timeout_ms: int | None = key(
        "zookeeper.connection.timeout.ms",
        kind=Kind.INT,
        default=None,
        at_least=1,
        doc="How long a start waits for the first answer of a ZooKeeper server; not set: "
        "`zookeeper.session.timeout.ms`.",
    )
    max_in_flight: int = key(
        "zookeeper.max.in.flight.requests",
        default=10,
        at_least=1,
        doc="Requests to ZooKeeper that may wait for their answers at once.",
    )
    set_acl: bool = key(
        "zookeeper.set.acl",
        default=False,
        doc="Whether only brokers may change the nodes they make. They authenticate with the "
        "certificate of `zookeeper.ssl.keystore.location`, or by SASL.",
    )
    login_config: str | None = key(
        "java.security.auth.login.config",
        kind=Kind.STRING,
        default=None,
        doc="JAAS file with the login to ZooKeeper by SASL: a section `Client` with "
        "`org.apache.zookeeper.server.auth.DigestLoginModule`, `username` and `password`. "
        "`-Djava.security.auth.login.config=…` in `KAFKA_OPTS` does the same.",
    )
    sasl_client: bool | None = key(
        "zookeeper.sasl.client",
        kind=Kind.BOOLEAN,
        default=None,
        doc="Whether to log in to ZooKeeper by SASL; not set: if "
        "`java.security.auth.login.config` is.",
    )
    sasl_section: str | None = key(
        "zookeeper.sasl.clientconfig",
        kind=Kind.STRING,
        default=None,
        doc="Section of the JAAS file with the login to ZooKeeper; not set: `Client`.",
    )
    tls_enabled: bool = key(
        "zookeeper.ssl.client.enable",
        default=False,
        doc="Whether to speak TLS with ZooKeeper.",
    )
    client_socket: str | None = key(
        "zookeeper.clientCnxnSocket",
        kind=Kind.STRING,
        default=None,
        checks=(OneOf((_NETTY, _NIO)),),
        doc="Java's class for connections, which is not needed here. With "
        "`zookeeper.ssl.client.enable` it must be the one that Kafka needs for TLS, or not set.",
    )
    keystore_location: str | None = key(
        "zookeeper.ssl.keystore.location",
        kind=Kind.STRING,
        default=None,
        doc="PEM file with the private key and the certificate chain of this broker.",
    )
    keystore_password: Password | None = key(
        "zookeeper.ssl.keystore.password",
        kind=Kind.PASSWORD,
        default=None,
        doc="Opens an encrypted private key.",
    )
    keystore_type: str | None = key(
        "zookeeper.ssl.keystore.type",
        kind=Kind.STRING,
        default=None,
        checks=(OneOf(_TYPES),),
        doc="Format of the key; not set: by the ending of the file. Only PEM is read; for the "
        "others the error tells how to convert them.",
    )
    truststore_location: str | None = key(
        "zookeeper.ssl.truststore.location",
        kind=Kind.STRING,
        default=None,
        doc="PEM file with the trusted certificates; not set: those that the system trusts.",
    )
    truststore_password: Password | None = key(
        "zookeeper.ssl.truststore.password",
        kind=Kind.PASSWORD,
        default=None,
        doc="Must not be set: PEM has none.",
    )
    truststore_type: str | None = key(
        "zookeeper.ssl.truststore.type",
        kind=Kind.STRING,
        default=None,
        checks=(OneOf(_TYPES),),
        doc="Format of the trusted certificates; as `zookeeper.ssl.keystore.type`.",
    )
    enabled_protocols: tuple[str, ...] | None = key(
        "zookeeper.ssl.enabled.protocols",
        kind=Kind.LIST,
        default=None,
        checks=(EachOneOf(TLS_VERSIONS),),
        doc="Versions of TLS that are spoken; not set: all that are safe.",
    )
    cipher_suites: tuple[str, ...] | None = key(
        "zookeeper.ssl.cipher.suites",
        kind=Kind.LIST,
        default=None,
        doc="Cipher suites for TLS 1.2, under OpenSSL's names; not set: the library's choice.",
    )
    endpoint_identification: str = key(
        "zookeeper.ssl.endpoint.identification.algorithm",
        default="HTTPS",
        checks=(OneOf(("HTTPS", "https", "")),),
        doc="Whether the certificate of a server must have the name by which it is called; empty: "
        "any trusted certificate will do.",
    )

    @property
    def first_link_timeout_ms(self) -> int:
        """How long a start waits for a server."""
        return self.connection_timeout_ms or self.session_timeout_ms

    def __post_init__(self) -> None:
        if self.connect is None:
            for name, value in (
                ("zookeeper.ssl.client.enable", self.tls_enabled),
                ("zookeeper.set.acl", self.set_acl),
                ("zookeeper.sasl.client", self.sasl_client),
                ("zookeeper.sasl.clientconfig", self.sasl_section),
                ("java.security.auth.login.config", self.login_config),
            ):
                if value:
                    raise ConfigError(
                        name,
                        value,
                        "zookeeper.connect is not set: the store is the broker's own, not a"
                        " ZooKeeper; remove it",
                    )
        self._check_tls()
        self._check_sasl()
        has_certificate = self.tls_enabled and self.keystore_location
        if self.set_acl and not (has_certificate or self.has_login):
            raise ConfigError(
                "zookeeper.set.acl",
                True,
                "the broker does not authenticate to ZooKeeper, so every client could change"
                " its nodes; set java.security.auth.login.config, or"
                " zookeeper.ssl.client.enable=true and zookeeper.ssl.keystore.location, or remove"
                " it",
            )

    @property
    def has_login(self) -> bool:
        """Whether the broker logs in by SASL."""
        return self.login_config is not None and self.sasl_client is not False

    def _check_sasl(self) -> None:
        if self.login_config is not None:
            return
        for name, value in (
            ("zookeeper.sasl.client", self.sasl_client),
            ("zookeeper.sasl.clientconfig", self.sasl_section),
        ):
            if value:
                raise ConfigError(
                    name,
                    value,
                    "there is no login to use; name the JAAS file in"
                    " java.security.auth.login.config, or remove it",
                )

    def _check_tls(self) -> None:
        stores = (
            ("zookeeper.ssl.keystore", self.keystore_location, self.keystore_type),
            ("zookeeper.ssl.truststore", self.truststore_location, self.truststore_type),
        )
        for name, location, given in stores:
            if location is not None and not self.tls_enabled:
                raise ConfigError(
                    f"{name}.location",
                    location,
                    "ZooKeeper is spoken to without TLS; set zookeeper.ssl.client.enable=true, or"
                    " remove it",
                )
            ending = f".{(location or '').rpartition('.')[2]}".lower()
            found = given or _ENDINGS.get(ending, "PEM")
            if found != "PEM":
                command = CONVERSIONS.get(found, CONVERSIONS["JKS"]).replace("IN", location or "IN")
                raise ConfigError(f"{name}.type", found, f"only PEM is read; convert it: {command}")
        if self.truststore_password is not None:
            raise ConfigError(
                "zookeeper.ssl.truststore.password",
                self.truststore_password,
                "PEM has none, so nothing would be checked with it; remove it",
            )
        if self.tls_enabled and self.client_socket not in (None, _NETTY):
            raise ConfigError(
                "zookeeper.clientCnxnSocket",
                self.client_socket,
                f"does not speak TLS; set {_NETTY}, or remove it",
            )
