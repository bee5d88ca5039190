"""Profiles: clusters by name, in one file of the user.

The file is `odradek/profiles.json` in `$XDG_CONFIG_HOME`, or else in `~/.config`. It holds settings
under Kafka's names and the name of the current profile::

    {"current": "staging", "profiles": {"staging": {"bootstrap.servers": "broker-1:9092"}}}

It holds no secret: a secret setting is a reference, `env:NAME` or `file:PATH`, that is followed
when a command connects.
"""

import os
from collections.abc import Mapping
from typing import Self

from odradek.cli.output import CommandError

__all__ = ["PROFILE_VARIABLE", "Profiles", "profiles_path"]

# Names the profile to use, instead of the current one.
PROFILE_VARIABLE = "ODRADEK_PROFILE"


def profiles_path(environment: Mapping[str, str]) -> str:
    """The file of the user that runs the command."""
    base = environment.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(base):  # The specification ignores a relative path.
        base = os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(base, "odradek", "profiles.json")


class Profiles:
    """The content of the file."""

    __slots__ = ("by_name", "current", "path")

    def __init__(
        self,
        path: str,
        by_name: dict[str, dict[str, str]] | None = None,
        current: str | None = None,
    ) -> None:
        self.path = path
        self.by_name = by_name or {}
        self.current = current

    @classmethod
    def load(cls, environment: Mapping[str, str]) -> Self:
        """Reads the file; there are no profiles if there is none.

        Raises:
            CommandError: It cannot be read, or has another form.
        """
        path = profiles_path(environment)
        try:
            with open(path, encoding="utf-8") as file:
                text = file.read()
        except FileNotFoundError:
            return cls(path)
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(f"cannot read the profiles in {path}: {error}") from None
        return cls._parse(path, text)

    @classmethod
    def _parse(cls, path: str, text: str) -> Self:
        import json

        how = "correct it, or delete it and add the profiles again with `odradek profile add`"
        try:
            content = json.loads(text)
        except ValueError as error:
            raise CommandError(f"{path} is not JSON: {error}; {how}") from None
        if isinstance(content, dict):
            current, by_name = content.get("current"), content.get("profiles", {})
            if isinstance(current, str | None) and _are_profiles(by_name):
                return cls(path, by_name, current)
        raise CommandError(
            f'{path}: expected {{"current": NAME, "profiles": {{NAME: {{KEY: VALUE}}}}}}; {how}'
        )

    def settings(self, name: str, *, named_by: str) -> dict[str, str]:
        """The settings of a profile.

        Raises:
            CommandError: There is no such profile; the message has what named it.
        """
        if name not in self.by_name:
            raise CommandError(f"{named_by}: there is no profile {name!r}; {self.known()}")
        return self.by_name[name]

    def known(self) -> str:
        """The names for an error."""
        if not self.by_name:
            return "`odradek profile add` makes one"
        return f"there are {', '.join(sorted(self.by_name))}"

    def save(self) -> None:
        """Writes the file, readable by the user alone.

        Raises:
            CommandError: It cannot be written.
        """
        import json

        from odradek.files import Disk, write_atomically

        content = {"current": self.current, "profiles": self.by_name}
        data = json.dumps(content, indent=2, ensure_ascii=False, sort_keys=True) + "\n"
        try:
            os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
            write_atomically(Disk(), self.path, data.encode(), is_secret=True)
        except OSError as error:
            raise CommandError(f"cannot write the profiles to {self.path}: {error}") from None


def _are_profiles(value: object) -> bool:
    return isinstance(value, dict) and all(
        isinstance(one, dict) and all(isinstance(text, str) for text in one.values())
        for one in value.values()
    )
