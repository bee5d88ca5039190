"""What documents tell a reader to type: their commands, and a reader who types them.

The reader has a folder and a broker. Commands are run by a shell, with `odradek` on its path;
`localhost:9092`, which documents name, becomes the broker's address. Pipelines that run on Spark
run in this process, on the session of the tests: a session of their own would cost ten seconds.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.support.commands import Outcome, run_command

__all__ = ["Reader", "blocks", "commands_of"]

_TIMEOUT_S = 240
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^    (\S.*)$")
_ON_SPARK = ("run", "test", "backfill")


def blocks(text: str, language: str) -> list[str]:
    """The blocks of a language, in order."""
    return [content for found, content in _FENCE.findall(text) if found == language]


def commands_of(text: str) -> list[str]:
    """The commands of a document, in order: indented lines, with their here-documents."""
    found: list[str] = []
    end = None
    for line in _FENCE.sub("", text).splitlines():
        match = _COMMAND.match(line)
        if match is None:
            end = None
        elif end is not None:
            found[-1] += f"\n{match[1]}"
            end = None if match[1] == end else end
        else:
            found.append(match[1].replace(".venv/bin/odradek ", "odradek "))
            if here := re.search(r"<<(\w+)$", match[1]):
                end = here[1]
    return found


class Reader:
    """Types commands.

    Args:
        folder: Where.
        bootstrap: The address of the broker.
    """

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self.folder = folder
        self._bootstrap = bootstrap
        programs = folder / ".programs"
        programs.mkdir()
        script = programs / "odradek"
        run = f"exec {shlex.quote(sys.executable)} -m odradek.cli.main"
        # Commands for a broker have its address as an option; pipelines have it in their file.
        script.write_text(
            "#!/bin/sh\n"
            f'case "$1" in pipeline) {run} "$@";; esac\n'
            f'{run} "$@" --bootstrap-server {shlex.quote(bootstrap)}\n'
        )
        script.chmod(0o755)
        self._environment = {
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "KAFKA": bootstrap,
        }

    def localised(self, text: str) -> str:
        """A text with the address of the broker instead of the documented one."""
        return text.replace("localhost:9092", self._bootstrap)

    def write(self, name: str, text: str) -> None:
        """Writes a file that a document shows."""
        (self.folder / name).write_text(self.localised(text))

    def type(self, command: str, more: Sequence[str] = ()) -> Outcome:
        """Runs a command to its end."""
        words = shlex.split(command.partition("\n")[0], comments=True)
        if words[:2] == ["odradek", "pipeline"] and words[2] in _ON_SPARK:
            return run_command(*words[1:], *more)
        done = subprocess.run(
            ["/bin/sh", "-c", self.localised(command)],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    def types(self, command: str, more: Sequence[str] = ()) -> Outcome:
        """The outcome of a command that must succeed."""
        outcome = self.type(command, more)
        assert outcome.code == 0, f"{command}\n{outcome.out}\n{outcome.err}"
        return outcome
