"""The `odradek` command in this process: usage, help, exit codes."""

import importlib.abc
import sys
from pathlib import Path

import pytest

from odradek import __version__
from odradek.cli.main import COMMANDS, main
from tests.support.logs import batch

BASE = "00000000000000000000"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--help"], ["usage: odradek", "log", "print the files of a log"]),
        (["log", "--help"], ["usage: odradek log", "dump", "print the content of log, index"]),
        (["log", "dump", "--help"], ["FILE", "--records", "Files are only read", "exit code"]),
        (["--version"], [f"odradek {__version__}"]),
    ],
    ids=" ".join,
)
def test_help(words: list[str], expected: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(words)
    assert exit_.value.code == 0
    out = capsys.readouterr().out
    for text in expected:
        assert text in out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["nothing"], "invalid choice: 'nothing'"),
        (["log"], "the following arguments are required: ACTION"),
        (["log", "dump"], "the following arguments are required: FILE"),
        (["log", "dump", "--what", "x"], "unrecognized arguments: --what"),
        (["--what"], "unrecognized arguments: --what"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_wrong_usage_exits_with_2(
    words: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(words)
    assert exit_.value.code == 2
    assert expected in capsys.readouterr().err


def test_arguments_come_from_the_process_by_default(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / f"{BASE}.log"
    path.write_bytes(batch(2))
    monkeypatch.setattr(sys, "argv", ["odradek", "log", "dump", str(path)])
    assert main() == 0
    assert "baseOffset: 0 lastOffset: 1 count: 2" in capsys.readouterr().out


def test_problems_go_to_stderr_and_the_other_files_are_still_dumped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, missing = tmp_path / f"{BASE}.log", tmp_path / f"{7:020d}.log"
    good.write_bytes(batch(2))
    assert main(["log", "dump", str(missing), str(good), "--records"]) == 1
    out, err = capsys.readouterr()
    assert err == f"odradek log dump: {missing}: No such file or directory\n"
    assert out.splitlines()[:2] == [f"Dumping {missing}", f"Dumping {good}"]
    assert out.count("\n| offset: ") == 2


def test_interrupt_exits_with_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("odradek.cli.log.dump_lines", interrupted)
    assert main(["log", "dump", "x"]) == 130
    assert capsys.readouterr().err == ""


def test_ctrl_c_before_the_command_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The import of a command takes long enough to be interrupted."""

    class Interrupted(importlib.abc.MetaPathFinder):
        def find_spec(self, name: str, *_: object) -> None:
            if name == "interrupted_command":
                raise KeyboardInterrupt

    monkeypatch.setattr(sys, "meta_path", [Interrupted(), *sys.meta_path])
    monkeypatch.setitem(COMMANDS, "log", ("interrupted_command", "never mind"))

    assert main(["log", "dump", "x"]) == 130
    assert capsys.readouterr() == ("", "")
