"""Whole brokers that lose their machine: logs, store and answers have to agree afterwards.

One life of a broker, with a topic made and deleted over the wire, runs on a simulated disk. Before
each operation of that disk it is written down what a power cut would leave, and what the client
had been told by then. A broker is started on each of these remains.
"""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import TypeAlias

import pytest

from odradek.aio import Admin, Producer
from odradek.broker.broker import Broker
from odradek.broker.config import load_broker_settings
from odradek.broker.surroundings import Surroundings
from odradek.client.admin import CreatedTopic, NewTopic
from odradek.controller.context import PartitionStatus, ReplicaStatus
from odradek.files import Disk
from odradek.testing import SimDisk
from odradek.testing.durability import Directory, File, Image
from tests.support.network import eventually

pytestmark = pytest.mark.slow

_DIRECTORIES = {"t-0", "t-1"}
_Tree: TypeAlias = "dict[str, Image | _Tree]"


class Told(Enum):
    """How far the client has come."""

    CREATING = auto()
    CREATED = auto()
    DELETING = auto()
    DELETED = auto()


@dataclass(frozen=True, slots=True)
class Remains:
    """What a power cut would leave, and what had been told."""

    tree: _Tree
    told: Told
    next_operation: str


class WatchedDisk(SimDisk):
    """Notes what would remain before each of its operations, while it is told to."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.told: Told | None = None
        self.remains: list[Remains] = []
        self._seen: set[tuple[Told, bytes]] = set()

    def _begin(self, operation: str, path: str, *, mutates: bool = True) -> None:
        if mutates and self.told is not None:
            self._note(self.told, f"{operation} {path}")
        super()._begin(operation, path, mutates=mutates)

    def _note(self, told: Told, next_operation: str) -> None:
        tree = _durable(self._shadow._top)
        fingerprint = told, _fingerprint(tree)
        if fingerprint not in self._seen:
            self._seen.add(fingerprint)
            self.remains.append(Remains(tree, told, next_operation))


def _durable(directory: Directory) -> _Tree:
    return {
        name: _durable(node) if isinstance(node, Directory) else node.durable
        for name, node in sorted(directory.durable.items())
        if isinstance(node, Directory | File)
    }


def _fingerprint(tree: _Tree) -> bytes:
    """The same for the same names and bytes."""
    found = hashlib.blake2b()
    for name, content in tree.items():
        found.update(f"{name}\0".encode())
        if isinstance(content, dict):
            found.update(_fingerprint(content))
        else:
            found.update(f"{content.length}".encode())
            for number in sorted(content.pages):
                found.update(content.pages[number])
    return found.digest()


def _write(tree: _Tree, directory: Path) -> None:
    directory.mkdir()
    for name, content in tree.items():
        if isinstance(content, dict):
            _write(content, directory / name)
        else:
            content.write(str(directory / name))


@asynccontextmanager
async def _running(path: Path, disk: Disk | None = None) -> AsyncIterator[Broker]:
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(path)}
    broker = Broker(load_broker_settings(None, settings, {}), Surroundings.system(disk))
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()


async def _create(admin: Admin) -> None:
    [made] = (await admin.create_topics([NewTopic(name="t", partition_count=2)])).values()
    assert isinstance(made, CreatedTopic), made


async def _life(disk: WatchedDisk, path: Path) -> None:
    """A topic is made and deleted; the disk is told what was answered."""
    async with (
        _running(path, disk) as broker,
        Admin({"bootstrap.servers": broker.bootstrap_server}) as admin,
    ):
        disk.told = Told.CREATING
        await _create(admin)
        disk.told = Told.CREATED
        async with Producer({"bootstrap.servers": broker.bootstrap_server}) as producer:
            for partition in range(2):
                await producer.send("t", b"value", partition=partition)
        disk.told = Told.DELETING
        [error] = (await admin.delete_topics(["t"])).values()
        assert error is None, error
        disk.told = Told.DELETED
    disk.told = None


async def _check(path: Path, told: Told) -> None:
    """The topic is there, whole, or it is not there at all; and what was told is true."""
    async with (
        _running(path) as broker,
        Admin({"bootstrap.servers": broker.bootstrap_server}) as admin,
    ):
        context = broker._controller.context
        await eventually(lambda: not context.topics_to_be_deleted, "the end of a deletion")
        is_there = "t" in context.all_topics
        if told is Told.CREATED:
            assert is_there, "the creation was acknowledged"
        if told is Told.DELETED:
            assert not is_there, "the deletion was acknowledged"
        expected = _DIRECTORIES if is_there else set()
        await eventually(lambda: _DIRECTORIES & set(os.listdir(path)) == expected, "its logs")
        assert set(context.partition_states.values()) <= {PartitionStatus.ONLINE}
        assert set(context.replica_states.values()) <= {ReplicaStatus.ONLINE}

        # Whatever was found: the topic can be used, and a new one has no record of the old one.
        if not is_there:
            await _create(admin)
        async with Producer({"bootstrap.servers": broker.bootstrap_server}) as producer:
            for partition in range(2):
                wrote = await (await producer.send("t", b"new", partition=partition))
                assert wrote.offset in ((0, 1) if is_there else (0,))


def test_a_power_cut_undoes_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """14:SM-3: at every write of a creation and a deletion, with logs and a store that are real."""
    root = tmp_path / "disk"
    root.mkdir()
    disk = WatchedDisk(root)
    asyncio.run(_life(disk, root / "new" / "data"))
    assert {remains.told for remains in disk.remains} == set(Told)

    for number, remains in enumerate(disk.remains):
        _write(remains.tree, tmp_path / str(number))
        try:
            asyncio.run(_check(tmp_path / str(number) / "new" / "data", remains.told))
        except BaseException as failure:
            failure.add_note(f"{remains.told}, before {remains.next_operation}")
            raise
