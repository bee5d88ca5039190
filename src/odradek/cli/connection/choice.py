"""Chooses where a command connects and with which settings, and remembers what said so.

From weak to strong, key by key:

1. the default, `localhost:9092`
2. a profile: the current one, or the one that `ODRADEK_PROFILE` names
3. `ODRADEK_BOOTSTRAP_SERVERS`
4. the profile that `--profile` names
5. the file of `--command-config`
6. `-X KEY=VALUE`
7. options such as `--bootstrap-server` and `--tls-ca`

A profile describes one cluster. If the addresses come from elsewhere, a profile that `--profile`
did not name is left out as a whole: its certificates are not for other clusters.
"""

import argparse
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from odradek.cli.connection.profiles import PROFILE_VARIABLE, Profiles
from odradek.cli.output import CommandError

if TYPE_CHECKING:
    from odradek.config.declaration import ConfigKey

__all__ = [
    "BOOTSTRAP_VARIABLE",
    "Choice",
    "Given",
    "check_known",
    "choose",
    "given_by_options",
    "known_keys",
    "with_ports",
]

BOOTSTRAP_VARIABLE: Final = "ODRADEK_BOOTSTRAP_SERVERS"
_BOOTSTRAP: Final = "bootstrap.servers"
_DEFAULT: Final = "localhost"
_BY_DEFAULT: Final = "the default"
_PORT: Final = 9092

# Settings that say the same in several ways: one that is set hides the others of weaker sources.
_ALTERNATIVES: Final = (
    frozenset({"ssl.keystore.location", "ssl.keystore.key", "ssl.keystore.certificate.chain"}),
    frozenset({"ssl.truststore.location", "ssl.truststore.certificates"}),
)
# Kafka's settings that clients of Odradek do not have.
_PEM_ONLY: Final = (
    "only PEM stores are read, and they have no password; "
    "`openssl pkcs12 -in IN -out store.pem -nodes` converts PKCS12"
)
_ABSENT: Final = {
    "ssl.keystore.password": _PEM_ONLY,
    "ssl.truststore.password": _PEM_ONLY,
}
_REFERENCES: Final = ("env:", "file:")


class Given(NamedTuple):
    """A value, and what gave it, as the user knows it."""

    value: str
    origin: str

    def named(self, key: str) -> str:
        """The setting by the name under which it was given."""
        return self.origin if self.origin.startswith("-") else f"{key} (from {self.origin})"


class Choice(NamedTuple):
    """The settings of a connection."""

    settings: dict[str, Given]
    # The keys that `-X` gave: a command does not overrule them in silence.
    typed: frozenset[str]

    def where(self) -> str:
        """The addresses and their origin, for errors."""
        value, origin = self.settings[_BOOTSTRAP]
        return f"{value} ({origin})" if origin == _BY_DEFAULT else f"{value} (from {origin})"

    def complaint(self, key: str, value: object, why: str) -> str:
        """The text of an error about a setting, under the name by which it was given."""
        from odradek.config import HIDDEN

        given = self.settings.get(key)
        name = key if given is None else given.named(key)
        # The origin of a file has its path already.
        if value in (None, HIDDEN) or name.startswith("--tls-"):
            return f"{name}: {why}"
        return f"{name} {value}: {why}"


def choose(arguments: argparse.Namespace, environment: Mapping[str, str]) -> Choice:
    """The settings for the options of a command.

    Raises:
        CommandError: A file cannot be read, or a setting is unknown or cannot be followed.
    """
    typed, options = given_by_options(arguments)
    address = environment.get(BOOTSTRAP_VARIABLE, "")
    layers: list[Mapping[str, Given]] = [{_BOOTSTRAP: Given(_DEFAULT, _BY_DEFAULT)}]
    if arguments.profile is None and not address and _BOOTSTRAP not in options:
        layers.append(_profile(environment.get(PROFILE_VARIABLE), PROFILE_VARIABLE, environment))
    if address:
        layers.append({_BOOTSTRAP: Given(address, BOOTSTRAP_VARIABLE)})
    if arguments.profile is not None:
        layers.append(_profile(arguments.profile, "--profile", environment))
    layers.append(options)
    settings = _merged(layers)
    known = known_keys()
    for key, one in settings.items():
        check_known(key, one, known)
    chosen = {key: _followed(key, one, known[key], environment) for key, one in settings.items()}
    chosen[_BOOTSTRAP] = Given(with_ports(chosen[_BOOTSTRAP].value), chosen[_BOOTSTRAP].origin)
    return Choice(chosen, typed)


def _merged(layers: Iterable[Mapping[str, Given]]) -> dict[str, Given]:
    """The settings of all layers, the strongest last."""
    settings: dict[str, Given] = {}
    for layer in layers:
        for group in _ALTERNATIVES:
            if not group.isdisjoint(layer):
                settings = {key: one for key, one in settings.items() if key not in group}
        settings.update(layer)
    return settings


def given_by_options(
    arguments: argparse.Namespace,
) -> tuple[frozenset[str], dict[str, Given]]:
    """The keys that `-X` gave, and all settings that options gave.

    Raises:
        CommandError: An option has another form, or its file cannot be read.
    """
    file = {} if arguments.command_config is None else _file(arguments.command_config)
    typed: dict[str, Given] = {}
    for pair in arguments.client_settings:
        key, equals, value = pair.partition("=")
        if not (key and equals):
            raise CommandError(f"-X {pair}: expected KEY=VALUE")
        typed[key] = Given(value, f"-X {key}")
    return frozenset(typed), _merged((file, typed, dict(_named(arguments))))


def _named(arguments: argparse.Namespace) -> Iterator[tuple[str, Given]]:
    """What options with a name of their own set."""
    if arguments.bootstrap_server is not None:
        yield _BOOTSTRAP, Given(arguments.bootstrap_server, "--bootstrap-server")
    if arguments.tls_key is not None and arguments.tls_cert is None:
        raise CommandError("--tls-key needs --tls-cert, the certificate of that key")
    if arguments.tls or arguments.tls_ca or arguments.tls_cert:
        yield "security.protocol", Given("SSL", "--tls")
    if arguments.tls_ca is not None:
        yield (
            "ssl.truststore.location",
            Given(_path(arguments.tls_ca), f"--tls-ca {arguments.tls_ca}"),
        )
    if arguments.tls_key is not None:
        for key, option, path in (
            ("ssl.keystore.certificate.chain", "--tls-cert", arguments.tls_cert),
            ("ssl.keystore.key", "--tls-key", arguments.tls_key),
        ):
            yield key, Given(f"file:{_path(path)}", f"{option} {path}")
    elif arguments.tls_cert is not None:
        yield (
            "ssl.keystore.location",
            Given(_path(arguments.tls_cert), f"--tls-cert {arguments.tls_cert}"),
        )


def _path(path: str) -> str:
    return os.path.abspath(path)


def _file(path: str) -> dict[str, Given]:
    from odradek.config import parse_properties
    from odradek.errors import ConfigError

    try:
        with open(path, encoding="utf-8") as file:
            properties = parse_properties(file.read())
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise CommandError(f"--command-config {path}: {why}") from None
    except ConfigError as error:
        raise CommandError(f"--command-config {path}: {error}") from None
    return {key: Given(value, path) for key, value in properties.items()}


def _profile(name: str | None, named_by: str, environment: Mapping[str, str]) -> dict[str, Given]:
    profiles = Profiles.load(environment)
    if not name:
        name, named_by = profiles.current, f"the current profile in {profiles.path}"
        if name is None:
            return {}
    settings = profiles.settings(name, named_by=named_by)
    return {key: Given(value, f"profile {name!r}") for key, value in settings.items()}


def known_keys() -> "dict[str, ConfigKey]":
    """The settings of all clients, by name."""
    from odradek.client.config import ClientConfig
    from odradek.client.consumer.config import ConsumerConfig
    from odradek.client.producer.config import ProducerConfig
    from odradek.config.declaration import keys_of

    return {
        declared.name: declared
        for config_class in (ClientConfig, ConsumerConfig, ProducerConfig)
        for declared in keys_of(config_class).values()
    }


def check_known(key: str, given: Given, known: "Mapping[str, ConfigKey]") -> None:
    """Refuses a setting that no client has.

    Raises:
        CommandError: It is unknown; the message has the nearest known one.
    """
    from difflib import get_close_matches

    if key in known:
        return
    if key in _ABSENT:
        raise CommandError(f"{given.named(key)}: {_ABSENT[key]}")
    if key.startswith("sasl."):
        raise CommandError(
            f"{given.named(key)}: there is no SASL; a certificate shows the client (--tls-cert)"
        )
    near = get_close_matches(key, known, n=1)
    hint = f", did you mean {near[0]}?" if near else "; docs/clients lists the settings of clients"
    # The value may be a secret under a misspelt name.
    raise CommandError(f"{given.named(key)}: unknown setting{hint}")


def _followed(
    key: str, given: Given, declared: "ConfigKey", environment: Mapping[str, str]
) -> Given:
    """The value itself, if a secret is given by reference.

    Raises:
        CommandError: The reference leads nowhere.
    """
    if not (declared.is_sensitive and given.value.startswith(_REFERENCES)):
        return given
    kind, _, name = given.value.partition(":")
    if kind == "env":
        if name not in environment:
            raise CommandError(f"{given.named(key)}: the variable {name} is not set")
        return Given(environment[name], given.origin)
    try:
        with open(os.path.expanduser(name), encoding="utf-8") as file:
            return Given(file.read().rstrip("\r\n"), given.origin)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not text, expected PEM"
        raise CommandError(f"{given.named(key)}: cannot read {name}: {why}") from None


def with_ports(addresses: str) -> str:
    """The addresses, with Kafka's port where one has none."""
    return ",".join(
        one
        if ":" in one.rpartition("]")[2] or (":" in one and "[" not in one)
        else f"{one}:{_PORT}"
        for one in (entry.strip() for entry in addresses.split(","))
        if one
    )
