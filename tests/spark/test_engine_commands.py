"""`odradek pipeline test` and `validate --deep` on a session that is there already."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odradek.cli.main import main
from odradek.spark.pipeline.engine.fixtures import local_session
from odradek.spark.pipeline.graph.model import Pipeline


@pytest.fixture
def example(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The example that `init` writes; commands use the session of the tests, and leave it."""

    @contextmanager
    def shared(pipeline: Pipeline, spark_log: str = "off") -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(local_session, "local_session", shared)
    file = tmp_path / "orders.yaml"
    assert main(["pipeline", "init", str(file)]) == 0
    return file


def test_the_tests_of_the_example(example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """12:SP-60, 12:SP-61: exit codes 0 and 1, missing and surplus rows printed."""
    name = "sums a minute and drops the negative one"
    capsys.readouterr()
    assert main(["pipeline", "test", str(example)]) == 0
    assert capsys.readouterr().out == f"ok     {name}\n1 passed, 0 failed\n"
    example.write_text(example.read_text().replace("n: 2}", "n: 3}"))
    assert main(["pipeline", "test", str(example), name]) == 1
    shown = capsys.readouterr().out
    assert '    - {minute: "2026-01-01T00:00:00Z", country: se, total: 5.0, n: 3}\n' in shown
    assert '    + {minute: "2026-01-01T00:00:00Z", country: se, total: 5.0, n: 2}\n' in shown
    assert shown.endswith("0 passed, 1 failed\n")
    assert main(["pipeline", "test", str(example), "--json"]) == 1
    assert [one["passed"] for one in json.loads(capsys.readouterr().out)] == [False]


def test_spark_finds_what_the_parser_cannot(
    example: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """12:SP-59: P08 with the line of the SQL in the file."""
    assert main(["pipeline", "validate", "--deep", str(example)]) == 0
    text = example.read_text()
    wrong = "select w.start + array(1) as minute, country, total, n from per_country"
    example.write_text(
        text.replace("select w.start as minute, country, total, n from per_country", wrong)
    )
    line = 1 + example.read_text().splitlines().index(f"    sql: {wrong}")
    capsys.readouterr()
    assert main(["pipeline", "validate", str(example)]) == 0
    assert main(["pipeline", "validate", "--deep", str(example)]) == 2
    assert f"orders.yaml:{line}:1: error P08: the SQL of 'flat'" in capsys.readouterr().out
