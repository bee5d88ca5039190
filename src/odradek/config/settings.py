"""Settings: the values each source gives, and the effective value of each key.

Sources from weak to strong: default < file < environment < command line < dynamic default of the
cluster < dynamic value of this broker < dynamic value of a topic or another resource.

Rules:

1. The strongest source that sets a key **or one of its synonyms** gives the value. Within one
   source the key beats its synonyms, in their order. So ``--set log.retention.hours=1`` wins over
   a file's ``log.retention.ms``, while within one file ``log.retention.ms`` wins, as in Kafka.
2. ``listener.name.<listener>.<key>`` beats the plain key from any source, for that listener.
3. Every value of every source is checked when it is loaded, also one that a stronger source
   overrides: it takes effect once the stronger one is deleted, too late to refuse it.
4. Names that no class declares are ignored and reported in `Settings.unknown`, with the nearest
   known name.

`Settings` are immutable: a dynamic update makes new ones, and `changed_keys` lists the keys that
differ.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, TypeVar

from odradek.config.declaration import (
    ENVIRONMENT_PREFIX,
    LISTENER_PREFIX,
    ConfigKey,
    Definition,
    Required,
    Update,
)
from odradek.config.values import HIDDEN, Password, Value
from odradek.errors import ConfigError
from odradek.lazy_dataclass import dataclass

__all__ = ["Level", "Setting", "SettingSource", "Settings", "UnknownKey", "environment_layer"]

_Config = TypeVar("_Config")

# Similarity of two names, from 0 to 1, from which one is suggested instead of the other.
_SUGGESTION_CUTOFF = 0.75


class SettingSource(Enum):
    """Where a value comes from: its strength, and the kind of resource that has it."""

    DEFAULT = (0, "broker")
    FILE = (1, "broker")
    ENVIRONMENT = (2, "broker")
    COMMAND_LINE = (3, "broker")
    DYNAMIC_DEFAULT = (4, "broker")
    DYNAMIC_BROKER = (5, "broker")
    DYNAMIC_TOPIC = (6, "topic")
    DYNAMIC_CLIENT_METRICS = (6, "client metrics")
    DYNAMIC_GROUP = (6, "group")

    @property
    def strength(self) -> int:
        return self.value[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownKey:
    """A name that a source sets and no class declares."""

    name: str
    source: SettingSource
    suggestion: str | None
    # The given value, which may be a secret.
    value: Password

    def __str__(self) -> str:
        hint = f", did you mean {self.suggestion}?" if self.suggestion else ""
        return f"{self.name}: unknown key{hint}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A value that one source gives under one name, in that name's own unit."""

    name: str
    source: SettingSource
    value: Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The effective value of a key, and all values given for it."""

    key: ConfigKey
    value: Value
    source: SettingSource
    # Strongest first; the first is the effective one. Empty if there is not even a default.
    levels: tuple[Level, ...]


class Settings:
    """Values of every source for the keys of a definition.

    Args:
        definition: All declared keys.
        layers: For each source the values it gives, as text or of the key's type; None is unset.

    Raises:
        ConfigError: For the first value that cannot be used.
    """

    def __init__(
        self,
        definition: Definition,
        layers: Mapping[SettingSource, Mapping[str, object]] | None = None,
    ) -> None:
        self.definition = definition
        self.unknown: tuple[UnknownKey, ...] = ()
        self._layers: dict[SettingSource, dict[str, Value]] = {}
        for source, raw in (layers or {}).items():
            self._load(source, raw)

    @classmethod
    def from_sources(
        cls,
        definition: Definition,
        *,
        file: Mapping[str, object] | None = None,
        environment: Mapping[str, str] | None = None,
        command_line: Mapping[str, object] | None = None,
        reserved_variables: Iterable[str] = (),
    ) -> "Settings":
        """The settings a process starts with.

        Args:
            environment: All variables; those that begin with ``ODRADEK_`` are read, by the rule
                ``log.segment.bytes`` is ``ODRADEK_LOG_SEGMENT_BYTES``. Overrides of one listener
                have no variable.
            reserved_variables: Variables with that prefix that are no settings.
        """
        return cls(
            definition,
            {
                SettingSource.FILE: file or {},
                SettingSource.ENVIRONMENT: environment_layer(
                    definition, environment or {}, reserved_variables
                ),
                SettingSource.COMMAND_LINE: command_line or {},
            },
        )

    def with_layer(self, source: SettingSource, raw: Mapping[str, object]) -> "Settings":
        """These settings with all values of one source replaced."""
        changed = Settings(self.definition)
        changed._layers = {name: layer for name, layer in self._layers.items() if name != source}
        changed.unknown = tuple(known for known in self.unknown if known.source is not source)
        changed._load(source, raw)
        return changed

    def with_dynamic(
        self, source: SettingSource, raw: Mapping[str, object], *, config_class: type | None = None
    ) -> "Settings":
        """Like `with_layer`, for a source an administrator changes on a running broker.

        Args:
            config_class: The class whose keys may be set, as for a topic: the broker's keys, which
                are synonyms there, may not. None: every key.

        Raises:
            ConfigError: Also for a key that is unknown, read-only, or not settable for all brokers.
        """
        for name in raw:
            declared = self._settable(name, config_class)
            if declared is None:
                nearest = self._nearest(name)
                why = f"unknown key, did you mean {nearest}?" if nearest else "unknown key"
                # The value may be a secret under a misspelt name.
                raise ConfigError(name, HIDDEN, why)
            refusal = _why_not_dynamic(source, declared, name)
            if refusal is not None:
                raise declared.error(raw[name], refusal, name)
        return self.with_layer(source, raw)

    def get(self, name: str, *, listener: str | None = None) -> Setting:
        """The setting of a key.

        Raises:
            KeyError: No class declares it: a bug, not a configuration error.
        """
        declared = self.definition.keys[name]
        levels = self._levels(declared, listener)
        if not levels:
            return Setting(key=declared, value=None, source=SettingSource.DEFAULT, levels=())
        return Setting(
            key=declared,
            value=_converted(declared, levels[0]),
            source=levels[0].source,
            levels=levels,
        )

    def build(self, config_class: type[_Config], *, listener: str | None = None) -> _Config:
        """The dataclass a component reads, with the effective values.

        Raises:
            ConfigError: For a required key that is missing, or a combination the class refuses.
        """
        values: dict[str, Any] = {}
        for field_name, declared in self.definition.fields[config_class].items():
            setting = self.get(declared.name, listener=listener)
            if not setting.levels and isinstance(declared.default, Required):
                raise ConfigError(declared.name, None, "required, but not set")
            values[field_name] = setting.value
        return config_class(**values)

    def check(self) -> None:
        """Builds every class of the definition, so that its errors are raised now."""
        for config_class in self.definition.classes:
            self.build(config_class)

    def values(self) -> dict[str, Value]:
        """The effective value of every key, and of every listener override that is set."""
        overrides = {
            name: value
            for source in sorted(self._layers, key=lambda source: source.strength)
            for name, value in self._layers[source].items()
        }
        return overrides | {name: self.get(name).value for name in self.definition.keys}

    def names_given_by(self, source: SettingSource) -> tuple[str, ...]:
        """The names one source sets, listener overrides and synonyms included."""
        return tuple(self._layers.get(source, ()))

    def changed_keys(self, before: "Settings") -> tuple[str, ...]:
        """Names whose value differs from `before`, sorted; listener overrides by full name."""
        now, then = self.values(), before.values()
        return tuple(sorted(name for name in now | then if now.get(name) != then.get(name)))

    def _load(self, source: SettingSource, raw: Mapping[str, object]) -> None:
        layer = self._layers[source] = {}
        unknown: list[UnknownKey] = []
        for name, text in raw.items():
            if text is None:
                continue
            declared = self.definition.find(name)
            if declared is None:
                nearest, value = self._nearest(name), Password(str(text))
                unknown.append(
                    UnknownKey(name=name, source=source, suggestion=nearest, value=value)
                )
                continue
            layer[name] = declared.parse(text, name)
        for declared in self.definition.keys.values():
            for weaker in declared.synonyms:
                if weaker.name in layer:
                    given = layer[weaker.name]
                    declared.check(weaker.convert(given), given, weaker.name)
        self.unknown += tuple(unknown)

    def _levels(self, declared: ConfigKey, listener: str | None) -> tuple[Level, ...]:
        levels: list[Level] = []
        sources = sorted(self._layers, key=lambda source: source.strength, reverse=True)
        if listener is not None and declared.per_listener:
            override = f"{LISTENER_PREFIX}{listener.lower()}.{declared.name}"
            levels += self._given(sources, [override])
        names = [declared.name, *(weaker.name for weaker in declared.synonyms)]
        levels += self._given(sources, names)
        for name in names:
            default = self.definition.keys[name].default
            if default is not None and not isinstance(default, Required):
                levels.append(Level(name=name, source=SettingSource.DEFAULT, value=default))
        return tuple(levels)

    def _given(self, sources: Iterable[SettingSource], names: Iterable[str]) -> list[Level]:
        return [
            Level(name=name, source=source, value=self._layers[source][name])
            for source in sources
            for name in names
            if name in self._layers[source]
        ]

    def _settable(self, name: str, config_class: type | None) -> ConfigKey | None:
        declared = self.definition.find(name)
        if config_class is None or declared is None:
            return declared
        return declared if declared in self.definition.fields[config_class].values() else None

    def _nearest(self, name: str) -> str | None:
        # Imported here because only wrong configurations need it, and the import is slow.
        from difflib import get_close_matches

        known = self.definition.keys
        if name.startswith(ENVIRONMENT_PREFIX):
            known = self.definition.by_environment
        found = get_close_matches(name, known, n=1, cutoff=_SUGGESTION_CUTOFF)
        return found[0] if found else None


def environment_layer(
    definition: Definition, environment: Mapping[str, str], reserved: Iterable[str]
) -> dict[str, str]:
    """The values that variables give, by key; of an unknown one by the name of the variable."""
    left_out = frozenset(reserved)
    layer: dict[str, str] = {}
    for variable, text in environment.items():
        if variable.startswith(ENVIRONMENT_PREFIX) and variable not in left_out:
            known = definition.by_environment.get(variable)
            layer[known.name if known else variable] = text
    return layer


def _why_not_dynamic(source: SettingSource, declared: ConfigKey, name: str) -> str | None:
    if source not in (SettingSource.DYNAMIC_DEFAULT, SettingSource.DYNAMIC_BROKER):
        return None
    if declared.update is Update.READ_ONLY:
        return "cannot be changed while the broker runs"
    is_per_broker = declared.update is Update.PER_BROKER or name != declared.name
    if source is SettingSource.DYNAMIC_DEFAULT and is_per_broker:
        return "can be set for one broker only, not for the cluster"
    return None


def _converted(declared: ConfigKey, level: Level) -> Value:
    for weaker in declared.synonyms:
        if weaker.name == level.name:
            return weaker.convert(level.value)
    return level.value
