"""Applies deserializers and interceptors to the records that a poll returns."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, cast

from odradek.client.consumer.commits import OffsetAndMetadata
from odradek.model import TopicPartition
from odradek.records.codec import ConsumerRecord

__all__ = ["ConsumerInterceptor", "DeserializedRecord", "RecordHooks"]

logger = logging.getLogger(__name__)


class DeserializedRecord(NamedTuple):
    """As `ConsumerRecord`, with a key and a value that deserializers have converted."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: Any
    value: Any
    headers: tuple[tuple[str, bytes | None], ...]
    leader_epoch: int | None


class ConsumerInterceptor(Protocol):
    """Called for records and commits. An exception that a method raises is only logged."""

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        """Called with the records of a poll; the application gets the list that this returns."""
        ...

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> object:
        """Called when these offsets were committed."""
        ...


class RecordHooks:
    """Applies deserializers first, then the interceptors in their order."""

    def __init__(
        self,
        key_deserializer: Callable[[bytes], Any] | None,
        value_deserializer: Callable[[bytes], Any] | None,
        interceptors: Sequence[ConsumerInterceptor],
    ) -> None:
        self._key_of = key_deserializer
        self._value_of = value_deserializer
        self._interceptors = interceptors
        # Whether `apply` changes nothing.
        self.is_plain = key_deserializer is None and value_deserializer is None and not interceptors

    def apply(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        """The records for the application; `DeserializedRecord`s if there is a deserializer."""
        if self._key_of is not None or self._value_of is not None:
            deserialized = [
                _deserialized(record, self._key_of, self._value_of) for record in records
            ]
            records = cast("list[ConsumerRecord]", deserialized)
        for interceptor in self._interceptors:
            try:
                records = interceptor.on_consume(records)
            except Exception:  # the application's code may raise anything
                logger.exception("%s.on_consume failed", type(interceptor).__name__)
        return records


def _deserialized(
    record: ConsumerRecord,
    key_of: Callable[[bytes], Any] | None,
    value_of: Callable[[bytes], Any] | None,
) -> DeserializedRecord:
    key, value = record.key, record.value
    return DeserializedRecord(
        record.topic,
        record.partition,
        record.offset,
        record.timestamp,
        record.timestamp_type,
        key if key_of is None or key is None else key_of(key),
        value if value_of is None or value is None else value_of(value),
        record.headers,
        record.leader_epoch,
    )
