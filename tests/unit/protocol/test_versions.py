"""Ranges of versions."""

import pytest

from odradek.protocol.versions import VersionRange


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("3+", [3, 4, 32767], [-1, 0, 2]),
        ("0-14", [0, 14], [-1, 15]),
        ("7", [7], [6, 8]),
        ("none", [], [-1, 0, 1]),
    ],
)
def test_range(text: str, inside: list[int], outside: list[int]) -> None:
    versions = VersionRange.parse(text)
    assert all(version in versions for version in inside)
    assert not any(version in versions for version in outside)
    assert bool(versions) == bool(inside)
    assert str(versions) == text


@pytest.mark.parametrize("text", ["", "+", "a-b", "-3", "1-2-3"])
def test_other_forms_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        VersionRange.parse(text)
