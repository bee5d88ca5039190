"""`produce` and `consume` with a terminal on standard error alone."""

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.testing import EmbeddedBroker
from tests.support.commands import Commands

pytestmark = pytest.mark.slow

COMMAND = [sys.executable, "-m", "odradek.cli.main"]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with EmbeddedBroker() as broker:
        yield broker.bootstrap_servers


class Watched:
    """A command whose standard error is a terminal."""

    def __init__(self, *words: str, **options: object) -> None:
        self._terminal, stderr = pty.openpty()
        self.process = subprocess.Popen(
            [*COMMAND, *words],
            stderr=stderr,
            **options,  # type: ignore[call-overload]  # passed through
        )
        os.close(stderr)
        self.shown = b""

    def read(self) -> bool:
        """Takes what was shown; False at the end."""
        try:
            piece = os.read(self._terminal, 4096)
        except OSError:  # Linux: nobody has the other end any more.
            piece = b""
        self.shown += piece
        return bool(piece)

    def finish(self) -> tuple[int, str]:
        """Exit code, and what was shown, without what was overwritten."""
        while self.read():
            pass
        os.close(self._terminal)
        code = self.process.wait(120)
        lines = self.shown.decode().replace("\r\n", "\n").split("\n")
        return code, "\n".join(line.rpartition("\r")[2] for line in lines)


def test_an_error_does_not_stick_to_the_count(address: str, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_text("k:v\n" * 1000 + "no key\n")
    with lines.open() as stdin:
        produce = Watched(
            *("produce", "errors", "--key-separator", ":", "--color", "never"),
            *("--bootstrap-server", address),
            stdin=stdin,
        )
        code, shown = produce.finish()
    assert code == 1
    assert shown == (
        "1,000 messages\nodradek produce: line 1001 has no key: it does not contain ':'\n"
    )


def test_all_went_well(address: str, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_text("v\n" * 1000)
    with lines.open() as stdin:
        produce = Watched("produce", "fine", "--bootstrap-server", address, stdin=stdin)
        assert produce.finish() == (0, "1,000 messages sent\n")


def test_ctrl_c_leaves_a_whole_line(address: str) -> None:
    produce = Watched(*("produce", "stopped", "--bootstrap-server", address), stdin=subprocess.PIPE)
    stdin = produce.process.stdin
    assert stdin is not None
    with stdin:
        stdin.write(b"one\n")
        stdin.flush()
        while b"message" not in produce.shown:
            assert produce.read()
        produce.process.send_signal(signal.SIGINT)
        code, shown = produce.finish()
    assert code == 130
    assert shown.endswith((" message\n", " messages\n"))


def test_consume_into_a_file_shows_how_far_it_is(address: str, tmp_path: Path) -> None:
    Commands(address).ok("produce", "read", stdin=b"line\n" * 1000)
    with (tmp_path / "out").open("wb") as out:
        consume = Watched(
            *("consume", "read", "--from-beginning", "--max-messages", "1000"),
            *("--bootstrap-server", address),
            stdout=out,
        )
        assert consume.finish() == (0, "1,000 messages\n")
    assert (tmp_path / "out").read_bytes() == b"line\n" * 1000


def test_consume_into_a_pipe_leaves_the_terminal_to_who_is_behind_it(address: str) -> None:
    Commands(address).ok("produce", "piped", stdin=b"line\n")
    consume = Watched(
        *("consume", "piped", "--from-beginning", "--max-messages", "1"),
        *("--bootstrap-server", address),
        stdout=subprocess.PIPE,
    )
    stdout = consume.process.stdout
    assert stdout is not None
    with stdout:
        assert stdout.read() == b"line\n"
    assert consume.finish() == (0, "")
