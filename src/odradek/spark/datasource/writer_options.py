"""Options of the topic sink. Pure.

The names are those of Spark's Kafka sink: `topic`, `includeHeaders`, and every setting of the
producer with the prefix `kafka.`. An option that would weaken the guarantee, or asks for a stronger
one, is refused with the reason; all problems are reported together, before a row is written.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from odradek.client.producer.config import read_producer_settings
from odradek.errors import ConfigError
from odradek.spark.datasource.option_values import KAFKA_PREFIX, OptionsError, parse_boolean

__all__ = ["SinkOptions", "parse_sink_options"]

_NAMES: Final = {"topic": "topic", "includeheaders": "includeHeaders"}
# Options that Spark adds, or uses itself.
_OF_SPARK: Final = frozenset({"path", "paths", "checkpointlocation", "queryname"})

_NO_TRANSACTIONS: Final = (
    "the sink writes at least once, since Spark gives a writer in Python no step before its tasks "
    "in which a transaction could begin; use odradek.spark.exactly_once(frame, topic=…), or "
    "`exactly_once: true` in a pipeline file"
)
_EXACTLY_ONCE: Final = frozenset({"exactlyonce", "exactly_once"})
_REJECTED: Final = {
    "key.serializer": "keys are written unchanged, encode them in the query",
    "value.serializer": "values are written unchanged, encode them in the query",
    "interceptor.classes": "there is nothing to intercept",
    "transactional.id": _NO_TRANSACTIONS,
}

# Rows arrive ten thousand at a time, so batches are larger than for single records. No linger: a
# task is flushed at its end.
_DEFAULTS: Final = {
    "batch.size": "524288",
    "linger.ms": "0",
    "client.id": "odradek-spark-sink",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """The options of a writer; pickled to every task."""

    # For rows without a topic in the `topic` column.
    topic: str | None
    # Settings of the producer, by Kafka's name; sorted, so that equal settings compare equal.
    producer: tuple[tuple[str, str], ...]
    is_writing_headers: bool = True


def parse_sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Reads the options of a write.

    Raises:
        OptionsError: Some are unknown, missing, malformed or cannot be guaranteed.
    """
    given = {name.lower(): value for name, value in options.items()}
    problems = [
        f"{name}: {_problem_of_name(name, value)}"
        for name, value in sorted(given.items())
        if _problem_of_name(name, value)
    ]
    settings = {
        name.removeprefix(KAFKA_PREFIX): value
        for name, value in given.items()
        if name.startswith(KAFKA_PREFIX)
    }
    problems += _problems_of_settings(settings)
    is_writing_headers = True
    try:
        is_writing_headers = parse_boolean(given.get("includeheaders", "true"))
    except ValueError as error:
        problems.append(f"includeHeaders: {error}")
    topic = given.get("topic")
    if topic is not None and not topic.strip():
        problems.append("topic: expected a name, found nothing")
    if problems:
        raise OptionsError(problems)
    return SinkOptions(
        topic=topic,
        producer=tuple(sorted({**_DEFAULTS, **settings}.items())),
        is_writing_headers=is_writing_headers,
    )


def _problem_of_name(name: str, value: str) -> str | None:
    if name in _EXACTLY_ONCE:
        return None if value.strip().lower() == "false" else _NO_TRANSACTIONS
    if name in _NAMES or name in _OF_SPARK or name.startswith(KAFKA_PREFIX):
        return None
    near = get_close_matches(name, [*_NAMES, "kafka.bootstrap.servers"], 1)
    if name == "bootstrap.servers":
        near = ["kafka.bootstrap.servers"]
    hint = f", did you mean {_NAMES.get(near[0], near[0])}?" if near else ""
    return f"unknown option of a sink{hint}"


def _problems_of_settings(settings: Mapping[str, str]) -> list[str]:
    """The problems of the producer's settings, of each alone and of their combination."""
    problems = []
    servers = settings.get("bootstrap.servers", "")
    if not servers.strip(" ,"):
        problems.append("kafka.bootstrap.servers: required, expected HOST:PORT,…")
        servers = "localhost:9092"
    for name, value in sorted(settings.items()):
        if name in _REJECTED:
            problems.append(f"{KAFKA_PREFIX}{name}: not supported: {_REJECTED[name]}")
        elif why := _problem_of({"bootstrap.servers": servers, name: value}):
            problems.append(f"{KAFKA_PREFIX}{name}: {why}")
    if not problems and (why := _problem_of({**_DEFAULTS, **settings})):
        problems.append(f"{KAFKA_PREFIX}*: {why}")
    return problems


def _problem_of(settings: Mapping[str, str]) -> str | None:
    try:
        _, options = read_producer_settings(settings, {})
    except ConfigError as error:
        return error.why
    if not options.is_idempotent:
        return (
            "not supported: the sink writes with an idempotent producer, which needs "
            "enable.idempotence=true, acks=all, retries and at most 5 requests in flight"
        )
    return None
