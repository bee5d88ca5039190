"""Topics in tests: made, filled, emptied, and compared with what a test expects.

The clients are Odradek's own, each for one call, so that a test holds no connection it did not make
and what it sees is what brokers have stored.
"""

import itertools
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from odradek import Consumer
    from odradek.records.codec import ConsumerRecord

__all__ = ["TopicHelpers"]

_WAIT_S: Final = 10.0
_POLL_S: Final = 0.1
_numbers = itertools.count(1)


class TopicHelpers(ABC):
    """What embedded brokers and clusters offer to tests of ordinary functions."""

    @property
    @abstractmethod
    def client_settings(self) -> Mapping[str, str]:
        """The settings to connect with, under Kafka's names."""

    def create_topic(
        self,
        name: str | None = None,
        partitions: int = 1,
        *,
        replication_factor: int = -1,
        settings: Mapping[str, str] | None = None,
    ) -> str:
        """Makes a topic, ready to be used.

        Args:
            name: None: a new one.
            partitions: Their number.
            replication_factor: -1: the broker's default.
            settings: Such as ``{"cleanup.policy": "compact"}``.

        Returns:
            Its name.

        Raises:
            ApiError: The broker refuses.
        """
        from odradek import Admin
        from odradek.client.admin import NewTopic
        from odradek.errors import ApiError

        name = name or f"topic-{next(_numbers)}"
        topic = NewTopic(
            name=name,
            partition_count=partitions,
            replication_factor=replication_factor,
            configs=dict(settings or {}),
        )
        with Admin(self.client_settings) as admin:
            made = admin.create_topics([topic])[name]
            if isinstance(made, ApiError):
                raise made
            _until(
                lambda: _is_led(admin.describe_topics([name])[name], partitions),
                f"topic {name!r} has leaders",
            )
        return name

    def delete_topic(self, name: str) -> None:
        """Deletes a topic and its records.

        Raises:
            ApiError: The broker refuses.
        """
        from odradek import Admin

        with Admin(self.client_settings) as admin:
            error = admin.delete_topics([name])[name]
            if error is not None:
                raise error

    def empty_topic(self, name: str) -> None:
        """Deletes the records of a topic, which stays; offsets go on where they were.

        Raises:
            ApiError: The broker refuses.
        """
        from odradek import Admin
        from odradek.client.admin import HIGH_WATERMARK
        from odradek.errors import ApiError
        from odradek.model import TopicPartition

        with Admin(self.client_settings) as admin:
            topic = admin.describe_topics([name])[name]
            if isinstance(topic, ApiError):
                raise topic
            partitions = [TopicPartition(name, one.partition) for one in topic.partitions]
            for result in admin.delete_records(dict.fromkeys(partitions, HIGH_WATERMARK)).values():
                if isinstance(result, ApiError):
                    raise result

    def send(self, topic: str, *values: bytes | str | None, key: bytes | str | None = None) -> None:
        """Writes records, in this order, and returns when all are stored.

        Raises:
            ApiError: One was not stored.
        """
        from odradek import Producer

        with Producer(self.client_settings) as producer:
            deliveries = [producer.send(topic, _data(value), _data(key)) for value in values]
            for delivery in deliveries:
                delivery.result()

    def records(self, topic: str) -> "list[ConsumerRecord]":
        """The records that are stored now and can be read, by partition and offset.

        Records of open and aborted transactions are left out.

        Raises:
            ApiError: There is no such topic, or it cannot be read.
        """
        from odradek import Consumer

        found: list[ConsumerRecord] = []
        with Consumer(self._reader_settings()) as consumer:
            ends = _ends(consumer, topic)
            consumer.assign(ends)
            while any(consumer.position(tp) < end for tp, end in ends.items()):
                found += consumer.poll(timeout=_POLL_S)
        return sorted(found, key=lambda record: (record.partition, record.offset))

    def wait_for_records(
        self, topic: str, count: int, *, timeout: float = _WAIT_S
    ) -> "list[ConsumerRecord]":
        """The records of a topic, when there are at least `count`.

        Raises:
            AssertionError: There are fewer after `timeout` seconds.
        """
        found: list[ConsumerRecord] = []

        def are_there() -> bool:
            found[:] = self.records(topic)
            return len(found) >= count

        try:
            _until(are_there, "", timeout=timeout)
        except AssertionError:
            raise AssertionError(
                f"expected {count} records in topic {topic!r} within {timeout:g} s, found "
                f"{len(found)}: {[record.value for record in found]}"
            ) from None
        return found

    def assert_records(
        self,
        topic: str,
        values: Iterable[bytes | str | None],
        *,
        in_order: bool = True,
        timeout: float = _WAIT_S,
    ) -> None:
        """Waits until a topic has as many records as there are values, and compares them.

        Args:
            topic: Its name.
            values: Of all records, by partition and offset.
            in_order: Whether their order counts, too.
            timeout: How long to wait for all of them, in seconds.

        Raises:
            AssertionError: The values differ; the message has those that are missing or too many.
        """
        wanted = [_data(value) for value in values]
        records = self.wait_for_records(topic, len(wanted), timeout=timeout)
        found = [record.value for record in records]
        missing, extra = _differences(wanted, found)
        if missing or extra:
            raise AssertionError(
                f"records of topic {topic!r} differ: missing {missing}, unexpected {extra}"
            )
        if in_order and found != wanted:
            raise AssertionError(
                f"records of topic {topic!r} have another order: expected {wanted}, found {found}"
            )

    def _reader_settings(self) -> dict[str, object]:
        return {
            **self.client_settings,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "allow.auto.create.topics": False,
        }


def _ends(consumer: "Consumer", topic: str) -> "dict[tuple[str, int], int]":
    partitions = [(topic, number) for number in range(len(consumer.partitions_for(topic)))]
    return {(tp.topic, tp.partition): end for tp, end in consumer.end_offsets(partitions).items()}


def _is_led(topic: object, partitions: int) -> bool:
    from odradek.client import TopicView

    return (
        isinstance(topic, TopicView)
        and len(topic.partitions) == partitions
        and all(one.leader >= 0 for one in topic.partitions)
    )


def _data(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _differences(
    wanted: Sequence[bytes | None], found: Sequence[bytes | None]
) -> tuple[list[bytes | None], list[bytes | None]]:
    """What only the first has, and what only the second has."""
    missing, extra = list(wanted), []
    for value in found:
        if value in missing:
            missing.remove(value)
        else:
            extra.append(value)
    return missing, extra


def _until(holds: Callable[[], bool], what: str, *, timeout: float = _WAIT_S) -> None:
    from odradek.client import Deadline
    from odradek.clock import SystemClock

    deadline = Deadline(SystemClock(), int(timeout * 1000))
    while not holds():
        if not deadline.left_ms():
            raise AssertionError(f"{what}: not within {timeout:g} s")
        time.sleep(_POLL_S / 5)
