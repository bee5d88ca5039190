"""What a broker itself says of groups, asked with plain requests, and records to read from it."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Producer

from odradek.errors import ErrorCode
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.conformance.clients.raw import RawConnection
from tests.support import group_members
from tests.support.odradek_broker import OdradekBroker

__all__ = ["DEADLINE_S", "Judge", "parse_assignment"]

DEADLINE_S = 120
_BUSY = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}


@dataclass(slots=True)
class Judge:
    """Asks a broker, and writes to it."""

    broker: OdradekBroker

    def create_topic(self, name: str, partitions: int) -> set[tuple[str, int]]:
        group_members.create_topic(self.broker.port, name, partitions)
        return {(name, number) for number in range(partitions)}

    def produce(self, topic: str, count: int, partitions: int, codec: str = "none") -> None:
        """Writes `count` records to each partition."""
        errors: list[object] = []
        producer = Producer({"bootstrap.servers": self.broker.bootstrap, "compression.type": codec})
        for number in range(count):
            for partition in range(partitions):
                producer.produce(
                    topic,
                    partition=partition,
                    value=f"{codec} {number}",
                    on_delivery=lambda error, _: errors.append(error) if error else None,
                )
        left = producer.flush(DEADLINE_S)
        assert (left, errors) == (0, [])

    def ownership(self, group: str) -> tuple[str, dict[str, set[tuple[str, int]]]]:
        """State of a group, and the partitions of its members by their client id."""
        row = group_members.describe(self.broker.port, group)
        if row.error_code:
            return ErrorCode(row.error_code).name, {}
        owned = {
            member.client_id: parse_assignment(bytes(member.member_assignment))
            for member in row.members
        }
        assert len(owned) == len(row.members) or row.group_state != "Stable", row
        return row.group_state, owned

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        """All offsets of a group; none while its coordinator cannot say."""
        with RawConnection(self.broker.port) as connection:
            groups = [OffsetFetchRequestGroup(group_id=group, topics=None)]
            answer: Any = connection.call(ApiKey.OFFSET_FETCH, 8, OffsetFetchRequest(groups=groups))
        [row] = answer.groups
        if row.error_code in _BUSY:
            return {}
        assert row.error_code == 0, ErrorCode(row.error_code)
        return {
            (topic.name, one.partition_index): one.committed_offset
            for topic in row.topics
            for one in topic.partitions
        }

    def wait_until(self, condition: Callable[[], Any], what: Callable[[], str]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, f"in vain: {what()}"
            time.sleep(0.05)


def parse_assignment(data: bytes) -> set[tuple[str, int]]:
    """The partitions of a consumer's assignment.

    Layout: int16 version; int32 count of topics; of each int16 length, name, int32 count of
    partitions, int32 each; then user data.
    """
    partitions: set[tuple[str, int]] = set()
    if not data:
        return partitions
    position = 2

    def take(size: int) -> int:
        nonlocal position
        position += size
        return int.from_bytes(data[position - size : position], "big")

    for _ in range(take(4)):
        length = take(2)
        name = data[position : position + length].decode()
        position += length
        partitions |= {(name, take(4)) for _ in range(take(4))}
    return partitions
