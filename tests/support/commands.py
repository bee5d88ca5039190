"""`odradek` commands run in this process, as a user would type them."""

import contextlib
import io
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from typing import Any, NamedTuple

from odradek.cli.main import main


class Terminal(io.TextIOWrapper):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


class Outcome(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def rows(self) -> list[list[str]]:
        """The columns of what goes into a pipe."""
        return [line.split("\t") for line in self.lines]

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Commands:
    """Runs commands against one cluster."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def __call__(self, *words: object, stdin: bytes = b"", terminal: bool = False) -> Outcome:
        return run_command(
            *words, "--bootstrap-server", self.bootstrap, stdin=stdin, terminal=terminal
        )

    def ok(self, *words: object, stdin: bytes = b"", terminal: bool = False) -> Outcome:
        """The outcome of a command that must succeed without a complaint."""
        outcome = self(*words, stdin=stdin, terminal=terminal)
        assert (outcome.code, outcome.err) == (0, ""), outcome
        return outcome


def run_command(*words: object, stdin: bytes = b"", terminal: bool = False) -> Outcome:
    """Runs a command; a terminal shows no colours unless `--color` is given."""
    stream = Terminal if terminal else io.TextIOWrapper
    out, err = stream(io.BytesIO(), "utf-8"), io.TextIOWrapper(io.BytesIO(), "utf-8")
    with (
        _stdin(stdin),
        _no_color(),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            code = main([str(word) for word in words])
        except SystemExit as exit_:
            code = int(exit_.code or 0)
    texts = []
    for one in (out, err):
        one.flush()
        buffer = one.buffer
        assert isinstance(buffer, io.BytesIO)
        texts.append(buffer.getvalue().decode(errors="backslashreplace"))
    return Outcome(code, *texts)


@contextlib.contextmanager
def _no_color() -> Iterator[None]:
    before = os.environ.get("NO_COLOR")
    os.environ["NO_COLOR"] = "1"
    try:
        yield
    finally:
        del os.environ["NO_COLOR"]
        if before is not None:
            os.environ["NO_COLOR"] = before


@contextlib.contextmanager
def _stdin(content: bytes) -> Iterator[None]:
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.seek(0)
        before, sys.stdin = sys.stdin, io.TextIOWrapper(file)
        try:
            yield
        finally:
            sys.stdin.detach()
            sys.stdin = before
