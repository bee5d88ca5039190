"""Settings of clients in a pipeline file: each client gets what it knows."""

from collections.abc import Mapping
from pathlib import Path

from odradek.client.config import ClientConfig
from odradek.client.consumer.config import CONSUMER_DEFINITION
from odradek.client.producer.config import ProducerConfig
from odradek.config import Definition
from odradek.spark.datasource.options import parse_options
from odradek.spark.datasource.writer_options import parse_sink_options
from odradek.spark.option_names import SOURCE_OPTIONS
from odradek.spark.pipeline.graph.model import TopicInput, TopicTarget
from tests.unit.spark.pipeline.files import HEAD, SINK, SOURCE, read, valid

BASE = HEAD + SOURCE
TO_TOPIC = "sinks: {out: {from: raw, topic: t}}\n"
PRODUCER = Definition(ClientConfig, ProducerConfig)
# A value for each name, other than the default where that is no text.
VALUES: Mapping[str, str] = {
    "bootstrap.servers": "a:1",
    "acks": "all",
    "group.instance.id": "one",
    "ssl.key.password": "secret",
    "ssl.keystore.location": "k.pem",
    "ssl.truststore.location": "t.pem",
}


def value_of(definition: Definition, name: str) -> str:
    default = definition.keys[name].default
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, tuple):
        return VALUES.get(name, ",".join(str(one) for one in default))
    return VALUES.get(name, str(default))


def taken_at(folder: Path, text: str) -> bool:
    """Whether a file with one setting in it is valid."""
    return read(folder, text).pipeline is not None


def test_each_client_gets_what_it_knows(tmp_path: Path) -> None:
    """12:SP-48: `kafka` of the pipeline is for every source and sink, and for the dead letters."""
    text = (
        HEAD
        + "kafka: {compression.type: zstd, fetch.max.bytes: 1000000, client.id: me}\n"
        + SOURCE
        + TO_TOPIC
        + "dlq: {topic: letters, kafka: {linger.ms: 5}}\n"
    )

    pipeline = valid(tmp_path, text)

    source, target = pipeline.sources["raw"].input, pipeline.sinks["out"].target
    assert isinstance(source, TopicInput)
    assert isinstance(target, TopicTarget)
    assert pipeline.dead_letters is not None
    assert source.kafka == {"fetch.max.bytes": "1000000", "client.id": "me"}
    assert target.kafka == {"compression.type": "zstd", "client.id": "me"}
    assert pipeline.dead_letters.kafka == {**target.kafka, "linger.ms": "5"}


def test_a_source_takes_what_the_file_lets_through(tmp_path: Path) -> None:
    """12:SP-29 12:SP-49: no setting is found wrong only when the query starts."""
    let_through = []
    for name in CONSUMER_DEFINITION.keys:
        value = value_of(CONSUMER_DEFINITION, name)
        if taken_at(tmp_path, BASE + f"    kafka: {{{name}: '{value}'}}\n" + SINK):
            let_through.append(name)
            options = {"kafka.bootstrap.servers": "a:1", f"kafka.{name}": value, "subscribe": "t"}
            parse_options(options, is_streaming=True)

    assert set(CONSUMER_DEFINITION.keys) - set(let_through) == {
        "auto.offset.reset",
        "check.crcs",
        "enable.auto.commit",
        "isolation.level",
    }


def test_a_sink_takes_what_the_file_lets_through(tmp_path: Path) -> None:
    """12:SP-38 12:SP-53."""
    let_through = set()
    for name in PRODUCER.keys:
        value = value_of(PRODUCER, name)
        kafka = f"kafka: {{{name}: '{value}'}}"
        if taken_at(tmp_path, BASE + f"sinks: {{out: {{from: raw, topic: t, {kafka}}}}}\n"):
            let_through.add(name)
            options = {"kafka.bootstrap.servers": "a:1", f"kafka.{name}": value, "topic": "t"}
            parse_sink_options(options)

    assert set(PRODUCER.keys) - let_through == {"transactional.id"}


def test_options_of_a_source_are_those_of_the_data_source(tmp_path: Path) -> None:
    """12:SP-49: names without case."""
    refused = {name for name in SOURCE_OPTIONS if not taken_at(tmp_path, with_option(name))}

    assert refused == {
        "subscribe",
        "subscribePattern",
        "assign",
        "endingTimestamp",
        "endingOffsetsByTimestamp",
        "endingOffsets",
        "progressGroup",
    }
    assert taken_at(tmp_path, with_option("MINPARTITIONS"))


def with_option(name: str) -> str:
    return BASE + f"    options: {{{name}: '1'}}\n" + SINK
