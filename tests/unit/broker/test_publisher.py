"""Publishing deltas into a broker (14 sections 10.4 and 15.4)."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.broker.publisher import Publisher
from odradek.errors import ApiError, ErrorCode
from odradek.metadata.cache import MetadataCache
from odradek.metadata.delta import (
    ClusterDelta,
    HostedPartition,
    ImageDelta,
    LocalDelta,
    Membership,
    StoppedPartition,
)
from odradek.metadata.image import (
    AclBinding,
    ClusterImage,
    ConfigResource,
    ConfigResourceType,
    PartitionState,
)
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

    def _step(self, name: str) -> None:
        is_led = bool(self.fixture.replicas.partitions())
        is_shown = self.cache.contains(tp())
        self.steps.append(f"{name}, led {is_led}, shown {is_shown}")

    def _on_settings(self, _delta: ClusterDelta, image: ClusterImage) -> None:
        assert image is self.publisher.image
        self._step("settings")

    def _on_roles(self, delta: LocalDelta) -> None:
        self.roles.append(delta)
        self._step("roles")


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with ReplicaFixture(tmp_path) as fixture:
        yield Scene(fixture)


def cluster(*partitions: PartitionState, epoch: int = 1, **fields: object) -> ClusterDelta:
    return ClusterDelta(
        controller_epoch=epoch,
        membership=Membership(1, ()),
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
    results = scene.publisher.publish(
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
    scene.publisher.publish(ImageDelta(cluster=cluster(epoch=5)))
    scene.steps.clear()
    delta = (
        ImageDelta(local=local(hosted(state_of(tp())), epoch=epoch))
        if part == "local"
        else ImageDelta(cluster=cluster(state_of(tp()), epoch=epoch))
    )
    if is_accepted:
        scene.publisher.publish(delta)
        assert scene.publisher.image.controller_epoch == epoch
        return
    with pytest.raises(ApiError) as caught:
        scene.publisher.publish(delta)
    assert caught.value.code is ErrorCode.STALE_CONTROLLER_EPOCH
    assert scene.publisher.image.controller_epoch == 5
    assert (scene.steps, scene.fixture.replicas.partitions()) == ([], [])
    assert not scene.cache.contains(tp())


def test_coordinators_hear_only_of_what_was_obeyed(scene: Scene) -> None:
    """A stale request must not make a coordinator load or unload."""
    scene.publisher.publish(ImageDelta(local=local(hosted(state_of(tp(), leader_epoch=5)))))
    stale = hosted(state_of(tp(), leader=2, leader_epoch=4))
    fresh = hosted(state_of(tp("u")))
    scene.publisher.publish(ImageDelta(local=local(stale, fresh)))
    assert [h.state.tp for h in scene.roles[-1].hosted] == [tp("u")]
    results = scene.publisher.publish(
        ImageDelta(local=local(stopped(tp(), leader_epoch=3), stopped(tp("u"))))
    )
    assert results == {tp(): ErrorCode.FENCED_LEADER_EPOCH, tp("u"): ErrorCode.NONE}
    assert [s.tp for s in scene.roles[-1].stopped] == [tp("u")]


def test_settings_take_effect_when_any_of_them_changes(scene: Scene) -> None:
    scene.publisher.publish(ImageDelta(cluster=ClusterDelta()))
    assert not [step for step in scene.steps if step.startswith("settings")]
    binding = AclBinding(2, 3, "t", "User:a", "*", 3, 3)
    for delta in (
        ClusterDelta(configs={TOPIC_T: {}}),
        ClusterDelta(acls_added=frozenset({binding})),
        ClusterDelta(acls_removed=frozenset({binding})),
    ):
        scene.steps.clear()
        scene.publisher.publish(ImageDelta(cluster=delta))
        assert scene.steps[0].startswith("settings")


def test_the_config_feed_alone_is_no_metadata(scene: Scene) -> None:
    """14 section 15.4: until a controller has spoken, clients are not answered."""
    scene.publisher.publish(ImageDelta(cluster=ClusterDelta(configs={TOPIC_T: {"a": "b"}})))
    assert not scene.cache.is_published
    assert scene.publisher.image.topic_configs("t") == {"a": "b"}


def test_a_topic_made_again(scene: Scene) -> None:
    old, new = uuid.UUID(int=1), uuid.UUID(int=2)
    for topic_id, epoch in ((old, 5), (new, 0)):
        state = state_of(tp(), leader_epoch=epoch)
        results = scene.publisher.publish(
            ImageDelta(
                cluster=cluster(state, topic_ids={"t": topic_id}),
                local=local(hosted(state, topic_id=topic_id)),
            )
        )
        assert results == {tp(): ErrorCode.NONE}
    assert scene.cache.get_topic_id("t") == new
