"""What streams cannot do, and what keeps a topic sink from being exactly-once."""

from pathlib import Path

import pytest

from odradek.spark.pipeline.graph.guarantees import guarantee_of, obstacles
from odradek.spark.pipeline.graph.model import ConsoleTarget, JdbcTarget, SparkSettings
from odradek.spark.pipeline.graph.order import find_cycle, in_order, upstream_of
from odradek.spark.pipeline.graph.plan import plan
from tests.unit.spark.pipeline.files import found, read, valid

TWO = """\
name: shop
bootstrap: localhost:9092
sources:
  a:
    topic: a
    value: &value {format: json, schema: "k bigint, ts timestamp"}
    watermark: &watermark {column: ts, delay: 1m}
  b: {topic: b, value: *value, watermark: *watermark}
  names: {rows: [{k: 1, name: one}]}
"""


def of(sql: str, sink: str) -> str:
    return TWO + f'transforms: {{one: {{sql: "{sql}"}}}}\nsinks: {{out: {{from: one, {sink}}}}}\n'


@pytest.mark.parametrize(
    ("sql", "sink", "codes"),
    [
        ("select a.k from a join b on a.k = b.k", "console: {}", []),
        ("select a.k from a left join b on a.k = b.k", "console: {}", []),
        ("select a.k from a join names n on a.k = n.k", "console: {}, output_mode: update", []),
        ("select a.k from a join b on a.k = b.k", "console: {}, output_mode: complete", ["P16"]),
        ("select a.k from a left join b on a.k = b.k", "topic: t, output_mode: update", ["P16"]),
        ("select k, count(*) as n from a group by k", "topic: t", ["P14"]),
        ("select k, count(*) as n from a group by k", "delta: {path: p}", ["P14"]),
        ("select k, count(*) as n from a group by k", "delta: {path: p, merge_key: k}, "
         "output_mode: update", []),
        ("select k, count(*) as n from a group by k", "files: {path: p}, output_mode: complete",
         ["P16"]),
        ("select k, count(*) as n from a group by k, window(ts, '1 hour')", "topic: t", []),
        ("select k, count(*) as n from a group by k, ts", "topic: t", []),
        ("select k, count(*) as n from a group by k, date_trunc('hour', ts)", "topic: t", ["P14"]),
        ("select count(*) as n from (select k, count(*) as n from a group by k, ts)",
         "console: {}, output_mode: complete", ["P16"]),
        ("select name, count(*) as n from names group by name", "console: {}", ["P03"]),
    ],
)  # fmt: skip
def test_output_modes_and_watermarks(sql: str, sink: str, codes: list[str], tmp_path: Path) -> None:
    """12:SP-59: P14 and P16."""
    assert [code for code, _, _ in found(read(tmp_path, of(sql, sink)))] == codes


def test_an_aggregate_is_told_once_with_all_its_sinks(tmp_path: Path) -> None:
    """12:SP-59."""
    text = of("select k, count(*) as n from a group by k", "topic: t").replace(
        "sinks: {", "sinks: {two: {from: one, files: {path: p}}, "
    )

    loaded = read(tmp_path, text)

    assert [problem.code for problem in loaded.problems] == ["P14"]
    assert "sink 'two', 'out' appends" in loaded.problems[0].message


def test_dedup_goes_by_the_time_of_records_without_watermark(tmp_path: Path) -> None:
    """12:SP-51."""
    text = TWO.replace("    watermark: &watermark {column: ts, delay: 1m}\n", "").replace(
        ", watermark: *watermark", ""
    )

    valid(
        tmp_path,
        text + "transforms: {one: {dedup: {from: a, keys: k, within: 1h}}}\n"
        "sinks: {out: {from: one, console: {}}}\n",
    )


def test_obstacles_to_exactly_once() -> None:
    """12:SP-3 12:SP-26."""
    assert obstacles(SparkSettings("local[*]", {"spark.speculation": "false"}, True)) == ()

    told = obstacles(SparkSettings("sc://host", {"spark.speculation": "true"}, True))

    assert [one.split(" ")[0] for one in told] == ["spark.speculation", "Spark"]


def test_exactly_once_behind_functions_that_differ_each_time(tmp_path: Path) -> None:
    """12:SP-27: a batch is visible whole or not at all, so it does not matter."""
    (tmp_path / "steps.py").write_text("def clean(rows):\n    return rows\n")
    text = TWO + """\
transforms:
  one: {python: "steps:clean", inputs: [a]}
  two: {sql: "select *, rand() as r from one"}
sinks:
  out: {from: two, topic: t, key: r, exactly_once: true}
  plain: {from: two, topic: t, key: r}
"""  # fmt: skip

    loaded = read(tmp_path, text)

    assert loaded.pipeline is not None, loaded.problems
    queries = plan(loaded.pipeline)["queries"]
    assert queries["out"]["guarantee"] == "exactly-once"
    assert queries["plain"]["limit"].endswith("and other rows because of rand()")


def test_guarantees_of_other_sinks() -> None:
    """12:SP-42."""
    assert guarantee_of(JdbcTarget("postgresql://h/d", "t", ("k",), None, None)).name == (
        "exactly-once"
    )
    assert guarantee_of(ConsoleTarget(20)).name == "at-least-once"


def test_order_and_cycles() -> None:
    """12:SP-59: P12."""
    inputs = {"c": ["b", "raw"], "a": ["raw"], "b": ["a"]}

    assert in_order(inputs) == ("a", "b", "c")
    assert find_cycle(inputs) is None
    assert find_cycle({**inputs, "a": ["c"]}) == ("a", "c", "b", "a")
    assert find_cycle({"a": ["a"]}) == ("a", "a")
    assert upstream_of(["b"], inputs) == ("b", "a", "raw")


def test_a_password_in_a_url_is_a_secret(tmp_path: Path) -> None:
    """12:SP-46."""
    text = TWO + """\
registry: {url: "http://u:reg-pass@r"}
sinks: {out: {from: a, jdbc: {url: "postgresql://u:db-pass@h/d", table: t, key: k}}}
"""  # fmt: skip

    assert valid(tmp_path, text).secrets == {"reg-pass", "db-pass"}
