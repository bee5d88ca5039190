"""`odradek serve --check`: the fate of each key, without starting anything."""

import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping

from odradek.broker.settings.fates import Fate, KeyFate, judge_settings
from odradek.cli.output import print_json, print_table

__all__ = ["print_check"]


def print_check(
    config_file: str | None,
    overrides: Mapping[str, object],
    environment: Mapping[str, str],
    *,
    as_json: bool,
) -> int:
    """Prints a row for each key; returns 1 if one refuses the start.

    Raises:
        ConfigError: The file cannot be read.
    """
    fates = judge_settings(config_file, overrides, environment)
    refused = [each.name for each in fates if each.fate is Fate.REFUSED]
    if as_json:
        keys = [
            {
                "key": each.name,
                "source": each.source.name.lower().replace("_", " "),
                "value": each.value,
                "fate": each.fate.value,
                "why": each.why,
            }
            for each in fates
        ]
        print_json({"starts": not refused, "keys": keys})
        return int(bool(refused))
    if sys.stdout.isatty():
        _print_for_people(fates)
    else:
        print_table(
            ("KEY", "FATE", "WHY"), [(each.name, each.fate.value, each.why) for each in fates]
        )
    used = sum(each.fate is Fate.USED for each in fates)
    ignored = len(fates) - used - len(refused)
    verdict = f"refuses to start: {', '.join(refused)}" if refused else "starts"
    print(f"{used} used, {ignored} ignored, {len(refused)} refused: a broker with them {verdict}")
    return int(bool(refused))


def _print_for_people(fates: Iterable[KeyFate]) -> None:
    """A line for each key, and its reason below: reasons are sentences, and must not be cut."""
    width = max(40, shutil.get_terminal_size().columns)
    for each in fates:
        print(f"{each.fate.value:8} {each.name}")
        indent = " " * 9
        for line in textwrap.wrap(each.why, width, initial_indent=indent, subsequent_indent=indent):
            print(line)
