"""Settings in the form of DescribeConfigs."""

from collections.abc import Container, Iterable
from typing import Final, NamedTuple

from odradek.config import ConfigKey, Level, Setting, SettingSource, Update, Value, format_value
from odradek.lazy_dataclass import dataclass
from odradek.protocol.enums import ConfigSource, ConfigType

__all__ = [
    "CONFIG_SOURCES",
    "ConfigRow",
    "ConfigSynonym",
    "lowered_row",
    "row_of",
    "row_of_level",
]

# The sources as clients know them: all that were given at the start are one.
CONFIG_SOURCES: Final = {
    SettingSource.DEFAULT: ConfigSource.DEFAULT,
    SettingSource.FILE: ConfigSource.STATIC_BROKER,
    SettingSource.ENVIRONMENT: ConfigSource.STATIC_BROKER,
    SettingSource.COMMAND_LINE: ConfigSource.STATIC_BROKER,
    SettingSource.DYNAMIC_DEFAULT: ConfigSource.DYNAMIC_DEFAULT_BROKER,
    SettingSource.DYNAMIC_BROKER: ConfigSource.DYNAMIC_BROKER,
    SettingSource.DYNAMIC_TOPIC: ConfigSource.DYNAMIC_TOPIC,
    SettingSource.DYNAMIC_CLIENT_METRICS: ConfigSource.CLIENT_METRICS,
    SettingSource.DYNAMIC_GROUP: ConfigSource.GROUP,
}


class ConfigSynonym(NamedTuple):
    """A value that was given for the key, under its own or another name."""

    name: str
    value: str | None  # None: secret.
    source: ConfigSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRow:
    """One key with its value."""

    name: str
    value: str | None  # None: secret, or not set.
    source: ConfigSource
    is_default: bool
    is_read_only: bool
    is_sensitive: bool
    type: ConfigType
    documentation: str
    # Strongest first; the first one counts.
    synonyms: tuple[ConfigSynonym, ...]


def row_of(setting: Setting, *, with_defaults: Container[str] | None = None) -> ConfigRow:
    """The row of a setting with all values that were given for it.

    Args:
        with_defaults: Names whose default is included, too; by default the key's own alone. As in
            Kafka, the default of a weaker name in another unit is left out.
    """
    named = (setting.key.name,) if with_defaults is None else with_defaults
    told = (
        level
        for level in setting.levels
        if level.source is not SettingSource.DEFAULT or level.name in named
    )
    return _row(setting.key, format_value(setting.value), setting.source, told)


def lowered_row(setting: Setting, value: Value) -> ConfigRow:
    """The row of a setting whose default the broker has lowered to fit the cluster."""
    level = Level(name=setting.key.name, source=SettingSource.DEFAULT, value=value)
    return row_of_level(setting.key, level)


def row_of_level(key: ConfigKey, level: Level) -> ConfigRow:
    """The row of one source's value, whether it is in effect or not."""
    return _row(key, format_value(level.value), level.source, (level,))


def _row(
    key: ConfigKey, text: str | None, source: SettingSource, levels: Iterable[Level]
) -> ConfigRow:
    is_sensitive = key.is_sensitive
    return ConfigRow(
        name=key.name,
        value=None if is_sensitive else text,
        source=CONFIG_SOURCES[source],
        is_default=source is SettingSource.DEFAULT,
        is_read_only=key.update is Update.READ_ONLY,
        is_sensitive=is_sensitive,
        type=ConfigType[key.kind.name],
        documentation=key.doc,
        synonyms=tuple(
            ConfigSynonym(
                level.name,
                None if is_sensitive else format_value(level.value),
                CONFIG_SOURCES[level.source],
            )
            for level in levels
        ),
    )
