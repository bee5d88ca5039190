"""A module that says it is pure is held to it by an import contract, and the reverse."""

import ast
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
IMPURE = {"asyncio", "os", "random", "socket", "ssl", "threading", "time"}


def contract() -> dict[str, list[str]]:
    """The contract of `make imports` on what is pure."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    [found] = [one for one in contracts["contracts"] if one["name"].startswith("Pure ")]
    assert isinstance(found, dict)
    return found


def modules_that_say_so() -> set[str]:
    """Modules whose docstring says "Pure" in its first paragraph; a package speaks for its own."""
    said = set()
    for path in (ROOT / "src").rglob("*.py"):
        text = ast.get_docstring(ast.parse(path.read_text())) or ""
        if re.search(r"\bPure\b", text.split("\n\n")[0]):
            parts = path.relative_to(ROOT / "src").with_suffix("").parts
            said.add(".".join(part for part in parts if part != "__init__"))
    return {module for module in said if not any(module.startswith(f"{p}.") for p in said)}


def test_what_says_pure_is_in_the_contract_and_the_reverse() -> None:
    assert contract()["source_modules"] == sorted(modules_that_say_so())


def test_what_is_pure_reaches_no_clock_no_randomness_and_no_input_or_output() -> None:
    assert set(contract()["forbidden_modules"]) == IMPURE
    assert "ignore_imports" not in contract()
    assert "allow_indirect_imports" not in contract()
