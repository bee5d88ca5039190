"""The records of the internal topics as JSON, with the names that Kafka's tools give the fields.

| topic                 | keys                         | decoder             |
|-----------------------|------------------------------|---------------------|
| `__consumer_offsets`  | committed offsets, groups    | `offsets_text`      |
| `__transaction_state` | transactional ids            | `transactions_text` |
"""

import base64
import json
import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from odradek.coordinator.group.records import GroupKey, OffsetKey
    from odradek.storage.dump import RecordDecoder

__all__ = ["decoder_of", "group_record", "offsets_text", "transactions_text"]

_PARTITION: Final = re.compile(r"(__consumer_offsets|__transaction_state)-\d+")


def decoder_of(path: str) -> "RecordDecoder | None":
    """The decoder of a file, by the name of its partition's directory."""
    found = _PARTITION.fullmatch(os.path.basename(os.path.dirname(os.path.abspath(path))))
    if found is None:
        return None
    return offsets_text if found[1] == "__consumer_offsets" else transactions_text


# Text, as Kafka's dump tool prints it


def offsets_text(key: bytes | None, value: bytes | None) -> tuple[str, str]:
    """Key and value of a record of `__consumer_offsets`.

    Raises:
        DecodeError: They are malformed, or the value has a version of newer brokers.
    """
    from odradek.coordinator.group.records import parse_key
    from odradek.errors import DecodeError

    if key is None:
        raise DecodeError("it has no key")
    found = parse_key(key)
    if isinstance(found, int):
        return _unknown(key, value)
    told = group_record(found, key, value)
    return _dump(told["key"]), _dump(told["value"])


def transactions_text(key: bytes | None, value: bytes | None) -> tuple[str, str]:
    """Key and value of a record of `__transaction_state`.

    Raises:
        DecodeError: They are malformed, or the value has a version of newer brokers.
    """
    from odradek.coordinator.transaction.records import (
        UnknownKeyVersionError,
        parse_transaction_key,
    )
    from odradek.errors import DecodeError

    if key is None:
        raise DecodeError("it has no key")
    try:
        name = parse_transaction_key(key)
    except UnknownKeyVersionError:
        return _unknown(key, value)
    told = {"type": _version(key), "data": {"transactionalId": name}}
    return _dump(told), _dump(_transaction_value(value))


def _unknown(key: bytes, value: bytes | None) -> tuple[str, str]:
    """A key of newer brokers: they have other kinds of records in the topic."""
    told = None if value is None else {"version": _version(value), "data": "unknown"}
    return _dump({"type": _version(key), "data": "unknown"}), _dump(told)


def _dump(told: object) -> str:
    """JSON on one line; Kafka's tool writes the versions around `data` as strings."""
    if isinstance(told, dict):
        told = {
            name: str(fact) if name in ("type", "version") else fact for name, fact in told.items()
        }
    return json.dumps(told, ensure_ascii=False, separators=(",", ":"))


# Transactions


def _transaction_value(value: bytes | None) -> object:
    from odradek.coordinator.transaction.records import (
        NO_PRODUCER_EPOCH,
        NO_PRODUCER_ID,
        TransactionState,
        parse_transaction_value,
    )

    if value is None:
        return None
    found = parse_transaction_value(value)
    partitions: list[dict[str, object]] | None = [
        {"topic": topic, "partitionIds": sorted(numbers)}
        for topic, numbers in sorted(found.by_topic.items())
    ]
    if found.state is TransactionState.EMPTY and not partitions:
        partitions = None  # As it is stored.
    data: dict[str, object] = {"producerId": found.producer_id}
    # In Kafka's order; fields of version 1 are shown if they are set.
    if found.previous_producer_id != NO_PRODUCER_ID:
        data["previousProducerId"] = found.previous_producer_id
    if found.next_producer_id != NO_PRODUCER_ID:
        data["nextProducerId"] = found.next_producer_id
    data["producerEpoch"] = found.producer_epoch
    if found.next_producer_epoch != NO_PRODUCER_EPOCH:
        data["nextProducerEpoch"] = found.next_producer_epoch
    data |= {
        "transactionTimeoutMs": found.timeout_ms,
        "transactionStatus": found.state.value,
        "transactionPartitions": partitions,
        "transactionLastUpdateTimestampMs": found.last_update_ms,
        "transactionStartTimestampMs": found.start_ms,
    }
    if found.client_transaction_version:
        data["clientTransactionVersion"] = found.client_transaction_version
    return {"version": _version(value), "data": data}


# Groups


def group_record(
    key: "OffsetKey | GroupKey", key_bytes: bytes, value: bytes | None
) -> Mapping[str, object]:
    """A record of `__consumer_offsets`, whose key is parsed already.

    Raises:
        DecodeError: The value is malformed, or of a newer broker.
    """
    from odradek.coordinator.group.records import OffsetKey

    if isinstance(key, OffsetKey):
        told = {"group": key.group_id, "topic": key.topic, "partition": key.partition}
        shown = _offset_value(value)
    else:
        told, shown = {"group": key.group_id}, _group_value(value)
    return {"key": {"type": _version(key_bytes), "data": told}, "value": shown}


def _version(content: bytes) -> int:
    return int.from_bytes(content[:2], "big")


def _offset_value(value: bytes | None) -> object:
    from odradek.coordinator.group.records import NO_TIMESTAMP, parse_offset_value

    if value is None:
        return None
    found = parse_offset_value(value)
    data: dict[str, object] = {
        "offset": found.offset,
        "leaderEpoch": found.leader_epoch,
        "metadata": found.metadata,
        "commitTimestamp": found.commit_ms,
    }
    if found.expire_ms != NO_TIMESTAMP:
        data["expireTimestamp"] = found.expire_ms
    return {"version": _version(value), "data": data}


def _group_value(value: bytes | None) -> object:
    from odradek.coordinator.group.records import parse_group_value

    if value is None:
        return None
    found = parse_group_value(value)
    return {
        "version": _version(value),
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
