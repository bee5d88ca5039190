"""Control requests into a broker (14 section 15.4, 03a section 5.2)."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path

import pytest

from odradek.broker.publisher import Publisher
from odradek.errors import ConnectionLost, ErrorCode
from odradek.metadata.cache import MetadataCache
from odradek.metadata.control_requests import ControlRequest, ControlResponse
from odradek.metadata.delta import ImageDelta
from odradek.metadata_store.control_feed import ControlFeed
from odradek.model import NO_LEADER, TopicPartition
from odradek.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicState,
)
from odradek.protocol.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
)
from odradek.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
    UpdateMetadataTopicState,
)
from odradek.protocol.primitives import ZERO_UUID
from tests.support.replicas import BROKER_ID, ReplicaFixture, tp

TOPIC_ID = uuid.UUID(int=77)
BROKER_EPOCH = 10


class Scene:
    """A control feed on a store of topic configs, into a publisher."""

    def __init__(self, fixture: ReplicaFixture) -> None:
        self.fixture = fixture
        self.cache = MetadataCache(BROKER_ID)
        self.stored: dict[str, Mapping[str, str]] = {}
        self.read: list[str] = []
        self.configs_at_role: list[Mapping[str, str]] = []
        self.broker_epoch = BROKER_EPOCH
        self.is_link_lost = False
        self.publisher = Publisher(
            self.cache,
            fixture.replicas,
            on_settings=lambda _delta, _image: (),
            on_roles=lambda _delta: self.configs_at_role.append(
                self.publisher.image.topic_configs("t")
            ),
            on_published=lambda: None,
        )
        self.feed = self.feed_that_reads(self._read)
        self._runner = asyncio.Runner()

    def feed_that_reads(
        self, read: Callable[[str], Awaitable[Mapping[str, str] | None]]
    ) -> ControlFeed:
        async def offer(
            make: Callable[[], Awaitable[ImageDelta]],
        ) -> Mapping[TopicPartition, ErrorCode]:
            return await self.publisher.publish(await make())

        return ControlFeed(
            offer,
            read_topic_configs=read,
            broker_epoch=lambda: self.broker_epoch,
            image=lambda: self.publisher.image,
        )

    def handle(self, request: ControlRequest) -> ControlResponse:
        async def main() -> ControlResponse:
            return await self.feed.handle(request)

        return self._runner.run(main())

    def close(self) -> None:
        self._runner.close()

    async def _read(self, topic: str) -> Mapping[str, str] | None:
        self.read.append(topic)
        if self.is_link_lost:
            raise ConnectionLost("/config/topics/t")
        return self.stored.get(topic)

    def lead(
        self,
        *,
        controller_epoch: int = 1,
        broker_epoch: int = BROKER_EPOCH,
        leader_epoch: int = 0,
        topic_id: bytes = TOPIC_ID.bytes,
    ) -> LeaderAndIsrResponse:
        request = LeaderAndIsrRequest(
            controller_id=9,
            controller_epoch=controller_epoch,
            broker_epoch=broker_epoch,
            topic_states=[
                LeaderAndIsrTopicState(
                    topic_name="t",
                    topic_id=topic_id,
                    partition_states=[
                        LeaderAndIsrPartitionState(
                            partition_index=0,
                            controller_epoch=controller_epoch,
                            leader=BROKER_ID,
                            leader_epoch=leader_epoch,
                            isr=[BROKER_ID],
                            partition_epoch=3,
                            replicas=[BROKER_ID],
                            is_new=True,
                        )
                    ],
                )
            ],
        )
        response = self.handle(request)
        assert isinstance(response, LeaderAndIsrResponse)
        return response

    def stop(
        self, *, leader_epoch: int = -2, controller_epoch: int = 1, broker_epoch: int = BROKER_EPOCH
    ) -> StopReplicaResponse:
        request = StopReplicaRequest(
            controller_id=9,
            controller_epoch=controller_epoch,
            broker_epoch=broker_epoch,
            topic_states=[
                StopReplicaTopicState(
                    topic_name="t",
                    partition_states=[
                        StopReplicaPartitionState(
                            partition_index=0, leader_epoch=leader_epoch, delete_partition=True
                        )
                    ],
                )
            ],
        )
        response = self.handle(request)
        assert isinstance(response, StopReplicaResponse)
        return response

    def update(
        self,
        *,
        controller_epoch: int = 1,
        broker_epoch: int = BROKER_EPOCH,
        security_protocols: tuple[int, ...] = (0,),
        leader: int = BROKER_ID,
    ) -> UpdateMetadataResponse:
        request = UpdateMetadataRequest(
            controller_id=9,
            controller_epoch=controller_epoch,
            broker_epoch=broker_epoch,
            topic_states=[
                UpdateMetadataTopicState(
                    topic_name="t",
                    topic_id=TOPIC_ID.bytes,
                    partition_states=[
                        UpdateMetadataPartitionState(
                            partition_index=0,
                            controller_epoch=1,
                            leader=leader,
                            leader_epoch=0,
                            isr=[BROKER_ID],
                            zk_version=3,
                            replicas=[BROKER_ID],
                            offline_replicas=[],
                        )
                    ],
                )
            ],
            live_brokers=[
                UpdateMetadataBroker(
                    id=BROKER_ID,
                    rack="r1",
                    endpoints=[
                        UpdateMetadataEndpoint(
                            port=9092, host="h", listener="L", security_protocol=protocol
                        )
                        for protocol in security_protocols
                    ],
                )
            ],
        )
        response = self.handle(request)
        assert isinstance(response, UpdateMetadataResponse)
        return response


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with ReplicaFixture(tmp_path) as fixture:
        scene = Scene(fixture)
        yield scene
        scene.close()


def partition_error(response: LeaderAndIsrResponse) -> int:
    assert response.error_code == ErrorCode.NONE
    [topic] = response.topics
    assert topic.topic_id == TOPIC_ID.bytes
    [partition] = topic.partition_errors
    return partition.error_code


def test_taking_and_losing_a_role(scene: Scene) -> None:
    assert partition_error(scene.lead()) == ErrorCode.NONE
    partition = scene.fixture.partition(tp())
    assert (partition.is_leader, partition.topic_id) == (True, TOPIC_ID)
    assert partition.partition_version == 3
    # A partition's own error goes back with it, the request as a whole is fine.
    assert partition_error(scene.lead(leader_epoch=0)) == ErrorCode.STALE_CONTROLLER_EPOCH
    response = scene.stop()
    assert response.error_code == ErrorCode.NONE
    [error] = response.partition_errors
    assert (error.topic_name, error.partition_index, error.error_code) == ("t", 0, ErrorCode.NONE)
    assert scene.fixture.replicas.partitions() == []


def test_an_older_controller(scene: Scene) -> None:
    """05:R20 as the controller hears it; 03a:C-19, the part of the controller's epoch."""
    scene.update(controller_epoch=5)
    for response in (
        scene.lead(controller_epoch=4),
        scene.stop(controller_epoch=4),
        scene.update(controller_epoch=4),
    ):
        assert response.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    assert scene.fixture.replicas.partitions() == []


def test_an_earlier_life_of_the_broker(scene: Scene) -> None:
    """15:KAFKA-7235: the controller has not noticed that the broker was restarted; 03a:C-19."""
    old = BROKER_EPOCH - 1
    for response in (
        scene.lead(broker_epoch=old),
        scene.stop(broker_epoch=old),
        scene.update(broker_epoch=old),
    ):
        assert response.error_code == ErrorCode.STALE_BROKER_EPOCH
    assert scene.fixture.replicas.partitions() == []
    assert not scene.cache.is_published


def test_a_controller_that_knows_no_broker_epochs(scene: Scene) -> None:
    """03a:C-19: -1 is taken, whichever epoch this is."""
    assert partition_error(scene.lead(broker_epoch=-1)) == ErrorCode.NONE
    assert scene.update(broker_epoch=-1).error_code == ErrorCode.NONE
    assert scene.cache.is_published
    assert scene.stop(broker_epoch=-1).error_code == ErrorCode.NONE
    assert scene.fixture.replicas.partitions() == []


def test_an_epoch_that_changes_while_configs_are_read(scene: Scene) -> None:
    async def read(_topic: str) -> None:
        scene.broker_epoch = BROKER_EPOCH + 1

    scene.feed = scene.feed_that_reads(read)
    assert scene.lead().error_code == ErrorCode.STALE_BROKER_EPOCH
    assert scene.fixture.replicas.partitions() == []


def test_configs_of_a_new_topic_come_with_its_role(scene: Scene) -> None:
    """14:SM-6: creation is not notified, yet the log has its settings before the first append."""
    scene.stored["t"] = {"cleanup.policy": "compact"}
    scene.lead()
    assert scene.configs_at_role == [{"cleanup.policy": "compact"}]
    scene.lead(leader_epoch=1)
    assert scene.read == ["t"]


def test_a_topic_without_overrides_is_read_once(scene: Scene) -> None:
    scene.lead()
    scene.lead(leader_epoch=1)
    assert (scene.read, scene.configs_at_role) == (["t"], [{}, {}])


def test_configs_are_read_again_for_another_topic_of_the_same_name(scene: Scene) -> None:
    scene.lead()
    scene.lead(topic_id=uuid.UUID(int=78).bytes)
    assert scene.read == ["t", "t"]


def test_a_controller_that_sends_no_ids(scene: Scene) -> None:
    scene.stored["t"] = {"a": "b"}
    scene.lead(topic_id=ZERO_UUID)
    scene.update()
    scene.lead(topic_id=ZERO_UUID, leader_epoch=1)
    assert scene.read == ["t"]
    assert scene.configs_at_role == [{"a": "b"}, {"a": "b"}]


def test_configs_that_cannot_be_read(scene: Scene) -> None:
    """The request fails as a whole, so that its sender sends it again."""
    scene.is_link_lost = True
    with pytest.raises(ConnectionLost):
        scene.lead()
    assert scene.fixture.replicas.partitions() == []


def test_metadata_for_clients(scene: Scene) -> None:
    assert scene.update().error_code == ErrorCode.NONE
    assert scene.cache.is_published
    assert scene.cache.get_topic_name(TOPIC_ID) == "t"
    assert scene.cache.get_controller_id() == 9
    [node] = scene.cache.get_alive_nodes("L")
    assert (node.id, node.host, node.port, node.rack) == (BROKER_ID, "h", 9092, "r1")
    state = scene.cache.get_partition_info("t", 0)
    assert state is not None
    assert (state.leader, state.isr, state.partition_version) == (BROKER_ID, (BROKER_ID,), 3)
    scene.update(leader=NO_LEADER)
    assert scene.cache.contains(tp())
    scene.update(leader=-2)
    assert not scene.cache.contains(tp())


@pytest.mark.parametrize("protocols", [(9,), (0, 0)], ids=["unknown-protocol", "listener-twice"])
def test_brokers_that_cannot_be_meant(scene: Scene, protocols: tuple[int, ...]) -> None:
    assert scene.update(security_protocols=protocols).error_code == ErrorCode.INVALID_REQUEST
    assert not scene.cache.is_published


def test_the_configs_of_new_topics_are_read_together(scene: Scene) -> None:
    """One after another, a thousand topics would take a thousand round trips."""
    reading: list[str] = []
    most_at_once = 0

    async def read(topic: str) -> Mapping[str, str] | None:
        nonlocal most_at_once
        reading.append(topic)
        most_at_once = max(most_at_once, len(reading))
        await asyncio.sleep(0)
        reading.remove(topic)
        return {"retention.ms": topic.removeprefix("t")}

    names = [f"t{number}" for number in range(5)]
    state = LeaderAndIsrPartitionState(
        leader=BROKER_ID, isr=[BROKER_ID], replicas=[BROKER_ID], is_new=True
    )
    request = LeaderAndIsrRequest(
        controller_id=9,
        controller_epoch=1,
        topic_states=[
            LeaderAndIsrTopicState(
                topic_name=name,
                topic_id=uuid.UUID(int=number + 100).bytes,
                partition_states=[state],
            )
            for number, name in enumerate(names)
        ],
    )
    scene.feed = scene.feed_that_reads(read)
    scene.handle(request)
    assert most_at_once == len(names)
    found = [scene.publisher.image.topic_configs(name)["retention.ms"] for name in names]
    assert found == ["0", "1", "2", "3", "4"]
