"""Foreign clients behind one face: write messages to partition 0 of a topic, read it whole.

Each function opens a client, does its work and closes it. `JavaClient` runs Kafka's own console
tools, which are thin around the Java producer and consumer.
"""

import asyncio
import subprocess
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import aiokafka
import confluent_kafka

from tests.support.apache_kafka import KafkaInstall

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # It reads its schemas in an old way.
    import kafka

__all__ = [
    "CODECS",
    "AioKafka",
    "Client",
    "JavaClient",
    "KafkaPython",
    "Librdkafka",
    "Message",
    "Read",
    "kafka",
]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_TIMEOUT_S = 60
_TAB = "\t"

Headers = tuple[tuple[str, bytes], ...]


class Message(NamedTuple):
    """What a producer is told to write; timestamps are its own where it takes none."""

    key: bytes
    value: bytes
    headers: Headers
    timestamp_ms: int


class Read(NamedTuple):
    """What a consumer saw."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class Client(Protocol):
    """One foreign client."""

    @property
    def name(self) -> str: ...

    @property
    def takes_timestamps(self) -> bool: ...

    def produce(
        self, bootstrap: str, topic: str, codec: str, messages: Sequence[Message]
    ) -> None: ...

    def consume(self, bootstrap: str, topic: str, count: int) -> list[Read]: ...


class Librdkafka:
    """confluent-kafka; idempotent."""

    name = "librdkafka"
    takes_timestamps = True

    def produce(self, bootstrap: str, topic: str, codec: str, messages: Sequence[Message]) -> None:
        errors: list[object] = []
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "compression.type": codec,
                "linger.ms": 20,
                "message.max.bytes": 10_000_000,
            }
        )
        for message in messages:
            producer.produce(
                topic,
                partition=0,
                key=message.key,
                value=message.value,
                headers=list(message.headers),
                timestamp=message.timestamp_ms,
                on_delivery=lambda error, _: errors.append(error) if error else None,
            )
        left = producer.flush(_TIMEOUT_S)
        assert (left, errors) == (0, []), f"{left} not delivered, {errors}"

    def consume(self, bootstrap: str, topic: str, count: int) -> list[Read]:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "unused",  # The client wants one; partitions are assigned by hand.
                "enable.auto.commit": False,
                "check.crcs": True,
            }
        )
        read: list[Read] = []
        try:
            consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
            while len(read) < count:
                messages = consumer.consume(count - len(read), _TIMEOUT_S)
                assert messages, f"nothing came for {_TIMEOUT_S} s after {len(read)} messages"
                read += [self._read(message) for message in messages]
        finally:
            consumer.close()
        return read

    def _read(self, message: confluent_kafka.Message) -> Read:
        assert message.error() is None, message.error()
        offset, key, value = message.offset(), message.key(), message.value()
        assert offset is not None
        assert not isinstance(key, str)
        assert not isinstance(value, str)
        pairs: Any = message.headers() or ()
        headers = tuple((name, content) for name, content in pairs)
        return Read(offset, message.timestamp()[1], key, value, headers)


class KafkaPython:
    """kafka-python; idempotent."""

    name = "kafka-python"
    takes_timestamps = True

    def produce(self, bootstrap: str, topic: str, codec: str, messages: Sequence[Message]) -> None:
        producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap,
            enable_idempotence=True,
            compression_type=None if codec == "none" else codec,
            linger_ms=20,
            max_request_size=10_000_000,
        )
        try:
            futures = [
                producer.send(
                    topic,
                    partition=0,
                    key=message.key,
                    value=message.value,
                    headers=list(message.headers),
                    timestamp_ms=message.timestamp_ms,
                )
                for message in messages
            ]
            for future in futures:
                future.get(_TIMEOUT_S)
        finally:
            producer.close()

    def consume(self, bootstrap: str, topic: str, count: int) -> list[Read]:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=bootstrap,
            enable_auto_commit=False,
            check_crcs=True,
            consumer_timeout_ms=_TIMEOUT_S * 1000,
        )
        read: list[Read] = []
        try:
            partition = kafka.TopicPartition(topic, 0)
            consumer.assign([partition])
            consumer.seek(partition, 0)
            while len(read) < count:
                one = next(consumer)
                read.append(Read(one.offset, one.timestamp, one.key, one.value, tuple(one.headers)))
        finally:
            consumer.close()
        return read


class AioKafka:
    """aiokafka; idempotent."""

    name = "aiokafka"
    takes_timestamps = True

    def produce(self, bootstrap: str, topic: str, codec: str, messages: Sequence[Message]) -> None:
        async def write() -> None:
            async with aiokafka.AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                enable_idempotence=True,
                compression_type=None if codec == "none" else codec,
                linger_ms=20,
                max_request_size=10_000_000,
                max_batch_size=10_000_000,
            ) as producer:
                futures = [
                    await producer.send(
                        topic,
                        partition=0,
                        key=message.key,
                        value=message.value,
                        headers=list(message.headers),
                        timestamp_ms=message.timestamp_ms,
                    )
                    for message in messages
                ]
                await asyncio.wait_for(asyncio.gather(*futures), _TIMEOUT_S)

        asyncio.run(write())

    def consume(self, bootstrap: str, topic: str, count: int) -> list[Read]:
        async def read_all() -> list[Read]:
            consumer = aiokafka.AIOKafkaConsumer(
                bootstrap_servers=bootstrap, enable_auto_commit=False, check_crcs=True
            )
            read: list[Read] = []
            async with consumer:
                partition = aiokafka.TopicPartition(topic, 0)
                consumer.assign([partition])
                consumer.seek(partition, 0)
                while len(read) < count:
                    one = await asyncio.wait_for(consumer.getone(), _TIMEOUT_S)
                    read.append(
                        Read(one.offset, one.timestamp, one.key, one.value, tuple(one.headers))
                    )
            return read

        return asyncio.run(read_all())


@dataclass(frozen=True, slots=True)
class JavaClient:
    """Kafka's console producer (idempotent, as is its default) and consumer.

    They read and write lines: keys, values and headers must be ASCII without tab, colon, comma.
    """

    install: KafkaInstall
    takes_timestamps: bool = False

    @property
    def name(self) -> str:
        return f"java-{self.install.version}"

    def option(self, newer: str) -> str:
        """`newer`, or what 3.x calls it."""
        return "--property" if self.install.version.startswith("3.") else newer

    @property
    def console_producer(self) -> str:
        package = "kafka" if self.install.version.startswith("3.") else "org.apache.kafka"
        return f"{package}.tools.ConsoleProducer"

    def produce(self, bootstrap: str, topic: str, codec: str, messages: Sequence[Message]) -> None:
        lines = [_TAB.join((*_header_words(one), *_words(one.key, one.value))) for one in messages]
        result = subprocess.run(
            self.install.command(
                self.console_producer,
                *("--bootstrap-server", bootstrap, "--topic", topic),
                *("--compression-codec", codec, "--timeout", "20"),
                # It gives a request a second and a half otherwise, and up after three.
                *("--request-timeout-ms", "30000"),
                *(self.option("--reader-property"), "parse.key=true"),
                *(self.option("--reader-property"), "parse.headers=true"),
            ),
            input="\n".join(lines) + "\n",
            capture_output=True,
            text=True,
            timeout=2 * _TIMEOUT_S,
            check=False,
        )
        assert result.returncode == 0, result.stderr
        assert "ERROR" not in result.stderr

    def consume(self, bootstrap: str, topic: str, count: int) -> list[Read]:
        option = self.option("--formatter-property")
        shown = ("print.timestamp", "print.offset", "print.headers", "print.key")
        result = self.install.run_tool(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *("--bootstrap-server", bootstrap, "--topic", topic, "--partition", "0"),
            *("--offset", "earliest", "--max-messages", str(count)),
            *("--timeout-ms", str(_TIMEOUT_S * 1000)),
            *(word for name in shown for word in (option, f"{name}=true")),
            timeout_s=2 * _TIMEOUT_S,
        )
        assert result.returncode == 0, result.stderr
        return [_parse_line(line) for line in result.stdout.splitlines()]


def _words(*contents: bytes) -> tuple[str, ...]:
    return tuple(content.decode("ascii") for content in contents)


def _header_words(message: Message) -> tuple[str]:
    return (",".join(f"{name}:{value.decode('ascii')}" for name, value in message.headers),)


def _parse_line(line: str) -> Read:
    """``CreateTime:17…<tab>Offset:4<tab>h1:a,h2:b<tab>key<tab>value``."""
    timestamp, offset, headers, key, value = line.split(_TAB)
    pairs = (pair.split(":") for pair in headers.split(","))
    return Read(
        offset=int(offset.removeprefix("Offset:")),
        timestamp_ms=int(timestamp.removeprefix("CreateTime:")),
        key=key.encode(),
        value=value.encode(),
        headers=tuple((name, content.encode()) for name, content in pairs),
    )
