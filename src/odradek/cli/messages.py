"""Printers of messages for `odradek consume`, one per format."""

import argparse
import base64
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, BinaryIO, Final, Protocol

from odradek.cli.internal_records import group_record

if TYPE_CHECKING:
    from odradek.coordinator.group.records import GroupKey, OffsetKey
    from odradek.records.codec import ConsumerRecord

__all__ = ["FORMATS", "Printer", "make_printer", "parse_formatter"]

FORMATS: Final = ("value", "key-value", "json", "offsets", "group-metadata")

# Class names that Kafka's console consumer takes, and the formats they mean. Classes of versions
# before Kafka 4 write text, their successors JSON.
_FORMATTERS: Final = {
    "kafka.coordinator.group.GroupMetadataManager$OffsetsMessageFormatter": "offsets-text",
    "kafka.coordinator.group.GroupMetadataManager$GroupMetadataMessageFormatter": (
        "group-metadata-text"
    ),
    "org.apache.kafka.tools.consumer.OffsetsMessageFormatter": "offsets",
    "org.apache.kafka.tools.consumer.GroupMetadataMessageFormatter": "group-metadata",
}


def parse_formatter(name: str) -> str:
    """The format that a formatter class of Kafka means."""
    if name not in _FORMATTERS:
        known = "".join(f"\n  {one}" for one in _FORMATTERS)
        raise argparse.ArgumentTypeError(
            f"there is no formatter {name!r}; give --format, or one of{known}\n"
            "(in quotes: a shell takes the dollar sign for its own)"
        )
    return _FORMATTERS[name]


class Printer(Protocol):
    """Writes messages in some format."""

    def print(self, records: "Iterable[ConsumerRecord]") -> None:
        """Writes each as a line; a format may leave records out."""
        ...


def make_printer(arguments: argparse.Namespace, out: BinaryIO) -> Printer:
    """The printer for the chosen format."""
    if arguments.format in _FORMATTERS.values():
        return _GroupPrinter(
            out,
            shows_offsets=arguments.format.startswith("offsets"),
            is_text=arguments.format.endswith("-text"),
        )
    return _PlainPrinter(arguments, out)


class _PlainPrinter:
    """Writes messages in the chosen format."""

    def __init__(self, arguments: argparse.Namespace, out: BinaryIO) -> None:
        self._out = out
        self._null = arguments.null_marker.encode()
        self._separator = arguments.key_separator.replace("\\t", "\t").encode()
        self._shows_key = arguments.format == "key-value"
        self._shows_headers = arguments.headers
        self._is_json = arguments.format == "json"

    def print(self, records: "Iterable[ConsumerRecord]") -> None:
        if self._is_json:
            lines = [json.dumps(_json(one), ensure_ascii=False).encode() for one in records]
        elif not (self._shows_key or self._shows_headers):
            lines = [self._null if one.value is None else one.value for one in records]
        else:
            lines = [self._separator.join(self._columns(one)) for one in records]
        self._out.writelines(line + b"\n" for line in lines)

    def _columns(self, record: "ConsumerRecord") -> Iterable[bytes]:
        if self._shows_headers:
            yield b",".join(
                name.encode("utf-8", "surrogateescape") + b"=" + self._bytes(content)
                for name, content in record.headers
            )
        if self._shows_key:
            yield self._bytes(record.key)
        yield self._bytes(record.value)

    def _bytes(self, content: bytes | None) -> bytes:
        return self._null if content is None else content


def _json(record: "ConsumerRecord") -> dict[str, object]:
    """All of a message. Bytes that are not UTF-8 become base64, under a name that says so."""
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        **_text("key", record.key),
        **_text("value", record.value),
        "headers": [
            {"key": name.encode("utf-8", "replace").decode(), **_text("value", content)}
            for name, content in record.headers
        ],
    }


def _text(name: str, content: bytes | None) -> dict[str, str | None]:
    if content is None:
        return {name: None}
    try:
        return {name: content.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(content).decode()}


class _GroupPrinter:
    """Writes the records of `__consumer_offsets`, one per line, as Kafka's formatters do.

    It shows either committed offsets or group metadata and skips the other kind. As text a line is
    ``key::value``, with ``NULL`` for a tombstone; otherwise it is a JSON object of both.
    """

    def __init__(self, out: BinaryIO, *, shows_offsets: bool, is_text: bool) -> None:
        self._out = out
        self._shows_offsets = shows_offsets
        self._is_text = is_text

    def print(self, records: "Iterable[ConsumerRecord]") -> None:
        for record in records:
            line = self._line(record)
            if line is not None:
                self._out.write(line.encode() + b"\n")

    def _line(self, record: "ConsumerRecord") -> str | None:
        from odradek.coordinator.group.records import OffsetKey, parse_key
        from odradek.errors import DecodeError

        if record.key is None:
            return None
        try:
            key = parse_key(record.key)
            # An int: the version of a key that only newer brokers can read.
            if isinstance(key, int) or isinstance(key, OffsetKey) is not self._shows_offsets:
                return None
            if self._is_text:
                return f"{key}::{_text_value(key, record.value)}"
            shown = group_record(key, record.key, record.value)
        except DecodeError as error:
            if self._is_text:
                return f"partition {record.partition}, offset {record.offset}::{error}"
            shown = {"partition": record.partition, "offset": record.offset, "error": str(error)}
        return json.dumps(shown, ensure_ascii=False)


# The records of groups as text; optional fields look as Scala prints them


def _text_value(key: "OffsetKey | GroupKey", value: bytes | None) -> str:
    from odradek.coordinator.group.records import (
        NO_LEADER_EPOCH,
        NO_TIMESTAMP,
        OffsetKey,
        parse_group_value,
        parse_offset_value,
    )

    if value is None:
        return "NULL"
    if isinstance(key, OffsetKey):
        committed = parse_offset_value(value)
        epoch = committed.leader_epoch
        return (
            f"OffsetAndMetadata(offset={committed.offset}, leaderEpoch="
            + ("Optional.empty" if epoch == NO_LEADER_EPOCH else f"Optional[{epoch}]")
            + f", metadata={committed.metadata}, commitTimestamp={committed.commit_ms}"
            + f", expireTimestamp={_option(committed.expire_ms, NO_TIMESTAMP)})"
        )
    group = parse_group_value(value)
    members = ", ".join(
        f"{one.member_id} -> MemberMetadata(memberId={one.member_id}"
        f", groupInstanceId={_option(one.instance_id)}, clientId={one.client_id}"
        f", clientHost={one.client_host}, sessionTimeoutMs={one.session_timeout_ms}"
        f", rebalanceTimeoutMs={one.rebalance_timeout_ms}"
        f", supportedProtocols=List({group.protocol_name or ''}))"
        for one in group.members
    )
    return (
        f"GroupMetadata(groupId={key.group_id}, generation={group.generation_id}"
        f", protocolType={_option(group.protocol_type)}"
        f", currentState={'Stable' if group.members else 'Empty'}, members=Map({members}))"
    )


def _option(found: object, nothing: object = None) -> str:
    return "None" if found == nothing else f"Some({found})"
