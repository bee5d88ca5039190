"""The one model of a pipeline: the YAML file, `.sql` files and Python decorators all build it.

Values are checked and complete: defaults are filled in, durations are milliseconds, sizes are
bytes, environment names are replaced, JSON Schema has become DDL. Paths are absolute, or URIs.
"""

from collections.abc import Callable, Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any

from odradek.lazy_dataclass import dataclass

__all__ = [
    "Action",
    "AvroCodec",
    "Codec",
    "ConsoleTarget",
    "DeadLetters",
    "Dedup",
    "DeltaTarget",
    "Expectation",
    "FilesTarget",
    "Fixture",
    "JdbcTarget",
    "JsonCodec",
    "OnDataLoss",
    "OnError",
    "OutputMode",
    "Pipeline",
    "Place",
    "PythonFunction",
    "RawCodec",
    "Registry",
    "Restart",
    "RowsInput",
    "Select",
    "Sink",
    "Source",
    "SparkSettings",
    "StartPosition",
    "StringCodec",
    "TableInput",
    "Target",
    "TopicInput",
    "TopicTarget",
    "Transform",
    "Trigger",
    "TriggerKind",
    "Watermark",
]


@dataclass(frozen=True, slots=True)
class Place:
    """Where something is written; lines and columns count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class Action(StrEnum):
    """The treatment of a row that fails a rule."""

    WARN = "warn"
    DROP = "drop"
    FAIL = "fail"
    DLQ = "dlq"


class OnError(StrEnum):
    """The treatment of a record that cannot be decoded."""

    FAIL = "fail"
    DROP = "drop"
    DLQ = "dlq"
    NULL = "null"


class OnDataLoss(StrEnum):
    """The reaction to records that were deleted before they were read."""

    FAIL = "fail"
    CONTINUE = "continue"


class OutputMode(StrEnum):
    """Spark's output modes."""

    APPEND = "append"
    UPDATE = "update"
    COMPLETE = "complete"


class TriggerKind(StrEnum):
    """When the next batch begins."""

    ONCE = "once"
    CONTINUOUS = "continuous"
    EVERY = "every"


@dataclass(frozen=True, slots=True)
class Trigger:
    """When batches begin; `interval_ms` belongs to EVERY."""

    kind: TriggerKind
    interval_ms: int = 0


@dataclass(frozen=True, slots=True)
class StartPosition:
    """Where in its topics a source begins: exactly one of the three is set.

    Attributes:
        edge: `earliest` or `latest`.
        timestamp_ms: The first record not older than this.
        offsets: Topic -> partition -> offset.
    """

    edge: str | None = None
    timestamp_ms: int | None = None
    offsets: Mapping[str, Mapping[int, int]] | None = None


@dataclass(frozen=True, slots=True)
class RawCodec:
    """Bytes, unchanged."""


@dataclass(frozen=True, slots=True)
class StringCodec:
    """UTF-8."""


@dataclass(frozen=True, slots=True)
class JsonCodec:
    """JSON.

    Attributes:
        ddl: Spark's DDL of the fields, from `schema` or `json_schema`; None in a sink.
        required: names whose absence makes a record undecodable (JSON Schema's `required`, top
            level first, nested ones dotted, `items[].sku` in each element of an array).
        columns: sinks only: the columns that are written; None for all that are left.
    """

    ddl: str | None = None
    required: tuple[str, ...] = ()
    columns: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class AvroCodec:
    """Avro, with a registry's five-byte prefix unless a schema file is given.

    Attributes:
        schema: the text of the .avsc, or None for the registry.
        subject: in the registry; None for `<topic>-value` or `<topic>-key`.
        columns: sinks only: the columns that are written; None for all that are left.
    """

    schema: str | None = None
    subject: str | None = None
    columns: tuple[str, ...] | None = None


Codec = RawCodec | StringCodec | JsonCodec | AvroCodec


@dataclass(frozen=True, slots=True)
class Watermark:
    """How late rows may arrive."""

    column: str
    delay_ms: int


@dataclass(frozen=True, slots=True)
class Expectation:
    """A rule of quality: `action` applies to rows for which `where` is not true."""

    name: str
    where: str
    action: Action
    place: Place


@dataclass(frozen=True, slots=True)
class TopicInput:
    """Records of topics: exactly one of `topics`, `pattern` and `assign` is set.

    Attributes:
        kafka: Client properties; those of the source override those of the pipeline.
        options: Options of the data source, unchanged.
    """

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assign: Mapping[str, tuple[int, ...]] | None = None
    start: StartPosition = StartPosition(edge="earliest")
    max_records: int | None = 1_000_000
    max_bytes: int | None = None
    min_records: int | None = None
    max_delay_ms: int = 900_000
    headers: bool = False
    key: Codec = RawCodec()
    value: Codec = RawCodec()
    on_error: OnError = OnError.FAIL
    on_data_loss: OnDataLoss = OnDataLoss.FAIL
    isolation: str = "read_committed"
    kafka: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TableInput:
    """A table, with the content it has when a query starts."""

    format: str  # parquet, json, csv, delta
    path: str
    ddl: str | None = None


@dataclass(frozen=True, slots=True)
class RowsInput:
    """Rows written in the file."""

    rows: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Source:
    """Where rows come from."""

    name: str
    input: TopicInput | TableInput | RowsInput
    watermark: Watermark | None
    expect: tuple[Expectation, ...]
    place: Place

    @property
    def is_stream(self) -> bool:
        """Whether it is a stream."""
        return isinstance(self.input, TopicInput)


@dataclass(frozen=True, slots=True)
class Select:
    """One SELECT; `first_line` is the line of the file where its text begins."""

    sql: str
    file: str
    first_line: int


@dataclass(frozen=True, slots=True)
class PythonFunction:
    """A function from DataFrames to one: `reference` is `module:function`, or `call` is set."""

    reference: str
    call: Callable[..., Any] | None = None


@dataclass(frozen=True, slots=True)
class Dedup:
    """Drops rows whose keys were seen within a time."""

    keys: tuple[str, ...]
    within_ms: int


@dataclass(frozen=True, slots=True)
class Transform:
    """A step: `inputs` are names of sources and transforms, in the order of its arguments."""

    name: str
    step: Select | PythonFunction | Dedup
    inputs: tuple[str, ...]
    watermark: Watermark | None
    expect: tuple[Expectation, ...]
    place: Place


@dataclass(frozen=True, slots=True)
class TopicTarget:
    """A topic.

    Attributes:
        key: A column (written as string bytes, binary unchanged), a codec with columns, or None.
        headers: The column of headers, or None.
        partition: The column of the partition, or None.
        kafka: Client properties; those of the sink override those of the pipeline.
    """

    topic: str
    key: str | Codec | None
    value: str | Codec
    headers: str | None
    partition: str | None
    exactly_once: bool
    kafka: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class FilesTarget:
    """A folder of files, through Spark's own sink."""

    format: str  # parquet, json, csv
    path: str
    partition_by: tuple[str, ...]
    max_records_per_file: int | None
    options: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class DeltaTarget:
    """A Delta table; `merge_key` makes writing to it an upsert."""

    path: str
    partition_by: tuple[str, ...]
    target_file_bytes: int
    compact_every: int
    merge_key: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JdbcTarget:
    """A table of PostgreSQL, written by upsert."""

    url: str
    table: str
    key: tuple[str, ...]
    user: str | None
    password: str | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class ConsoleTarget:
    """The terminal."""

    rows: int


Target = TopicTarget | FilesTarget | DeltaTarget | JdbcTarget | ConsoleTarget


@dataclass(frozen=True, slots=True)
class Sink:
    """A target of rows. `input` is the name of a source or transform; `output_mode` is final."""

    name: str
    input: str
    target: Target
    output_mode: OutputMode
    trigger: Trigger
    place: Place


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """The topic of records and rows that cannot be used."""

    topic: str
    kafka: Mapping[str, str]
    exactly_once: bool = False
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class Registry:
    """A registry of schemas."""

    url: str
    user: str | None
    password: str | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """The Spark master and its settings."""

    master: str
    conf: Mapping[str, str]
    ship: bool


@dataclass(frozen=True, slots=True)
class Restart:
    """How often, and after which delay, a failed query is started again."""

    max: int
    backoff_ms: int
    max_backoff_ms: int


@dataclass(frozen=True, slots=True)
class Fixture:
    """A test in the file.

    Attributes:
        given: Source -> rows; with `raw` they are records (`key`, `value`), not yet decoded.
        expect: Source or transform -> rows.
        dlq: Expected dead letters, or None if they are not checked.
    """

    name: str
    given: Mapping[str, tuple[Mapping[str, Any], ...]]
    expect: Mapping[str, tuple[Mapping[str, Any], ...]]
    dlq: tuple[Mapping[str, Any], ...] | None
    raw: bool
    ordered: bool
    place: Place


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A pipeline. In `transforms` each comes after its inputs.

    Attributes:
        file: The path it was read from; relative paths in it were relative to its folder.
        checkpoint: The folder that has one folder per sink.
        secrets: Texts that are never shown.
    """

    name: str
    file: str
    bootstrap: str | None
    kafka: Mapping[str, str]
    registry: Registry | None
    checkpoint: str
    trigger: Trigger
    spark: SparkSettings
    restart: Restart
    sources: Mapping[str, Source]
    transforms: Mapping[str, Transform]
    sinks: Mapping[str, Sink]
    dead_letters: DeadLetters | None
    tests: tuple[Fixture, ...]
    secrets: frozenset[str] = field(default=frozenset(), repr=False)
