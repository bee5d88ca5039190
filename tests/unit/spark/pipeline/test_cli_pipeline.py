"""`odradek pipeline init`, `validate` and `plan`: output, exit codes, and no Spark."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from odradek.cli.pipeline import ACTIONS
from odradek.spark.pipeline.file.example import EXAMPLE
from tests.support.commands import run_command
from tests.unit.spark.pipeline.files import HEAD, SINK, SOURCE

SPEC = Path(__file__).parents[4] / "docs/spec/12-spark-pipeline.md"


def test_the_example_is_the_documented_one() -> None:
    """12:SP-61."""
    text = SPEC.read_text(encoding="utf-8")

    assert f"```yaml\n{EXAMPLE}```" in text


def test_init_writes_an_example_that_is_valid(tmp_path: Path) -> None:
    """12:SP-61."""
    path = str(tmp_path / "orders.yaml")

    outcome = run_command("pipeline", "init", path)
    checked = run_command("pipeline", "validate", path)

    assert (outcome.code, outcome.err) == (0, "")
    assert (checked.code, checked.err) == (0, "")
    assert checked.out == f"{path}: pipeline 'orders' is valid\n"


def test_init_never_overwrites(tmp_path: Path) -> None:
    """12:SP-61."""
    path = tmp_path / "orders.yaml"
    path.write_text("mine")

    outcome = run_command("pipeline", "init", str(path))

    assert outcome.code == 3
    assert "is not overwritten" in outcome.err
    assert path.read_text() == "mine"


def test_init_says_where_it_cannot_write(tmp_path: Path) -> None:
    assert run_command("pipeline", "init", str(tmp_path / "no" / "x.yaml")).code == 1
    assert run_command("pipeline", "init", str(tmp_path / "x.py")).code == 2


def test_validate_prints_every_problem(tmp_path: Path) -> None:
    """12:SP-59 12:SP-61."""
    path = tmp_path / "shop.yaml"
    path.write_text(HEAD + SOURCE + "    max_record: 5\n" + SINK.replace("raw", "rwa"))

    outcome = run_command("pipeline", "validate", str(path))
    as_json = run_command("pipeline", "validate", str(path), "--json")

    assert outcome.code == as_json.code == 2
    assert outcome.out.splitlines() == [
        f"{path}:7:5: error P02: unknown key 'max_record' in source 'raw' "
        "(did you mean 'max_records'?)",
        f"{path}:9:15: error P07: unknown source 'rwa' in sink 'out' (did you mean 'raw'?)",
    ]
    first = json.loads(as_json.out)[0]
    assert (first["line"], first["column"], first["code"]) == (7, 5, "P02")
    assert first["severity"] == "error"


def test_warnings_alone_are_no_failure(tmp_path: Path) -> None:
    """12:SP-59."""
    path = tmp_path / "shop.yaml"
    path.write_text(HEAD + SOURCE + SINK + "transforms: {one: {sql: select id from raw}}\n")

    outcome = run_command("pipeline", "validate", str(path))

    assert outcome.code == 0
    assert "warning P13" in outcome.out


def test_plan_shows_queries_checkpoints_groups_and_guarantees(tmp_path: Path) -> None:
    """12:SP-13 12:SP-44 12:SP-61."""
    path = tmp_path / "orders.yaml"
    path.write_text(EXAMPLE)

    shown = run_command("pipeline", "plan", str(path)).out
    outcome = run_command("pipeline", "plan", str(path), "--json")

    document = json.loads(outcome.out)
    queries = document["queries"]
    assert {name: query["guarantee"] for name, query in queries.items()} == {
        "archive": "exactly-once",
        "lake": "exactly-once",
        "totals": "at-least-once",
        "dlq": "at-least-once",
    }
    assert queries["totals"]["checkpoint"] == str(tmp_path / "_checkpoints" / "totals")
    assert queries["totals"]["group"] == "odradek-pipeline-orders-totals"
    assert queries["totals"]["reads"] == ["raw", "users"]
    assert queries["totals"]["through"] == ["flat", "named", "per_country"]
    assert queries["archive"]["limit"] == "for readers that follow _spark_metadata"
    assert queries["dlq"]["from"] == ["raw"]
    assert document["transforms"]["flat"]["columns"] == ["minute", "country", "total", "n"]
    assert list(document["transforms"]) == ["named", "per_country", "flat"]
    for text in ("odradek-pipeline-orders-lake", "at-least-once", "watermark ts 30000 ms"):
        assert text in shown


def test_plan_of_a_wrong_file_prints_nothing_but_problems(tmp_path: Path) -> None:
    """12:SP-61."""
    path = tmp_path / "shop.yaml"
    path.write_text(HEAD + SOURCE)

    outcome = run_command("pipeline", "plan", str(path), "--json")

    assert (outcome.code, outcome.out) == (2, "")
    assert "P05" in outcome.err


def test_secrets_are_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """12:SP-46."""
    path = tmp_path / "shop.yaml"
    path.write_text(
        "name: shop\nbootstrap: ${BROKERS}\n" + SOURCE + "sinks:\n  out: {from: raw, "
        'jdbc: {url: "postgresql://u:hunter22@h/d", table: "${TABLE}", key: id}}\n'
    )
    monkeypatch.setenv("BROKERS", "inner-host:9092")
    monkeypatch.setenv("TABLE", "t")

    outcome = run_command("pipeline", "plan", str(path), "--json")

    document = json.loads(outcome.out)
    assert document["bootstrap"] == "***"
    assert document["queries"]["out"]["target"] == "***"
    assert "inner-host" not in outcome.out
    assert "hunter22" not in outcome.out


def test_settings_of_the_command_line(tmp_path: Path) -> None:
    """12:SP-61."""
    path = tmp_path / "orders.yaml"
    path.write_text(EXAMPLE)
    settings = ["--set", "name=other", "--set", "sinks.lake.trigger=once"]

    outcome = run_command("pipeline", "plan", str(path), "--json", *settings)
    wrong = run_command("pipeline", "validate", str(path), "--set", "name")

    document = json.loads(outcome.out)
    assert document["queries"]["lake"]["group"] == "odradek-pipeline-other-lake"
    assert document["queries"]["lake"]["trigger"] == "once"
    assert wrong.code == 2
    assert "expected KEY=VALUE after --set, found 'name'" in wrong.err


@pytest.mark.parametrize("action", ACTIONS)
def test_every_action_has_help(action: str) -> None:
    outcome = run_command("pipeline", action, "--help")

    assert outcome.code == 0
    assert outcome.out.startswith(f"usage: odradek pipeline {action} ")


def test_a_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """12:SP-61."""
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, package=None: None if name == "sqlglot" else find(name, package),
    )

    outcome = run_command("pipeline", "validate", str(tmp_path / "x.yaml"))

    assert outcome.code == 1
    assert "pip install 'odradek[spark]'" in outcome.err


@pytest.mark.slow
def test_validate_and_plan_import_no_spark(tmp_path: Path) -> None:
    """12:SP-13."""
    path = tmp_path / "orders.yaml"
    path.write_text(EXAMPLE)
    code = (
        "import sys\nfrom odradek.cli.main import main\n"
        f"assert main(['pipeline', 'validate', {str(path)!r}]) == 0\n"
        f"assert main(['pipeline', 'plan', {str(path)!r}]) == 0\n"
        "heavy = {'pyspark', 'pandas', 'pyarrow', 'numpy', 'asyncio', 'deltalake', 'fastavro'}\n"
        "print('loaded', sorted(heavy & set(sys.modules)))\n"
    )

    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )

    assert result.stdout.splitlines()[-1] == "loaded []"
