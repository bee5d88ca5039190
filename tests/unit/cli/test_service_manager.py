"""Messages to a service manager, as `sd_notify` sends them."""

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from odradek.cli.serving.service_manager import ServiceManager
from odradek.testing.virtual_loop import VirtualLoop


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        sock.setblocking(False)
        yield sock


def messages(sock: socket.socket) -> list[bytes]:
    found = []
    while True:
        try:
            found.append(sock.recv(4096))
        except BlockingIOError:
            return found


def path_of(sock: socket.socket) -> str:
    return str(sock.getsockname())


def test_a_message_is_one_datagram(manager: socket.socket) -> None:
    ServiceManager({"NOTIFY_SOCKET": path_of(manager)}).tell("READY=1\nSTATUS=serves")
    assert messages(manager) == [b"READY=1\nSTATUS=serves"]


def test_an_abstract_socket_begins_with_an_at_sign() -> None:
    name = f"odradek-test-{id(object())}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(f"\0{name}")
        sock.setblocking(False)
        ServiceManager({"NOTIFY_SOCKET": f"@{name}"}).tell("READY=1")
        assert messages(sock) == [b"READY=1"]


@pytest.mark.parametrize("path", ["", "/nowhere/notify"])
def test_without_a_manager_nothing_happens(path: str) -> None:
    ServiceManager({"NOTIFY_SOCKET": path}).tell("READY=1")


@pytest.mark.parametrize(
    ("limits", "count"),
    [
        ({"WATCHDOG_USEC": "3000000"}, 4),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "7"}, 4),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "8"}, 0),
        ({"WATCHDOG_USEC": "0"}, 0),
        ({"WATCHDOG_USEC": "soon"}, 0),
        ({}, 0),
    ],
)
def test_signs_of_life_come_three_times_within_the_limit(
    manager: socket.socket, limits: dict[str, str], count: int
) -> None:
    told = ServiceManager({"NOTIFY_SOCKET": path_of(manager), **limits}, process_id=7)

    async def scenario() -> None:
        told.show_life(asyncio.get_running_loop())
        await asyncio.sleep(3.5)
        told.close()
        await asyncio.sleep(10)

    loop = VirtualLoop(Random(1))
    try:
        loop.run_until_complete(scenario())
    finally:
        loop.close()
    assert messages(manager) == [b"WATCHDOG=1"] * count
