"""Declaration of settings, once, as fields of a frozen dataclass beside the code that reads them.

Example::

    @dataclass(frozen=True, slots=True, kw_only=True)
    class LogConfig:
        \"\"\"Segments and retention.\"\"\"

        segment_bytes: int = key(
            "log.segment.bytes", default=1 << 30, at_least=14, dynamic=True,
            doc="Size at which a segment is closed and the next one begun.",
        )
        retention_ms: int = key(
            "log.retention.ms", kind=Kind.LONG, default=None, dynamic=True,
            synonyms=(
                synonym("log.retention.minutes", kind=Kind.INT, scale=60_000),
                synonym("log.retention.hours", kind=Kind.INT, scale=3_600_000, default=168),
            ),
            doc="How long a segment is kept; -1: for ever.",
        )

The Kafka key is the external name. Parsing, checks, the environment variable, dynamic updates and
the reference page are derived from the declaration; the component receives the dataclass and
nothing else. ``LogConfig()`` has the defaults, so tests need no configuration.

**Synonyms** are weaker names of the same setting, strongest first. Each is a key of its own, with
its own kind and default, and is converted: a positive number is multiplied by `scale`, a negative
one means "unlimited" and becomes -1. A synonym may also be the name of a key declared elsewhere.

Checks across fields belong in the dataclass's ``__post_init__``, which raises `ConfigError`.
"""

import dataclasses
import types
import typing
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Final

from odradek.config.checks import AtLeast, Between, NonEmpty, OneOf, ValueCheck
from odradek.config.values import HIDDEN, Kind, Value, parse_value, python_type
from odradek.errors import ConfigError
from odradek.lazy_dataclass import dataclass

__all__ = [
    "ConfigKey",
    "Definition",
    "Synonym",
    "Update",
    "check_declared",
    "inherited_key",
    "key",
    "keys_of",
    "plain_field",
    "synonym",
]

ENVIRONMENT_PREFIX = "ODRADEK_"
LISTENER_PREFIX = "listener.name."

_METADATA = "odradek.config.key"
_DEFAULT_METADATA = "odradek.config.default-key"  # The broker's key behind a topic's.
_PLAIN = "plain"


class Update(Enum):
    """Whether a running broker accepts a new value, and for one broker or for all of them."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


@dataclass(frozen=True, slots=True)
class Required:
    """Default of a key that has none: it must be set."""

    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Final = Required()


@dataclass(frozen=True, slots=True, kw_only=True)
class Synonym:
    """A weaker name of a key."""

    name: str
    kind: Kind | None  # None: the kind of the key.
    scale: int  # Factor from this name's unit to the key's.
    default: Value
    doc: str

    @property
    def is_bare(self) -> bool:
        """Whether it gives nothing but the name, which may be a key declared elsewhere."""
        return self.kind is None and self.default is None and not self.doc

    def convert(self, value: Value) -> Value:
        """The value in the key's unit."""
        if self.scale == 1 or not isinstance(value, int):
            return value
        return value * self.scale if value >= 0 else -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigKey:
    """One declared setting."""

    name: str
    kind: Kind
    default: Value | Required
    doc: str
    checks: tuple[ValueCheck, ...] = ()
    update: Update = Update.READ_ONLY
    synonyms: tuple[Synonym, ...] = ()
    # Whether ``listener.name.<listener>.<name>`` overrides it for one listener.
    per_listener: bool = False
    # Whether the brokers of a cluster must have the same value; see `agreement`.
    agreed: bool = False

    @property
    def is_sensitive(self) -> bool:
        return self.kind is Kind.PASSWORD

    @property
    def environment_name(self) -> str:
        return environment_name(self.name)

    def effective_default(self) -> Value | Required:
        """The default, or that of the strongest synonym with a default."""
        if self.default is not None:
            return self.default
        for weaker in self.synonyms:
            if weaker.default is not None:
                return weaker.convert(weaker.default)
        return None

    def parse(self, raw: object, name: str | None = None) -> Value:
        """Reads and checks a value; `name` is the name the operator used, if not the key's.

        Raises:
            ConfigError: Naming key, value (unless secret) and reason.
        """
        try:
            value = parse_value(self.kind, raw)
        except ValueError as error:
            raise self.error(raw, str(error), name) from None
        self.check(value, raw, name)
        return value

    def check(self, value: Value, raw: object, name: str | None = None) -> None:
        """Raises `ConfigError` unless the value passes; `raw` is the value as given."""
        if value is None:
            return
        for check in self.checks:
            why = check.why_not(value)
            if why is not None:
                raise self.error(raw, why, name)

    def error(self, raw: object, why: str, name: str | None = None) -> ConfigError:
        return ConfigError(name or self.name, HIDDEN if self.is_sensitive else raw, why)


def key(
    name: str,
    *,
    default: Value | Required,
    doc: str,
    kind: Kind | None = None,
    at_least: float | None = None,
    between: tuple[float, float] | None = None,
    one_of: tuple[str, ...] | None = None,
    non_empty: bool = False,
    checks: tuple[ValueCheck, ...] = (),
    dynamic: bool | Update = False,
    synonyms: tuple[Synonym, ...] = (),
    per_listener: bool = False,
    agreed: bool = False,
) -> Any:  # A dataclass field; the field's annotation gives the type, as with `dataclasses.field`.
    """Declares a setting as a field of a dataclass.

    Args:
        default: Value when no source sets the key; `REQUIRED` if one must.
        kind: Needed where the default does not imply it: None, or a short or long number.
        dynamic: True for a cluster-wide dynamic key, or the exact `Update`.
        agreed: Whether the brokers of a cluster must have the same value.
    """
    if kind is None:
        kind = _kind_of(name, default)
    ready = list(checks)
    if at_least is not None:
        ready.append(AtLeast(at_least))
    if between is not None:
        ready.append(Between(*between))
    if one_of is not None:
        ready.append(OneOf(one_of))
    if non_empty:
        ready.append(NonEmpty())
    if isinstance(dynamic, bool):
        dynamic = Update.CLUSTER_WIDE if dynamic else Update.READ_ONLY
    declared = ConfigKey(
        name=name,
        kind=kind,
        default=default,
        doc=doc,
        checks=tuple(ready),
        update=dynamic,
        synonyms=synonyms,
        per_listener=per_listener,
        agreed=agreed,
    )
    if agreed and declared.is_sensitive:
        raise TypeError(f"{name}: a secret is not sent to other brokers; drop agreed=True")
    effective = declared.effective_default()
    if isinstance(effective, Required):
        return dataclasses.field(metadata={_METADATA: declared})
    if effective is not None:
        declared.parse(effective)  # A default that fails its own checks is found at import.
    return dataclasses.field(default=effective, metadata={_METADATA: declared})


def inherited_key(
    topic: str,
    *,
    broker: str,
    topic_synonyms: tuple[Synonym, ...] = (),
    topic_checks: tuple[ValueCheck, ...] | None = None,
    **facts: Any,
) -> Any:  # A dataclass field, as `key` returns.
    """Declares a topic's setting together with the broker's setting that is its default.

    The class that has the field declares the topic's key. A class derived from it that sets
    `declares_defaults` declares the broker's key.

    Args:
        broker: The broker's key. It is a synonym of the topic's, with its default, so that
            DescribeConfigs shows the default there.
        topic_synonyms: Other names a topic may use, stronger than the broker's.
        topic_checks: Replace the checks of the broker's key.
        facts: Arguments of `key`, for both keys; the synonyms are those of the broker's key.
    """
    field = key(broker, **facts)
    default: ConfigKey = field.metadata[_METADATA]
    inherited = default.default
    assert not isinstance(inherited, Required), "a topic can do without any setting"
    own = dataclasses.replace(
        default, name=topic, checks=default.checks if topic_checks is None else topic_checks
    )
    if topic != broker:
        brokers = synonym(broker, default=inherited)
        own = dataclasses.replace(
            own, default=None, synonyms=(*topic_synonyms, brokers, *default.synonyms)
        )
    return dataclasses.field(
        default=field.default, metadata={_METADATA: own, _DEFAULT_METADATA: default}
    )


def plain_field(default: Any) -> Any:
    """A field of a declaring dataclass that no key sets; the code sets it."""
    return dataclasses.field(default=default, metadata={_METADATA: _PLAIN})


def synonym(
    name: str, *, scale: int = 1, kind: Kind | None = None, default: Value = None, doc: str = ""
) -> Synonym:
    """Declares a weaker name of a key; see the module's docstring."""
    return Synonym(name=name, kind=kind, scale=scale, default=default, doc=doc)


# Computed once for each class: resolving type hints is slow.
_keys_by_class: dict[type, Mapping[str, ConfigKey]] = {}


def keys_of(config_class: type) -> Mapping[str, ConfigKey]:
    """The keys a dataclass declares, by field name.

    Computed and plain fields have no key. In a class that sets `declares_defaults`, neither has a
    field that only topics have.
    """
    known = _keys_by_class.get(config_class)
    if known is None:
        known = _keys_by_class[config_class] = types.MappingProxyType(_find_keys(config_class))
    return known


def _find_keys(config_class: type) -> dict[str, ConfigKey]:
    hints = typing.get_type_hints(config_class)
    declares_defaults = getattr(config_class, "declares_defaults", False)
    keys: dict[str, ConfigKey] = {}
    for field in dataclasses.fields(config_class):
        declared = field.metadata.get(_METADATA)
        if not field.init or declared == _PLAIN:
            continue
        if not isinstance(declared, ConfigKey):
            raise TypeError(f"{config_class.__name__}.{field.name} is not declared with key()")
        if declares_defaults:
            declared = field.metadata.get(_DEFAULT_METADATA)
            if declared is None:
                continue
        if not _fits(hints[field.name], declared.kind):
            raise TypeError(
                f"{config_class.__name__}.{field.name}: {hints[field.name]} cannot hold "
                f"{declared.name}, which is {declared.kind.name}"
            )
        keys[field.name] = declared
    return keys


def check_declared(config: object) -> None:
    """Applies the checks of its keys to an instance that was built by hand.

    Raises:
        ConfigError: Naming key, value and reason.
    """
    for field_name, declared in keys_of(type(config)).items():
        value = getattr(config, field_name)
        if value is not None:
            declared.parse(value)


class Definition:
    """All keys a process knows, collected from the dataclasses that declare them."""

    def __init__(self, *config_classes: type) -> None:
        self.classes = config_classes
        self.fields: dict[type, Mapping[str, ConfigKey]] = {
            config_class: keys_of(config_class) for config_class in config_classes
        }
        self._keys: dict[str, ConfigKey] = {}
        for declared in self._declared():
            if self._keys.setdefault(declared.name, declared) != declared:
                raise TypeError(f"{declared.name} is declared twice, differently")
        # A synonym with a kind, default or doc of its own declares its name. A bare one refers to
        # a key declared elsewhere or, if there is none, becomes a key like the one it belongs to.
        synonyms = [
            (declared, weaker) for declared in self._declared() for weaker in declared.synonyms
        ]
        for declared, weaker in sorted(synonyms, key=lambda pair: pair[1].is_bare):
            self._keys.setdefault(weaker.name, _key_of_synonym(declared, weaker))
        self._by_environment = {name.environment_name: name for name in self._keys.values()}
        if len(self._by_environment) != len(self._keys):
            raise TypeError("two keys have the same environment variable")

    @property
    def keys(self) -> Mapping[str, ConfigKey]:
        """Every key by name, synonyms too."""
        return types.MappingProxyType(self._keys)

    @property
    def by_environment(self) -> Mapping[str, ConfigKey]:
        """Every key by its environment variable."""
        return types.MappingProxyType(self._by_environment)

    def find(self, name: str) -> ConfigKey | None:
        """The key of that name, which may carry a listener's prefix."""
        found = self._keys.get(name)
        if found is None and name.startswith(LISTENER_PREFIX):
            _, _, base = name.removeprefix(LISTENER_PREFIX).partition(".")
            found = self._keys.get(base)
            if found is not None and not found.per_listener:
                return None
        return found

    def _declared(self) -> Iterable[ConfigKey]:
        for keys in self.fields.values():
            yield from keys.values()


def environment_name(name: str) -> str:
    """``log.segment.bytes`` is ``ODRADEK_LOG_SEGMENT_BYTES``: upper case, dots and dashes to _."""
    return ENVIRONMENT_PREFIX + name.upper().replace(".", "_").replace("-", "_")


def _kind_of(name: str, default: Value | Required) -> Kind:
    match default:
        case bool():
            return Kind.BOOLEAN
        case int():
            return Kind.INT
        case float():
            return Kind.DOUBLE
        case str():
            return Kind.STRING
        case tuple():
            return Kind.LIST
        case _:
            raise TypeError(f"{name}: the default {default!r} implies no kind; pass kind=")


def _key_of_synonym(declared: ConfigKey, weaker: Synonym) -> ConfigKey:
    return ConfigKey(
        name=weaker.name,
        kind=weaker.kind or declared.kind,
        default=weaker.default,
        doc=weaker.doc or f"Used if {declared.name} is not set.",
    )


def _fits(hint: object, kind: Kind) -> bool:
    """Whether a field with this annotation can hold values of the kind, with or without None."""
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    wanted = python_type(kind)
    return all(
        option is types.NoneType or (typing.get_origin(option) or option) is wanted
        for option in options
    )
