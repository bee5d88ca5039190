"""Settings that all brokers of a cluster must share, and their comparison between two brokers.

Most settings concern one broker: its disks, its memory, its threads. Those declared with
`agreed=True` decide what the cluster guarantees to a client, or which broker stores a group or a
transaction. If two brokers differ in one of them, the guarantee changes when a leader moves.

`agreed_values` returns the values of one broker, as text by key; `differences` compares them with
those of another broker.
"""

from collections.abc import Mapping
from typing import NamedTuple

from odradek.config.settings import Settings
from odradek.config.values import format_value

__all__ = ["SettingDifference", "agreed_values", "differences"]


class SettingDifference(NamedTuple):
    """A key for which two brokers have different values; None: unset, or unknown to that broker."""

    key: str
    ours: str | None
    theirs: str | None

    def __str__(self) -> str:
        return f"{self.key}: {_shown(self.ours)} here, {_shown(self.theirs)} there"


def agreed_values(settings: Settings) -> dict[str, str | None]:
    """The effective value of every agreed key, as text, by the key's own name."""
    keys = settings.definition.keys
    return {
        name: format_value(settings.get(name).value) for name in sorted(keys) if keys[name].agreed
    }


def differences(
    ours: Mapping[str, str | None], theirs: Mapping[str, str | None]
) -> tuple[SettingDifference, ...]:
    """The agreed keys in which two brokers differ, by name.

    A key that only one of the two brokers declares, because their versions differ, is included.
    """
    missing = object()
    return tuple(
        SettingDifference(name, ours.get(name), theirs.get(name))
        for name in sorted(ours.keys() | theirs.keys())
        if ours.get(name, missing) != theirs.get(name, missing)
    )


def _shown(value: str | None) -> str:
    return "not set" if value is None else repr(value)
