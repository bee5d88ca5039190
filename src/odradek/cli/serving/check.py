"""`odradek serve --check`: the fate of each key, without starting anything."""

from collections.abc import Mapping

from odradek.broker.settings.fates import Fate, judge_settings
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
    rows = [(each.name, each.fate.value, each.why) for each in fates]
    if rows:
        print_table(("KEY", "FATE", "WHY"), rows)
    used = sum(each.fate is Fate.USED for each in fates)
    ignored = len(fates) - used - len(refused)
    verdict = f"refuses to start: {', '.join(refused)}" if refused else "starts"
    print(f"{used} used, {ignored} ignored, {len(refused)} refused: a broker with them {verdict}")
    return int(bool(refused))
