"""Keys that promise protection: a key that is set and not served prevents the start.

A broker that ignores `authorizer.class.name` serves every client while its operator relies on
access rules. So every key of Kafka's about authentication, authorization or the storage of secrets
is in one of three states:

- served: a component declares it, and a listener uses it.
- harmless, a warning: it only tunes an absent feature (`HARMLESS`), or its value promises nothing.
- refused: it is in `UNSERVED`; or it is unknown in a namespace of protection, so misspelt; or it
  is about TLS and no listener would use it.

No error shows a value: an undeclared key may have a secret.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from odradek.broker.config.kafka_keys import KAFKA_KEYS
from odradek.broker.config.tls import TlsSettings
from odradek.config import HIDDEN, Settings, SettingSource, UnknownKey
from odradek.config.declaration import (
    ENVIRONMENT_PREFIX,
    LISTENER_PREFIX,
    environment_name,
    keys_of,
)
from odradek.errors import ConfigError
from odradek.model import Endpoint

__all__ = [
    "HARMLESS",
    "PROTECTED_NAMESPACES",
    "UNSERVED",
    "Unserved",
    "base_names",
    "check_given_tls",
    "check_protection",
    "check_tls_is_used",
]

# Names with these prefixes are about protection, whether Kafka has them or not.
PROTECTED_NAMESPACES: Final = (
    "allow.everyone.",
    "authorizer.",
    "delegation.token.",
    "password.encoder.",
    "principal.",
    "sasl.",
    "security.",
    "ssl.",
    "super.",
    "zookeeper.sasl.",
    "zookeeper.ssl.",
)

_OR_NETWORK: Final = (
    "remove it and let only trusted machines reach the listeners, or use listeners that speak SSL"
    " with ssl.client.auth=required"
)
_NO_ACLS: Final = f"access rules are not served, and every client would get in; {_OR_NETWORK}"
_NO_SASL: Final = f"SASL is not served, and no client would have to log in; {_OR_NETWORK}"
_NO_CLASSES: Final = "classes of Java are not loaded, and what it demands would not be done"
_NO_ENCODER: Final = (
    "passwords in the store are not encrypted, only kept from other users of the machine; remove"
    " it, and give passwords in the configuration file instead of by AlterConfigs"
)


class Unserved(NamedTuple):
    """A key whose promise the broker cannot keep."""

    why: str  # The reason, and what to do.
    # Values that promise nothing, mostly Kafka's default.
    harmless: frozenset[str] = frozenset()


def _unserved(why: str, *harmless: str) -> Unserved:
    return Unserved(why, frozenset(("", *harmless)))


UNSERVED: Final[Mapping[str, Unserved]] = {
    "authorizer.class.name": _unserved(_NO_ACLS),
    "super.users": _unserved(_NO_ACLS),
    # Everything is allowed here, as `true` demands.
    "allow.everyone.if.no.acl.found": _unserved(_NO_ACLS, "true"),
    "principal.builder.class": _unserved(
        f"{_NO_CLASSES}; remove it",
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
    ),
    "ssl.principal.mapping.rules": _unserved(
        "certificates are not mapped to names, every client is ANONYMOUS; remove it", "DEFAULT"
    ),
    "create.topic.policy.class.name": _unserved(
        f"{_NO_CLASSES}; remove it, or set auto.create.topics.enable=false"
    ),
    "alter.config.policy.class.name": _unserved(f"{_NO_CLASSES}; remove it"),
    "client.quota.callback.class": _unserved(
        f"{_NO_CLASSES}; remove it, and set quotas by client id with AlterClientQuotas"
    ),
    "config.providers": _unserved(
        "values of the form ${provider:…} are not resolved and would be taken as they stand;"
        " remove it, and give the values themselves or by environment variables"
    ),
    "connections.max.reauth.ms": _unserved(_NO_SASL, "0"),
    "security.providers": _unserved(f"{_NO_CLASSES}; remove it: TLS is that of OpenSSL"),
    "ssl.engine.factory.class": _unserved(f"{_NO_CLASSES}; remove it: TLS is that of OpenSSL"),
    "ssl.provider": _unserved("TLS is that of OpenSSL, which has no such provider; remove it"),
    "ssl.secure.random.implementation": _unserved(
        "random numbers are those of the system; remove it"
    ),
    "ssl.keymanager.algorithm": _unserved("TLS is that of OpenSSL; remove it", "SunX509", "PKIX"),
    "ssl.trustmanager.algorithm": _unserved("TLS is that of OpenSSL; remove it", "PKIX", "SunX509"),
    "ssl.truststore.password": _unserved(
        "only PEM is read, which has none, so nothing would be checked with it; remove it"
    ),
    "ssl.allow.dn.changes": _unserved(
        "a new certificate is accepted whatever its name; remove it, and restrict the right to"
        " change the broker's settings",
        "true",
    ),
    "ssl.allow.san.changes": _unserved(
        "a new certificate is accepted whatever its names; remove it, and restrict the right to"
        " change the broker's settings",
        "true",
    ),
    "delegation.token.master.key": _unserved(f"tokens are not served; {_OR_NETWORK}"),
    "delegation.token.secret.key": _unserved(f"tokens are not served; {_OR_NETWORK}"),
    "password.encoder.secret": _unserved(_NO_ENCODER),
    "password.encoder.old.secret": _unserved(_NO_ENCODER),
    "sasl.enabled.mechanisms": _unserved(_NO_SASL, "GSSAPI"),
    "sasl.mechanism.controller.protocol": _unserved(_NO_SASL, "GSSAPI"),
    "sasl.mechanism.inter.broker.protocol": _unserved(_NO_SASL, "GSSAPI"),
    "sasl.kerberos.principal.to.local.rules": _unserved(_NO_SASL, "DEFAULT"),
    "sasl.oauthbearer.scope.claim.name": _unserved(_NO_SASL, "scope"),
    "sasl.oauthbearer.sub.claim.name": _unserved(_NO_SASL, "sub"),
    **dict.fromkeys(
        (
            "sasl.client.callback.handler.class",
            "sasl.jaas.config",
            "sasl.kerberos.service.name",
            "sasl.login.callback.handler.class",
            "sasl.login.class",
            "sasl.oauthbearer.assertion.algorithm",
            "sasl.oauthbearer.assertion.claim.aud",
            "sasl.oauthbearer.assertion.claim.exp.seconds",
            "sasl.oauthbearer.assertion.claim.iss",
            "sasl.oauthbearer.assertion.claim.jti.include",
            "sasl.oauthbearer.assertion.claim.nbf.seconds",
            "sasl.oauthbearer.assertion.claim.sub",
            "sasl.oauthbearer.assertion.file",
            "sasl.oauthbearer.assertion.private.key.file",
            "sasl.oauthbearer.assertion.private.key.passphrase",
            "sasl.oauthbearer.assertion.template.file",
            "sasl.oauthbearer.client.credentials.client.id",
            "sasl.oauthbearer.client.credentials.client.secret",
            "sasl.oauthbearer.expected.audience",
            "sasl.oauthbearer.expected.issuer",
            "sasl.oauthbearer.jwks.endpoint.url",
            "sasl.oauthbearer.jwt.retriever.class",
            "sasl.oauthbearer.jwt.validator.class",
            "sasl.oauthbearer.scope",
            "sasl.oauthbearer.token.endpoint.url",
            "sasl.server.callback.handler.class",
        ),
        _unserved(_NO_SASL),
    ),
    **dict.fromkeys(
        ("zookeeper.ssl.crl.enable", "zookeeper.ssl.ocsp.enable"),
        _unserved(
            "whether a ZooKeeper server's certificate was revoked is not checked; remove it, and"
            " replace the trusted certificates when one is",
            "false",
        ),
    ),
    "zookeeper.sasl.client.username": _unserved(
        "Kerberos is not spoken with ZooKeeper; remove it, and log in by DIGEST-MD5:"
        " java.security.auth.login.config",
        "zookeeper",
    ),
}

# These tune features that a key of `UNSERVED`, or a SASL listener, would enable.
HARMLESS: Final = frozenset(
    """
    delegation.token.expiry.check.interval.ms
    delegation.token.expiry.time.ms
    delegation.token.max.lifetime.ms
    password.encoder.cipher.algorithm
    password.encoder.iterations
    password.encoder.key.length
    password.encoder.keyfactory.algorithm
    sasl.kerberos.kinit.cmd
    sasl.kerberos.min.time.before.relogin
    sasl.kerberos.ticket.renew.jitter
    sasl.kerberos.ticket.renew.window.factor
    sasl.login.connect.timeout.ms
    sasl.login.read.timeout.ms
    sasl.login.refresh.buffer.seconds
    sasl.login.refresh.min.period.seconds
    sasl.login.refresh.window.factor
    sasl.login.refresh.window.jitter
    sasl.login.retry.backoff.max.ms
    sasl.login.retry.backoff.ms
    sasl.oauthbearer.clock.skew.seconds
    sasl.oauthbearer.jwks.endpoint.refresh.ms
    sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
    sasl.oauthbearer.jwks.endpoint.retry.backoff.ms
    sasl.server.max.receive.size
    ssl.protocol
    zookeeper.ssl.protocol
    """.split()  # noqa: SIM905 - as in `kafka_keys`
)

_UNSERVED_VARIABLES: Final = {environment_name(name): name for name in UNSERVED}
_HARMLESS_VARIABLES: Final = frozenset(environment_name(name) for name in HARMLESS)
_LISTENER_VARIABLE: Final = environment_name(LISTENER_PREFIX)
_PROTECTED_VARIABLES: Final = tuple(environment_name(name) for name in PROTECTED_NAMESPACES)
_TLS_DEFAULTS: Final = {key.name: key.effective_default() for key in keys_of(TlsSettings).values()}
_FROM_THE_OPERATOR: Final = (
    SettingSource.FILE,
    SettingSource.ENVIRONMENT,
    SettingSource.COMMAND_LINE,
)


def check_protection(unknown: Iterable[UnknownKey]) -> None:
    """Refuses undeclared names that promise protection.

    Raises:
        ConfigError: Naming the first one, and what to do.
    """
    for each in unknown:
        is_variable = each.source is SettingSource.ENVIRONMENT
        names = tuple(_variable_names(each.name) if is_variable else base_names(each.name.lower()))
        for name in names:
            found = _UNSERVED_VARIABLES.get(name) if is_variable else name
            unserved = UNSERVED.get(found) if found is not None else None
            if unserved is not None and each.value.reveal().strip() not in unserved.harmless:
                raise ConfigError(each.name, HIDDEN, unserved.why)
        if not any(_is_known(name, is_variable=is_variable) for name in names) and any(
            name.startswith(_PROTECTED_VARIABLES if is_variable else PROTECTED_NAMESPACES)
            for name in names
        ):
            if is_variable and len(names) > 1:
                why = (
                    "settings of one listener have no variable, and what this one demands would"
                    " not be done; give it in the configuration file"
                )
            else:
                hint = f", did you mean {each.suggestion}?" if each.suggestion else "."
                why = f"unknown key{hint} It promises protection that is not served; correct or"
                why += " remove it"
            raise ConfigError(each.name, HIDDEN, why)


def _is_known(name: str, *, is_variable: bool) -> bool:
    if is_variable:
        return name in _UNSERVED_VARIABLES or name in _HARMLESS_VARIABLES
    return name in UNSERVED or name in HARMLESS or name in KAFKA_KEYS


def _variable_names(name: str) -> Iterator[str]:
    """The names a variable may have without its listener, and that of a SASL mechanism.

    A variable has underscores in place of dots, so every ending may be the key.
    """
    yield name
    if name.startswith(_LISTENER_VARIABLE):
        parts = name.removeprefix(_LISTENER_VARIABLE).split("_")
        for start in range(1, len(parts)):
            yield ENVIRONMENT_PREFIX + "_".join(parts[start:])


def base_names(name: str) -> Iterator[str]:
    """The names a key has without its listener's prefix, and that of a SASL mechanism."""
    yield name
    if name.startswith(LISTENER_PREFIX):
        parts = name.removeprefix(LISTENER_PREFIX).split(".")
        yield ".".join(parts[1:])
        yield ".".join(parts[2:])


def check_given_tls(settings: Settings, endpoints: Iterable[Endpoint]) -> None:
    """Refuses TLS keys that the operator set and no listener would use.

    Raises:
        ConfigError: Naming the first one, and what to do.
    """
    given = [name for source in _FROM_THE_OPERATOR for name in settings.names_given_by(source)]
    check_tls_is_used(settings, endpoints, given)


def check_tls_is_used(
    settings: Settings, endpoints: Iterable[Endpoint], names: Iterable[str]
) -> None:
    """Refuses those of the named TLS keys that no listener would use.

    A default promises nothing and is accepted.

    Raises:
        ConfigError: Naming the first one, and what to do.
    """
    speaking = {each.listener.lower() for each in endpoints if each.security_protocol.uses_tls}
    for name in names:
        declared = settings.definition.find(name)
        if declared is None or declared.name not in _TLS_DEFAULTS:
            continue
        if settings.values()[name] == _TLS_DEFAULTS[declared.name]:
            continue
        listener = name.removeprefix(LISTENER_PREFIX).removesuffix(declared.name).rstrip(".")
        if name == declared.name and speaking:
            continue
        if name != declared.name and listener in speaking:
            continue
        raise ConfigError(
            name,
            HIDDEN,
            "no listener that speaks TLS would use it; make a listener speak SSL (listeners,"
            " listener.security.protocol.map), or remove it",
        )
