"""Settings of the clients behind topics: `kafka` of the pipeline, of sources, sinks and `dlq`.

A source reads with a consumer's settings, a sink and the dead letters write with a producer's.
Settings of the pipeline are for all of them, so each client gets those that it declares; a setting
of one source or sink must be declared by its client. A name that no client declares is an error,
and so is one for which the file has a key of its own, since the two could contradict each other.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import cache
from typing import Final

from odradek.config import Definition
from odradek.errors import ConfigError
from odradek.spark.option_names import SELECTING, SOURCE_OPTIONS
from odradek.spark.pipeline.file.problems import suggestion
from odradek.spark.pipeline.file.section import Section

__all__ = ["ClientKind", "properties_for", "read_clients", "read_options"]

_ANY_SERVER: Final = "localhost:9092"  # Used to check other settings, which need a server.
_KAFKA_PREFIX: Final = "kafka."

# Settings of clients for which the file has a key of its own.
_SAID_ELSEWHERE: Final = {
    "auto.offset.reset": "set 'start' of a source; later positions are in the checkpoint",
    "check.crcs": "set 'checkCrcs' in 'options' of a source",
    "enable.auto.commit": "the position of a query is in its checkpoint",
    "interceptor.classes": "there is nothing to intercept",
    "isolation.level": "set 'isolation' of a source",
    "key.deserializer": "set 'key' of a source",
    "key.serializer": "set 'key' of a sink",
    "transactional.id": "set 'exactly_once' of a topic sink, which names its transactions",
    "value.deserializer": "set 'value' of a source",
    "value.serializer": "set 'value' of a sink",
}
# Any of them may disable idempotence, with which a repeated batch of a producer is written once.
_OF_IDEMPOTENCE: Final = frozenset(
    {"acks", "enable.idempotence", "max.in.flight.requests.per.connection", "retries"}
)
_OPTIONS_SAID_ELSEWHERE: Final = {
    **dict.fromkeys(SELECTING, "set 'topic', 'topic_pattern' or 'assign'"),
    **{name: "a stream has no end" for name in SOURCE_OPTIONS if name.startswith("ending")},
    "progressGroup": "each query has a group of its own, see `odradek pipeline plan`",
}


class ClientKind(StrEnum):
    """The users of client settings; the value is the word in messages."""

    SOURCE = "sources"
    SINK = "sinks"


def properties_for(kind: ClientKind, common: Mapping[str, str]) -> dict[str, str]:
    """The part of the pipeline's `kafka` that one kind of client declares."""
    return {name: value for name, value in common.items() if name in _names(kind)}


def read_clients(section: Section, kinds: Sequence[ClientKind]) -> dict[str, str]:
    """`kafka` of a map, for clients of these kinds; wrong settings are reported and left out."""
    what = f"'kafka' of {section.what}"
    found: dict[str, str] = {}
    for name, value in section.properties("kafka").items():
        if (why := _problem_of_name(name, kinds)) is not None:
            place = section.property_places("kafka", name)[0]
            section.context.error(place, "P02", f"unknown key '{name}' in {what}{why}")
        elif why := _problem_of_value(name, value, kinds):
            place = section.property_places("kafka", name)[1]
            section.context.error(place, "P03", f"'{name}' in {what} cannot be used: {why}")
        else:
            found[name] = value
    return found


def read_options(section: Section) -> dict[str, str]:
    """`options` of a source: those of the data source, and a client's with the prefix `kafka.`."""
    known = {name.casefold(): name for name in SOURCE_OPTIONS}
    what = f"'options' of {section.what}"
    found: dict[str, str] = {}
    for name, value in section.properties("options").items():
        folded = name.casefold()
        place, value_place = section.property_places("options", name)
        if folded.startswith(_KAFKA_PREFIX):
            inner = folded.removeprefix(_KAFKA_PREFIX)
            if (why := _problem_of_name(inner, (ClientKind.SOURCE,))) is not None:
                section.context.error(place, "P02", f"unknown key '{name}' in {what}{why}")
            elif why := _problem_of_value(inner, value, (ClientKind.SOURCE,)):
                message = f"'{name}' in {what} cannot be used: {why}"
                section.context.error(value_place, "P03", message)
        elif folded not in known:
            hint = suggestion(name, SOURCE_OPTIONS)
            section.context.error(place, "P02", f"unknown key '{name}' in {what}{hint}")
        elif why := _OPTIONS_SAID_ELSEWHERE.get(known[folded]):
            section.context.error(place, "P02", f"unknown key '{name}' in {what}: {why}")
        found[name] = value
    return found


@cache
def _definition(kind: ClientKind) -> Definition:
    """The settings of a client; built only for files that set some, since it takes time."""
    from odradek.client.config import ClientConfig
    from odradek.client.consumer.config import CONSUMER_DEFINITION
    from odradek.client.producer.config import ProducerConfig

    if kind is ClientKind.SOURCE:
        return CONSUMER_DEFINITION
    return Definition(ClientConfig, ProducerConfig)


@cache
def _names(kind: ClientKind) -> frozenset[str]:
    return frozenset(_definition(kind).keys) - frozenset(_SAID_ELSEWHERE)


def _problem_of_name(name: str, kinds: Sequence[ClientKind]) -> str | None:
    """The end of a message about a name that none of these clients declares; None if one does."""
    if any(name in _names(kind) for kind in kinds):
        return None
    if name in _SAID_ELSEWHERE:
        return f": {_SAID_ELSEWHERE[name]}"
    for other in ClientKind:
        if name in _names(other):
            return f": it is for {other}, and {' and '.join(kinds)} cannot use it"
    return suggestion(name, sorted(frozenset().union(*map(_names, kinds))))


def _problem_of_value(name: str, value: str, kinds: Sequence[ClientKind]) -> str | None:
    for kind in kinds:
        if name in _names(kind) and (why := _refusal(kind, name, value)):
            return why
    return None


def _refusal(kind: ClientKind, name: str, value: str) -> str | None:
    """Why a client refuses a value, as far as no other setting matters; None if it does not."""
    from odradek.client.config import parse_addresses, read_settings
    from odradek.client.producer.config import read_producer_settings

    given = {"bootstrap.servers": _ANY_SERVER, name: value}
    definition = _definition(kind)
    try:
        if name == "bootstrap.servers":
            parse_addresses(value)
        settings = read_settings(definition, given, {})
        for config_class in definition.classes:
            settings.build(config_class)
        is_idempotent = (
            kind is not ClientKind.SINK
            or name not in _OF_IDEMPOTENCE
            or read_producer_settings(given, {})[1].is_idempotent
        )
    except ConfigError as error:
        return error.why
    if not is_idempotent:
        return (
            "sinks write with an idempotent producer, which needs enable.idempotence=true, "
            "acks=all, retries and at most 5 requests in flight"
        )
    return None
