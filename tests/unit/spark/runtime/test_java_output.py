"""What Java prints while it starts is held, and shown only if it does not start."""

import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from odradek.spark.runtime.java_output import JavaOutput

# Prints a line, and another one once its input has ended.
CHATTY = "import sys; print('first', file=sys.stderr, flush=True); sys.stdin.read();" + (
    "print('last', file=sys.stderr)"
)


class _Stream:
    """Standard error, and an event for a line on it."""

    def __init__(self) -> None:
        self.text = ""
        self.has_last = threading.Event()

    def write(self, text: str) -> None:
        self.text += text
        if "last" in text:
            self.has_last.set()

    def flush(self) -> None:
        pass


def chat(output: JavaOutput) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-c", CHATTY]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=output.fileno)
    output.begin()
    return process


def wait_until(is_true: Callable[[], bool]) -> None:
    pause = threading.Event()
    while not is_true():
        pause.wait(0.01)


def test_lines_of_a_start_that_succeeds_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = _Stream()
    monkeypatch.setattr(sys, "stderr", shown)
    output = JavaOutput()
    process = chat(output)
    wait_until(lambda: bool(output._held))
    output.forget()
    process.communicate()
    assert shown.has_last.wait(60)
    assert shown.text == "last\n"


def test_lines_of_a_start_that_fails_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = _Stream()
    monkeypatch.setattr(sys, "stderr", shown)
    output = JavaOutput()
    chat(output).communicate()
    output.show()
    assert shown.text == "first\nlast\n"
    output.forget()
