"""Prints the records of `__consumer_offsets` as Kafka's formatters do."""

import argparse
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, BinaryIO, Final

from odradek.cli.internal_records import group_record

if TYPE_CHECKING:
    from odradek.coordinator.group.records import GroupKey, OffsetKey
    from odradek.records.codec import ConsumerRecord

__all__ = ["GROUP_FORMATS", "GroupPrinter", "parse_formatter"]

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
GROUP_FORMATS: Final = tuple(_FORMATTERS.values())


def parse_formatter(name: str) -> str:
    """The format that a formatter class of Kafka means."""
    if name not in _FORMATTERS:
        known = "".join(f"\n  {one}" for one in _FORMATTERS)
        raise argparse.ArgumentTypeError(
            f"there is no formatter {name!r}; give --format, or one of{known}\n"
            "(in quotes: a shell takes the dollar sign for its own)"
        )
    return _FORMATTERS[name]


class GroupPrinter:
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
