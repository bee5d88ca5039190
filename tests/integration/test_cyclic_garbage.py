"""02 section 12: requests leave hardly any cycles, and those are collected, frozen or not.

What is in a cycle is freed by a collection only, and a full collection holds the loop.
"""

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek import garbage
from odradek.broker.dispatch import HANDLERS
from odradek.errors import ErrorCode
from odradek.garbage import Pace, SystemHeap
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from odradek.protocol.messages.delete_topics import DeleteTopicsRequest
from odradek.storage.log.log import Log
from odradek.testing import EmbeddedBroker
from tests.conformance.clients.raw import RawConnection
from tests.integration.test_turns_of_every_api import (
    MeasuredBroker,
    ask,
    broker,
    hostile,
    world,
)
from tests.support.group_members import wait_until
from tests.support.hostile_requests import Shape, World

__all__ = ["broker", "world"]  # Fixtures.

# Objects in cycles that a request may leave, whatever the number of its elements: a timer that was
# cancelled, the future of a call to a thread.
ALLOWED = 60
REPETITIONS = 5
SHAPES = [shape for shape in Shape if shape is not Shape.EMPTY]
# Topics that are made or removed leave objects of each: the next test counts those.
MAKES_OR_REMOVES = {ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS}


@pytest.fixture
def no_collections(broker: MeasuredBroker, world: World) -> Iterator[None]:
    gc.collect()
    gc.freeze()
    gc.disable()
    yield
    gc.enable()


def serve_bystander(broker: MeasuredBroker) -> None:
    """Lets the loop turn, so that what belongs to earlier requests is over."""
    with RawConnection(broker.port) as bystander:
        for _ in range(3):
            bystander.call(ApiKey.API_VERSIONS, 0, ApiVersionsRequest())


@pytest.mark.usefixtures("no_collections")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("api_key", [key for key in HANDLERS if key not in MAKES_OR_REMOVES])
def test_no_request_leaves_many_objects_in_cycles(
    broker: MeasuredBroker, world: World, api_key: ApiKey, shape: Shape
) -> None:
    ask(broker, api_key, hostile(api_key, shape, world))
    serve_bystander(broker)
    gc.collect()
    for _ in range(REPETITIONS):
        ask(broker, api_key, hostile(api_key, shape, world))
    serve_bystander(broker)
    assert gc.collect() <= ALLOWED * REPETITIONS


def logs_in_memory(prefix: str) -> int:
    gc.unfreeze()  # Frozen objects are not listed.
    found = sum(
        isinstance(each, Log) and each.topic_partition.topic.startswith(prefix)
        for each in gc.get_objects()
    )
    gc.freeze()
    return found


def test_frozen_logs_of_deleted_topics_are_collected(
    broker: MeasuredBroker, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Logs are in cycles, and those that have aged are frozen: a full collection frees them."""
    names = [f"short-lived-{number}" for number in range(20)]
    delay = CreatableTopicConfig(name="file.delete.delay.ms", value="0")
    with RawConnection(broker.port) as client:
        created = client.call(
            ApiKey.CREATE_TOPICS,
            7,
            CreateTopicsRequest(
                timeout_ms=60_000,
                topics=[
                    CreatableTopic(
                        name=name, num_partitions=5, replication_factor=1, configs=[delay]
                    )
                    for name in names
                ],
            ),
        )
        assert {row.error_code for row in created.topics} == {ErrorCode.NONE}  # type: ignore[attr-defined]  # of this API
        pace = Pace(SystemHeap())
        pace.begin()
        assert logs_in_memory("short-lived") == 100
        deleted = client.call(
            ApiKey.DELETE_TOPICS, 4, DeleteTopicsRequest(timeout_ms=60_000, topic_names=names)
        )
        assert {row.error_code for row in deleted.responses} == {ErrorCode.NONE}  # type: ignore[attr-defined]  # of this API
    monkeypatch.setattr(garbage, "_IDLE_BLOCKS", -(1 << 40))

    def are_gone() -> bool:
        serve_bystander(broker)
        for _ in range(10):
            pace.look(0, 1_000_000_000)
        return logs_in_memory("short-lived") == 0

    wait_until(are_gone, "the logs are collected")


def test_an_embedded_broker_leaves_the_collector_of_its_process_alone(tmp_path: Path) -> None:
    """Only a command that owns its process paces it: ADR 15."""

    def settings() -> tuple[object, ...]:
        return gc.isenabled(), gc.get_threshold(), gc.get_freeze_count(), list(gc.callbacks)

    gc.unfreeze()
    before = settings()
    with EmbeddedBroker(data_dir=tmp_path):
        assert settings() == before
    assert settings() == before
