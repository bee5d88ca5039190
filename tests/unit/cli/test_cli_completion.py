"""Completion: what can follow, and the scripts in the shells that are installed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from odradek.cli.main import COMMANDS
from odradek.cli.usage.completion import candidates
from tests.support.commands import run_command


def words(*typed: str) -> list[str]:
    return [one.word for one in candidates(typed)]


def test_all_commands_are_candidates() -> None:
    """Although their modules are imported only when they run."""
    assert words("") == list(COMMANDS)
    assert words("to") == ["topics"]
    assert words("gro") == ["groups"]


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (["topics", ""], ["create", "list", "describe", "alter", "delete"]),
        (["topics", "de"], ["describe", "delete"]),
        (["topics", "list", "--in"], ["--internal"]),
        (["topics", "list", "--tls-"], ["--tls-ca", "--tls-cert", "--tls-key"]),
        (["produce", "t", "--compression", "z"], ["zstd"]),
        (["--color", ""], ["auto", "always", "never"]),
        (["configs", "describe", "broker"], ["broker", "broker-logger"]),
        (["configs", "--color", "never", "de"], ["describe"]),
        (["cluster", ""], ["describe"]),
        (["completion", ""], ["bash", "zsh", "fish"]),
        (["log", "dump", ""], []),  # The shell completes names of files.
        (["topics", "list", "--tls-ca", ""], []),
        (["nonsense", ""], list(COMMANDS)),
    ],
)
def test_what_can_follow(typed: list[str], expected: list[str]) -> None:
    assert [one for one in words(*typed) if one in expected or typed[-1]] == expected


def test_profiles_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("live", "test"):
        assert run_command("profile", "add", name, "-b", f"{name}:9092").code == 0
    assert words("profile", "use", "") == ["live", "test"]
    assert words("topics", "list", "--profile", "l") == ["live"]
    assert (
        run_command("completion", "--candidates", "profile", "show", "t").out == "test\ttest:9092\n"
    )


# Each prints what the shell offers for `odradek topics de`, and for `odradek profile `.
_BASH = """
source odradek.bash
for line in 'odradek topics de' 'odradek profile '; do
    read -ra COMP_WORDS <<< "$line"; [[ $line == *' ' ]] && COMP_WORDS+=('')
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    _odradek; printf '%s\\n' "${COMPREPLY[@]}"
done
"""
_FISH = """
source odradek.fish
complete -C 'odradek topics de' | cut -f1
complete -C 'odradek profile ' | cut -f1
"""
_ZSH = """
autoload -U compinit; compinit -u -D
_describe() { print -l ${${(P)2}%%:*} }
source odradek.zsh
words=(odradek topics de); CURRENT=3; _odradek
words=(odradek profile ''); CURRENT=3; _odradek
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shell", "script"), [("bash", _BASH), ("fish", _FISH), ("zsh", _ZSH)], ids=lambda one: one[:4]
)
def test_the_script_in_the_shell(shell: str, script: str, tmp_path: Path) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    (tmp_path / f"odradek.{shell}").write_text(run_command("completion", shell).out)
    command = tmp_path / "bin" / "odradek"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m odradek "$@"\n')
    command.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{command.parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path),
    }
    result = subprocess.run(
        [program, "-c", script],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.stderr == ""
    assert sorted(result.stdout.split()) == sorted(
        ["describe", "delete", "add", "use", "list", "show", "remove"]
    )
