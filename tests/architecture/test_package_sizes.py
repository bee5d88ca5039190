"""A package can be taken in at a glance."""

from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "odradek"
PACKAGES = sorted(path.parent for path in SOURCE.rglob("__init__.py"))
# One module for each API: their number is that of the protocol.
ONE_FOR_EACH_API = {SOURCE / "broker" / "handlers", SOURCE / "protocol" / "messages"}
MOST_MODULES = 25


@pytest.mark.parametrize(
    "package",
    [package for package in PACKAGES if package not in ONE_FOR_EACH_API],
    ids=lambda path: str(path.relative_to(SOURCE.parent)),
)
def test_a_package_has_few_modules(package: Path) -> None:
    modules = [path.name for path in package.glob("*.py") if path.name != "__init__.py"]

    assert len(modules) <= MOST_MODULES
