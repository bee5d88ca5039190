"""The same pipeline in YAML, with `.sql` files and in Python; and what is wrong with the latter."""

import json
from pathlib import Path

import pytest

from odradek.spark.pipeline.file import load
from odradek.spark.pipeline.graph.model import PythonFunction, Watermark
from odradek.spark.pipeline.graph.plan import plan
from tests.unit.spark.pipeline.files import EXAMPLE, HEAD, SINK, SOURCE, found, read, valid

BASE = HEAD + SOURCE

SQL_STEPS = """\
-- The steps of the example.

-- name: per_country
select window(ts, '1 minute') as w, -- one minute
  country, sum(amount) as total, count(*) as n
from named
group by window(ts, '1 minute'), country;

-- name: flat
select w.start as minute, country, total, n from per_country

-- name: named
select r.*, u.country from raw r left join users u on r.user = u.user ;
"""

PYTHON = '''\
from odradek.spark import json, pipeline

p = pipeline(
    "orders",
    version=1,
    bootstrap="${KAFKA:-localhost:9092}",
    checkpoint="./_checkpoints",
    trigger={"every": "2s"},
    dlq={"topic": "orders.dlq"},
)
p.source(
    "raw",
    topic="orders",
    start="earliest",
    max_records=500_000,
    value=json("id bigint, user string, amount double, ts timestamp"),
    on_error="dlq",
    watermark=("ts", "30s"),
    expect=[
        {"name": "positive", "where": "amount > 0", "action": "dlq"},
        {"name": "has_user", "where": "user is not null", "action": "drop"},
    ],
)
p.source(
    "users",
    table={"format": "parquet", "path": "./users.parquet", "schema": "user string, country string"},
)
p.transform(
    "named", sql="select r.*, u.country from raw r left join users u on r.user = u.user"
)
p.transform(
    "per_country",
    sql="""
    select window(ts, '1 minute') as w, country, sum(amount) as total, count(*) as n
    from named group by window(ts, '1 minute'), country
    """,
)
p.transform("flat", sql="select w.start as minute, country, total, n from per_country")
p.sink("totals", from_="flat", topic="country-totals", key="country", value=json())
p.sink(
    "lake",
    from_="named",
    delta={
        "path": "./lake/orders",
        "partition_by": ["country"],
        "target_file": "128MB",
        "compact_every": 100,
    },
)
p.sink(
    "archive",
    from_="raw",
    files={"format": "parquet", "path": "./archive", "max_records_per_file": 1000000},
)
p.test("nothing comes of nothing", given={}, expect={"flat": []})
'''


def test_a_pipeline_written_three_ways_has_one_plan(tmp_path: Path) -> None:
    """12:SP-4 12:SP-65 12:SP-66."""
    head, _, rest = EXAMPLE.partition("transforms:\n")
    with_sql = head + "include: [steps.sql]\n" + rest[rest.index("sinks:\n") :]
    (tmp_path / "steps.sql").write_text(SQL_STEPS)

    in_yaml = plan(valid(tmp_path, EXAMPLE, name="orders.yaml"))
    in_sql = plan(valid(tmp_path, with_sql, name="orders2.yaml"))
    in_python = plan(valid(tmp_path, PYTHON, name="orders.py"))

    assert in_yaml == in_sql
    assert in_yaml == in_python
    assert json.dumps(in_yaml) == json.dumps(in_sql) == json.dumps(in_python)
    assert list(in_yaml["queries"]) == ["archive", "lake", "totals", "dlq"]


def test_functions_are_the_same_by_name_and_by_decorator(tmp_path: Path) -> None:
    """12:SP-66: also where the decorated function is in an included file."""
    by_name = BASE + "transforms: {clean: {python: 'steps:clean', inputs: [raw]}}\n"
    (tmp_path / "steps.py").write_text(
        "from odradek.spark import transform\n\n"
        "@transform(inputs=['raw'])\ndef clean(raw):\n    return raw\n"
    )
    sink = SINK.replace("raw", "clean")

    named = valid(tmp_path, by_name + sink)
    decorated = valid(tmp_path, BASE + sink + "include: [steps.py]\n")

    assert plan(named) == plan(decorated)
    step = decorated.transforms["clean"].step
    assert isinstance(step, PythonFunction)
    assert step.call is not None
    assert step.call("rows") == "rows"


def test_all_parts_can_be_in_included_python(tmp_path: Path) -> None:
    """12:SP-66."""
    (tmp_path / "parts.py").write_text(
        """\
from odradek.spark import sink, source, string, transform

source("more", topic="more", value=string())
transform("both", sql="select user as v from raw union all select value as v from more")
sink("out", from_="both", topic="t", key="v")

@transform
def unused(raw):
    return raw
"""
    )

    loaded = read(tmp_path, BASE + "include: [parts.py]\n")

    assert [(one.code, Path(one.place.file).name, one.place.line) for one in loaded.problems] == [
        ("P05", "parts.py", 7),
        ("P13", "parts.py", 7),
    ]
    text = (tmp_path / "parts.py").read_text()
    (tmp_path / "parts.py").write_text(text[: text.index("@transform")])
    pipeline = valid(tmp_path, BASE + "include: [parts.py]\n")
    assert list(pipeline.sources) == ["raw", "more"]
    assert pipeline.transforms["both"].inputs == ("raw", "more")


def test_decorators_of_a_pipeline(tmp_path: Path) -> None:
    """12:SP-66."""
    pipeline = valid(
        tmp_path,
        """\
from odradek.spark import avro, json, pipeline, raw

shop = pipeline("shop", bootstrap="h:1", registry={"url": "http://r"})
shop.source("raw", topic="orders", key=raw(), value=avro(subject="s"), start={"orders": {0: 5}})

@shop.transform(inputs=["raw"], watermark=("ts", "30s"), expect=[{"name": "a", "where": "x > 1"}])
def flat(raw):
    return raw

shop.sink("totals", from_="flat", topic="t", value=json(columns=["a"]))
""",
        name="shop.py",
    )

    assert pipeline.transforms["flat"].watermark == Watermark("ts", 30_000)
    assert pipeline.transforms["flat"].inputs == ("raw",)
    assert pipeline.transforms["flat"].step.reference == "shop:flat"  # type: ignore[union-attr]
    assert [rule.name for rule in pipeline.transforms["flat"].expect] == ["a"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 1\n", ("P05", 1)),
        ("from odradek.spark import pipeline\na = pipeline('a')\nb = pipeline('b')\n", ("P11", 3)),
        ("import os\nraise ValueError('no')\n", ("P01", 2)),
        ("def f(:\n", ("P01", 1)),
        ("import no_such_module_at_all\n", ("P01", 1)),
        ("import sys\n\nsys.exit(3)\n", ("P01", 3)),
    ],
    ids=["none", "two", "raises", "syntax", "import", "exit"],
)
def test_python_that_declares_no_pipeline(
    text: str, expected: tuple[str, int], tmp_path: Path
) -> None:
    """12:SP-66."""
    loaded = read(tmp_path, text, name="shop.py")

    assert [(code, line) for code, line, _ in found(loaded)] == [expected]


def test_problems_of_python_have_the_line_of_the_call(tmp_path: Path) -> None:
    """12:SP-66."""
    loaded = read(
        tmp_path,
        """\
from odradek.spark import pipeline
p = pipeline("shop", bootstrap="h:1")
p.source("raw", topic="orders", max_record=5)

p.sink("out", from_="rwa", console={})
p.sink("out", from_="raw", console={})
""",
        name="shop.py",
    )

    assert found(loaded) == [("P02", 3, 1), ("P07", 5, 1), ("P06", 6, 1)]


def test_a_pipeline_in_an_included_file_is_refused(tmp_path: Path) -> None:
    """12:SP-66."""
    (tmp_path / "a.py").write_text("from odradek.spark import pipeline\np = pipeline('a')\n")

    loaded = read(tmp_path, BASE + SINK + "include: [a.py]\n")

    assert [(one.code, one.place.line) for one in loaded.problems] == [("P11", 2)]


def test_sql_files_have_watermarks_and_rules(tmp_path: Path) -> None:
    """12:SP-65."""
    (tmp_path / "steps.sql").write_text(
        """\
-- name: clean
-- watermark: ts 30s
-- expect positive drop: amount > 0
-- A comment is no rule.
-- expect known dlq: user is not null
select * from raw where id > 0;  -- done
-- name: ids
select id from clean
"""
    )
    text = BASE + SINK.replace("raw", "ids") + "include: [steps.sql]\ndlq: {topic: letters}\n"

    transforms = valid(tmp_path, text).transforms

    clean = transforms["clean"]
    assert clean.watermark == Watermark("ts", 30_000)
    assert [(rule.name, str(rule.action), rule.where) for rule in clean.expect] == [
        ("positive", "drop", "amount > 0"),
        ("known", "dlq", "user is not null"),
    ]
    assert clean.step.sql == "select * from raw where id > 0"  # type: ignore[union-attr]
    assert clean.step.first_line == 6  # type: ignore[union-attr]
    assert list(transforms) == ["clean", "ids"]


def test_problems_of_sql_files_have_their_own_lines(tmp_path: Path) -> None:
    """12:SP-65."""
    (tmp_path / "steps.sql").write_text(
        """\
select 1;
-- name: one
-- watermark: ts
-- expect a skip: id > 0
select id,
  idd
from raw;
-- name: 2nd
select 1 as a; select 2 as b
-- name: one
select id from raw
"""
    )

    loaded = read(tmp_path, BASE + SINK + "include: [steps.sql]\n")

    assert all(Path(one.place.file).name == "steps.sql" for one in loaded.problems)
    assert found(loaded) == [
        ("P08", 1, 1),
        ("P13", 2, 10),
        ("P03", 3, 1),
        ("P03", 4, 13),
        ("P07", 6, 3),
        ("P06", 8, 10),
        ("P13", 8, 10),
        ("P08", 9, 23),
        ("P06", 10, 10),
    ]


def test_a_python_file_may_import_its_neighbours(tmp_path: Path) -> None:
    """12:SP-66: and what it prints does not spoil the command's output."""
    (tmp_path / "neighbour_of_shop.py").write_text("TOPIC = 'orders'\n")
    (tmp_path / "shop.py").write_text(
        "from odradek.spark import pipeline\nfrom neighbour_of_shop import TOPIC\n"
        "p = pipeline('shop', bootstrap='h:1')\n"
        "p.source('raw', topic=TOPIC)\np.sink('out', from_='raw', console={})\n"
    )

    loaded = load(str(tmp_path / "shop.py"), environment={})

    assert loaded.problems == ()
