"""A data directory of one broker of a cluster fails while it leads and follows."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import pytest

from odradek.aio import Admin, Producer
from odradek.client.admin import NewTopic
from odradek.client.cluster import PartitionView
from odradek.client.offsets import LATEST
from odradek.errors import ApiError, ErrorCode
from odradek.model import TopicPartition
from odradek.testing import AsyncEmbeddedCluster

pytestmark = pytest.mark.slow

PATIENCE_S = 60.0
BROKER = 1  # The one whose directory fails; it has another one and goes on.


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Waits for a condition."""
    async with asyncio.timeout(PATIENCE_S):
        while not await condition():  # noqa: ASYNC110 - brokers have no event for it
            await asyncio.sleep(0.02)


async def views(admin: Admin) -> list[PartitionView]:
    found = (await admin.describe_topics(["t"]))["t"]
    return [] if isinstance(found, ApiError) else list(found.partitions)


async def home_of(admin: Admin, tp: TopicPartition) -> str:
    """The data directory of the broker that has the partition."""
    directories = (await admin.describe_log_dirs([BROKER]))[BROKER]
    assert not isinstance(directories, ApiError)
    [home] = [
        path
        for path, found in directories.items()
        if not isinstance(found, ApiError) and tp in found.replicas
    ]
    return home


def test_replicas_of_a_failed_directory_go_offline_and_others_lead(tmp_path: Path) -> None:
    """05 section 11, 01 section 8.7: the controller hears of it, leaders move, the rest goes on.

    A partition directory is gone from under its leader, so that the next roll cannot create files:
    as on a disk that is lost.
    """
    paths = [str(tmp_path / "one"), str(tmp_path / "two")]

    def settings_of(broker_id: int) -> Mapping[str, object]:
        return {"log.dirs": ",".join(paths)} if broker_id == BROKER else {}

    async def scenario() -> None:
        async with (
            AsyncEmbeddedCluster(3, data_dir=tmp_path, settings_of=settings_of) as cluster,
            Admin({"bootstrap.servers": cluster.bootstrap_server(0)}) as admin,
            Producer({"bootstrap.servers": cluster.bootstrap_server(0)}) as producer,
        ):
            replicas = {0: [1, 0, 2], 1: [1, 0, 2], 2: [0, 1, 2], 3: [0, 1, 2]}
            await admin.create_topics(
                [NewTopic(name="t", assignments=replicas, configs={"segment.bytes": "1048576"})]
            )

            async def is_spread() -> bool:
                found = await views(admin)
                return [(v.leader, len(v.isr)) for v in found] == [(1, 3), (1, 3), (0, 3), (0, 3)]

            await until(is_spread)
            for number in range(4):
                await producer.send("t", b"before", partition=number)
            await producer.flush()
            homes = {n: await home_of(admin, TopicPartition("t", n)) for n in range(4)}
            assert set(homes.values()) == set(paths)
            lost_path = homes[0]
            lost = [n for n in range(4) if homes[n] == lost_path]
            kept = [n for n in range(4) if homes[n] != lost_path]

            (Path(lost_path) / "t-0").rename(tmp_path / "t-0-of-a-lost-disk")
            for _ in range(3):  # Past the first segment; retried with the next leader.
                await producer.send("t", bytes(600_000), partition=0)
            await producer.flush()

            async def has_moved() -> bool:
                found = await views(admin)
                return all(
                    (found[n].leader, BROKER in found[n].isr, found[n].offline_replicas)
                    == (0, False, (BROKER,))
                    for n in lost
                )

            await until(has_moved)
            found = await views(admin)
            assert [(found[n].leader, len(found[n].isr)) for n in kept] == [
                (BROKER if n < 2 else 0, 3) for n in kept
            ]
            directories = (await admin.describe_log_dirs([BROKER]))[BROKER]
            assert not isinstance(directories, ApiError)
            failure = directories[lost_path]
            assert isinstance(failure, ApiError)
            assert failure.code is ErrorCode.KAFKA_STORAGE_ERROR
            for number in range(4):
                await producer.send("t", b"after", partition=number)
            await producer.flush()
            ends = await admin.list_offsets({TopicPartition("t", n): LATEST for n in range(4)})
            found_ends = [end.offset for end in ends.values() if not isinstance(end, ApiError)]
            assert found_ends == [5, 2, 2, 2]

    asyncio.run(scenario())
