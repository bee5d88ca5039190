"""YAML's core schema, environment names, secrets, `--set` and where the parts of a text stand."""

from pathlib import Path

import pytest

from odradek.spark.pipeline.file import load
from odradek.spark.pipeline.file.nodes import Fields, Scalar, plain_value
from odradek.spark.pipeline.file.problems import Problems
from odradek.spark.pipeline.file.units import (
    parse_duration_ms,
    parse_instant_ms,
    parse_size_bytes,
)
from odradek.spark.pipeline.file.yaml_tree import parse_yaml
from odradek.spark.pipeline.graph.model import (
    OnError,
    RowsInput,
    StartPosition,
    TopicInput,
    TriggerKind,
)
from tests.unit.spark.pipeline.files import HEAD, SINK, SOURCE, found, read, valid

BASE = HEAD + SOURCE


def test_values_have_the_types_of_the_core_schema(tmp_path: Path) -> None:
    """12:SP-46: `yes`, `on`, `12:30`, dates and `1_000` are strings."""
    text = BASE + SINK.replace("raw", "raw")
    text += "tests: [{name: t, given: {}, expect: {raw: [{id: 1}]}}]\n"
    text = text.replace("sinks:", """\
  words:
    rows:
      - {a: yes, b: on, c: 12:30, d: 2026-01-01, e: 1_000, f: 0x1F, g: 1.5e3, h: null, i: True}
      - {a: "1", b: '2', c: !!str 3, d: ~, e: 0o17, f: .inf, g: -7, h: !!int "4", i: ""}
sinks:""")  # fmt: skip

    rows = valid(tmp_path, text).sources["words"].input

    assert isinstance(rows, RowsInput)
    assert rows.rows[0] == {
        "a": "yes", "b": "on", "c": "12:30", "d": "2026-01-01", "e": "1_000", "f": 31, "g": 1500.0,
        "h": None, "i": True,
    }  # fmt: skip
    assert rows.rows[1] == {
        "a": "1", "b": "2", "c": "3", "d": None, "e": 15, "f": float("inf"), "g": -7, "h": 4,
        "i": "",
    }  # fmt: skip


def test_anchors_and_aliases_are_followed(tmp_path: Path) -> None:
    """12:SP-46."""
    text = (
        HEAD
        + """\
sources:
  a: {topic: a, value: &v {format: json, schema: "k bigint"}}
  b: {topic: b, value: *v}
sinks: {out: {from: b, console: {}}}
"""
    )

    pipeline = valid(tmp_path, text)

    first, second = pipeline.sources["a"].input, pipeline.sources["b"].input
    assert isinstance(first, TopicInput)
    assert isinstance(second, TopicInput)
    assert first.value == second.value


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (b"name: \xff\n", 1),
        (b"name: shop\nx: \xc3\x28\n", 2),
        (b"# " + b"x" * (1 << 20), 1),
        (b"", 1),
        (b"a: 1\n---\nb: 2\n", 2),
        (b"[" * 600, 1),
        (b"a: &a [x, x]\nb: &b [*a, *a]\n" + b"".join(
            b"%c: &%c [*%c, *%c]\n" % (c, c, c - 1, c - 1) for c in range(99, 123)), 1),
        (b"{a: 1\n", 2),
        (b"a: *nobody\n", 1),
    ],
    ids=["latin-1", "torn", "large", "empty", "two", "deep", "aliases", "open", "no-anchor"],
)  # fmt: skip
def test_what_is_no_yaml_is_one_problem(text: bytes, line: int, tmp_path: Path) -> None:
    """12:SP-46 12:SP-59: P01, whatever the bytes are."""
    path = tmp_path / "bad.yaml"
    path.write_bytes(text)

    loaded = load(str(path), environment={})

    assert loaded.pipeline is None
    assert [(one.code, one.place.line) for one in loaded.problems] == [("P01", line)]


def test_a_file_that_is_not_there_is_a_problem(tmp_path: Path) -> None:
    loaded = load(str(tmp_path / "none.yaml"), environment={})

    assert found(loaded) == [("P01", 1, 1)]
    assert "No such file" in loaded.problems[0].message


@pytest.mark.parametrize(
    ("text", "expected"),
    [("500ms", 500), ("30s", 30_000), ("15m", 900_000), ("2h", 7_200_000), ("7d", 604_800_000),
     ("30", None), ("1.5s", None), ("-1s", None), ("1 s", None), ("1w", None), ("", None)],
)  # fmt: skip
def test_durations(text: str, expected: int | None) -> None:
    """12:SP-47."""
    assert parse_duration_ms(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("512B", 512), ("64KB", 65_536), ("128MB", 128 << 20), ("1GB", 1 << 30), ("1", None),
     ("1kb", None), ("1TB", None)],
)  # fmt: skip
def test_sizes_are_powers_of_1024(text: str, expected: int | None) -> None:
    """12:SP-47."""
    assert parse_size_bytes(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1970-01-01T00:00:01Z", 1000), ("1970-01-01T01:00:00.5+01:00", 500),
     ("1970-01-02", 86_400_000),
     ("yesterday", None), ("12:30", None), ("20", None)],
)  # fmt: skip
def test_instants(text: str, expected: int | None) -> None:
    """12:SP-47."""
    assert parse_instant_ms(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", StartPosition(edge="earliest")),
        ("latest", StartPosition(edge="latest")),
        ("1970-01-01T00:00:01Z", StartPosition(timestamp_ms=1000)),
        ("{orders: {0: 5, 1: 7}}", StartPosition(offsets={"orders": {0: 5, 1: 7}})),
    ],
)
def test_positions(text: str, expected: StartPosition, tmp_path: Path) -> None:
    """12:SP-47 12:SP-49."""
    source = valid(tmp_path, BASE + f"    start: {text}\n" + SINK).sources["raw"]

    assert isinstance(source.input, TopicInput)
    assert source.input.start == expected


def test_null_is_a_word_where_it_is_one(tmp_path: Path) -> None:
    """12:SP-49."""
    source = valid(tmp_path, BASE + "    on_error: null\n" + SINK).sources["raw"]

    assert isinstance(source.input, TopicInput)
    assert source.input.on_error is OnError.NULL


def test_environment_names_are_replaced(tmp_path: Path) -> None:
    """12:SP-46: also where a number or a word is asked for; `$${` is a literal."""
    text = BASE + """\
    max_records: ${MAX}
    start: ${START:-latest}
    kafka: {client.id: "$${NOT}-${ID:-x}", group.id: "${EMPTY:-d}"}
""" + SINK  # fmt: skip

    source = valid(tmp_path, text, environment={"MAX": "5", "EMPTY": ""}).sources["raw"]

    assert isinstance(source.input, TopicInput)
    assert source.input.max_records == 5
    assert source.input.start == StartPosition(edge="latest")
    assert source.input.kafka == {"client.id": "${NOT}-x", "group.id": "d"}


def test_a_topic_from_the_environment_may_look_like_a_number(tmp_path: Path) -> None:
    text = HEAD + "sources:\n  raw: {topic: '${T}'}\n  other:\n    topic: ${T}\n" + SINK

    sources = valid(tmp_path, text, environment={"T": "2026"}).sources

    assert [getattr(one.input, "topics", ()) for one in sources.values()] == [("2026",)] * 2


def test_what_came_from_the_environment_is_in_no_message(tmp_path: Path) -> None:
    """12:SP-46."""
    text = (
        HEAD
        + """\
registry: {url: "https://r", password: s3cret-pass}
sources:
  raw: {topic: "${T}", kafka: {fetch.max.bytes: "${T}"}, max_records: "${T}"}
sinks: {out: {from: raw, jdbc: {url: "${T}", table: t, key: k, password: [pw-in-list]}}}
"""
    )

    loaded = read(tmp_path, text, environment={"T": "very secret"})

    messages = "\n".join(str(problem) for problem in loaded.problems)
    assert len(loaded.problems) == 6
    assert "***" in messages
    assert "very secret" not in messages


def test_secrets_of_a_pipeline_are_known_to_it(tmp_path: Path) -> None:
    """12:SP-46: environment values, and keys that end in password, secret, token, jaas.config."""
    text = (
        BASE
        + """\
    kafka: {ssl.key.password: kp, client.id: "${X}"}
spark: {conf: {spark.x.jaas.config: "user=me", spark.a.token: tt}}
sinks:
  out:
    from: raw
    jdbc: {url: "postgresql://h/d", table: t, key: [id], user: me, password: pw}
"""
    )

    secrets = valid(tmp_path, text, environment={"X": "from outside"}).secrets

    assert secrets == {"user=me", "kp", "tt", "from outside", "pw"}


def test_settings_lie_over_the_file(tmp_path: Path) -> None:
    """12:SP-61: `--set` takes a dotted path and YAML."""
    text = BASE + "    kafka: {client.id: a}\n" + SINK
    settings = {
        "trigger": "once",
        "sources.raw.max_records": "7",
        "sources.raw.kafka.client.id": "b",
        "spark.conf.spark.sql.shuffle.partitions": "4",
        "spark.master": "local[1]",
        "sinks.out.trigger": "{every: 5s}",
    }

    pipeline = valid(tmp_path, text, settings=settings)

    assert pipeline.trigger.kind is TriggerKind.ONCE
    assert isinstance(pipeline.sources["raw"].input, TopicInput)
    assert pipeline.sources["raw"].input.max_records == 7
    assert pipeline.sources["raw"].input.kafka == {"client.id": "b"}
    assert pipeline.spark.conf == {"spark.sql.shuffle.partitions": "4"}
    assert pipeline.spark.master == "local[1]"
    assert pipeline.sinks["out"].trigger.interval_ms == 5000


def test_a_wrong_setting_is_told_as_one(tmp_path: Path) -> None:
    """12:SP-61."""
    settings = {"sources.raw.max_records": "x", "name.first": "1", "sinkz": "2", "tests": "[1"}

    loaded = read(tmp_path, BASE + SINK, settings=settings)

    assert [(one.code, one.place.file, one.place.line) for one in loaded.problems] == [
        ("P03", "--set", 1),
        ("P01", "--set", 1),
        ("P02", "--set", 2),
        ("P02", "--set", 3),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "sql: select abc\n",
        "sql: 'it''s select abc'\n",
        'sql: "\\tx \\"q\\" \\\n   select abc"\n',
        "sql: |\n  one\n    two select\n\n  abc\n",
        "sql: >-\n    one two\n    select\n    abc\n",
        "sql: one two\n  select\n  abc\n",
        "sql: !!str 'select abc'\n",
        "sql: &x >\n  select abc\n",
    ],
)
def test_each_character_knows_where_it_stands(text: str) -> None:
    """12:SP-59: errors inside of SQL point into the file, however it is folded or quoted."""
    problems = Problems()
    root = parse_yaml(text, "f", problems)

    assert isinstance(root, Fields)
    sql = root.fields["sql"].node
    assert isinstance(sql, Scalar)
    lines = text.split("\n")
    for word in ("select", "abc"):
        place = sql.place_at(sql.text.index(word))
        assert lines[place.line - 1][place.column - 1 :].startswith(word)
    assert plain_value(root) == {"sql": sql.text}


def test_places_behind_a_replaced_name_are_right(tmp_path: Path) -> None:
    """12:SP-59."""
    text = (
        BASE
        + SINK.replace("raw", "one")
        + """\
transforms:
  one:
    sql: >
      select id, ${COLUMN} as c,
        wrong
      from raw
"""
    )
    loaded = read(tmp_path, text, environment={"COLUMN": "concat(user, user, user, user)"})

    line = text.split("\n").index("        wrong") + 1
    assert found(loaded) == [("P07", line, 9)]
