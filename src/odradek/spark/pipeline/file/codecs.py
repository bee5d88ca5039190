"""Reads `key` and `value`: the codecs between bytes and columns."""

import os

from odradek.spark.pipeline.file.json_schema import ddl_of_json_schema
from odradek.spark.pipeline.file.nodes import Fields, Node, Scalar
from odradek.spark.pipeline.file.problems import suggestion
from odradek.spark.pipeline.file.section import Context, Section
from odradek.spark.pipeline.file.yaml_tree import parse_yaml, read_text
from odradek.spark.pipeline.graph.ddl import DdlError, parse_ddl
from odradek.spark.pipeline.graph.model import (
    AvroCodec,
    Codec,
    JsonCodec,
    Place,
    RawCodec,
    StringCodec,
)

__all__ = ["RESERVED_COLUMNS", "read_ddl", "read_sink_codec", "read_source_codec"]

FORMATS = ("raw", "string", "json", "avro")
# Columns of a decoded record beside those of its schema.
RESERVED_COLUMNS = ("_key", "_topic", "_partition", "_offset", "_timestamp", "_headers")


def read_source_codec(section: Section, key: str, *, has_registry: bool) -> Codec:
    """The codec of a source's `key` or `value`."""
    node = section.node(key)
    if node is None:
        return RawCodec()
    what = f"'{key}' of {section.what}"
    codec = _codec_section(section.context, node, what)
    if codec is None:
        return RawCodec()
    form, keys = codec
    match form:
        case "json":
            read: Codec = _json(keys)
        case "avro":
            read = _avro(keys, has_registry=has_registry)
        case "string":
            read = StringCodec()
        case _:
            read = RawCodec()
    keys.finish(
        elsewhere=("schema", "json_schema", "subject", "columns"),
        why="a source has all columns"
        if keys.has("columns")
        else f"it is not for the format '{form}'",
    )
    return read


def read_sink_codec(section: Section, key: str, *, has_registry: bool) -> str | Codec | None:
    """The column or the codec of a sink's `key` or `value`; None if there is none."""
    node = section.node(key)
    if node is None:
        return None
    if isinstance(node, Scalar):
        return section.text(key, "a column, or a map with 'format'")
    codec = _codec_section(section.context, node, f"'{key}' of {section.what}")
    if codec is None:
        return None
    form, keys = codec
    columns = keys.names("columns", "a column or a list of columns")
    read: str | Codec
    match form:
        case "json":
            read = JsonCodec(columns=columns or None)
        case "avro":
            avro = _avro(keys, has_registry=has_registry)
            read = AvroCodec(avro.schema, avro.subject, columns or None)
        case _:
            # The bytes of one column: the same as its bare name.
            if len(columns) != 1:
                message = f"{keys.what} with the format '{form}' needs 'columns' with one column"
                section.context.error(keys.place_of("columns"), "P05", message)
            read = columns[0] if columns else RawCodec()
    keys.finish(
        elsewhere=("schema", "json_schema", "subject"),
        why=f"a sink of the format '{form}' writes its columns unchanged",
    )
    return read


def read_ddl(section: Section, key: str, *, reserved: tuple[str, ...] = ()) -> str | None:
    """A schema in DDL, checked; None if there is none or it is wrong."""
    node = section.scalar(key, "columns in DDL, such as 'id bigint, name string'")
    if node is None:
        return None
    try:
        columns = parse_ddl(node.text)
    except DdlError as error:
        message = f"the schema of {section.what} does not parse: {error}"
        section.context.error(node.place_at(error.offset), "P08", message)
        return None
    for column in columns:
        if column.name.casefold() in reserved:
            message = f"column '{column.name}' of {section.what} is reserved for records"
            section.context.error(node.place_at(column.offset), "P09", message)
    return " ".join(node.text.split())


def _codec_section(context: Context, node: Node, what: str) -> tuple[str, Section] | None:
    if isinstance(node, Scalar):
        if node.text not in FORMATS or node.value is None:
            came = "***" if node.is_secret else f"'{node.text}'"
            hint = suggestion(node.text, FORMATS)
            message = f"{what} has to be one of {', '.join(FORMATS)} or a map, found {came}{hint}"
            context.error(node.place, "P03", message)
            return None
        return node.text, Section(context, Fields({}, node.place), what)
    keys = Section(context, node, what)
    if not isinstance(node, Fields):
        return None
    keys.require("format")
    form = keys.word("format", FORMATS, "")
    return (form, keys) if form else None


def _json(keys: Section) -> JsonCodec:
    kind = keys.exactly_one_of(("schema", "json_schema"))
    if kind == "schema":
        return JsonCodec(ddl=read_ddl(keys, "schema", reserved=RESERVED_COLUMNS))
    node = keys.node("json_schema")
    if kind is None or node is None:
        return JsonCodec()
    if isinstance(node, Scalar):
        node = _json_schema_file(keys)
    if node is None:
        return JsonCodec()
    ddl, required = ddl_of_json_schema(node, keys.context, reserved=RESERVED_COLUMNS)
    return JsonCodec(ddl=ddl, required=required)


def _json_schema_file(keys: Section) -> Node | None:
    found = read_referenced_file(keys, "json_schema")
    if found is None:
        return None
    text, shown = found
    # JSON is YAML; parsed as such, its problems have places.
    return parse_yaml(text, shown, keys.context.problems)


def _avro(keys: Section, *, has_registry: bool) -> AvroCodec:
    subject = keys.text("subject")
    if not keys.has("schema"):
        if not has_registry:
            message = f"{keys.what} in avro needs 'registry' of the pipeline, or 'schema'"
            keys.context.error(keys.place, "P05", message)
        return AvroCodec(subject=subject)
    if subject is not None:
        message = f"{keys.what} needs exactly one of 'schema', 'subject', found both"
        keys.context.error(keys.key_place("subject"), "P11", message)
    found = read_referenced_file(keys, "schema")
    if found is None:
        return AvroCodec()
    text, shown = found
    error = _wrong_in_avro(text)
    if error is not None:
        keys.context.error(Place(shown, error[0], error[1]), "P10", error[2])
    return AvroCodec(schema=text)


def _wrong_in_avro(text: str) -> tuple[int, int, str] | None:
    import json

    try:
        schema = json.loads(text)
    except json.JSONDecodeError as error:
        return error.lineno, error.colno, f"the Avro schema is not JSON: {error.msg}"
    is_record = isinstance(schema, dict) and schema.get("type") == "record"
    if not is_record or not isinstance(schema.get("fields"), list):
        return 1, 1, "the Avro schema is not a record with fields"
    for field in schema["fields"]:
        name = field.get("name") if isinstance(field, dict) else None
        if not isinstance(name, str) or "type" not in field:
            return 1, 1, "a field of the Avro schema lacks its name or type"
        if name.casefold() in RESERVED_COLUMNS:
            return 1, 1, f"the Avro schema's field '{name}' is reserved for records"
    return None


def read_referenced_file(section: Section, key: str) -> tuple[str, str] | None:
    """The text of the file that a key names, and its path for messages."""
    node = section.scalar(key, "a path")
    if node is None:
        return None
    context = section.context
    shown = os.path.join(os.path.dirname(section.place.file), node.text)
    try:
        text = read_text(context.resolve(node.text), shown, context.problems)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        message = f"cannot read '{node.text}' of {section.what}: {why}"
        context.error(node.place, "P19", message)
        return None
    return (text, shown) if text is not None else None
