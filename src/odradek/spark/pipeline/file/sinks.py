"""Reads `sinks`: topics, files, Delta tables, PostgreSQL and the terminal."""

from odradek.lazy_dataclass import dataclass
from odradek.spark.pipeline.file.clients import ClientKind, properties_for, read_clients
from odradek.spark.pipeline.file.codecs import read_sink_codec
from odradek.spark.pipeline.file.nodes import Fields, Node, Scalar
from odradek.spark.pipeline.file.section import Context, Section
from odradek.spark.pipeline.file.sources import check_topic
from odradek.spark.pipeline.graph.model import (
    ConsoleTarget,
    DeltaTarget,
    FilesTarget,
    JdbcTarget,
    JsonCodec,
    OutputMode,
    Place,
    Target,
    TopicTarget,
    Trigger,
    TriggerKind,
)
from odradek.spark.pipeline.graph.packages import missing_package

__all__ = ["ColumnUse", "DraftSink", "read_sink", "read_trigger"]

KINDS = ("topic", "files", "delta", "jdbc", "console")
TOPIC_KEYS = ("key", "value", "headers", "partition", "exactly_once", "kafka")
FILE_FORMATS = ("parquet", "json", "csv")


@dataclass(frozen=True, slots=True)
class ColumnUse:
    """A column that a sink names, and the key it is named under."""

    column: str
    key: str
    place: Place


@dataclass(frozen=True, slots=True)
class DraftSink:
    """A sink as far as it can be read on its own; `output_mode` is None if it is not set."""

    name: str
    input: str
    input_place: Place
    target: Target
    output_mode: OutputMode | None
    trigger: Trigger
    place: Place
    mode_place: Place
    exactly_once_place: Place
    columns: tuple[ColumnUse, ...]


def read_sink(
    context: Context,
    name: str,
    node: Node,
    *,
    kafka: dict[str, str],
    has_registry: bool,
    trigger: Trigger,
) -> DraftSink:
    """Reads one sink; a wrong value is reported and replaced by its default."""
    section = Section(context, node, f"sink '{name}'")
    kind = section.exactly_one_of(KINDS) if isinstance(node, Fields) else None
    if isinstance(node, Fields):
        section.require("from")
    target: Target = ConsoleTarget(20)
    columns: list[ColumnUse] = []
    match kind:
        case "topic":
            target = _topic(section, columns, kafka=kafka, has_registry=has_registry)
        case "files":
            target = _files(section, columns)
        case "delta":
            target = _delta(section, columns)
        case "jdbc":
            target = _jdbc(section, columns)
        case "console":
            target = _console(section)
    if kind is not None and (missing := missing_package(target)) is not None:
        # A package that is missing here may be installed where the pipeline runs.
        message = f"{section.what} needs {missing}"
        context.problems.warning(section.key_place(kind), "P19", message)
    mode = None
    if section.has("output_mode"):
        mode = section.choice("output_mode", OutputMode, OutputMode.APPEND)
    section.node("output_mode")
    sink = DraftSink(
        name=name,
        input=section.text("from", "the name of a source or transform") or "",
        input_place=section.place_of("from"),
        target=target,
        output_mode=mode,
        trigger=read_trigger(section, trigger),
        place=section.place,
        mode_place=section.place_of("output_mode"),
        exactly_once_place=section.place_of("exactly_once"),
        columns=tuple(columns),
    )
    if kind is not None:
        section.finish(elsewhere=TOPIC_KEYS, why=f"it is for topics, not for '{kind}'")
    return sink


def read_trigger(section: Section, default: Trigger) -> Trigger:
    """`once`, `continuous` or `{every: 2s}`."""
    node = section.node("trigger")
    if node is None:
        return default
    if isinstance(node, Fields):
        keys = Section(section.context, node, f"'trigger' of {section.what}")
        keys.require("every")
        interval_ms = keys.duration_ms("every", 1000, at_least=1)
        keys.finish()
        return Trigger(TriggerKind.EVERY, interval_ms)
    text = node.text if isinstance(node, Scalar) else ""
    if text not in {"once", "continuous"}:
        section.wrong_type(node, "'trigger'", "once, continuous or {every: duration}")
        return default
    return Trigger(TriggerKind(text))


def _topic(
    section: Section, columns: list[ColumnUse], *, kafka: dict[str, str], has_registry: bool
) -> TopicTarget:
    topic = section.text("topic", "a topic") or ""
    if topic:
        check_topic(section, topic, section.place_of("topic"))
    key = read_sink_codec(section, "key", has_registry=has_registry)
    value = read_sink_codec(section, "value", has_registry=has_registry)
    for name, codec in (("key", key), ("value", value)):
        place = section.place_of(name)
        if isinstance(codec, str):
            columns.append(ColumnUse(codec, name, place))
        named = getattr(codec, "columns", None) or ()
        columns.extend(ColumnUse(column, f"{name}.columns", place) for column in named)
    found: dict[str, str | None] = {}
    for name in ("headers", "partition"):
        found[name] = section.text(name, "the name of a column")
        if found[name]:
            columns.append(ColumnUse(str(found[name]), name, section.place_of(name)))
    return TopicTarget(
        topic=topic,
        key=key,
        value=value if value is not None else JsonCodec(),
        headers=found["headers"],
        partition=found["partition"],
        exactly_once=section.boolean("exactly_once", False),
        kafka={
            **properties_for(ClientKind.SINK, kafka),
            **read_clients(section, (ClientKind.SINK,)),
        },
    )


def _files(section: Section, columns: list[ColumnUse]) -> Target:
    keys = section.section("files")
    if keys is None:
        return ConsoleTarget(20)
    keys.require("path")
    target = FilesTarget(
        format=keys.word("format", FILE_FORMATS, "parquet"),
        path=keys.path("path") or "",
        partition_by=_columns(keys, "partition_by", columns),
        max_records_per_file=keys.integer("max_records_per_file", None, at_least=1),
        options=keys.properties("options"),
    )
    keys.finish()
    return target


def _delta(section: Section, columns: list[ColumnUse]) -> Target:
    keys = section.section("delta")
    if keys is None:
        return ConsoleTarget(20)
    keys.require("path")
    target = DeltaTarget(
        path=keys.path("path") or "",
        partition_by=_columns(keys, "partition_by", columns),
        target_file_bytes=keys.size_bytes("target_file", None) or 128 << 20,
        compact_every=keys.integer("compact_every", 0),
        merge_key=_columns(keys, "merge_key", columns),
    )
    keys.finish()
    return target


def _jdbc(section: Section, columns: list[ColumnUse]) -> Target:
    keys = section.section("jdbc")
    if keys is None:
        return ConsoleTarget(20)
    keys.require("url", "table", "key")
    target = JdbcTarget(
        url=keys.url("url", ("postgresql://",)),
        table=keys.text("table", "the name of a table") or "",
        key=_columns(keys, "key", columns),
        user=keys.text("user"),
        password=keys.text("password"),
    )
    keys.finish()
    return target


def _console(section: Section) -> ConsoleTarget:
    node = section.node("console")
    if isinstance(node, Scalar) and node.value is None:
        return ConsoleTarget(20)  # `console:` alone.
    keys = section.section("console")
    assert keys is not None
    target = ConsoleTarget(keys.integer("rows", 20, at_least=1))
    keys.finish()
    return target


def _columns(keys: Section, key: str, columns: list[ColumnUse]) -> tuple[str, ...]:
    found = keys.names_with_places(key, "a column or a list of columns")
    columns.extend(ColumnUse(column, key, place) for column, place in found)
    return tuple(column for column, _ in found)
