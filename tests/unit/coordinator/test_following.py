"""A coordinator leads the partitions of its topic that its broker leads, and no others."""

from odradek.coordinator.loading import StateLoader
from odradek.metadata.delta import HostedPartition, LocalDelta, StoppedPartition
from odradek.metadata.image import PartitionState
from odradek.model import TopicPartition

TOPIC = "__consumer_offsets"
BROKER_ID = 0


class Following(StateLoader):
    """A loader that notes what it is told, and loads nothing."""

    def __init__(self) -> None:
        self._topic = TOPIC
        self.told: list[tuple[str, int, int | None]] = []

    def lead(self, partition: int, leader_epoch: int) -> bool:
        self.told.append(("lead", partition, leader_epoch))
        return True

    def resign(self, partition: int, leader_epoch: int | None) -> bool:
        self.told.append(("resign", partition, leader_epoch))
        return True


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
    loader = Following()
    delta = LocalDelta(controller_id=0, controller_epoch=1, **parts)  # type: ignore[arg-type]
    loader.follow_leadership(delta, BROKER_ID)
    return list(loader.told)


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
