"""Coordinators follow the leadership of their partitions."""

from odradek.broker.internal_partitions import follow_leadership
from odradek.metadata.delta import HostedPartition, LocalDelta, StoppedPartition
from odradek.metadata.image import PartitionState
from odradek.model import TopicPartition

TOPIC = "__consumer_offsets"


class Coordinator:
    def __init__(self) -> None:
        self.told: list[tuple[str, int, int | None]] = []

    def lead(self, partition: int, leader_epoch: int) -> None:
        self.told.append(("lead", partition, leader_epoch))

    def resign(self, partition: int, leader_epoch: int | None) -> None:
        self.told.append(("resign", partition, leader_epoch))


def hosted(
    partition: int, leader: int, *, topic: str = TOPIC, is_new: bool = False
) -> HostedPartition:
    state = PartitionState(
        topic=topic, partition=partition, leader=leader, leader_epoch=5, isr=(0,), replicas=(0, 1)
    )
    return HostedPartition(state=state, topic_id=None, is_new=is_new)


def stopped(partition: int, epoch: int, *, deletes_log: bool = False) -> StoppedPartition:
    return StoppedPartition(
        tp=TopicPartition(TOPIC, partition), leader_epoch=epoch, deletes_log=deletes_log
    )


def told(**parts: tuple[HostedPartition, ...] | tuple[StoppedPartition, ...]) -> list[object]:
    coordinator = Coordinator()
    delta = LocalDelta(controller_id=0, controller_epoch=1, **parts)  # type: ignore[arg-type]
    follow_leadership(coordinator, delta, TOPIC, 0)
    return list(coordinator.told)


def test_leading_and_following() -> None:
    assert told(hosted=(hosted(0, 0), hosted(1, 1), hosted(2, 0, topic="other"))) == [
        ("lead", 0, 5),
        ("resign", 1, 5),
    ]


def test_a_partition_made_anew_forgets_the_one_before() -> None:
    assert told(hosted=(hosted(0, 0, is_new=True),)) == [("resign", 0, None), ("lead", 0, 5)]


def test_stopped_for_now_or_for_good() -> None:
    assert told(stopped=(stopped(0, 7), stopped(1, 7, deletes_log=True), stopped(2, -2))) == [
        ("resign", 0, 7),
        ("resign", 1, None),
        ("resign", 2, None),
    ]
