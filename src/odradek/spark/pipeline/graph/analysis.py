"""Analyses, without Spark, the rows of every source and transform of a pipeline."""

import json
from collections.abc import Collection, Mapping

from odradek.lazy_dataclass import dataclass
from odradek.spark.pipeline.graph.ddl import DdlError, parse_ddl
from odradek.spark.pipeline.graph.lineage import ColumnProblem, relation_of_query
from odradek.spark.pipeline.graph.model import (
    AvroCodec,
    Dedup,
    JsonCodec,
    Pipeline,
    RawCodec,
    RowsInput,
    Select,
    Source,
    StringCodec,
    TableInput,
    TopicInput,
    Transform,
)
from odradek.spark.pipeline.graph.relations import (
    Column,
    Relation,
    relation_of_dedup,
    unknown_relation,
    with_watermark,
)
from odradek.spark.pipeline.graph.sql import Query, SqlError, parse_select

__all__ = ["RECORD_COLUMNS", "Analysis", "analyse", "analyse_parts", "relation_of_source"]

# The columns of a record that is not decoded, with their types.
RECORD_COLUMNS = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
}
_HEADERS = "array<struct<key: string, value: binary>>"
_ADDED_COLUMNS = ("topic", "partition", "offset", "timestamp")


@dataclass(frozen=True, slots=True)
class Analysis:
    """The rows of every source and transform, and per transform the unknown columns it names."""

    relations: Mapping[str, Relation]
    problems: Mapping[str, tuple[ColumnProblem, ...]]


def analyse(pipeline: Pipeline) -> Analysis:
    """Follows rows from the sources through the transforms of a pipeline."""
    queries: dict[str, Query] = {}
    for transform in pipeline.transforms.values():
        if isinstance(transform.step, Select):
            try:
                queries[transform.name] = parse_select(transform.step.sql)
            except SqlError:
                continue  # Only Spark can parse it; its rows stay unknown.
    return analyse_parts(pipeline.sources, pipeline.transforms, queries)


def analyse_parts(
    sources: Mapping[str, Source],
    transforms: Mapping[str, Transform],
    queries: Mapping[str, Query],
    unknown: Collection[str] = (),
) -> Analysis:
    """Analyses parts that are not a pipeline yet; each transform must come after its inputs.

    Nothing is known of the transforms in `unknown`, not even whether they are streams.
    """
    relations = {name: relation_of_source(source) for name, source in sources.items()}
    problems: dict[str, tuple[ColumnProblem, ...]] = {}
    for name, transform in transforms.items():
        inputs = {one: relations[one] for one in transform.inputs if one in relations}
        found: tuple[ColumnProblem, ...] = ()
        if name in unknown:
            relation = Relation(True, None, None)
        elif name in queries:
            relation, found = relation_of_query(queries[name], inputs, name)
        elif isinstance(transform.step, Dedup) and inputs:
            relation = relation_of_dedup(next(iter(inputs.values())), transform.step.keys, name)
        else:
            relation = unknown_relation(inputs.values(), opaque=(name,))
        if transform.watermark is not None:
            relation = with_watermark(relation, transform.watermark.column)
        relations[name] = relation
        problems[name] = found
    return Analysis(relations, problems)


def relation_of_source(source: Source) -> Relation:
    """The rows of a source."""
    match source.input:
        case TopicInput():
            columns = _topic_columns(source.input)
        case TableInput():
            columns = _ddl_columns(source.input.ddl)
        case RowsInput():
            names = dict.fromkeys(name for row in source.input.rows for name in row)
            columns = tuple(Column(name) for name in names)
    streams = (source.name,) if source.is_stream else ()
    relation = Relation(source.is_stream, columns, streams=streams)
    if source.watermark is not None:
        relation = with_watermark(relation, source.watermark.column)
    return relation


def _topic_columns(topics: TopicInput) -> tuple[Column, ...] | None:
    match topics.value:
        case RawCodec():
            raw = tuple(Column(name, False, kind) for name, kind in RECORD_COLUMNS.items())
            return (*raw, Column("headers", False, _HEADERS)) if topics.headers else raw
        case StringCodec():
            decoded: tuple[Column, ...] | None = (Column("value", False, "string"),)
        case JsonCodec():
            decoded = _ddl_columns(topics.value.ddl)
        case AvroCodec():
            decoded = _avro_columns(topics.value.schema)
    if decoded is None:
        return None
    added = [Column(f"_{name}", False, RECORD_COLUMNS[name]) for name in _ADDED_COLUMNS]
    headers = [Column("_headers", False, _HEADERS)] if topics.headers else []
    return (*decoded, Column("_key"), *added, *headers)


def _ddl_columns(ddl: str | None) -> tuple[Column, ...] | None:
    if ddl is None:
        return None
    try:
        return tuple(Column(one.name, False, one.type) for one in parse_ddl(ddl))
    except DdlError:
        return None


def _avro_columns(schema: str | None) -> tuple[Column, ...] | None:
    if schema is None:
        return None
    try:
        fields = json.loads(schema)["fields"]
        return tuple(Column(str(one["name"])) for one in fields)
    except (ValueError, KeyError, TypeError):
        return None
