"""Every command and every example of docs/streaming and of the README's pipelines, as typed.

A command that is in no test here, nor among those that cannot be typed, fails the last test.
"""

import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from odradek import Admin
from odradek.client.admin import NewTopic
from odradek.spark.pipeline.engine.fixtures import local_session
from odradek.spark.pipeline.engine.running import run as running
from odradek.spark.pipeline.graph.model import Pipeline
from tests.support.odradek_broker import OdradekBroker, running_odradek
from tests.support.typed_commands import Reader, blocks, commands_of

ROOT = Path(__file__).resolve().parents[2]
STREAMING = ROOT / "docs" / "streaming"
PAGES = {path.name: path.read_text() for path in sorted(STREAMING.glob("*.md"))}
README = (ROOT / "README.md").read_text().partition("\nA pipeline is a file.")[2]
README = README.partition("\n## ")[0]

# Commands that this test does not type, and where they are tried.
ELSEWHERE = {
    "pip install 'odradek[spark]'": "tests/integration/test_wheels.py",
    "odradek serve": "the broker of these tests",
    "odradek pipeline run shop.yaml": "tests/spark/test_engine_run.py: until Ctrl-C",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OdradekBroker]:
    """A broker of their own: documents have the names of topics."""
    with running_odradek(tmp_path_factory.mktemp("documents")) as broker:
        yield broker


@pytest.fixture
def reader(
    broker: OdradekBroker, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Reader:
    """In a fresh folder; every session is the one of the tests, which is never stopped."""

    @contextlib.contextmanager
    def shared(pipeline: Pipeline, spark_log: str = "off") -> Iterator[SparkSession]:
        yield spark

    def session(**_: object) -> SparkSession:
        return spark

    monkeypatch.setattr(local_session, "local_session", shared)
    monkeypatch.setattr(running, "build_session", session)
    monkeypatch.setattr("odradek.spark.session.build_session", session)
    monkeypatch.setattr(SparkSession, "stop", lambda self: None)
    monkeypatch.setattr(running, "leave_progress", lambda session: None)
    monkeypatch.setenv("KAFKA", broker.bootstrap)
    monkeypatch.chdir(tmp_path)
    return Reader(tmp_path, broker.bootstrap)


def forget_topics(broker: OdradekBroker, *names: str) -> None:
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        there = set(admin.list_topics())
        admin.delete_topics([name for name in names if name in there])


def rows_of(path: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = DeltaTable(path).to_pyarrow_table().to_pylist()
    return rows


def test_the_tutorial(
    reader: Reader, broker: OdradekBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    text = PAGES["tutorial.md"]
    forget_topics(broker, "orders", "orders.dlq", "totals-by-country")
    seen = {
        command.partition("\n")[0].split(" #")[0].strip(): reader.types(command)
        for command in commands_of(text)
        if command.split(" #")[0].strip() not in ELSEWHERE
    }

    shown = (reader.folder / "shop.yaml").read_text()
    for example in blocks(text, "yaml"):
        for line in filter(None, example.splitlines()):
            assert line in shown
    assert seen["odradek pipeline validate shop.yaml"].out == (
        "shop.yaml: pipeline 'shop' is valid\n"
    )
    assert "exactly-once" in seen["odradek pipeline plan shop.yaml"].out
    assert seen["odradek pipeline test shop.yaml"].out.endswith("1 passed, 0 failed\n")
    once = seen["odradek pipeline run shop.yaml --once"]
    assert "lake finished: 6 records read and 4 rows written in 1 batch" in once.err
    assert {json.loads(line)["sink"] for line in once.lines} == {"totals", "lake", "dlq"}
    letters = next(found for typed, found in seen.items() if "consume orders.dlq" in typed)
    assert "odradek.dlq.reason" in letters.out
    assert "expect:positive" in letters.out
    group = seen["odradek groups describe odradek-pipeline-shop-lake"]
    assert "orders" in group.out
    status = [line.split("\t") for line in seen["odradek pipeline status shop.yaml"].lines]
    assert [(row[0], row[1], row[4]) for row in status] == [
        (sink, "stopped", "0") for sink in ("totals", "lake", "dlq")
    ]
    assert sorted(row["id"] for row in rows_of("lake/orders")) == [1, 2, 3, 6]
    capsys.readouterr()
    table, notebook, own_session = (reader.localised(code) for code in blocks(text, "python"))
    for code in (table, notebook, own_session):
        exec(compile(code, "tutorial.md", "exec"), {})
    printed = capsys.readouterr().out
    assert "ada" in printed
    assert "gb" in printed


def test_the_pipeline_of_the_readme(reader: Reader, broker: OdradekBroker) -> None:
    """As after the client's example: a record of alice; and a value that is no number."""
    forget_topics(broker, "people")
    reader.types("odradek topics create people")
    reader.types("printf 'alice:41\\neve:old\\n' | odradek produce people --key-separator :")
    (file,) = blocks(README, "yaml")
    reader.write("people.yaml", file)
    (command,) = commands_of(README)
    assert command == "odradek pipeline run people.yaml --once"

    done = reader.types(command)

    assert done.err == "table finished: 2 records read and 1 row written in 1 batch\n"
    assert rows_of("grown-up") == [{"name": "alice", "age": 41}]


@pytest.mark.parametrize("template", ["orders", "people"])
def test_a_template_runs_as_it_is(template: str, reader: Reader, broker: OdradekBroker) -> None:
    """The commands in its comments, word by word; `shop` is that of the tutorial."""
    forget_topics(broker, "orders", "orders.dlq", "country-totals", "people")
    reader.types(f"odradek pipeline init {template}.yaml --template {template}")
    comments = (reader.folder / f"{template}.yaml").read_text()
    typed = re.findall(r"^#     (odradek .*)$", comments, re.MULTILINE)

    seen = {command: reader.types(command) for command in typed}

    assert f"odradek pipeline run {template}.yaml --once" in seen
    if template == "orders":
        totals = next(one for command, one in seen.items() if "country-totals" in command)
        assert sorted(json.loads(line)["total"] for line in totals.lines) == [4.0, 6.0]
        assert sorted(row["id"] for row in rows_of("lake/orders")) == [1, 2, 3, 7]
    else:
        assert rows_of("grown-up") == [{"name": "alice", "age": 41}]


def test_the_page_of_operations(reader: Reader, broker: OdradekBroker) -> None:
    """With the tutorial's pipeline as FILE."""
    forget_topics(broker, "orders", "orders.dlq", "totals-by-country")
    reader.types("odradek pipeline init FILE --template shop")
    reader.types("odradek topics create orders")
    reader.types("odradek produce orders < orders.jsonl")
    text = PAGES["operations.md"]
    reader.types("odradek pipeline run FILE --once --sink lake --sink dlq")

    (backfill,) = commands_of(text)  # Of days before the records were written.
    assert reader.types(backfill).rows[0] == ["lake", "0"]
    days = "--from 2026-01-01T00:00:00Z --to 2026-01-02T00:00:00Z"
    again = reader.types(backfill.replace(days, "--from earliest --to latest"))
    assert again.rows[0] == ["lake", "4"]
    assert len(rows_of("lake/orders")) == 8

    assert "`odradek pipeline status FILE`" in text
    header, *_, line = next(
        block for block in blocks(text, "text") if block.startswith("SINK")
    ).splitlines()
    assert header.split()[:4] == ["SINK", "STATE", "BATCH", "COMMITTED"]
    assert line.split()[0] == "dlq"
    assert len(reader.types("odradek pipeline status FILE").rows) == 3
    assert "`odradek pipeline reset FILE --sink NAME --yes`" in text
    reset = "odradek pipeline reset FILE --sink lake"
    assert reader.type(reset).code == 3
    reader.types(f'{reset} --yes --to \'{{"orders": {{"0": 5}}}}\'')
    reader.types("odradek pipeline run FILE --once --sink lake")
    assert len(rows_of("lake/orders")) == 9


def test_the_page_of_the_file(reader: Reader) -> None:
    """Its YAML, SQL and Python are tried in tests/unit/spark/pipeline/test_documented_file.py."""
    text = PAGES["pipeline-file.md"]
    for command in commands_of(text):
        reader.types(command)
    settings = set(re.findall(r"`(--set [\w.]+=[\w.]+)`", text)) - {"--set KEY=VALUE"}
    assert len(settings) > 3
    for setting in sorted(settings):
        reader.types(f"odradek pipeline validate orders.yaml {setting}")


EXAMPLES = [
    (page, number, code)
    for page, text in PAGES.items()
    if page not in ("tutorial.md", "pipeline-file.md")
    for number, code in enumerate(blocks(text, "python"))
]
# Examples that need a cluster, which tests/spark/test_cluster.py and test_connect.py have.
ON_CLUSTERS = {("clusters.md", 0), ("clusters.md", 1)}


@pytest.mark.parametrize(
    ("page", "number", "code"),
    [one for one in EXAMPLES if one[:2] not in ON_CLUSTERS],
    ids=[f"{page}-{number}" for page, number, _ in EXAMPLES if (page, number) not in ON_CLUSTERS],
)
def test_an_example_in_python(
    page: str,
    number: int,
    code: str,
    reader: Reader,
    spark: SparkSession,
    broker: OdradekBroker,
) -> None:
    """Frames are made, and written with what the page shows: one trigger of each stream."""
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topics([NewTopic(name="orders", partition_count=1)])
    source = (
        spark.readStream.format("odradek")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("subscribe", "orders")
        .load()
    )
    frame: Any = source.select("key", "value")
    if "writeStream" not in code and "exactly_once" not in code:
        frame = spark.range(1).selectExpr("'ada' as user", "id")
    names: dict[str, Any] = {"spark": spark, "frame": frame}
    local = reader.localised(code).replace("/data/checkpoints", str(reader.folder))

    exec(compile(local, page, "exec"), names)

    query = names.get("query")
    if query is not None:
        query.stop()
        assert query.exception() is None


def test_no_command_is_left_out() -> None:
    """Pages whose commands are all typed above, or elsewhere; and examples likewise."""
    tried: Mapping[str, list[str]] = {
        "tutorial.md": commands_of(PAGES["tutorial.md"]),
        "operations.md": commands_of(PAGES["operations.md"]),
        "pipeline-file.md": commands_of(PAGES["pipeline-file.md"]),
    }
    for page, text in PAGES.items():
        assert commands_of(text) == tried.get(page, []), f"{page} has commands that no test types"
    assert {(page, number) for page, number, _ in EXAMPLES} >= ON_CLUSTERS
    known = {"init", "validate", "plan", "test", "run", "backfill", "status", "reset"}
    named = set(re.findall(r"odradek pipeline (\w+)", "".join(PAGES.values())))
    assert named == known
