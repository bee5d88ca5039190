"""Every code of a problem, alone in a file, at its exact place."""

from pathlib import Path

import pytest

from odradek.spark.pipeline.file import Severity
from tests.unit.spark.pipeline.files import HEAD, SINK, SOURCE, found, place_of_mark, read

BASE = HEAD + SOURCE
STREAM_PAIR = """\
sources:
  a: {topic: a, value: {format: json, schema: "k bigint, ts timestamp"}, watermark: {column: ts, delay: 1m}}
  b: {topic: b, value: {format: json, schema: "k bigint, ts timestamp"}}
"""  # noqa: E501 - as people write it

# (code, what the message says, the file).
CASES = [
    ("P01", "not readable as YAML", BASE + SINK + "tests: [§"),
    ("P01", "duplicate key 'topic' (first in line 5)", HEAD + """\
sources:
  raw:
    topic: orders
    §topic: others
""" + SINK),
    ("P01", "tag '!env' is not in YAML's core schema",
     HEAD + "kafka: {client.id: §!env x}\n" + SOURCE + SINK),
    ("P01", "an alias is inside of the value it refers to",
     BASE + "  loop: {rows: §&x [{a: *x}]}\n" + SINK),
    ("P02", "unknown key 'sink' in the pipeline (did you mean 'sinks'?)",
     BASE + SINK + "§sink: {}\n"),
    ("P02", "unknown key 'max_record' in source 'raw' (did you mean 'max_records'?)",
     BASE + "    §max_record: 5\n" + SINK),
    ("P02", "unknown key 'start' in source 'users': it is for topics, not for 'rows'",
     BASE + "  users: {rows: [{a: 1}], §start: latest}\n" + SINK),
    ("P02", "keys begin with 'spark.'",
     BASE + SINK + "spark: {conf: {§sql.shuffle.partitions: 2}}\n"),
    ("P02", "unknown key 'schema' in 'value' of source 'text'",
     BASE + "  text: {topic: t, value: {format: string, §schema: a int}}\n" + SINK),
    ("P02", "unknown key 'security.protokol' in 'kafka' of the pipeline (did you mean "
     "'security.protocol'?)", HEAD + "kafka: {§security.protokol: SSL}\n" + SOURCE + SINK),
    ("P02", "unknown key 'nobody.knows' in 'kafka' of the pipeline",
     HEAD + "kafka: {§nobody.knows: 1}\n" + SOURCE + SINK),
    ("P02", "unknown key 'isolation.level' in 'kafka' of the pipeline: set 'isolation' of a source",
     HEAD + "kafka: {§isolation.level: read_committed}\n" + SOURCE + SINK),
    ("P02", "unknown key 'compression.type' in 'kafka' of source 'raw': it is for sinks, and "
     "sources cannot use it", BASE + "    kafka: {§compression.type: zstd}\n" + SINK),
    ("P02", "unknown key 'fetch.max.bytes' in 'kafka' of sink 'out': it is for sources",
     BASE + "sinks: {out: {from: raw, topic: t, kafka: {§fetch.max.bytes: 1000}}}\n"),
    ("P02", "unknown key 'fetch.min.bytes' in 'kafka' of 'dlq' of the pipeline",
     BASE + SINK + "dlq: {topic: t, kafka: {§fetch.min.bytes: 1}}\n"),
    ("P02", "unknown key 'minPartition' in 'options' of source 'raw' (did you mean "
     "'minPartitions'?)", BASE + "    options: {§minPartition: 1}\n" + SINK),
    ("P02", "unknown key 'subscribe' in 'options' of source 'raw': set 'topic'",
     BASE + "    options: {§subscribe: other}\n" + SINK),
    ("P02", "unknown key 'kafka.acks' in 'options' of source 'raw': it is for sinks",
     BASE + "    options: {§kafka.acks: all}\n" + SINK),
    ("P03", "'fetch.max.bytes' in 'kafka' of the pipeline cannot be used",
     HEAD + "kafka: {fetch.max.bytes: §much}\n" + SOURCE + SINK),
    ("P03", "sinks write with an idempotent producer",
     BASE + "sinks: {out: {from: raw, topic: t, kafka: {acks: §1}}}\n"),
    ("P03", "'kafka.fetch.max.bytes' in 'options' of source 'raw' cannot be used",
     BASE + "    options: {kafka.fetch.max.bytes: §much}\n" + SINK),
    ("P03", "'max_records' of source 'raw' has to be an integer, found 'many'",
     BASE + "    max_records: §many\n" + SINK),
    ("P03", "has to be an integer of at least 1, found 0", BASE + "    max_records: §0\n" + SINK),
    ("P03", "has to be one of fail, drop, dlq, null, found 'drp' (did you mean 'drop'?)",
     BASE + "    on_error: §drp\n" + SINK),
    ("P03", "has to be a duration such as 500ms, 30s, 15m, 2h or 7d, found '30'",
     BASE + "    watermark: {column: ts, delay: §'30'}\n" + SINK),
    ("P03", "has to be a size such as", BASE + "    max_bytes: §5\n" + SINK),
    ("P03", "has to be true or false, found 'yes'", BASE + "    headers: §yes\n" + SINK),
    ("P03", "has to be earliest, latest, an ISO-8601 instant",
     BASE + "    start: §12:30\n" + SINK),
    ("P03", "'start.orders.0' of source 'raw' has to be a partition and its offset",
     BASE + "    start: {orders: {0: §-5}}\n" + SINK),
    ("P03", "'start' of source 'raw' has topic 'order', which it does not read (did you mean "
     "'orders'?)", BASE + "    start: {orders: {0: 5}, §order: {0: 1}}\n" + SINK),
    ("P03", "'start' of source 'two' has no offset for topic 'b', which it reads",
     BASE + "  two: {topic: [a, b], start: §{a: {0: 5}}}\n" + SINK),
    ("P03", "has partition 2 of topic 'a', which it does not read",
     BASE + "  two: {assign: {a: [0]}, start: {§a: {0: 5, 2: 1}}}\n" + SINK),
    ("P03", "'start' of source 'two' has no offset for partition 1 of topic 'a'",
     BASE + "  two: {assign: {a: [0, 1]}, start: §{a: {0: 5}}}\n" + SINK),
    ("P03", "has topic 'b1', which it does not read",
     BASE + "  two: {topic_pattern: 'a.', start: {a1: {0: 5}, §b1: {0: 5}}}\n" + SINK),
    ("P03", "'topic_pattern' of source 'two' is not a regular expression",
     BASE + "  two: {topic_pattern: §'a(', start: {a1: {0: 5}}}\n" + SINK),
    ("P03", "'version' of the pipeline has to be 1, found 2",
     HEAD + "version: §2\n" + SOURCE + SINK),
    ("P03", "'bootstrap' of the pipeline has to be host:port",
     "name: shop\nbootstrap: §localhost\n" + SOURCE + SINK),
    ("P03", "is not a topic name", HEAD + "sources: {raw: {topic: §'a b'}}\n" + SINK),
    ("P03", "has to be local[*], spark://", BASE + SINK + "spark: {master: §mesos}\n"),
    ("P03", "'max_backoff' of 'restart' of the pipeline is less than 'backoff'",
     BASE + SINK + "restart: {backoff: 2m, max_backoff: §1m}\n"),
    ("P03", "'trigger' of the pipeline has to be once, continuous or {every: duration}",
     BASE + SINK + "trigger: §always\n"),
    ("P03", "has to begin with postgresql://, found 'mysql:'",
     BASE + "sinks: {out: {from: raw, jdbc: {url: §'mysql://h/d', table: t, key: id}}}\n"),
    ("P03", "sink 'out' needs a stream: 'users' is not one",
     BASE + "  users: {rows: [{a: 1}]}\nsinks: {out: {from: §users, console: {}}}\n"),
    ("P03", "column 'user' in 'watermark' of source 'raw' has to be a timestamp, is string",
     BASE + "    watermark: {column: §user, delay: 1m}\n" + SINK),
    ("P03", "'inputs' of transform 'one' has to be the tables that its SQL reads: raw",
     BASE + "  more: {rows: [{a: 1}]}\n" + SINK.replace("raw", "one")
     + "transforms: {one: {sql: select id from raw, inputs: [§raw, more]}}\n"),
    ("P04", "environment name USERX is not set",
     BASE + "    kafka: {client.id: 'x-§${USERX}'}\n" + SINK),
    ("P05", "the pipeline needs 'name'", "§bootstrap: localhost:9092\n" + SOURCE + SINK),
    ("P05", "the pipeline needs 'bootstrap': source 'raw' has a topic",
     "§name: shop\n" + SOURCE + SINK),
    ("P05", "sink 'out' needs 'from'", BASE + "sinks: {out: §{console: {}}}\n"),
    ("P05", "the pipeline needs at least one of 'sinks'", "§" + BASE),
    ("P05", "in avro needs 'registry' of the pipeline, or 'schema'",
     HEAD + "sources: {raw: {topic: t, value: §avro}}\n" + SINK),
    ("P05", "'jdbc' of sink 'out' needs 'key'",
     BASE + "sinks: {out: {from: raw, jdbc: §{url: 'postgresql://h/d', table: t}}}\n"),
    ("P05", "transform 'one' needs 'inputs'",
     BASE + SINK.replace("raw", "one") + "transforms: {one: §{python: 'json:dumps'}}\n"),
    ("P05", "'max_delay' of source 'raw' needs 'min_records'",
     BASE + "    §max_delay: 1m\n" + SINK),
    ("P06", "'Shop' is not allowed as the name of a pipeline",
     "name: §Shop\nbootstrap: localhost:9092\n" + SOURCE + SINK),
    ("P06", "'1st' is not allowed as the name of a source",
     BASE + "  §1st: {topic: t}\n" + SINK),
    ("P06", "the name 'RAW' of a transform is taken by 'raw'",
     BASE + SINK + "transforms: {§RAW: {sql: select 1 as a}}\n"),
    ("P06", "'dlq' is not allowed as the name of a sink",
     BASE + "sinks: {§dlq: {from: raw, console: {}}}\n"),
    ("P06", "the name 'a' of a rule is taken in source 'raw'",
     BASE + "    expect: [{name: a, where: id > 1}, {name: §a, where: id > 2}]\n" + SINK),
    ("P07", "unknown source 'rwa' in transform 'named' (did you mean 'raw'?)",
     BASE + SINK.replace("raw", "named") + "transforms: {named: {sql: select id from §rwa}}\n"),
    ("P07", "unknown source 'row' in sink 'out' (did you mean 'raw'?)",
     BASE + SINK.replace("raw", "§row")),
    ("P07", "unknown column 'usr' in 'key' of sink 'out' (did you mean 'user'?)",
     BASE + "sinks: {out: {from: raw, topic: t, key: §usr}}\n"),
    ("P07", "unknown column 'amounts' in transform 'one' (did you mean 'amount'?)",
     BASE + SINK.replace("raw", "one")
     + "transforms: {one: {sql: 'select id, §amounts from raw'}}\n"),
    ("P07", "unknown column 'time' in 'watermark' of source 'raw'",
     BASE + "    watermark: {column: §time, delay: 1m}\n" + SINK),
    ("P07", "unknown column 'amt' in rule 'positive' of source 'raw'",
     BASE + "    expect: [{name: positive, where: 'id > 0 and §amt > 0'}]\n" + SINK),
    ("P07", "unknown column 'uid' in rows of 'raw' of test 'one'",
     BASE + SINK + "tests: [{name: one, given: {raw: [{id: 1}, {§uid: 2}]}, expect: {raw: []}}]\n"),
    ("P08", "SQL of transform 'one' does not parse: 'c' is not expected here",
     BASE + SINK.replace("raw", "one") + "transforms: {one: {sql: select id b §c from raw}}\n"),
    ("P08", "expected one SELECT, found INSERT",
     BASE + SINK + "transforms: {one: {sql: §insert into raw select 1}}\n"),
    ("P08", "expected one SELECT, found several",
     BASE + SINK + "transforms: {one: {sql: 'select 1 as a; select §2 as b'}}\n"),
    ("P08", "nothing follows ','",
     BASE + SINK + "transforms: {one: {sql: 'select id§, from raw'}}\n"),
    ("P08", "a quote or a comment has no end",
     BASE + SINK + "transforms: {one: {sql: select §`id from raw}}\n"),
    ("P08", "'where' of rule 'a' of source 'raw' does not parse",
     BASE + "    expect: [{name: a, where: amount amount §> 0}]\n" + SINK),
    ("P08", "the schema of 'value' of source 'raw' does not parse: 'foo' is not a type",
     HEAD + "sources: {raw: {topic: t, value: {format: json, schema: 'a int, b §foo'}}}\n" + SINK),
    ("P08", "a column is missing before ','",
     HEAD + "sources: {raw: {topic: t, value: {format: json, schema: 'a int,§, b int'}}}\n" + SINK),
    ("P08", "column 'A' is there twice",
     HEAD + "sources: {raw: {topic: t, value: {format: json, schema: 'a int, §A int'}}}\n" + SINK),
    ("P09", "column '_offset' of 'value' of source 'raw' is reserved for records",
     HEAD + "sources: {raw: {topic: t, value: {format: json, schema: 'a int, §_offset int'}}}\n"
     + SINK),
    ("P10", "'$ref' of a JSON Schema is not supported", HEAD + """\
sources:
  raw:
    topic: t
    value:
      format: json
      json_schema:
        type: object
        properties: {a: {type: string}, b: {type: string, §$ref: "#/x"}}
""" + SINK),
    ("P11", "source 'raw' needs exactly one of 'topic', 'topic_pattern', 'assign', 'table', 'rows',"
     " found 'topic' and 'rows'", BASE + "    §rows: []\n" + SINK),
    ("P11", "sink 'out' needs exactly one of", BASE + "sinks: {out: §{from: raw}}\n"),
    ("P11", "found 'schema' and 'json_schema'",
     HEAD + "sources: {raw: {topic: t, value: {format: json, schema: a int, §json_schema: {}}}}\n"
     + SINK),
    ("P12", "transforms read each other in a circle: a -> b -> a", BASE + SINK + """\
transforms:
  a: §{sql: select * from b}
  b: {sql: select * from a}
"""),
    ("P13", "transform 'one' is used by no sink and no test",
     BASE + SINK + "transforms: {one: §{sql: select id from raw}}\n"),
    ("P14", "transform 'both' joins two streams, and not both have a watermark",
     HEAD + STREAM_PAIR + SINK.replace("raw", "both")
     + "transforms: {both: {sql: select a.k from a join §b on a.k = b.k}}\n"),
    ("P14", "transform 'sums' aggregates a stream without a watermark on a grouping column, and "
     "sink 'out' appends",
     BASE + "sinks: {out: {from: sums, files: {path: out}}}\n"
     + "transforms: {sums: {sql: 'select user, count(*) as n from raw group by §user'}}\n"),
    ("P14", "without a watermark on a grouping column",
     BASE + "    watermark: {column: ts, delay: 1m}\nsinks: {out: {from: sums, topic: t}}\n"
     + "transforms: {sums: {sql: 'select user, count(*) as n from raw group by §user'}}\n"),
    ("P14", "drops duplicates of a stream without watermark",
     HEAD + "sources: {raw: {topic: t}}\n" + SINK.replace("raw", "once")
     + "transforms: {once: §{dedup: {from: raw, keys: [key], within: 1h}}}\n"),
    ("P15", "is a folder of this machine, which the master spark://m:7077 cannot use",
     BASE + SINK + "checkpoint: §./checkpoints\nspark: {master: 'spark://m:7077'}\n"),
    ("P15", "the checkpoint s4://b/c cannot be opened: expected a path, or a URI of file, hdfs, ",
     BASE + SINK + "checkpoint: §s4://b/c\n"),
    ("P15", "the checkpoint dbfs:/c cannot be opened",
     BASE + SINK + "checkpoint: §dbfs:/c\nspark: {master: 'spark://m:7077'}\n"),
    ("P16", "sink 'out' cannot have output mode 'update': a folder of files takes append",
     BASE + "sinks: {out: {from: raw, files: {path: out}, output_mode: §update}}\n"),
    ("P16", "a Delta table without 'merge_key' takes append",
     BASE + "sinks: {out: {from: raw, delta: {path: out}, output_mode: §update}}\n"),
    ("P16", "only an aggregate has a complete result",
     BASE + "sinks: {out: {from: raw, console: {}, output_mode: §complete}}\n"),
    ("P17", "sink 'out' cannot be 'exactly_once': spark.speculation runs a task twice",
     BASE + "sinks: {out: {from: raw, topic: t, exactly_once: §true}}\n"
     "spark: {conf: {spark.speculation: true}}\n"),
    ("P17", "'dlq' cannot be 'exactly_once': spark.speculation runs a task twice",
     BASE + "    on_error: dlq\n" + SINK + "dlq: {topic: d, exactly_once: §true}\n"
     "spark: {conf: {spark.speculation: true}}\n"),
    ("P18", "'on_error' of source 'raw' is 'dlq', but the pipeline has no 'dlq'",
     BASE + "    on_error: §dlq\n" + SINK),
    ("P18", "rule 'a' of source 'raw' is 'dlq', but the pipeline has no 'dlq'",
     BASE + "    expect: [{name: a, where: §id > 0, action: dlq}]\n" + SINK),
    ("P19", "cannot read 'missing.sql' of transform 'one'",
     BASE + SINK + "transforms: {one: {sql_file: §missing.sql}}\n"),
    ("P19", "there is no module 'no_such_module' in the pipeline's folder or on Python's path",
     BASE + SINK.replace("raw", "one")
     + "transforms: {one: {python: §'no_such_module:f', inputs: [raw]}}\n"),
    ("P19", "module 'json' has no function 'dumpz' (did you mean 'dump",
     BASE + SINK.replace("raw", "one")
     + "transforms: {one: {python: §'json:dumpz', inputs: [raw]}}\n"),
    ("P19", "cannot read 'missing.py' of 'include'", BASE + SINK + "include: [§missing.py]\n"),
    ("P20", "unknown source 'rwa' in test 'one' (did you mean 'raw'?)",
     BASE + SINK + "tests: [{name: one, given: {§rwa: []}, expect: {raw: []}}]\n"),
    ("P20", "unknown source or transform 'flat' in test 'one'",
     BASE + SINK + "tests: [{name: one, given: {}, expect: {§flat: []}}]\n"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "message", "text"),
    CASES,
    ids=[f"12:{code}-{number}" for number, (code, _, _) in enumerate(CASES)],
)
def test_a_problem_is_told_at_its_place(code: str, message: str, text: str, tmp_path: Path) -> None:
    """12:SP-59: each code at its exact place.

    12:P01 12:P02 12:P03 12:P04 12:P05 12:P06 12:P07 12:P08 12:P09 12:P10
    12:P11 12:P12 12:P13 12:P14 12:P15 12:P16 12:P17 12:P18 12:P19 12:P20
    """
    loaded = read(tmp_path, text)

    path = str(tmp_path / "shop.yaml")
    line, column = place_of_mark(text)
    same = [one for one in loaded.problems if one.code == code and message in one.message]
    assert [(one.place.line, one.place.column) for one in same] == [(line, column)], [
        str(problem) for problem in loaded.problems
    ]
    severity = "warning" if code == "P13" else "error"
    assert str(same[0]).startswith(f"{path}:{line}:{column}: {severity} {code}: ")
    assert {one.code for one in loaded.problems} <= {code, "P13"}
    assert (loaded.pipeline is None) == (severity == "error")


def test_each_code_is_among_the_cases() -> None:
    assert {code for code, _, _ in CASES} == {f"P{number:02}" for number in range(1, 21)}


def test_all_problems_are_told_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    """12:SP-59."""
    loaded = read(
        tmp_path,
        """\
name: Shop
sources:
  raw: {topic: orders, max_record: 5, value: {format: json, schema: "a foo"}}
transforms:
  one: {sql: select id from rwa}
sinks:
  out: {from: one, topic: t, exactly_once: true}
  dlq: {from: raw}
spark: {conf: {spark.speculation: true}}
""",
    )

    assert [(code, line) for code, line, _ in found(loaded)] == [
        ("P05", 1),
        ("P06", 1),
        ("P02", 3),
        ("P08", 3),
        ("P07", 5),
        ("P17", 7),
        ("P06", 8),
        ("P11", 8),
    ]
    assert all(problem.severity is Severity.ERROR for problem in loaded.problems)
