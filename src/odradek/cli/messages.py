"""How `odradek consume` shows messages."""

import argparse
import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, BinaryIO, Final, Protocol

if TYPE_CHECKING:
    from odradek.records.codec import ConsumerRecord

__all__ = ["FORMATS", "Printer", "make_printer"]

FORMATS: Final = ("value", "key-value", "json", "offsets", "group-metadata")


class Printer(Protocol):
    """Writes messages in some format."""

    def print(self, records: "Iterable[ConsumerRecord]") -> None:
        """Write each as a line, if it is shown at all."""
        ...


def make_printer(arguments: argparse.Namespace, out: BinaryIO) -> Printer:
    """The printer for the chosen format."""
    if arguments.format in ("offsets", "group-metadata"):
        return _GroupPrinter(out, shows_offsets=arguments.format == "offsets")
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
    """All of a message. Bytes that are no UTF-8 come as base64, under a name that says so."""
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
    """What `__consumer_offsets` holds: an object per line, as Kafka's formatters have it."""

    def __init__(self, out: BinaryIO, *, shows_offsets: bool) -> None:
        self._out = out
        self._shows_offsets = shows_offsets

    def print(self, records: "Iterable[ConsumerRecord]") -> None:
        for record in records:
            for shown in self._shown(record):
                self._out.write(json.dumps(shown, ensure_ascii=False).encode() + b"\n")

    def _shown(self, record: "ConsumerRecord") -> Iterator[Mapping[str, object]]:
        from odradek.coordinator.group.records import GroupKey, OffsetKey, parse_key
        from odradek.errors import DecodeError

        if record.key is None:
            return
        try:
            key = parse_key(record.key)
            version = int.from_bytes(record.key[:2], "big")
            if isinstance(key, OffsetKey) and self._shows_offsets:
                told = {"group": key.group_id, "topic": key.topic, "partition": key.partition}
                value = _offset_value(record.value)
            elif isinstance(key, GroupKey) and not self._shows_offsets:
                told, value = {"group": key.group_id}, _group_value(record.value)
            else:
                return
        except DecodeError as error:
            yield {"partition": record.partition, "offset": record.offset, "error": str(error)}
            return
        yield {"key": {"type": version, "data": told}, "value": value}


def _offset_value(value: bytes | None) -> object:
    from odradek.coordinator.group.records import parse_offset_value

    if value is None:
        return None
    found = parse_offset_value(value)
    return {
        "version": int.from_bytes(value[:2], "big"),
        "data": {
            "offset": found.offset,
            "leaderEpoch": found.leader_epoch,
            "metadata": found.metadata,
            "commitTimestamp": found.commit_ms,
        },
    }


def _group_value(value: bytes | None) -> object:
    from odradek.coordinator.group.records import parse_group_value

    if value is None:
        return None
    found = parse_group_value(value)
    return {
        "version": int.from_bytes(value[:2], "big"),
        "data": {
            "protocolType": found.protocol_type,
            "generation": found.generation_id,
            "protocol": found.protocol_name,
            "leader": found.leader,
            "currentStateTimestamp": found.state_timestamp_ms,
            "members": [
                {
                    "memberId": member.member_id,
                    "groupInstanceId": member.instance_id,
                    "clientId": member.client_id,
                    "clientHost": member.client_host,
                    "rebalanceTimeout": member.rebalance_timeout_ms,
                    "sessionTimeout": member.session_timeout_ms,
                    "subscription": base64.b64encode(member.subscription).decode(),
                    "assignment": base64.b64encode(member.assignment).decode(),
                }
                for member in found.members
            ],
        },
    }
