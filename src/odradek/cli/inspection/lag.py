"""How long messages have waited for a group: the age of the first one it has not read."""

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from odradek.cli.connecting import client_settings

if TYPE_CHECKING:
    from odradek.client.admin.admin import Admin
    from odradek.model import TopicPartition

__all__ = ["waiting_since"]

# Partitions that have told nothing by then are left out: a time is worth no longer wait.
_MOST_MS: Final = 5_000
_POLL_S: Final = 0.5
# One batch of each partition is enough.
_FETCH_BYTES: Final = 4_096


async def waiting_since(
    admin: "Admin", arguments: argparse.Namespace, positions: "Mapping[TopicPartition, int]"
) -> "dict[TopicPartition, int]":
    """The timestamp, in ms, of the first message at or after each position, as far as found."""
    from odradek.client import EARLIEST, Deadline
    from odradek.client.consumer.consumer import Consumer
    from odradek.clock import SystemClock
    from odradek.errors import ApiError
    from odradek.model import TopicPartition

    found: dict[TopicPartition, int] = {}
    if not positions:
        return found
    starts = await admin.list_offsets(dict.fromkeys(positions, EARLIEST))
    # Messages that were deleted unread are not waiting any more.
    places = {
        tp: max(offset, start.offset)
        for tp, offset in positions.items()
        if not isinstance(start := starts[tp], ApiError)
    }
    own: dict[str, object] = {
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "max.partition.fetch.bytes": _FETCH_BYTES,
    }
    async with Consumer(client_settings(arguments, "consumer", own)) as consumer:
        await consumer.assign(places)
        for tp, offset in places.items():
            await consumer.seek(tp, offset)
        left = set(places)
        until = Deadline(SystemClock(), _MOST_MS)
        while left and until.left_ms():
            try:
                records = await consumer.poll(min(_POLL_S, until.left_ms() / 1000))
            except ApiError:  # The offsets are shown all the same.
                break
            for record in records:
                found.setdefault(TopicPartition(record.topic, record.partition), record.timestamp)
            done = left & found.keys()
            await consumer.pause(done)
            left -= done
    return found
