"""What lies in a topic, read to its end."""

import time
from collections.abc import Iterable

from odradek import Consumer
from odradek.model import TopicPartition
from odradek.records.codec import ConsumerRecord

__all__ = ["records_of"]

_TIMEOUT_S = 120


def records_of(bootstrap: str, topic: str, partitions: Iterable[int]) -> list[ConsumerRecord]:
    """All records of partitions, up to the ends that they have now."""
    wanted = [TopicPartition(topic, number) for number in partitions]
    found: list[ConsumerRecord] = []
    deadline = time.monotonic() + _TIMEOUT_S
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign(wanted)
        ends = consumer.end_offsets(wanted)
        while any(consumer.position(tp) < ends[tp] for tp in wanted):
            assert time.monotonic() < deadline, f"{topic} does not come to its end"
            found += consumer.poll(timeout=1)
    return found
