"""The guide's sessions about messages, typed into a shell: the output is what the guide shows."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from odradek.testing import EmbeddedBroker

pytestmark = pytest.mark.slow

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "command-line.md"


def sessions() -> list[tuple[str, str]]:
    """Every command of a console block, in order, with the output that follows it."""
    found: list[tuple[str, str]] = []
    for block in re.findall(r"```console\n(.*?)```", GUIDE.read_text(), re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append((command, output))
    return found


def test_the_guide_shows_what_a_shell_shows(tmp_path: Path) -> None:
    commands = sessions()
    assert len(commands) > 15
    with EmbeddedBroker() as broker:
        # The default address is taken by others, perhaps: the commands get this one.
        tool = tmp_path / "bin" / "odradek"
        tool.parent.mkdir()
        tool.write_text(
            f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m odradek.cli.main "$@" '
            f"--bootstrap-server {broker.bootstrap_servers}\n"
        )
        tool.chmod(0o755)
        environment = os.environ | {"PATH": f"{tool.parent}:{os.environ['PATH']}"}
        for command, expected in commands:
            shown = subprocess.run(
                ["bash", "-o", "pipefail", "-c", command],
                cwd=tmp_path,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            assert (shown.returncode, shown.stdout, shown.stderr) == (0, expected, ""), command
