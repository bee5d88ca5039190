"""`odradek pipeline init`, `validate` and `plan`: output, exit codes, and no Spark."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from odradek.cli.pipeline import ACTIONS
from odradek.spark.pipeline.file import load
from odradek.spark.pipeline.file.starters import TEMPLATES, read_template
from odradek.spark.pipeline.graph.model import Pipeline, TableInput
from tests.support.commands import run_command
from tests.unit.spark.pipeline.files import EXAMPLE, HEAD, SINK, SOURCE


def test_the_example_is_the_documented_one(tmp_path: Path) -> None:
    """12:SP-61: with comments, and with its small table in the file, so that it runs as it is."""
    (tmp_path / "spec.yaml").write_text(EXAMPLE)
    run_command("pipeline", "init", str(tmp_path / "orders.yaml"))

    plans = [
        run_command("pipeline", "plan", str(tmp_path / name), "--json").json
        for name in ("spec.yaml", "orders.yaml")
    ]

    tables = [one["sources"].pop("users") for one in plans]
    assert plans[0] == plans[1]
    assert [one["columns"] for one in tables] == [["user", "country"]] * 2
    comments = re.findall(r"^ *# ", (tmp_path / "orders.yaml").read_text(), re.MULTILINE)
    assert len(comments) > 20


@pytest.mark.parametrize("template", TEMPLATES)
def test_every_template_is_valid_where_it_is_written(template: str, tmp_path: Path) -> None:
    """12:SP-61: the files that it names are there, and the commands in it name its path."""
    path = tmp_path / "a b.yaml"

    written = run_command("pipeline", "init", str(path), "--template", template)
    checked = run_command("pipeline", "validate", str(path))

    assert (written.code, written.err) == (0, "")
    assert (checked.code, checked.err) == (0, "")
    assert checked.out == f"{path}: pipeline '{template}' is valid\n"
    commands = re.findall(r"^#     (odradek .*)$", path.read_text(), re.MULTILINE)
    assert f"odradek pipeline run '{path}' --once" in commands
    named = {word for line in commands for word in shlex.split(line) if "/" in word}
    assert {Path(name) for name in named} <= set(tmp_path.iterdir())
    loaded = load(str(path), environment={})
    assert loaded.pipeline is not None
    assert _missing_tables_of(loaded.pipeline) == []


def _missing_tables_of(pipeline: Pipeline) -> list[str]:
    tables = [
        one.input.path for one in pipeline.sources.values() if isinstance(one.input, TableInput)
    ]
    return [path for path in tables if not Path(path).exists()]


def test_templates_are_listed_and_mistyped_ones_suggested(tmp_path: Path) -> None:
    listed = run_command("pipeline", "init", "--list-templates")
    mistyped = run_command("pipeline", "init", str(tmp_path / "x.yaml"), "--template", "shp")
    nameless = run_command("pipeline", "init")

    assert [row[0] for row in listed.rows] == list(TEMPLATES)
    assert mistyped.code == nameless.code == 2
    assert "no template shp (did you mean 'shop'?): there are orders, people, shop" in mistyped.err
    assert "init needs a FILE to write" in nameless.err
    assert list(tmp_path.iterdir()) == []


def test_init_keeps_the_files_beside_it(tmp_path: Path) -> None:
    """Nothing is written if one of several files has another content."""
    table = tmp_path / "customers.csv"
    table.write_text("customer,country\n")

    refused = run_command("pipeline", "init", str(tmp_path / "x.yaml"), "--template", "shop")

    assert refused.code == 3
    assert f"{table} exists already, and is not overwritten" in refused.err
    assert list(tmp_path.iterdir()) == [table]
    table.write_text(read_template("shop").beside["customers.csv"])
    assert run_command("pipeline", "init", str(tmp_path / "x.yaml"), "--template", "shop").code == 0


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
