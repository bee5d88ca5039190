"""Sends columns of messages to a topic for `produce` and `topics copy`, and counts them."""

import argparse
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Self

from odradek.cli.connecting import NEW_TOPIC_MS, CommandError, client_settings, is_there, reach
from odradek.cli.messages.columns import MessageColumns
from odradek.cli.progress import Progress

if TYPE_CHECKING:
    from odradek.client import TopicView
    from odradek.client.producer import Producer, RowsDelivery
    from odradek.records.rows import NumberInput, Rows

__all__ = ["Outlet", "TooLargeError"]

# Messages arrive many at a time: large batches need fewer requests.
_BATCH_BYTES: Final = 128 * 1024
_LINGER_MS: Final = 5
# Messages that may be unacknowledged while more are read.
_MAX_UNKNOWN: Final = 100_000
# What a producer sends at most without being told otherwise (max.request.size), and the least it
# has for messages that have no outcome yet.
_USUAL_BYTES: Final = 1024 * 1024
_BUFFER_BYTES: Final = 64 * 1024 * 1024
# More than a batch adds to its only message.
_OVERHEAD_BYTES: Final = 128
# How much smaller compression may make a message that exceeds the limit of its topic.
_MOST_COMPRESSED: Final = 16
_MAX_INT32: Final = 2**31 - 1


class TooLargeError(CommandError):
    """A message that its topic does not take; `place` is its place among those of the call."""

    def __init__(self, topic: str, place: int, size: int, limit: int) -> None:
        super().__init__(
            f"a message has {size} bytes, and topic {topic!r} takes {limit} (max.message.bytes); "
            f"`odradek configs alter topic {topic} --set max.message.bytes="
            f"{size + _OVERHEAD_BYTES}` lets it take more"
        )
        self.place = place


class Outlet:
    """Sends to one topic; an async context manager.

    Args:
        arguments: With the options of the connection, `acks` and `compression`.
        topic: Its name.
        settings: Of the producer, in place of those that follow from the arguments.
        beside: Kinds of the other clients of the command.
    """

    def __init__(
        self,
        arguments: argparse.Namespace,
        topic: str,
        progress: Progress,
        *,
        settings: Mapping[str, object] | None = None,
        beside: Sequence[str] = (),
    ) -> None:
        self._arguments = arguments
        self._beside = beside
        self._topic = topic
        self._progress = progress
        self._settings = dict(settings or {})
        self._most_bytes = _USUAL_BYTES
        self._producer: Producer | None = None
        self._turn = 0
        self._unknown: deque[RowsDelivery] = deque()
        self._unknown_count = 0
        self.counts: dict[int, int] = {}
        self.last_offsets: dict[int, int] = {}
        self.view: TopicView | None = None

    async def __aenter__(self) -> Self:
        producer = await self._open()
        try:
            await reach(producer, self._arguments)
            await is_there(self._topic, _look_up(producer, self._topic))
            self.view = await producer.partitions_for(self._topic)
        except BaseException:
            await producer.close(0)
            raise
        return self

    async def __aexit__(self, *_error: object) -> None:
        if self._producer is not None:
            await self._producer.close()

    @property
    def partition_count(self) -> int:
        """The partitions of the topic when it was looked up."""
        assert self.view is not None, "it is open"
        return len(self.view.partitions)

    @property
    def sent_count(self) -> int:
        """Messages that have arrived."""
        return sum(self.counts.values())

    async def send(self, messages: MessageColumns, now_ms: int) -> None:
        """Puts messages into the buffer; those before one that is too large are sent.

        Raises:
            CommandError: A message is larger than the topic takes, or for no partition.
            OdradekError: One sent before could not be delivered.
        """
        if not messages:
            return
        self._check_partitions(messages)
        self._turn = messages.spread(self.partition_count, self._turn)
        try:
            await self.send_rows(*messages.rows(now_ms))
        except TooLargeError as error:
            await self.send(messages.cut(error.place), now_ms)
            raise

    async def send_rows(self, rows: "Rows", partitions: "NumberInput | None") -> None:
        """The same for rows, all or none.

        Raises:
            TooLargeError: One is larger than the topic takes.
            OdradekError: One sent before could not be delivered.
        """
        place, size = rows.largest()
        if size + _OVERHEAD_BYTES > self._most_bytes:
            limit = await self._topic_limit()
            if not self._can_take(size, limit):
                raise TooLargeError(self._topic, place, size, limit)
            await self._grow(size)
        assert self._producer is not None, "it is open"
        delivery = await self._producer.send_rows(self._topic, rows, partitions)
        self._unknown.append(delivery)
        self._unknown_count += delivery.record_count
        await self._catch_up(_MAX_UNKNOWN)

    async def finish(self) -> None:
        """Waits until every message has arrived."""
        await self._catch_up(0)
        if self._producer is not None:
            await self._producer.flush()

    async def _catch_up(self, most_unknown: int) -> None:
        unknown = self._unknown
        while unknown and (self._unknown_count > most_unknown or unknown[0].done()):
            delivery = unknown.popleft()
            found = await delivery
            self._unknown_count -= delivery.record_count
            for one in found.ranges:
                self.counts[one.partition] = self.counts.get(one.partition, 0) + one.record_count
                if one.base_offset >= 0:
                    self.last_offsets[one.partition] = one.base_offset + one.record_count - 1
        self._progress.show(self.sent_count)

    def _check_partitions(self, messages: MessageColumns) -> None:
        most = max((one for one in messages.partitions if one is not None), default=0)
        if most >= self.partition_count:
            raise CommandError(
                f"a message is for partition {most}, and topic {self._topic!r} has partitions 0 to "
                f"{self.partition_count - 1}; `odradek topics alter {self._topic} --partitions "
                f"{most + 1}` adds the others"
            )

    # Messages of unusual size

    def _can_take(self, size: int, limit: int) -> bool:
        if self._arguments.compression != "none":
            limit *= _MOST_COMPRESSED  # The broker has the last word.
        return size + _OVERHEAD_BYTES <= min(max(limit, _USUAL_BYTES), _MAX_INT32)

    async def _topic_limit(self) -> int:
        """What the topic takes at most; what is usual if the cluster does not tell."""
        from odradek.client.admin import ConfigResource, ConfigResourceType
        from odradek.client.admin.admin import Admin
        from odradek.errors import ApiError

        resource = ConfigResource(ConfigResourceType.TOPIC, self._topic)
        config = client_settings(self._arguments, beside=("producer", *self._beside))
        async with Admin(config | self._settings) as admin:
            told = await admin.describe_configs([resource], names=["max.message.bytes"])
        entries = told[resource]
        if isinstance(entries, ApiError):
            return _USUAL_BYTES
        return next((int(one.value) for one in entries if one.value), _USUAL_BYTES)

    async def _grow(self, size: int) -> None:
        """Goes on with a producer that can send a message of this size."""
        await self.finish()
        assert self._producer is not None, "it is open"
        await self._producer.close()
        # The next power of two: enough for more of its kind, and a request has one of them only.
        self._most_bytes = min(1 << (size + _OVERHEAD_BYTES).bit_length(), _MAX_INT32)
        await self._open()

    async def _open(self) -> "Producer":
        from odradek.client.producer import Producer

        arguments = self._arguments
        timeout_ms = max(int(arguments.request_timeout * 1000), 1)
        settings: dict[str, object] = {
            "acks": arguments.acks,
            "batch.size": _BATCH_BYTES,
            "buffer.memory": max(_BUFFER_BYTES, 2 * self._most_bytes),
            "compression.type": arguments.compression,
            "linger.ms": _LINGER_MS,
            "max.block.ms": timeout_ms,
            "max.request.size": self._most_bytes,
            "delivery.timeout.ms": timeout_ms + _LINGER_MS,
        }
        # No `on_error` output: every delivery is awaited, and raises its error.
        self._producer = Producer(
            client_settings(arguments, "producer", settings, beside=self._beside) | self._settings,
            on_error=lambda _failed: None,
        )
        await self._producer.start()
        return self._producer


async def _look_up(producer: "Producer", topic: str) -> None:
    """Looks the topic up before the first line is read; brokers may create it then.

    `send` would wait for a missing topic until its timeout; a mistyped name should fail at once.
    """
    from odradek.client.errors import CallTimeoutError

    try:
        await producer.partitions_for(topic, NEW_TOPIC_MS / 1000)
    except CallTimeoutError:
        await producer.partitions_for(topic)  # The topic exists, or is being created.
