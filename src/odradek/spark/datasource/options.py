"""Options of the source: names, values and defaults of Spark's Kafka source, and a few more. Pure.

Names are matched without case: Spark passes them in lower case. All problems are reported together,
in one message, before a broker is asked.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Final, TypeVar

from odradek.client.config import parse_addresses, read_settings
from odradek.client.consumer.config import CONSUMER_DEFINITION
from odradek.errors import ConfigError
from odradek.model import TopicPartition
from odradek.protocol.enums import EARLIEST, LATEST
from odradek.spark.datasource.bounds import (
    AT_EARLIEST,
    AT_LATEST,
    Bound,
    BoundKind,
    parse_offsets,
    parse_timestamps,
)
from odradek.spark.datasource.limits import Limits
from odradek.spark.datasource.offsets import SplitRule
from odradek.spark.datasource.option_values import (
    KAFKA_PREFIX,
    OptionsError,
    parse_boolean,
    parse_choice,
    parse_duration_ms,
    parse_size,
    parse_whole_number,
)
from odradek.spark.datasource.patterns import compile_pattern
from odradek.spark.datasource.schema import ALL_COLUMNS, HEADERS, PLAIN_COLUMNS
from odradek.spark.option_names import SELECTING, SOURCE_OPTIONS

__all__ = ["Selection", "SourceOptions", "parse_columns", "parse_options"]

V = TypeVar("V")


_BY_LOWER_CASE: Final = {name.lower(): name for name in SOURCE_OPTIONS}

# Options that Spark adds, or uses itself.
_OF_SPARK: Final = frozenset(
    {"path", "paths", "checkpointlocation", "queryname", "serialization.format", "provider"}
)

_ENDING: Final = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")

_REJECTED: Final = {
    "auto.offset.reset": "use startingOffsets; later positions are in Spark's checkpoint",
    "key.deserializer": "keys are read as binary, decode them in the query",
    "value.deserializer": "values are read as binary, decode them in the query",
    "key.serializer": "this is a source",
    "value.serializer": "this is a source",
    "enable.auto.commit": "Spark keeps the offsets in its checkpoint",
    "interceptor.classes": "there is nothing to intercept",
    "check.crcs": "use checkCrcs",
}

# Used to check the other settings, which need a server.
_ANY_SERVER: Final = "localhost:9092"
_DEFAULT_FETCH_BYTES: Final = 2 << 20
_MAX_FETCH_BYTES: Final = 1 << 30
_DEFAULT_POLL_TIMEOUT_MS: Final = 120_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which partitions are read; exactly one field is set."""

    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The options of a reader; pickled to every task."""

    # Settings of the client, by Kafka's name.
    kafka: Mapping[str, str]
    selection: Selection
    starting: Bound
    ending: Bound
    # If no record is at or after the starting time: error or latest.
    on_no_match: str = "error"
    is_failing_on_data_loss: bool = True
    limits: Limits = field(default_factory=Limits)
    split: SplitRule = field(default_factory=SplitRule)
    columns: tuple[str, ...] = PLAIN_COLUMNS
    is_pushing_filters: bool = False
    fetch_bytes: int = _DEFAULT_FETCH_BYTES
    poll_timeout_ms: int = _DEFAULT_POLL_TIMEOUT_MS

    @property
    def is_read_committed(self) -> bool:
        return self.kafka["isolation.level"] == "read_committed"


class _Given:
    """The given options, and the problems found so far."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.values = {name.lower(): value for name, value in options.items()}
        self.problems: list[str] = []

    def has(self, name: str) -> bool:
        return name.lower() in self.values

    def read(self, name: str, parse: Callable[[str], V], default: V) -> V:
        """The value of an option; a bad one becomes a problem and the default."""
        text = self.values.get(name.lower())
        if text is None:
            return default
        try:
            return parse(text)
        except ValueError as error:
            self.problems.append(f"{name}: {error}")
            return default

    def optional(self, name: str, parse: Callable[[str], V]) -> V | None:
        """The value of an option without a default; None if it is not given."""

        def parse_given(text: str) -> V | None:
            return parse(text)

        return self.read(name, parse_given, None)


def parse_options(options: Mapping[str, str], *, is_streaming: bool) -> SourceOptions:
    """Reads the options of a query.

    Raises:
        OptionsError: Some are unknown, missing, malformed or incompatible.
    """
    given = _Given(options)
    _check_names(given)
    if is_streaming:
        given.problems += [
            f"{name}: a stream has no end; leave it out" for name in _ENDING if given.has(name)
        ]
    count = parse_whole_number(1)
    limits = Limits(
        max_offsets=given.optional("maxOffsetsPerTrigger", count),
        max_bytes=given.optional("maxBytesPerTrigger", parse_size),
        min_offsets=given.optional("minOffsetsPerTrigger", count),
        max_delay_ms=given.read("maxTriggerDelay", parse_duration_ms, Limits().max_delay_ms),
    )
    if None not in (limits.min_offsets, limits.max_offsets) and (
        (limits.min_offsets or 0) > (limits.max_offsets or 0)
    ):
        given.problems.append(
            f"minOffsetsPerTrigger: {limits.min_offsets} is more than maxOffsetsPerTrigger, "
            f"which is {limits.max_offsets}"
        )
    # Checked and otherwise ignored: no group is joined, and brokers are tried until
    # kafka.default.api.timeout.ms is over.
    given.optional("fetchOffset.numRetries", parse_whole_number(0))
    given.optional("fetchOffset.retryIntervalMs", parse_duration_ms)
    parsed = SourceOptions(
        kafka=_read_kafka(given),
        selection=_read_selection(given),
        starting=_read_starting(given, is_streaming=is_streaming),
        ending=AT_LATEST if is_streaming else _read_ending(given),
        on_no_match=given.read(
            "startingOffsetsByTimestampStrategy", parse_choice("error", "latest"), "error"
        ),
        is_failing_on_data_loss=given.read("failOnDataLoss", parse_boolean, True),
        limits=limits,
        split=SplitRule(
            min_partitions=given.read("minPartitions", count, 0),
            max_records=given.read("maxRecordsPerPartition", count, 0),
        ),
        columns=_read_columns(given),
        is_pushing_filters=given.read("pushFilters", parse_boolean, False),
        fetch_bytes=min(
            given.read("fetchBytes", parse_size, _DEFAULT_FETCH_BYTES), _MAX_FETCH_BYTES
        ),
        poll_timeout_ms=given.read("kafkaConsumer.pollTimeoutMs", count, _DEFAULT_POLL_TIMEOUT_MS),
    )
    if given.problems:
        raise OptionsError(given.problems)
    return parsed


def parse_columns(options: Mapping[str, str]) -> tuple[str, ...]:
    """The columns that the options select; other options are not checked.

    Raises:
        OptionsError: A column does not exist.
    """
    given = _Given(options)
    columns = _read_columns(given)
    if given.problems:
        raise OptionsError(given.problems)
    return columns


def _check_names(given: _Given) -> None:
    known = [*_BY_LOWER_CASE, "kafka.bootstrap.servers"]
    for name in sorted(given.values):
        if name in _BY_LOWER_CASE or name in _OF_SPARK or name.startswith(KAFKA_PREFIX):
            continue
        near = get_close_matches(name, known, 1)
        if f"{KAFKA_PREFIX}{name}" == "kafka.bootstrap.servers":
            near = ["kafka.bootstrap.servers"]
        hint = f", did you mean {_BY_LOWER_CASE.get(near[0], near[0])}?" if near else ""
        given.problems.append(f"{name}: unknown option{hint}")


def _read_kafka(given: _Given) -> dict[str, str]:
    settings = {
        name.removeprefix(KAFKA_PREFIX): value
        for name, value in sorted(given.values.items())
        if name.startswith(KAFKA_PREFIX)
    }
    if not settings.get("bootstrap.servers", "").strip(" ,"):
        given.problems.append("kafka.bootstrap.servers: required, expected HOST:PORT,…")
        settings["bootstrap.servers"] = _ANY_SERVER
    for name, value in settings.items():
        if name in _REJECTED:
            given.problems.append(f"{KAFKA_PREFIX}{name}: not supported: {_REJECTED[name]}")
        elif problem := _problem_of(name, value):
            given.problems.append(f"{KAFKA_PREFIX}{name}: {problem}")
    settings.setdefault("isolation.level", "read_committed")
    is_checked = given.read("checkCrcs", parse_boolean, True)
    settings["check.crcs"] = str(is_checked).lower()
    return settings


def _problem_of(name: str, value: str) -> str | None:
    """The problem of one setting of the client, checked alone; None if it is valid."""
    try:
        if name == "bootstrap.servers":
            parse_addresses(value)
        settings = read_settings(
            CONSUMER_DEFINITION, {"bootstrap.servers": _ANY_SERVER, name: value}, {}
        )
        for kind in CONSUMER_DEFINITION.classes:
            settings.build(kind)
    except ConfigError as error:
        return error.why
    return None


def _read_selection(given: _Given) -> Selection:
    ways = [name for name in SELECTING if given.has(name)]
    if len(ways) != 1:
        came = " and ".join(ways) or "none"
        given.problems.append(
            f"exactly one of subscribe, subscribePattern and assign is needed, found {came}"
        )
    topics = given.optional("subscribe", _parse_topics)
    pattern = given.optional("subscribePattern", lambda text: compile_pattern(text).pattern)
    partitions = given.optional("assign", _parse_assign)
    return Selection(topics=topics, pattern=pattern, partitions=partitions)


def _parse_topics(text: str) -> tuple[str, ...]:
    names = sorted({name.strip() for name in text.split(",")} - {""})
    if not names:
        raise ValueError("expected topics, separated by commas")
    return tuple(names)


def _parse_assign(text: str) -> tuple[TopicPartition, ...]:
    wrong = ValueError(f'expected JSON such as {{"topic": [0, 1]}}, found {text!r}')
    try:
        parsed = json.loads(text)
    except ValueError:
        raise wrong from None
    if not isinstance(parsed, dict) or not parsed:
        raise wrong
    partitions = set()
    for topic, numbers in parsed.items():
        if not topic or not isinstance(numbers, list) or not numbers:
            raise wrong
        for number in numbers:
            if isinstance(number, bool) or not isinstance(number, int) or number < 0:
                raise wrong
            partitions.add(TopicPartition(topic, number))
    return tuple(sorted(partitions))


def _read_starting(given: _Given, *, is_streaming: bool) -> Bound:
    default = AT_LATEST if is_streaming else AT_EARLIEST
    bound = _read_bound(given, "starting", default)
    is_at_latest = bound.kind is BoundKind.LATEST or (
        bound.kind is BoundKind.OFFSETS and LATEST in bound.numbers.values()
    )
    if not is_streaming and is_at_latest:
        given.problems.append(
            "startingOffsets: a batch cannot begin at the latest offset, it would be empty"
        )
    return bound


def _read_ending(given: _Given) -> Bound:
    bound = _read_bound(given, "ending", AT_LATEST)
    if bound.kind is BoundKind.EARLIEST or EARLIEST in bound.numbers.values():
        given.problems.append(
            "endingOffsets: a batch cannot end at the earliest offset, it would be empty"
        )
    return bound


def _read_bound(given: _Given, word: str, default: Bound) -> Bound:
    """The bound from the first of its three options that is given; all are checked."""
    by_one, by_many, by_offset = (
        f"{word}Timestamp",
        f"{word}OffsetsByTimestamp",
        f"{word}Offsets",
    )
    timestamp_ms = given.optional(by_one, parse_whole_number(0))
    timestamps = given.optional(by_many, lambda text: parse_timestamps(text, by_many))
    offsets = given.optional(by_offset, lambda text: parse_offsets(text, by_offset))
    if timestamp_ms is not None:
        return Bound(kind=BoundKind.TIMESTAMP, timestamp_ms=timestamp_ms, option=by_one)
    return timestamps or offsets or default


def _read_columns(given: _Given) -> tuple[str, ...]:
    has_headers = given.read("includeHeaders", parse_boolean, False)
    default: tuple[str, ...] = ALL_COLUMNS if has_headers else PLAIN_COLUMNS
    columns = given.read("columns", _parse_columns, default)
    if has_headers and HEADERS not in columns:
        given.problems.append("includeHeaders: true, but columns leaves headers out")
    return columns


def _parse_columns(text: str) -> tuple[str, ...]:
    by_lower_case = {name.lower(): name for name in ALL_COLUMNS}
    names = [name.strip().lower() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in by_lower_case]
    if unknown or not names or len(set(names)) < len(names):
        raise ValueError(f"expected some of {', '.join(ALL_COLUMNS)}, each once, found {text!r}")
    # In the order of the schema, not of the option.
    return tuple(name for name in ALL_COLUMNS if name.lower() in names)
