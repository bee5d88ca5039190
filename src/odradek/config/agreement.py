"""Settings that the brokers of a cluster must share: told by one broker, compared by another.

Most settings are a broker's own: its disks, its memory, its threads. Those declared with
`agreed=True` decide what a client is promised, or where a group or a transaction is kept, whichever
broker answers. If two brokers differ in one of them, the promise changes with a leader that moves.

A broker tells `agreed_values`, texts by key; the broker that is asked to let it join compares them
with its own by `differences`.
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
    """The values that count for every agreed key, as texts; under the key, not under a synonym."""
    keys = settings.definition.keys
    return {
        name: format_value(settings.get(name).value) for name in sorted(keys) if keys[name].agreed
    }


def differences(
    ours: Mapping[str, str | None], theirs: Mapping[str, str | None]
) -> tuple[SettingDifference, ...]:
    """The agreed keys in which two brokers differ, by name.

    A key that only one of them knows, because their versions differ, is such a difference.
    """
    missing = object()
    return tuple(
        SettingDifference(name, ours.get(name), theirs.get(name))
        for name in sorted(ours.keys() | theirs.keys())
        if ours.get(name, missing) != theirs.get(name, missing)
    )


def _shown(value: str | None) -> str:
    return "not set" if value is None else repr(value)
