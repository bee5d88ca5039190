"""What is found out of SQL without Spark: columns, event time and state, and no false alarm."""

# ruff: noqa: E501 - SQL as people write it

import pytest

from odradek.spark.pipeline.graph.lineage import relation_of_query
from odradek.spark.pipeline.graph.relations import Column, OperatorKind, Relation
from odradek.spark.pipeline.graph.sql import (
    SqlError,
    UnknownSyntaxError,
    parse_predicate,
    parse_select,
)

NAMES = ("id", "user", "amount", "ts", "tags", "props", "_timestamp")
INPUTS = {
    "raw": Relation(
        True, tuple(Column(name, name == "ts") for name in NAMES), True, streams=("raw",)
    ),
    "users": Relation(False, (Column("user"), Column("country"))),
    "clicks": Relation(True, (Column("id"), Column("at", True)), True, streams=("clicks",)),
    "closed": Relation(True, None, None, streams=("closed",)),
}

# Spark's SQL as people write it; none of it is wrong.
RIGHT = [
    "select filter(tags, x -> x > 1), transform(tags, (e, i) -> e + i), aggregate(tags, 0, (a, v) -> a + v, r -> r) from raw",
    "select date_trunc('day', ts), extract(year from ts), timestampadd(MINUTE, 5, ts), date_add(ts, 1), datediff(DAY, ts, ts), unix_timestamp(ts) from raw",
    "select id, t.tag from raw lateral view explode(tags) t as tag",
    "select id, tag from raw lateral view outer posexplode(tags) as pos, tag",
    "select props.a.b, props['x'], tags[0] from raw",
    "select r.props.a from raw r",
    "select id + 1 as x, x * 2 as y from raw",
    "select user as u, count(*) from raw group by u having count(*) > 1 order by u",
    "select /*+ broadcast(users) */ r.id from raw r join users on r.user = users.user",
    "select * except (id) from raw",
    "select count(distinct user), count_if(amount > 1), max_by(user, amount), approx_count_distinct(user) from raw",
    "select case when amount > 1 then 'a' else 'b' end k from raw",
    "select id from raw where user in (select user from users where country = raw.user)",
    "select id from raw r where exists (select 1 from users u where u.user = r.user)",
    "with a as (select id, user from raw), b as (select user from a) select b.user from b",
    "select id from (select id, amount from raw) where amount > 1",
    "select s.id from (select id from raw) s",
    "select session_window(ts, '5 minutes') as w, user, count(*) n from raw group by session_window(ts, '5 minutes'), user",
    "select window.start, window.end, count(*) from raw group by window(ts, '10 minutes', '5 minutes')",
    "select interval 5 minutes, ts + interval 1 day, current_date, current_timestamp() from raw",
    "select row_number() over (partition by user order by ts desc) rn, sum(amount) over w from raw window w as (partition by user)",
    "select stack(2, id, amount) as (a, b) from raw",
    "select inline(tags) from raw",
    "select named_struct('a', id).a, struct(id, user).user from raw",
    "select id from raw order by amount limit 5",
    "select cast(amount as decimal(10,2)), amount::int, try_cast(user as int) from raw",
    "select user, sum(amount) filter (where amount > 0) from raw group by all",
    "select a.id from raw a join clicks b on a.id = b.id and b.at between a.ts - interval 1 hour and a.ts",
    "select id from raw union all select id from clicks",
    "select u.* from users u",
    "select raw.* from raw",
    "select RAW.ID, User from Raw",
    "select `id`, `user` from `raw`",
    "select from_json(user, 'a int').a as a, to_json(struct(*)) j from raw",
    "select user, collect_list(struct(id, amount)) from raw group by user",
    "select explode(tags) as t, id from raw",
    "from raw select id",
    "select id from raw tablesample (10 percent)",
    "select * from values (1, 2) as t(a, b)",
    "select t.a from values (1, 2) as t(a, b)",
    "select id from range(10) r join raw on raw.id = r.id",
    "select * from raw natural join users",
    "select id, _timestamp from raw where user rlike 'a' and user ilike 'b'",
    "select any_value(user), grouping_id() from raw group by cube(user, id)",
    "select id from raw group by grouping sets ((id), ())",
    "select id from raw left anti join users on raw.user = users.user",
    "select hour(ts), make_timestamp(2020,1,1,0,0,0) from raw",
    "select percentile_approx(amount, 0.5), stddev(amount), first(user, true), last_value(user) from raw",
    "select element_at(props, 'k'), map_filter(props, (k, v) -> v > 1), exists(tags, t -> t is null) from raw",
    "select id from raw where ts > timestamp '2020-01-01' and ts < date '2021-01-01'",
    "select id, user.name from raw",
    "select position('a' in user), trim(both 'x' from user), substring(user from 2 for 3), overlay(user placing 'a' from 1) from raw",
    "select uuid() u, rand() r, id from raw",
    "select if(amount > 1, 1, 0), nvl(user, 'x'), coalesce(user, 'y'), amount div 2, amount % 3, !(amount > 1) from raw",
    "select id from raw where (id, user) in ((1, 'a'))",
    "select id as `my id` from raw",
    "select pivoted.* from (select * from raw pivot (sum(amount) for user in ('a'))) pivoted",
    "select x.id from raw as x cross join users",
    "select median(amount), mode(user), bool_or(amount > 1), every(amount > 1), some(amount > 1) from raw",
    "select histogram_numeric(amount, 3) from raw",
    "select ts at time zone 'UTC' from raw",
    "select date_format(ts, 'yyyy') y, to_date(user), from_unixtime(id), to_timestamp(user, 'x') from raw",
    "select * from raw |> where id > 1 |> select id",
    "select a.b from (select struct(id as b) as a from raw)",
    "select posexplode(tags) from raw",
    "select id from raw t1 where id = (select max(id) from clicks)",
    "select sum(x.amount) from raw x",
    "select collate(user, 'UTF8_LCASE') from raw",
    "select * from raw where id is not distinct from 1",
]  # fmt: skip


def relation(sql: str) -> Relation:
    found, problems = relation_of_query(parse_select(sql), INPUTS, "step")
    assert problems == ()
    return found


@pytest.mark.parametrize("sql", RIGHT)
def test_right_sql_is_not_complained_of(sql: str) -> None:
    """12:SP-59."""
    relation(sql)


@pytest.mark.parametrize(
    ("sql", "column"),
    [
        ("select idd from raw", "idd"),
        ("select r.idd from raw r", "idd"),
        ("select x.id from raw r", "x"),
        ("select id from raw where amounts > 1", "amounts"),
        ("select id from raw r join users u on r.user = u.name", "name"),
        ("select count(*) from raw group by usr", "usr"),
        ("with a as (select id from raw) select amount from a", "amount"),
        ("select id from (select id from raw) where amount > 1", "amount"),
        ("select user from raw where id in (select idd from clicks)", "idd"),
        ("select transform(tags, x -> x + y) from raw", "y"),
    ],
)
def test_columns_that_are_not_there(sql: str, column: str) -> None:
    """12:SP-59."""
    _, problems = relation_of_query(parse_select(sql), INPUTS, "step")

    assert [problem.name for problem in problems] == [column]
    assert sql[problems[0].offset :].startswith(column)


def test_where_columns_are_not_known_nothing_is_wrong() -> None:
    """12:SP-59."""
    assert relation("select anything from closed").columns == (Column("anything", None),)
    assert relation("select * from closed").columns is None
    assert relation("select c.x, amounts from raw r join closed c on r.id = c.id").is_stream


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        ("select id, user as u from raw", ["id", "u"]),
        ("select * from users", ["user", "country"]),
        ("select r.id, u.* from raw r join users u on r.user = u.user", ["id", "user", "country"]),
        ("select * except (user) from users", ["country"]),
        ("select * from users join clicks on true", ["user", "country", "id", "at"]),
        ("select props.a.b, named_struct('x', 1).x from raw", ["b", "x"]),
        ("with t (a) as (select id from raw) select * from t", ["a"]),
        ("select id from raw union all select id from clicks", ["id"]),
        ("select id + 1 from raw", None),
        ("select u.* from raw u lateral view explode(tags) t as tag", list(NAMES)),
        ("select * from raw lateral view explode(tags) t as tag", None),
    ],
)
def test_columns_of_a_result(sql: str, columns: list[str] | None) -> None:
    """12:SP-59."""
    found = relation(sql)

    names = [column.name for column in found.columns] if found.columns is not None else None
    assert names == columns


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("select ts from raw", True),
        ("select ts as t from raw", True),
        ("select window(ts, '1 minute') as w, count(*) as n from raw group by 1", True),
        ("select date_trunc('day', ts) as day from raw", False),
        ("select id from raw", False),
        ("select w.start as s from (select window(ts, '1 minute') as w from raw)", None),
        ("select ts from raw union all select at from clicks", True),
        ("select ts from raw union all select country from users", False),
        ("select x from closed", None),
    ],
)
def test_event_time_is_followed(sql: str, expected: bool | None) -> None:
    """12:SP-59."""
    assert relation(sql).event_time is expected


@pytest.mark.parametrize(
    ("sql", "kind", "keys", "bounded"),
    [
        ("select user, sum(amount) as s from raw group by user", "aggregate", ("user",), False),
        ("select USER as u, sum(amount) as s from raw group by u", "aggregate", ("user",), False),
        ("select sum(amount) as s from raw", "aggregate", (), False),
        (
            "select r.user, 1 as n from raw r group by window(r.ts, '1 minute'), r.user",
            "aggregate",
            ("WINDOW(ts, '1 minute')", "user"),
            True,
        ),
        ("select x, count(*) as n from closed group by x", "aggregate", ("x",), None),
        ("select r.id from raw r join clicks c on r.id = c.id", "join", ("id = id",), True),
        ("select id from raw r join clicks using (id)", "join", ("id",), True),
        ("select distinct id, ts from raw", "dedup", ("id", "ts"), True),
        ("select id from raw union select id from clicks", "dedup", ("id",), False),
    ],
)
def test_state_has_its_keys(
    sql: str, kind: str, keys: tuple[str, ...], bounded: bool | None
) -> None:
    """12:SP-62."""
    (operator,) = relation(sql).operators

    assert (operator.kind, operator.keys, operator.bounded) == (OperatorKind(kind), keys, bounded)


@pytest.mark.parametrize(
    "sql",
    [
        "select r.id, u.country from raw r join users u on r.user = u.user",
        "select distinct user from users",
        "select count(*) as n from users",
        "select sum(amount) over (partition by user) as s from raw",
        "select explode(tags) as t from raw",
    ],
)
def test_what_keeps_no_state_of_a_stream(sql: str) -> None:
    """12:SP-62."""
    assert relation(sql).operators == ()


def test_streams_come_in_the_order_they_are_read() -> None:
    """12:SP-62: Spark finds the sources of a checkpoint by their number."""
    one = relation("select id from raw union all select id from clicks")
    other = relation("select id from clicks union all select id from raw")
    twice = relation("select a.id from raw a join raw b on a.id = b.id")

    assert one.streams == ("raw", "clicks")
    assert other.streams == ("clicks", "raw")
    assert twice.streams == ("raw", "raw")


def test_functions_that_give_something_else_each_time_are_seen() -> None:
    """12:SP-26."""
    found = relation("select uuid() as u, rand() as r, now() as n, id from raw").unrepeatable

    assert set(found) == {"uuid", "rand", "now"}


@pytest.mark.parametrize(
    "sql",
    [
        "select id from raw watermark ts delay of interval 1 minute",
        "select payload:user.name from raw",
    ],
)
def test_what_only_spark_can_read_is_told_apart(sql: str) -> None:
    """12:SP-59."""
    with pytest.raises(UnknownSyntaxError):
        parse_select(sql)


@pytest.mark.parametrize(
    ("sql", "tables"),
    [
        ("select * from a join b on a.x = b.x join A c on true", ["a", "b"]),
        ("with a as (select * from b) select * from a", ["b"]),
        ("with a as (select * from a) select * from a", ["a"]),
        ("select * from (select * from a) where x in (select x from b)", ["a", "b"]),
        ("select * from range(5)", []),
        ("select * from db.t", ["db.t"]),
    ],
)
def test_tables_of_a_query(sql: str, tables: list[str]) -> None:
    """12:SP-51."""
    assert [table.name for table in parse_select(sql).tables] == tables


@pytest.mark.parametrize("sql", ["", "select 1", "a as b", "a > 0; b > 0", "a >", "drop table a"])
def test_what_is_no_predicate(sql: str) -> None:
    """12:SP-52."""
    with pytest.raises(SqlError):
        parse_predicate(sql)
