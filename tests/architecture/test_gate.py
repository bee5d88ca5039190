"""The gate: `make test` takes the first verdict of every test, and says what it left out."""

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def dry_run(target: str, *settings: str, pure: str = "") -> str:
    """The commands that make would run, and what they would print."""
    environment = {**os.environ, "ODRADEK_PURE": pure}
    environment.pop("MAKEFLAGS", None)
    return subprocess.run(
        ["make", "--dry-run", target, *settings],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_no_failure_is_run_again() -> None:
    """A second verdict would hide what fails beside others, or now and then."""
    again = re.compile(r"--reruns|rerunfailures|pytest-retry|\bflaky\b|--lf\b|--last-failed|--sw\b")
    sources = [ROOT / "Makefile", ROOT / "pyproject.toml", ROOT / "tests" / "conftest.py"]
    sources += [path for path in (ROOT / "scripts").iterdir() if path.is_file()]
    for path in sources:
        assert not again.search(path.read_text()), path
    commands = dry_run("test-others", "IS_COMPILABLE=")
    assert len(re.findall(r"\bpytest\b", commands)) == 1


def test_the_suite_of_a_minute_leaves_out_the_slow_ones() -> None:
    [command] = [line for line in dry_run("unit").splitlines() if "pytest" in line]
    assert '-m "not slow and not kafka"' in command
    assert "tests/unit" in command
    assert "tests/integration" not in command


@pytest.mark.parametrize(
    ("pure", "why"), [("1", "ODRADEK_PURE=1 asks for pure Python"), ("", "no compiler here")]
)
def test_why_nothing_was_tested_compiled_is_said(pure: str, why: str) -> None:
    commands = dry_run("test-others", "IS_COMPILABLE=", pure=pure)
    assert f'echo "test: {why}, nothing was tested compiled"' in commands
