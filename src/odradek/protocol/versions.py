"""Ranges of versions, written as Kafka's definitions write them: `3+`, `0-14`, `7`, `none`."""

from typing import Self

from odradek.lazy_dataclass import dataclass

__all__ = ["ALL_VERSIONS", "NO_VERSIONS", "VersionRange"]

# Open ranges end here: a version is an int16 on the wire.
_MAX_VERSION = 32767


@dataclass(frozen=True, slots=True)
class VersionRange:
    """Versions `first` to `last`, both included; empty when `first` is above `last`."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads `3+` (3 and later), `0-14`, `7` (only 7) or `none`.

        Raises:
            ValueError: The text has none of these forms.
        """
        if text == "none":
            return cls(0, -1)
        if text.endswith("+"):
            return cls(int(text[:-1]), _MAX_VERSION)
        first, _, last = text.partition("-")
        return cls(int(first), int(last or first))

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last

    def __bool__(self) -> bool:
        return self.first <= self.last

    def __str__(self) -> str:
        if not self:
            return "none"
        if self.last == _MAX_VERSION:
            return f"{self.first}+"
        return f"{self.first}-{self.last}" if self.first < self.last else str(self.first)


ALL_VERSIONS = VersionRange(0, _MAX_VERSION)
NO_VERSIONS = VersionRange(0, -1)
