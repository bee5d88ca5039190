"""The gate: `make test` takes the first verdict of every test, and says what it left out."""

import os
import re
import subprocess
import sys
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


FORGETFUL = """
import socket
import {package} as client

class Holder:
    pass

def test_forgets() -> None:
    one = Holder()
    one.itself, one.socket, one.client = one, socket.socket(), client

def test_does_nothing_more() -> None:
    pass
"""


@pytest.mark.slow
@pytest.mark.parametrize(("package", "blamed"), [("json", 1), ("aiokafka", 0)])
def test_what_a_test_forgets_is_found_in_its_module(
    tmp_path: Path, package: str, blamed: int
) -> None:
    """The collector would find it in any later test; foreign clients may forget what they like."""
    (tmp_path / "test_a_forgetful.py").write_text(FORGETFUL.format(package=package))
    (tmp_path / "test_b_innocent.py").write_text(
        "import gc\ndef test_collects() -> None:\n    gc.collect()\n"
    )
    options = ["-p", "tests.conftest", "-p", "no:randomly", "-p", "no:cacheprovider"]
    options += ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *options, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == blamed, done.stdout + done.stderr
    assert ("test_a_forgetful.py::test_does_nothing_more" in done.stdout) == bool(blamed)
    assert "test_b_innocent.py::" not in done.stdout
