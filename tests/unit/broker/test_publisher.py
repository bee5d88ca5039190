"""Publishing deltas into a broker (14 sections 10.4 and 15.4, 05 section 15)."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from odradek.broker.publisher import Publisher
from odradek.errors import ApiError, ErrorCode
from odradek.metadata.cache import MetadataCache
from odradek.metadata.delta import (
    ClusterDelta,
    ClusterMembership,
    HostedPartition,
    ImageDelta,
    LocalDelta,
    StoppedPartition,
)
from odradek.metadata.image import ClusterImage, ConfigResource, PartitionState
from odradek.model import TopicPartition
from odradek.protocol.enums import ConfigResourceType
from odradek.security.acls import AclBinding
from odradek.security.operations import Operation, PatternType, Permission, ResourceType
from tests.support.feeds import OfferedFeed
from tests.support.held_tasks import HeldTasks
from tests.support.replicas import BROKER_ID, ReplicaFixture, hosted, state_of, stopped, tp

TOPIC_T = ConfigResource(ConfigResourceType.TOPIC, "t")


class Scene:
    """A publisher that writes down its steps."""

    def __init__(self, fixture: ReplicaFixture) -> None:
        self.fixture = fixture
        self.cache = MetadataCache(BROKER_ID)
        self.steps: list[str] = []
        self.roles: list[LocalDelta] = []
        self.publisher = Publisher(
            self.cache,
            fixture.replicas,
            on_settings=self._on_settings,
            on_roles=self._on_roles,
            on_published=lambda: self._step("published"),
        )
        self._runner = asyncio.Runner()

    def publish(self, delta: ImageDelta) -> Mapping[TopicPartition, ErrorCode]:
        """Publishes a delta and waits for it."""

        async def main() -> Mapping[TopicPartition, ErrorCode]:
            return await self.publisher.publish(delta)

        return self._runner.run(main())

    def close(self) -> None:
        self._runner.close()

    def _step(self, name: str) -> None:
        is_led = bool(self.fixture.replicas.partitions())
        is_shown = self.cache.contains(tp())
        self.steps.append(f"{name}, led {is_led}, shown {is_shown}")

    def _on_settings(self, _delta: ClusterDelta, image: ClusterImage) -> Iterator[None]:
        assert image is self.publisher.image
        self._step("settings")
        yield

    def _on_roles(self, delta: LocalDelta) -> None:
        self.roles.append(delta)
        self._step("roles")


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with ReplicaFixture(tmp_path) as fixture:
        scene = Scene(fixture)
        yield scene
        scene.close()


def cluster(*partitions: PartitionState, epoch: int = 1, **fields: object) -> ClusterDelta:
    return ClusterDelta(
        controller_epoch=epoch,
        membership=ClusterMembership(1, ()),
        partitions=partitions,
        **fields,  # type: ignore[arg-type]
    )


def local(*changes: HostedPartition | StoppedPartition, epoch: int = 1) -> LocalDelta:
    return LocalDelta(
        controller_id=1,
        controller_epoch=epoch,
        hosted=tuple(c for c in changes if isinstance(c, HostedPartition)),
        stopped=tuple(c for c in changes if isinstance(c, StoppedPartition)),
    )


def test_the_order_of_a_publish(scene: Scene) -> None:
    """Settings before the log is made, clients last."""
    state = state_of(tp())
    results = scene.publish(
        ImageDelta(
            cluster=cluster(state, configs={TOPIC_T: {"cleanup.policy": "compact"}}),
            local=local(hosted(state)),
        )
    )
    assert results == {tp(): ErrorCode.NONE}
    assert scene.steps == [
        "settings, led False, shown False",
        "roles, led True, shown False",
        "published, led True, shown True",
    ]
    assert scene.cache.image is scene.publisher.image
    assert scene.cache.is_published


def test_a_role_that_a_failed_disk_refuses_ends_the_one_before(tmp_path: Path) -> None:
    """15:KAFKA-9235 (9307): coordinators must not go on in the role of an earlier epoch."""
    with ReplicaFixture(tmp_path, directories=("one", "two")) as fixture:
        scene = Scene(fixture)
        try:
            scene.publish(ImageDelta(local=local(hosted(state_of(tp(), leader_epoch=5)))))
            fixture.log(tp()).log_directory.fail("test", OSError(5, "input/output error"))
            demoted = hosted(state_of(tp(), leader=2, replicas=(1, 2), leader_epoch=6))
            results = scene.publish(ImageDelta(local=local(demoted)))
        finally:
            scene.close()
        assert results == {tp(): ErrorCode.KAFKA_STORAGE_ERROR}
        assert scene.roles[-1].hosted == ()
        [stop] = scene.roles[-1].stopped
        assert (stop.tp, stop.leader_epoch, stop.deletes_log) == (tp(), 6, False)


@pytest.mark.parametrize(
    ("epoch", "is_accepted"),
    [
        pytest.param(4, False, id="05:R20-older"),
        pytest.param(5, True, id="05:R20-same"),
        pytest.param(6, True, id="05:R20-newer"),
    ],
)
@pytest.mark.parametrize("part", ["local", "cluster"])
def test_controller_epoch(scene: Scene, epoch: int, is_accepted: bool, part: str) -> None:
    """05:R20: an older controller changes nothing, a newer one's epoch is remembered."""
    scene.publish(ImageDelta(cluster=cluster(epoch=5)))
    scene.steps.clear()
    delta = (
        ImageDelta(local=local(hosted(state_of(tp())), epoch=epoch))
        if part == "local"
        else ImageDelta(cluster=cluster(state_of(tp()), epoch=epoch))
    )
    if is_accepted:
        scene.publish(delta)
        assert scene.publisher.image.controller_epoch == epoch
        return
    with pytest.raises(ApiError) as caught:
        scene.publish(delta)
    assert caught.value.code is ErrorCode.STALE_CONTROLLER_EPOCH
    assert scene.publisher.image.controller_epoch == 5
    assert (scene.steps, scene.fixture.replicas.partitions()) == ([], [])
    assert not scene.cache.contains(tp())


def test_coordinators_hear_only_of_what_was_obeyed(scene: Scene) -> None:
    """A stale request must not make a coordinator load or unload."""
    scene.publish(ImageDelta(local=local(hosted(state_of(tp(), leader_epoch=5)))))
    stale = hosted(state_of(tp(), leader=2, leader_epoch=4))
    fresh = hosted(state_of(tp("u")))
    scene.publish(ImageDelta(local=local(stale, fresh)))
    assert [h.state.tp for h in scene.roles[-1].hosted] == [tp("u")]
    results = scene.publish(
        ImageDelta(local=local(stopped(tp(), leader_epoch=3), stopped(tp("u"))))
    )
    assert results == {tp(): ErrorCode.FENCED_LEADER_EPOCH, tp("u"): ErrorCode.NONE}
    assert [s.tp for s in scene.roles[-1].stopped] == [tp("u")]


def test_settings_take_effect_when_any_of_them_changes(scene: Scene) -> None:
    scene.publish(ImageDelta(cluster=ClusterDelta()))
    assert not [step for step in scene.steps if step.startswith("settings")]
    binding = AclBinding(
        ResourceType.TOPIC,
        PatternType.LITERAL,
        "t",
        "User:a",
        "*",
        Operation.READ,
        Permission.ALLOW,
    )
    for delta in (
        ClusterDelta(configs={TOPIC_T: {}}),
        ClusterDelta(acls_added=frozenset({binding})),
        ClusterDelta(acls_removed=frozenset({binding})),
    ):
        scene.steps.clear()
        scene.publish(ImageDelta(cluster=delta))
        assert scene.steps[0].startswith("settings")


def test_the_config_feed_alone_is_no_metadata(scene: Scene) -> None:
    """14 section 15.4: until a controller has spoken, clients are not answered."""
    scene.publish(ImageDelta(cluster=ClusterDelta(configs={TOPIC_T: {"a": "b"}})))
    assert not scene.cache.is_published
    assert scene.publisher.image.topic_configs("t") == {"a": "b"}


def test_a_topic_made_again(scene: Scene) -> None:
    old, new = uuid.UUID(int=1), uuid.UUID(int=2)
    for topic_id, epoch in ((old, 5), (new, 0)):
        state = state_of(tp(), leader_epoch=epoch)
        results = scene.publish(
            ImageDelta(
                cluster=cluster(state, topic_ids={"t": topic_id}),
                local=local(hosted(state, topic_id=topic_id)),
            )
        )
        assert results == {tp(): ErrorCode.NONE}
    assert scene.cache.get_topic_id("t") == new


# The feed


class Queue:
    """A publisher that takes from a feed, over replicas whose disk work waits for the test."""

    def __init__(self, fixture: ReplicaFixture) -> None:
        self.tasks = HeldTasks()
        manager = fixture.log_manager
        manager._services = replace(manager._services, tasks=self.tasks)
        self.scene = Scene(fixture)
        self.publisher = self.scene.publisher
        self.feed = OfferedFeed()
        self._driver = asyncio.create_task(self.publisher.run(self.feed))

    def begin(self, delta: ImageDelta) -> asyncio.Task[Mapping[TopicPartition, ErrorCode]]:
        return asyncio.create_task(self.feed.offer(delta))

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    async def close(self) -> None:
        self.tasks.run_all()
        self._driver.cancel()
        await asyncio.wait([self._driver])
        self.scene.close()


def on_a_queue(
    tmp_path: Path, scenario: Callable[[Queue, ReplicaFixture], Awaitable[None]]
) -> None:
    async def main(fixture: ReplicaFixture) -> None:
        queue = Queue(fixture)
        try:
            await scenario(queue, fixture)
        finally:
            await queue.close()

    with ReplicaFixture(tmp_path) as fixture:
        asyncio.run(main(fixture))


def test_deltas_are_published_in_order_each_to_its_end(tmp_path: Path) -> None:
    """14 section 15.4: the second, though it needs no disk, waits for the roles of the first."""

    async def scenario(queue: Queue, fixture: ReplicaFixture) -> None:
        state = state_of(tp())
        first = queue.begin(ImageDelta(local=local(hosted(state))))
        second = queue.begin(ImageDelta(cluster=cluster(state)))
        await queue.settle()
        assert not first.done()
        assert not second.done()
        assert not queue.scene.cache.contains(tp())
        queue.tasks.run_all()
        assert await first == {tp(): ErrorCode.NONE}
        await second
        assert queue.scene.cache.contains(tp())
        assert fixture.partition(tp()).is_leader

    on_a_queue(tmp_path, scenario)


def test_a_delta_is_refused_that_is_stale_when_its_turn_comes(tmp_path: Path) -> None:
    """05:R20: it was not when it was queued."""

    async def scenario(queue: Queue, fixture: ReplicaFixture) -> None:
        newer = queue.begin(ImageDelta(local=local(hosted(state_of(tp())), epoch=6)))
        older = queue.begin(ImageDelta(local=local(hosted(state_of(tp("u"))), epoch=5)))
        await queue.settle()
        queue.tasks.run_all()
        await newer
        with pytest.raises(ApiError) as caught:
            await older
        assert caught.value.code is ErrorCode.STALE_CONTROLLER_EPOCH
        assert [partition.tp for partition in fixture.replicas.partitions()] == [tp()]

    on_a_queue(tmp_path, scenario)


def test_a_feeder_that_gives_up(tmp_path: Path) -> None:
    """What began is published to its end; what waits is dropped."""

    async def scenario(queue: Queue, fixture: ReplicaFixture) -> None:
        begun = queue.begin(ImageDelta(local=local(hosted(state_of(tp())))))
        waiting = queue.begin(ImageDelta(local=local(hosted(state_of(tp("u"))))))
        await queue.settle()
        begun.cancel()
        waiting.cancel()
        await asyncio.wait([begun, waiting])
        queue.tasks.run_all()
        await queue.settle()
        queue.tasks.run_all()
        await queue.begin(ImageDelta(cluster=ClusterDelta()))
        assert [partition.tp for partition in fixture.replicas.partitions()] == [tp()]
        assert len(queue.scene.roles) == 1

    on_a_queue(tmp_path, scenario)


def test_a_stop_waits_for_the_delta_under_way(tmp_path: Path) -> None:
    async def scenario(queue: Queue, _fixture: ReplicaFixture) -> None:
        begun = queue.begin(ImageDelta(local=local(hosted(state_of(tp())))))
        waiting = queue.begin(ImageDelta(local=local(hosted(state_of(tp("u"))))))
        await queue.settle()
        stopping = asyncio.create_task(queue.publisher.stop())
        await queue.settle()
        assert not stopping.done()
        queue.tasks.run_all()
        await stopping
        assert await begun == {tp(): ErrorCode.NONE}
        await asyncio.wait([waiting])
        assert waiting.cancelled()
        late = queue.begin(ImageDelta(cluster=ClusterDelta()))
        await asyncio.wait([late])
        assert late.cancelled()

    on_a_queue(tmp_path, scenario)


def test_settings_of_many_logs_let_others_have_their_turn(tmp_path: Path) -> None:
    async def scenario(queue: Queue, _fixture: ReplicaFixture) -> None:
        turns: list[int] = []
        taken = 0

        def steps(_delta: ClusterDelta, _image: ClusterImage) -> Iterator[None]:
            nonlocal taken
            for _ in range(1_000):
                taken += 1
                yield

        queue.publisher._on_settings = steps
        publishing = queue.begin(ImageDelta(cluster=ClusterDelta(configs={TOPIC_T: {}})))
        while not publishing.done():
            await asyncio.sleep(0)
            turns.append(taken)
        assert max(b - a for a, b in pairwise([0, *turns])) <= 100
        assert taken == 1_000

    on_a_queue(tmp_path, scenario)


def test_a_stop_of_a_publisher_that_has_nothing_to_do(tmp_path: Path) -> None:
    async def scenario(queue: Queue, _fixture: ReplicaFixture) -> None:
        await queue.publisher.has_settings.wait()
        await queue.publisher.stop()
        late = queue.begin(ImageDelta(cluster=ClusterDelta()))
        await asyncio.wait([late])
        assert late.cancelled()

    on_a_queue(tmp_path, scenario)
