"""Options of the source."""

import pickle

import pytest

from odradek.model import TopicPartition
from odradek.spark.datasource.bounds import BoundKind
from odradek.spark.datasource.limits import Limits
from odradek.spark.datasource.offsets import SplitRule
from odradek.spark.datasource.option_values import OptionsError
from odradek.spark.datasource.options import SourceOptions, parse_columns, parse_options

BASE = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}


def batch(**options: str) -> SourceOptions:
    return parse_options({**BASE, **options}, is_streaming=False)


def stream(**options: str) -> SourceOptions:
    return parse_options({**BASE, **options}, is_streaming=True)


def problems(options: dict[str, str], *, is_streaming: bool = False) -> tuple[str, ...]:
    with pytest.raises(OptionsError) as caught:
        parse_options(options, is_streaming=is_streaming)
    return caught.value.problems


def test_defaults_are_those_of_sparks_source_but_for_the_isolation() -> None:
    """12:SP-29, 12:SP-30, 12:SP-31."""
    options = batch()
    assert options.selection.topics == ("orders",)
    assert options.starting.kind is BoundKind.EARLIEST
    assert options.ending.kind is BoundKind.LATEST
    assert stream().starting.kind is BoundKind.LATEST
    assert options.is_failing_on_data_loss
    assert options.columns == (
        "key",
        "value",
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestampType",
    )
    assert options.limits == Limits(max_delay_ms=900_000)
    assert options.split == SplitRule()
    assert options.is_read_committed
    assert not options.is_pushing_filters
    assert options.fetch_bytes == 2 << 20
    assert options.poll_timeout_ms == 120_000
    assert options.kafka["check.crcs"] == "true"


def test_names_are_matched_without_case() -> None:
    """12:SP-29: Spark hands them over in lower case."""
    given = {
        **BASE,
        "MAXOFFSETSPERTRIGGER": "7",
        "minoffsetspertrigger": "5",
        "maxTriggerDelay": "2m",
        "maxBytesPerTrigger": "3MB",
        "minPartitions": "4",
        "maxrecordsperpartition": "100",
        "failOnDataLoss": "False",
        "startingoffsets": "EARLIEST",
        "includeHeaders": "true",
    }
    options = parse_options(given, is_streaming=True)
    assert options.limits == Limits(
        max_offsets=7, min_offsets=5, max_delay_ms=120_000, max_bytes=3 << 20
    )
    assert options.split == SplitRule(min_partitions=4, max_records=100)
    assert not options.is_failing_on_data_loss
    assert options.starting.kind is BoundKind.EARLIEST
    assert options.columns[-1] == "headers"


def test_what_spark_adds_passes() -> None:
    """12:SP-29."""
    batch(path="x", checkpointLocation="y", groupIdPrefix="z", progressGroup="g")


def test_all_that_is_wrong_is_told_at_once() -> None:
    """12:SP-29."""
    found = problems(
        {
            "subscribe": "a",
            "assign": '{"a": [0]}',
            "subscribePatern": "x",
            "maxOffsetsPerTriger": "1",
            "failOnDataLoss": "maybe",
            "kafka.auto.offset.reset": "earliest",
            "kafka.group.idd": "g",
            "kafka.isolation.level": "dirty",
            "minPartitions": "0",
        }
    )
    text = "\n".join(found)
    assert len(found) == 9
    for expected in (
        "kafka.bootstrap.servers: required",
        "found subscribe and assign",
        "subscribepatern: unknown option, did you mean subscribePattern?",
        "maxoffsetspertriger: unknown option, did you mean maxOffsetsPerTrigger?",
        "failOnDataLoss: expected true or false, found 'maybe'",
        "kafka.auto.offset.reset: not supported: use startingOffsets",
        "kafka.group.idd: unknown setting, did you mean group.id?",
        "kafka.isolation.level: ",
        "minPartitions: expected a whole number of at least 1, found '0'",
    ):
        assert expected in text


def test_an_unknown_option_without_a_likeness_is_told_all_the_same() -> None:
    (found,) = problems({**BASE, "zzz": "1"})
    assert found == "zzz: unknown option"


def test_a_setting_of_the_client_without_its_prefix() -> None:
    found = problems({"subscribe": "a", "bootstrap.servers": "h:1"})
    assert "bootstrap.servers: unknown option, did you mean kafka.bootstrap.servers?" in found


@pytest.mark.parametrize(
    "name",
    [
        "auto.offset.reset",
        "key.deserializer",
        "value.deserializer",
        "key.serializer",
        "value.serializer",
        "enable.auto.commit",
        "interceptor.classes",
    ],
)
def test_settings_that_are_sparks_are_refused(name: str) -> None:
    """12:SP-29: the same as in Spark's own source."""
    (found,) = problems({**BASE, f"kafka.{name}": "x"})
    assert found.startswith(f"kafka.{name}: not supported: ")


def test_other_settings_pass_through() -> None:
    """12:SP-29."""
    options = batch(
        **{
            "kafka.client.id": "me",
            "kafka.isolation.level": "read_uncommitted",
            "checkCrcs": "false",
        }
    )
    assert options.kafka == {
        "bootstrap.servers": "localhost:9092",
        "client.id": "me",
        "isolation.level": "read_uncommitted",
        "check.crcs": "false",
    }
    assert not options.is_read_committed


def test_which_partitions() -> None:
    """12:SP-29."""
    topics = parse_options({**BASE, "subscribe": "b, a,b"}, is_streaming=True).selection
    assert topics.topics == ("a", "b")
    pattern = {"kafka.bootstrap.servers": "h:1", "subscribePattern": "a.*"}
    assert parse_options(pattern, is_streaming=True).selection.pattern == "a.*"
    assign = {"kafka.bootstrap.servers": "h:1", "assign": '{"b": [1, 0], "a": [2]}'}
    assert parse_options(assign, is_streaming=True).selection.partitions == (
        TopicPartition("a", 2),
        TopicPartition("b", 0),
        TopicPartition("b", 1),
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("subscribe", " , "),
        ("subscribePattern", "a*+"),
        ("assign", "a"),
        ("assign", "{}"),
        ("assign", '{"a": []}'),
        ("assign", '{"a": [-1]}'),
        ("assign", '{"a": ["0"]}'),
        ("assign", '{"a": 0}'),
    ],
)
def test_selections_that_mean_nothing(name: str, value: str) -> None:
    """12:SP-29."""
    (found,) = problems({"kafka.bootstrap.servers": "h:1", name: value})
    assert found.startswith(f"{name}: ")


def test_exactly_one_selection() -> None:
    """12:SP-29."""
    (found,) = problems({"kafka.bootstrap.servers": "h:1"})
    assert found.endswith("found none")


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    """12:SP-29."""
    value = "1" if name == "endingTimestamp" else '{"orders": {"0": 1}}'
    (found,) = problems({**BASE, name: value}, is_streaming=True)
    assert found == f"{name}: a stream has no end; leave it out"
    batch(**{name: value})


@pytest.mark.parametrize("value", ["latest", '{"orders": {"0": -1}}'])
def test_a_batch_does_not_begin_at_the_end(value: str) -> None:
    """12:SP-29."""
    (found,) = problems({**BASE, "startingOffsets": value})
    assert "cannot begin at the latest" in found
    stream(startingOffsets=value)


@pytest.mark.parametrize("value", ["earliest", '{"orders": {"0": -2}}'])
def test_a_batch_does_not_end_at_the_beginning(value: str) -> None:
    """12:SP-29."""
    (found,) = problems({**BASE, "endingOffsets": value})
    assert "cannot end at the earliest" in found


@pytest.mark.parametrize("word", ["starting", "ending"])
def test_a_time_for_all_wins_over_times_and_those_over_offsets(word: str) -> None:
    """12:SP-29."""
    given = {
        f"{word}Offsets": '{"orders": {"0": 5}}',
        f"{word}OffsetsByTimestamp": '{"orders": {"0": 1000}}',
        f"{word}Timestamp": "2000",
    }
    kinds = []
    while given:
        options = batch(**given)
        kinds.append((options.starting if word == "starting" else options.ending).kind)
        given.popitem()
    assert kinds == [BoundKind.TIMESTAMP, BoundKind.TIMESTAMPS, BoundKind.OFFSETS]


def test_a_minimum_above_the_maximum() -> None:
    found = problems(
        {**BASE, "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"}, is_streaming=True
    )
    assert found == ("minOffsetsPerTrigger: 9 is more than maxOffsetsPerTrigger, which is 5",)


def test_columns_come_in_the_order_of_the_schema() -> None:
    """12:SP-30."""
    assert batch(columns="offset, VALUE").columns == ("value", "offset")
    assert parse_columns({"columns": "headers,timestamptype"}) == ("timestampType", "headers")


@pytest.mark.parametrize("value", ["", "values", "value,value"])
def test_columns_that_are_not_there(value: str) -> None:
    """12:SP-30."""
    (found,) = problems({**BASE, "columns": value})
    assert found.startswith("columns: expected some of key, value")
    with pytest.raises(OptionsError):
        parse_columns({"columns": value})


def test_headers_asked_for_and_left_out() -> None:
    (found,) = problems({**BASE, "includeHeaders": "true", "columns": "value"})
    assert found == "includeHeaders: true, but columns leaves headers out"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("maxOffsetsPerTrigger", "0"),
        ("maxOffsetsPerTrigger", "1.5"),
        ("maxBytesPerTrigger", "0"),
        ("maxBytesPerTrigger", "3TB"),
        ("maxTriggerDelay", "soon"),
        ("fetchBytes", "-1"),
        ("startingOffsets", "first"),
        ("startingOffsets", '{"orders": {"0": -3}}'),
        ("startingTimestamp", "yesterday"),
        ("startingOffsetsByTimestamp", '{"orders": {"0": -1}}'),
        ("startingOffsetsByTimestampStrategy", "never"),
        ("kafkaConsumer.pollTimeoutMs", "x"),
        ("fetchOffset.numRetries", "-1"),
        ("kafka.bootstrap.servers", "nowhere"),
    ],
)
def test_bad_values_name_their_option(name: str, value: str) -> None:
    """12:SP-29."""
    (found,) = problems({**BASE, name: value})
    assert found.startswith(f"{name}: ")


def test_options_travel_to_tasks() -> None:
    options = stream(startingOffsets='{"orders": {"0": 5}}', columns="value")
    assert pickle.loads(pickle.dumps(options)) == options
