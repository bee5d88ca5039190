"""What becomes of records on their way to the application: deserializers and interceptors."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, cast

from odradek.client.consumer.commits import OffsetAndMetadata
from odradek.model import TopicPartition
from odradek.records.codec import ConsumerRecord

__all__ = ["ConsumerInterceptor", "DeserializedRecord", "RecordHooks"]

logger = logging.getLogger(__name__)


class DeserializedRecord(NamedTuple):
    """A record as `ConsumerRecord`, whose key and value a deserializer made something else of."""

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
    """Sees what goes by. A method that fails is logged, and nothing else."""

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        """Records on their way to the application; what is returned goes on."""
        ...

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> object:
        """These offsets were committed."""
        ...


class RecordHooks:
    """Deserializers first, then the interceptors in their order."""

    def __init__(
        self,
        key_deserializer: Callable[[bytes], Any] | None,
        value_deserializer: Callable[[bytes], Any] | None,
        interceptors: Sequence[ConsumerInterceptor],
    ) -> None:
        self._key_of = key_deserializer
        self._value_of = value_deserializer
        self._interceptors = interceptors
        # Whether records go out as they are.
        self.is_plain = key_deserializer is None and value_deserializer is None and not interceptors

    def apply(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        """Records as the application gets them; `DeserializedRecord`s if something made them so."""
        if self._key_of is not None or self._value_of is not None:
            deserialized = [
                _deserialized(record, self._key_of, self._value_of) for record in records
            ]
            records = cast("list[ConsumerRecord]", deserialized)
        for interceptor in self._interceptors:
            try:
                records = interceptor.on_consume(records)
            except Exception:  # whatever it raises is its own
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
