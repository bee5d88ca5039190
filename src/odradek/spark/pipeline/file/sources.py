"""Reads `sources`: topics, tables and rows."""

import re
from typing import Any

from odradek.spark.pipeline.file.clients import (
    ClientKind,
    properties_for,
    read_clients,
    read_options,
)
from odradek.spark.pipeline.file.codecs import read_ddl, read_source_codec
from odradek.spark.pipeline.file.nodes import Fields, Items, Node, Scalar, plain_value
from odradek.spark.pipeline.file.problems import suggestion
from odradek.spark.pipeline.file.rules import read_expectations, read_watermark
from odradek.spark.pipeline.file.section import Context, Section
from odradek.spark.pipeline.file.units import parse_instant_ms
from odradek.spark.pipeline.graph.model import (
    OnDataLoss,
    OnError,
    RowsInput,
    Source,
    StartPosition,
    TableInput,
    TopicInput,
)
from odradek.spark.pipeline.graph.topics import missing_offsets, unread_offsets

__all__ = ["check_topic", "read_position", "read_rows", "read_source"]

KINDS = ("topic", "topic_pattern", "assign", "table", "rows")
STREAM_KEYS = (
    "start",
    "max_records",
    "max_bytes",
    "min_records",
    "max_delay",
    "headers",
    "key",
    "value",
    "on_error",
    "on_data_loss",
    "isolation",
    "watermark",
    "kafka",
    "options",
)
TABLE_FORMATS = ("parquet", "json", "csv", "delta")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


def read_source(
    context: Context, name: str, node: Node, *, kafka: dict[str, str], has_registry: bool
) -> Source:
    """Reads one source; a wrong value is reported and replaced by its default."""
    section = Section(context, node, f"source '{name}'")
    kind = section.exactly_one_of(KINDS) if isinstance(node, Fields) else None
    watermark = None
    if kind in {"table", "rows"}:
        read: Any = _table(section) if kind == "table" else _rows(section)
    else:
        read = _topics(section, kafka=kafka, has_registry=has_registry)
        watermark = read_watermark(section)
    source = Source(
        name=name,
        input=read,
        watermark=watermark,
        expect=read_expectations(section),
        place=section.place,
    )
    section.finish(elsewhere=STREAM_KEYS, why=f"it is for topics, not for '{kind}'")
    return source


def read_position(section: Section, key: str, default: StartPosition) -> StartPosition:
    """Reads a position: an edge, an instant or offsets."""
    expected = "earliest, latest, an ISO-8601 instant, or {topic: {partition: offset}}"
    node = section.node(key)
    if node is None:
        return default
    if isinstance(node, Fields):
        return _offsets(section, node)
    text = node.text if isinstance(node, Scalar) and isinstance(node.value, str) else ""
    if text in {"earliest", "latest"}:
        return StartPosition(edge=text)
    instant = parse_instant_ms(text)
    if instant is None:
        section.wrong_type(node, f"'{key}'", expected)
        return default
    return StartPosition(timestamp_ms=instant)


def read_rows(section: Section, key: str, what: str) -> tuple[dict[str, Any], ...]:
    """Reads a list of maps."""
    rows: list[dict[str, Any]] = []
    for item in section.items(key, "a list of rows"):
        if isinstance(item, Fields):
            rows.append(plain_value(item))
        else:
            section.wrong_type(item, what, "a map of columns")
    return tuple(rows)


def check_topic(section: Section, topic: str, place: Any) -> None:
    """Reports a name that no topic can have."""
    if not _TOPIC.fullmatch(topic) or topic in {".", ".."}:
        message = (
            f"'{topic}' of {section.what} is not a topic name: expected "
            "1 to 249 letters, digits, '.', '_' and '-'"
        )
        section.context.error(place, "P03", message)


def _topics(section: Section, *, kafka: dict[str, str], has_registry: bool) -> TopicInput:
    topics = section.names_with_places("topic", "a topic or a list of topics")
    for topic, place in topics:
        check_topic(section, topic, place)
    if section.has("topic") and not topics and isinstance(section.node("topic"), Items):
        section.context.error(section.place_of("topic"), "P03", f"{section.what} has no topic")
    if section.has("max_delay") and not section.has("min_records"):
        message = f"'max_delay' of {section.what} needs 'min_records'"
        section.context.error(section.key_place("max_delay"), "P05", message)
    read = TopicInput(
        topics=tuple(topic for topic, _ in topics),
        pattern=_pattern(section),
        assign=_assignment(section),
        start=read_position(section, "start", StartPosition(edge="earliest")),
        max_records=section.integer("max_records", 1_000_000, at_least=1),
        max_bytes=section.size_bytes("max_bytes", None),
        min_records=section.integer("min_records", None, at_least=1),
        max_delay_ms=section.duration_ms("max_delay", 900_000, at_least=1),
        headers=section.boolean("headers", False),
        key=read_source_codec(section, "key", has_registry=has_registry),
        value=read_source_codec(section, "value", has_registry=has_registry),
        on_error=section.choice("on_error", OnError, OnError.FAIL),
        on_data_loss=section.choice("on_data_loss", OnDataLoss, OnDataLoss.FAIL),
        isolation=section.word(
            "isolation", ("read_committed", "read_uncommitted"), "read_committed"
        ),
        kafka={
            **properties_for(ClientKind.SOURCE, kafka),
            **read_clients(section, (ClientKind.SOURCE,)),
        },
        options=read_options(section),
    )
    _check_start(section, read)
    return read


def _check_start(section: Section, read: TopicInput) -> None:
    """Reports offsets of topics that the source does not read, and topics without offsets."""
    offsets = read.start.offsets
    is_known = read.topics or read.assign or read.pattern is not None
    if offsets is None or not is_known:
        return
    for topic, partition in unread_offsets([read], offsets):
        part = f"partition {partition} of " if partition is not None else ""
        hint = suggestion(topic, [*read.topics, *(read.assign or ())]) if not part else ""
        message = f"'start' of {section.what} has {part}topic '{topic}', which it does not read"
        place = section.property_places("start", topic)[0]
        section.context.error(place, "P03", message + hint)
    for what in missing_offsets(read, offsets):
        message = f"'start' of {section.what} has no offset for {what}, which it reads"
        section.context.error(section.place_of("start"), "P03", message)


def _pattern(section: Section) -> str | None:
    pattern = section.text("topic_pattern", "a regular expression")
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            message = f"'topic_pattern' of {section.what} is not a regular expression: {error}"
            section.context.error(section.place_of("topic_pattern"), "P03", message)
            return None
    return pattern


def _assignment(section: Section) -> dict[str, tuple[int, ...]] | None:
    node = section.node("assign")
    if node is None:
        return None
    expected = "a map of topics to lists of partitions"
    if not isinstance(node, Fields) or not node.fields:
        section.wrong_type(node, "'assign'", expected)
        return None
    found: dict[str, tuple[int, ...]] = {}
    for topic, field in node.fields.items():
        check_topic(section, topic, field.key_place)
        items = field.node.items if isinstance(field.node, Items) else (field.node,)
        partitions: list[Any] = [item.value if isinstance(item, Scalar) else None for item in items]
        if not partitions or not all(_is_count(partition) for partition in partitions):
            section.wrong_type(field.node, f"'assign.{topic}'", "a list of partitions")
        else:
            found[topic] = tuple(sorted(set(partitions)))
    return found


def _offsets(section: Section, node: Fields) -> StartPosition:
    offsets: dict[str, dict[int, int]] = {}
    for topic, field in node.fields.items():
        offsets[topic] = {}
        partitions = field.node.fields if isinstance(field.node, Fields) else {}
        if not partitions:
            section.wrong_type(field.node, f"'start.{topic}'", "a map of partitions to offsets")
        for partition, one in partitions.items():
            offset: Any = one.node.value if isinstance(one.node, Scalar) else None
            if not partition.isdecimal() or not _is_count(offset):
                section.wrong_type(
                    one.node, f"'start.{topic}.{partition}'", "a partition and its offset"
                )
            else:
                offsets[topic][int(partition)] = int(offset)
    return StartPosition(offsets=offsets)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _table(section: Section) -> TableInput:
    table = section.section("table")
    if table is None:
        return TableInput("parquet", "")
    table.require("format", "path")
    read = TableInput(
        format=table.word("format", TABLE_FORMATS, "parquet"),
        path=table.path("path") or "",
        ddl=read_ddl(table, "schema"),
    )
    if read.format in {"json", "csv"} and not table.has("schema") and table.has("format"):
        message = f"{table.what} with the format '{read.format}' needs 'schema'"
        section.context.error(table.place, "P05", message)
    table.finish()
    return read


def _rows(section: Section) -> RowsInput:
    return RowsInput(read_rows(section, "rows", "a row"))
