"""Replicas move between the data directories of a broker while clients read and write."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from odradek.aio import Admin, Consumer, Producer
from odradek.client.admin import NewTopic
from odradek.errors import ApiError, ErrorCode
from odradek.model import ReplicaId, TopicPartition
from odradek.testing import AsyncEmbeddedBroker
from tests.support.odradek_broker import OdradekBroker, running_odradek

pytestmark = pytest.mark.slow

PATIENCE_S = 180.0
T0 = TopicPartition("t", 0)
HERE = ReplicaId(T0, 0)
SLOW = "replica.alter.log.dirs.io.max.bytes.per.second"
VALUE = bytes(1_000)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Waits for a condition."""
    async with asyncio.timeout(PATIENCE_S):
        while not await condition():  # noqa: ASYNC110 - brokers have no event for it
            await asyncio.sleep(0.02)


class Moved:
    """A broker with two data directories, and a topic of one partition in small segments."""

    def __init__(self, admin: Admin, paths: list[str], bootstrap: str) -> None:
        self.admin = admin
        self.paths = paths
        self.settings: Mapping[str, object] = {"bootstrap.servers": bootstrap}
        self.sent: list[bytes] = []  # Acknowledged, in order.

    async def create(self) -> None:
        created = await self.admin.create_topics(
            [NewTopic(name="t", assignments={0: [0]}, configs={"segment.bytes": "4194304"})]
        )
        assert not isinstance(created["t"], ApiError)

    async def homes(self) -> tuple[str | None, str | None]:
        """The directories of the log and of its copy."""
        found: dict[bool, str] = {}
        directories = (await self.admin.describe_log_dirs([0], partitions=[T0]))[0]
        assert not isinstance(directories, ApiError)
        for path, directory in directories.items():
            if not isinstance(directory, ApiError) and T0 in directory.replicas:
                found[directory.replicas[T0].is_future] = path
        return found.get(False), found.get(True)

    async def other(self) -> str:
        home, _ = await self.homes()
        [other] = [path for path in self.paths if path != home]
        return other

    async def alter(self, path: str) -> ErrorCode:
        [error] = (await self.admin.alter_replica_log_dirs({HERE: path})).values()
        return ErrorCode.NONE if error is None else error.code

    async def is_at(self, path: str) -> bool:
        return await self.homes() == (path, None)

    async def produce(self, count: int) -> None:
        async with Producer(self.settings) as producer:
            for _ in range(count):
                await self.send(producer)
            await producer.flush()

    async def send(self, producer: Producer) -> None:
        self.sent.append(b"%08d" % len(self.sent) + VALUE)
        await producer.send("t", self.sent[-1], partition=0)

    @asynccontextmanager
    async def load(self) -> AsyncIterator[None]:
        """Produces while it lasts, without a pause."""
        is_over = False

        async def send() -> None:
            async with Producer({**self.settings, "linger.ms": 1}) as producer:
                while not is_over:
                    for _ in range(50):
                        await self.send(producer)
                    await producer.flush()

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(send())
            yield
            is_over = True

    async def consume(self, *, until_end: Callable[[], int]) -> list[bytes]:
        """Reads the partition from its start, up to as many records."""
        values: list[bytes] = []
        settings = {**self.settings, "auto.offset.reset": "earliest"}
        async with Consumer(settings) as consumer, asyncio.timeout(PATIENCE_S):
            await consumer.assign([T0])
            while len(values) < until_end():
                values += [
                    record.value for record in await consumer.poll(1.0) if record.value is not None
                ]
        return values


@asynccontextmanager
async def broker(tmp_path: Path, **settings: object) -> AsyncIterator[Moved]:
    paths = [str(tmp_path / "one"), str(tmp_path / "two")]
    overrides = {name.replace("_", "."): value for name, value in settings.items()}
    async with (
        AsyncEmbeddedBroker({**overrides, "log.dirs": ",".join(paths)}) as running,
        Admin({"bootstrap.servers": running.bootstrap_servers}) as admin,
    ):
        yield Moved(admin, paths, running.bootstrap_servers)


def partition_directories(paths: list[str]) -> list[str]:
    return [one.name for path in paths for one in Path(path).iterdir() if one.name[:3] == "t-0"]


def test_a_log_moves_under_load_and_every_byte_arrives(tmp_path: Path) -> None:
    """05 section 11: clients read and write meanwhile; a consumer that began before sees it all."""

    async def scenario() -> None:
        async with broker(tmp_path) as moved:
            await moved.create()
            await moved.produce(8_000)
            is_moved = False
            reading = asyncio.create_task(
                moved.consume(until_end=lambda: len(moved.sent) if is_moved else 1 << 60)
            )
            async with moved.load():
                for _ in range(3):
                    target = await moved.other()
                    assert await moved.alter(target) is ErrorCode.NONE

                    async def is_there(path: str = target) -> bool:
                        return await moved.is_at(path)

                    await until(is_there)
            await moved.produce(1)
            is_moved = True
            assert await reading == moved.sent
            assert await moved.consume(until_end=lambda: len(moved.sent)) == moved.sent
            assert len(moved.sent) > 8_000

    asyncio.run(scenario())


def test_a_restart_in_the_middle_resumes_the_move(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, **{SLOW: 2_000_000}) as moved:
            await moved.create()
            await moved.produce(5_000)
            target = await moved.other()
            assert await moved.alter(target) is ErrorCode.NONE
            sent = moved.sent

            async def has_begun() -> bool:
                directories = (await moved.admin.describe_log_dirs([0]))[0]
                assert not isinstance(directories, ApiError)
                found = directories[target]
                return not isinstance(found, ApiError) and found.replicas[T0].size > 0

            await until(has_begun)
            home, future = await moved.homes()
            assert future == target != home
        async with broker(tmp_path) as moved:
            moved.sent = sent
            await until(lambda: moved.is_at(target))
            await moved.produce(10)
            assert await moved.consume(until_end=lambda: len(moved.sent)) == moved.sent

    asyncio.run(scenario())


def test_kills_in_the_middle_lose_nothing(tmp_path: Path) -> None:
    """A broker is killed while it moves a log, wherever it is; the next one goes on.

    Every other broker copies slowly, so that it is killed within the copy.
    """
    paths = [str(tmp_path / "one"), str(tmp_path / "two")]

    async def live(running: OdradekBroker, number: int, sent: list[bytes]) -> None:
        async with Admin({"bootstrap.servers": running.bootstrap}) as admin:
            moved = Moved(admin, paths, running.bootstrap)
            moved.sent = sent
            if not number:
                await moved.create()
            assert await moved.consume(until_end=lambda: len(sent)) == sent
            await moved.produce(1_000)
            assert await moved.alter(await moved.other()) is ErrorCode.NONE
            async with Producer(moved.settings) as producer:
                for _ in range(number * 20):
                    await moved.send(producer)
                    await producer.flush()
            running.kill()

    sent: list[bytes] = []
    for number in range(8):
        settings = {"log.dirs": ",".join(paths), SLOW: str(1_000_000 if number % 2 else 1 << 60)}
        with running_odradek(tmp_path / "run", settings) as running:
            asyncio.run(live(running, number, sent))
    with running_odradek(tmp_path / "run", {"log.dirs": ",".join(paths)}) as running:

        async def settle() -> None:
            async with Admin({"bootstrap.servers": running.bootstrap}) as admin:
                moved = Moved(admin, paths, running.bootstrap)

                async def is_over() -> bool:
                    home, future = await moved.homes()
                    return home is not None and future is None

                await until(is_over)
                assert await moved.consume(until_end=lambda: len(sent)) == sent

        asyncio.run(settle())
    names = partition_directories(paths)
    assert [name for name in names if not name.endswith("-delete")] == ["t-0"], names


def test_a_failing_target_leaves_the_log_where_it_is(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, **{SLOW: 200_000}) as moved:
            await moved.create()
            await moved.produce(3_000)
            home, _ = await moved.homes()
            target = await moved.other()
            assert await moved.alter(target) is ErrorCode.NONE
            # As on a disk that is lost: the next roll cannot create files.
            [name] = [one for one in os.listdir(target) if one.endswith("-future")]
            os.rename(os.path.join(target, name), tmp_path / "of-a-lost-disk")

            async def has_failed() -> bool:
                directories = (await moved.admin.describe_log_dirs([0]))[0]
                assert not isinstance(directories, ApiError)
                return isinstance(directories[target], ApiError)

            await moved.produce(10)
            await until(has_failed)
            assert await moved.homes() == (home, None)
            await moved.produce(10)
            assert await moved.consume(until_end=lambda: len(moved.sent)) == moved.sent
            assert await moved.alter(target) is ErrorCode.KAFKA_STORAGE_ERROR

    asyncio.run(scenario())


def test_a_deleted_topic_takes_its_copy_along(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, **{SLOW: 100_000}) as moved:
            await moved.create()
            await moved.produce(2_000)
            assert await moved.alter(await moved.other()) is ErrorCode.NONE
            assert len(partition_directories(moved.paths)) == 2
            await moved.admin.delete_topics(["t"])

            async def is_gone() -> bool:
                names = partition_directories(moved.paths)
                return len(names) == 2 and all(name.endswith("-delete") for name in names)

            await until(is_gone)
            await moved.create()
            assert (await moved.homes())[1] is None

    asyncio.run(scenario())


def test_another_target_replaces_the_copy_and_the_own_directory_ends_the_move(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, **{SLOW: 100_000}) as moved:
            await moved.create()
            await moved.produce(2_000)
            home, _ = await moved.homes()
            assert home is not None
            target = await moved.other()
            assert await moved.alter(str(tmp_path / "nowhere")) is ErrorCode.LOG_DIR_NOT_FOUND
            assert await moved.alter(target) is ErrorCode.NONE
            assert await moved.homes() == (home, target)
            assert await moved.alter(target) is ErrorCode.NONE  # Goes on.
            assert await moved.homes() == (home, target)
            assert await moved.alter(home) is ErrorCode.NONE
            assert await moved.homes() == (home, None)
            names = partition_directories(moved.paths)
            assert sorted(name.endswith("-delete") for name in names) == [False, True]

    asyncio.run(scenario())
