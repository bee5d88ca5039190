"""`odradek pipeline run` of what cannot run: it says so before Spark starts, by line and name."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from odradek import Admin
from odradek.client.admin import NewTopic
from odradek.spark.pipeline.engine.problems import NotReadyError
from odradek.spark.pipeline.engine.running.preflight import find_unready, refuse_unready
from odradek.spark.pipeline.engine.running.query_plans import plan_queries
from odradek.testing import EmbeddedBroker
from tests.support.commands import run_command
from tests.support.ports import free_port, free_ports
from tests.unit.spark.pipeline.files import valid

HEAD = "name: shop\nbootstrap: BROKER\n"
SOURCE = 'sources:\n  people: {topic: people, value: {format: json, schema: "id bigint"}}\n'
SINK = "sinks:\n  out: {from: people, topic: copies}\n"

Found = list[tuple[int, str]]
Look = Callable[..., Found]


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    with EmbeddedBroker(settings={"auto.create.topics.enable": "false"}) as broker:
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(name=name, partition_count=2) for name in ("people",)])
        yield broker.bootstrap_servers


@pytest.fixture
def look(broker: str, tmp_path: Path) -> Look:
    """What a file lacks: lines of the file, and messages."""

    def find(text: str, bootstrap: str = broker, **changes: bool) -> Found:
        pipeline = valid(tmp_path, text.replace("BROKER", bootstrap))
        plans = plan_queries(pipeline)
        if changes:
            for plan in plans:
                object.__setattr__(plan, "has_run", changes["has_run"])
        found = find_unready(pipeline, plans)
        if found:
            with pytest.raises(NotReadyError, match=r"shop\.yaml:"):
                refuse_unready(pipeline, plans)
        return [(place.line, message) for place, message in found]

    return find


def test_a_pipeline_that_has_all_it_needs(look: Look, tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text("a\n")
    tables = "".join(
        f'  {name}: {{table: {{format: csv, path: "{path}", schema: "a string"}}}}\n'
        for name, path in (("t1", "./one.csv"), ("t2", f"file://{tmp_path}/*.csv"), ("t3", "."))
    )
    steps = "transforms:\n  all:\n    sql: select p.id from people p, t1, t2, t3\n"
    sink = "sinks:\n  out: {from: all, delta: {path: ./table}}\n"
    assert look(HEAD + SOURCE + tables + steps + sink) == []


def test_topics_that_do_not_exist(look: Look, broker: str) -> None:
    text = HEAD + SOURCE.replace("topic: people", "topic: [peoples, people]") + SINK
    assert look(text) == [
        (
            4,
            f"source 'people' reads the topic 'peoples', which {broker} does not have (did you mean"
            f" 'people'?); create it: odradek topics create peoples --bootstrap-server {broker}",
        ),
        (
            6,
            f"sink 'out' writes to the topic 'copies', which {broker} does not have; create it:"
            f" odradek topics create copies --bootstrap-server {broker}",
        ),
    ]


def test_dead_letters_have_a_topic_too(look: Look) -> None:
    text = HEAD + SOURCE.replace("bigint", 'bigint"}, on_error: dlq, start: "earliest')
    text = text.replace('"earliest"}}', "earliest}") + SINK.replace("copies", "people")
    ((line, message),) = look(text + "dlq: {topic: letters}\n")
    assert (line, message.partition(",")[0]) == (7, "sink 'dlq' writes to the topic 'letters'")


def test_partitions_that_do_not_exist(look: Look) -> None:
    text = HEAD + SOURCE.replace("topic: people", "assign: {people: [0, 2, 7]}") + SINK
    assert look(text.replace("copies", "people")) == [
        (
            4,
            "source 'people' reads the topic 'people', which has no partition 2, 7: its partitions"
            " are 0 to 1",
        )
    ]


def test_a_topic_that_may_be_lost_is_missed_at_the_first_start_only(look: Look) -> None:
    """12:SP-37: `on_data_loss: continue` waits for the topic to come back."""
    text = HEAD + SOURCE.replace("topic: people", "topic: gone, on_data_loss: continue")
    text += SINK.replace("copies", "people")
    assert [line for line, _ in look(text, has_run=False)] == [4]
    assert look(text, has_run=True) == []


def test_topics_that_brokers_create(tmp_path: Path) -> None:
    with EmbeddedBroker() as broker:
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(name="people", partition_count=1)])
        text = (HEAD + SOURCE + SINK).replace("BROKER", broker.bootstrap_servers)
        pipeline = valid(tmp_path, text)
        assert find_unready(pipeline, plan_queries(pipeline)) == ()


def test_an_address_where_nobody_listens(look: Look) -> None:
    port = free_port()
    found = look(HEAD + SOURCE + SINK, f"127.0.0.1:{port}")
    assert [line for line, _ in found] == [4, 6]
    where = f"the topic 'people' on 127.0.0.1:{port}, where no broker answers: "
    assert found[0][1].startswith(f"source 'people' reads {where}")


def test_brokers_that_name_an_address_nobody_reaches(tmp_path: Path) -> None:
    """As of a broker in a container, which names its own port."""
    port, named = free_ports(2)
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{named}",
    }
    with EmbeddedBroker(settings=settings):
        text = (HEAD + SOURCE + SINK).replace("BROKER", f"127.0.0.1:{port}")
        pipeline = valid(tmp_path, text.replace("topic: people", "topic_pattern: p.*"))
        found = find_unready(pipeline, plan_queries(pipeline))
    assert [place.line for place, _ in found] == [4, 6]
    assert f"127.0.0.1:{named} (Connection refused); see advertised.listeners" in found[0][1]


def test_tables_that_do_not_exist(look: Look, tmp_path: Path) -> None:
    tables = '  t1: {table: {format: csv, path: ./no.csv, schema: "a string"}}\n'
    tables += '  t2: {table: {format: csv, path: "./*.none", schema: "a string"}}\n'
    steps = "transforms:\n  all:\n    sql: select p.id from people p, t1, t2\n"
    sink = "sinks:\n  out: {from: all, console: {}}\n"
    assert look(HEAD + SOURCE + tables + steps + sink) == [
        (5, f"source 't1' reads the table {tmp_path}/no.csv, which does not exist"),
        (6, f"source 't2' reads the table {tmp_path}/*.none, which does not exist"),
    ]


def test_a_backfill_looks_first_too(broker: str, tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text((HEAD + SOURCE + SINK).replace("BROKER", broker))
    words = ("pipeline", "backfill", file, "--from", "earliest", "--to", "latest")

    outcome = run_command(*words)

    assert (outcome.code, outcome.out) == (1, "")
    assert f"{file}:6:8: error: sink 'out' writes to the topic 'copies', which" in outcome.err


@pytest.mark.slow
def test_what_the_user_reads(broker: str, tmp_path: Path) -> None:
    """The whole command: a line for each mistake, exit code 1, and no Java was started."""
    (tmp_path / "shop.yaml").write_text((HEAD + SOURCE + SINK).replace("BROKER", broker))
    (tmp_path / "java").mkdir()
    run = subprocess.run(
        [sys.executable, "-m", "odradek.cli.main", "pipeline", "run", "shop.yaml"],
        cwd=tmp_path,
        env={"PATH": "/nowhere", "HOME": str(tmp_path), "JAVA_HOME": str(tmp_path / "java")},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert (run.returncode, run.stdout) == (1, "")
    assert run.stderr == (
        f"shop.yaml:6:8: error: sink 'out' writes to the topic 'copies', which {broker} does not"
        f" have; create it: odradek topics create copies --bootstrap-server {broker}\n"
    )
    assert json.loads((tmp_path / ".odradek/shop/out/odradek.json").read_text())["lock"] is None
