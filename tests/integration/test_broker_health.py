"""What `/healthz` tells while a whole broker starts, serves and stops."""

import asyncio
import contextlib
import errno
import gc
import os
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.broker import Broker
from odradek.broker.config import load_broker_settings
from odradek.broker.surroundings import OpenStore, Surroundings
from odradek.errors import ConfigError
from odradek.files import Disk
from odradek.metadata.admin_requests import NewTopic
from odradek.metadata_store.engine import StoreEngine, open_embedded
from tests.support.held_disk import HeldFiles
from tests.support.network import eventually

pytestmark = pytest.mark.slow


def make_broker(
    path: Path,
    disk: Disk | None = None,
    *,
    metrics_port: int = 0,
    open_store: OpenStore = open_embedded,
) -> Broker:
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(path),
        "odradek.metrics.port": str(metrics_port),
    }
    around = replace(Surroundings.system(disk), open_store=open_store)
    return Broker(load_broker_settings(None, settings, {}), around)


async def health(broker: Broker) -> tuple[int, str]:
    """Status and text of the page."""
    assert broker.metrics_address is not None
    reader, writer = await asyncio.open_connection(*broker.metrics_address)
    try:
        writer.write(b"GET /healthz HTTP/1.1\r\n\r\n")
        async with asyncio.timeout(60):
            head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    finally:
        writer.close()
        await writer.wait_closed()
    return int(head.split(" ")[1]), body.strip()


async def create_topic(broker: Broker) -> None:
    [result] = await broker._controller.create_topics(
        [NewTopic(name="t", partition_count=1, replication_factor=1)]
    )
    assert not result.error
    await eventually(lambda: broker._state.cache.contains_topic("t"), "the topic's metadata")


def test_health_while_logs_are_loaded(tmp_path: Path) -> None:
    """Recovery may take minutes; who watches the broker sees that it starts."""

    async def scenario() -> None:
        first = make_broker(tmp_path)
        await first.start()
        await create_topic(first)
        await first.stop()

        disk = HeldFiles("/t-0/")
        broker = make_broker(tmp_path, disk)
        starting = asyncio.create_task(broker.start())
        try:
            await eventually(disk.is_asked.is_set, "the log is being opened")
            assert await health(broker) == (503, "the broker has not started yet")
            disk.is_free.set()
            await starting
            assert await health(broker) == (200, "ok")
        finally:
            disk.is_free.set()
            await asyncio.wait([starting])
            await broker.stop()

    asyncio.run(scenario())


def test_health_while_the_broker_stops(tmp_path: Path) -> None:
    """The page goes last: until then it says that no client should come."""

    async def scenario() -> None:
        may_stop = asyncio.Event()

        @contextlib.asynccontextmanager
        async def held(*args: Any, **named: Any) -> AsyncIterator[StoreEngine]:
            async with open_embedded(*args, **named) as engine:
                yield engine
                await may_stop.wait()

        broker = make_broker(tmp_path, open_store=held)
        await broker.start()
        assert await health(broker) == (200, "ok")
        stopping = asyncio.create_task(broker.stop())
        try:
            await asyncio.sleep(0)
            assert await health(broker) == (503, "the broker stops")
            assert not stopping.done()
        finally:
            may_stop.set()
            await stopping
        with pytest.raises(ConnectionRefusedError):
            await health(broker)

    asyncio.run(scenario())


def test_a_start_that_is_given_up_waits_for_the_logs(tmp_path: Path) -> None:
    """A signal comes while logs are loaded: the directory is free when `start` has ended."""

    async def scenario() -> None:
        first = make_broker(tmp_path)
        await first.start()
        await create_topic(first)
        await first.stop()

        disk = HeldFiles("/t-0/")
        broker = make_broker(tmp_path, disk)
        starting = asyncio.create_task(broker.start())
        await eventually(disk.is_asked.is_set, "the log is being opened")
        starting.cancel()
        await asyncio.sleep(0)
        assert not starting.done()
        disk.is_free.set()
        await asyncio.wait([starting])
        assert starting.cancelled()

        again = make_broker(tmp_path)
        await again.start()
        assert again._state.cache.contains_topic("t")
        await again.stop()

    asyncio.run(scenario())


def test_a_taken_port_of_metrics_fails_the_start_first(tmp_path: Path) -> None:
    """Nothing is touched and nobody served by a broker that cannot be watched."""
    data = tmp_path / "data"

    async def scenario(port: int) -> None:
        with pytest.raises(ConfigError, match=r"odradek\.metrics\.port"):
            await make_broker(data, metrics_port=port).start()

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        asyncio.run(scenario(taken.getsockname()[1]))
    assert not data.exists()


class FailingFiles(HeldFiles):
    """Fails when it lets go."""

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        fd = super().open(path, flags, mode)
        if self.is_asked.is_set():
            self.close(fd)
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return fd


def test_a_start_that_is_given_up_may_fail_as_well(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What the load met is told in one line; nobody is left to catch it."""
    unheard: list[dict[str, object]] = []

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, about: unheard.append(about))
        first = make_broker(tmp_path)
        await first.start()
        await first.stop()

        disk = FailingFiles("checkpoint")
        broker = make_broker(tmp_path, disk)
        starting = asyncio.create_task(broker.start())
        await eventually(disk.is_asked.is_set, "a checkpoint is being read")
        starting.cancel()
        await asyncio.sleep(0)
        disk.is_free.set()
        await asyncio.wait([starting])
        assert starting.cancelled()

    asyncio.run(scenario())
    gc.collect()
    assert unheard == []
    assert "would have failed" in caplog.text
