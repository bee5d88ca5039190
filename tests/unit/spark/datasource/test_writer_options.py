"""What the options of a topic sink may say."""

import pytest

from odradek.spark.datasource.option_values import OptionsError
from odradek.spark.datasource.writer_options import parse_sink_options

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


def problems_of(options: dict[str, str]) -> tuple[str, ...]:
    with pytest.raises(OptionsError) as raised:
        parse_sink_options(options)
    return raised.value.problems


def test_reads_what_sparks_own_sink_reads() -> None:
    """12:SP-38."""
    parsed = parse_sink_options(
        {**SERVERS, "TOPIC": "Orders", "includeHeaders": "FALSE", "kafka.linger.ms": "7"}
    )
    assert parsed.topic == "Orders"
    assert not parsed.is_writing_headers
    settings = dict(parsed.producer)
    assert settings["bootstrap.servers"] == "localhost:9092"
    assert settings["linger.ms"] == "7"
    assert int(settings["batch.size"]) > 16_384


def test_equal_options_are_equal() -> None:
    """A worker finds its producer again by them."""
    one = parse_sink_options({**SERVERS, "kafka.client.id": "a", "topic": "t"})
    other = parse_sink_options({"topic": "t", "kafka.client.id": "a", **SERVERS})
    assert one == other
    assert hash(one.producer) == hash(other.producer)


@pytest.mark.parametrize(
    "name", ["path", "paths", "checkpointLocation", "queryName", "checkpointlocation"]
)
def test_lets_pass_what_is_sparks(name: str) -> None:
    parse_sink_options({**SERVERS, name: "x"})


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("topics", "did you mean topic?"),
        ("includeHeader", "did you mean includeHeaders?"),
        ("bootstrap.servers", "did you mean kafka.bootstrap.servers?"),
        ("subscribe", "unknown option of a sink"),
    ],
)
def test_suggests_what_was_meant(name: str, hint: str) -> None:
    (problem,) = problems_of({**SERVERS, name: "x"})
    assert problem.startswith(f"{name.lower()}: ")
    assert hint in problem


@pytest.mark.parametrize(
    "options",
    [
        {"exactly_once": "true"},
        {"exactlyOnce": "true"},
        {"kafka.transactional.id": "t"},
    ],
)
def test_refuses_a_promise_that_it_cannot_keep(options: dict[str, str]) -> None:
    """12:SP-3: said before anything is written."""
    (problem,) = problems_of({**SERVERS, **options})
    assert "writes at least once" in problem
    assert "use odradek.spark.exactly_once(frame, topic=…)" in problem


def test_nobody_is_refused_for_asking_for_less() -> None:
    parse_sink_options({**SERVERS, "exactly_once": "false"})


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("acks", "0"),
        ("acks", "1"),
        ("enable.idempotence", "false"),
        ("retries", "0"),
        ("max.in.flight.requests.per.connection", "6"),
    ],
)
def test_refuses_to_write_without_idempotence(setting: str, value: str) -> None:
    """12:SP-38."""
    (problem,) = problems_of({**SERVERS, f"kafka.{setting}": value})
    assert problem.startswith(f"kafka.{setting}: not supported")
    assert "idempotent" in problem


@pytest.mark.parametrize("name", ["key.serializer", "value.serializer", "interceptor.classes"])
def test_refuses_settings_that_name_classes(name: str) -> None:
    (problem,) = problems_of({**SERVERS, f"kafka.{name}": "org.example.Class"})
    assert problem.startswith(f"kafka.{name}: not supported")


def test_refuses_two_settings_that_contradict_each_other() -> None:
    (problem,) = problems_of(
        {**SERVERS, "kafka.delivery.timeout.ms": "40000", "kafka.request.timeout.ms": "50000"}
    )
    assert "linger.ms + request.timeout.ms" in problem


def test_tells_everything_at_once() -> None:
    problems = problems_of(
        {
            "kafka.linger.ms": "soon",
            "kafka.lingerms": "1",
            "topik": "x",
            "topic": " ",
            "includeHeaders": "maybe",
        }
    )
    assert [problem.partition(":")[0] for problem in problems] == [
        "topik",
        "kafka.bootstrap.servers",
        "kafka.linger.ms",
        "kafka.lingerms",
        "includeHeaders",
        "topic",
    ]
