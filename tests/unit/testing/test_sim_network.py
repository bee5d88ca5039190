"""Byte streams with delay, cuts and resets."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

import pytest

from odradek.testing.sim_network import WINDOW_BYTES, SimNetwork, SimSocket
from odradek.testing.virtual_loop import Process, VirtualLoop

Scenario = Callable[[SimNetwork, SimSocket, SimSocket], Awaitable[None]]


def connected(scenario: Scenario) -> None:
    """Runs a scenario with the two ends of a connection: of host a, and of host b."""
    loop = VirtualLoop(Random(1))
    network = SimNetwork(loop, Random(2))

    async def main() -> None:
        listener = network.at("b").listen("b", 9, backlog=5)
        near = await network.at("a").connect("b", 9)
        far, address = listener.accept()
        assert address[0] == "a"
        assert far.getsockname() == ("b", 9)
        await scenario(network, near, far)

    loop.run_until_complete(main())


def read(sock: SimSocket) -> bytes | None:
    """What is there; None if nothing is."""
    try:
        return sock.recv(1 << 20)
    except BlockingIOError:
        return None


def test_bytes_arrive_later_and_in_order() -> None:
    async def scenario(_network: SimNetwork, near: SimSocket, far: SimSocket) -> None:
        for number in range(20):
            near.send(b"%d," % number)
        assert read(far) is None
        await asyncio.sleep(1)
        assert read(far) == b"".join(b"%d," % number for number in range(20))
        assert read(far) is None

    connected(scenario)


def test_a_peer_that_does_not_read_stops_the_sender() -> None:
    async def scenario(_network: SimNetwork, near: SimSocket, far: SimSocket) -> None:
        assert near.send(bytes(2 * WINDOW_BYTES)) == WINDOW_BYTES
        with pytest.raises(BlockingIOError):
            near.send(b"x")
        await asyncio.sleep(1)
        assert not near.is_writable()
        assert len(read(far) or b"") == WINDOW_BYTES
        assert near.is_writable()

    connected(scenario)


def test_a_cut_holds_one_direction_until_it_heals() -> None:
    async def scenario(network: SimNetwork, near: SimSocket, far: SimSocket) -> None:
        network.cut("a", "b")
        near.send(b"there")
        far.send(b"back")
        await asyncio.sleep(60)
        assert read(far) is None
        assert read(near) == b"back"
        network.heal()
        near.send(b", later")
        await asyncio.sleep(1)
        assert read(far) == b"there, later"

    connected(scenario)


def test_a_connection_through_a_cut_waits_and_one_to_no_listener_is_refused() -> None:
    async def scenario(network: SimNetwork, near: SimSocket, _far: SimSocket) -> None:
        with pytest.raises(ConnectionRefusedError):
            await network.at("a").connect("b", 10)
        network.cut("b", "a")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(30):
                await network.at("a").connect("b", 9)

    connected(scenario)


def test_the_end_comes_after_the_bytes_and_a_reset_at_once() -> None:
    async def scenario(network: SimNetwork, near: SimSocket, far: SimSocket) -> None:
        far.send(b"last words")
        far.close()
        await asyncio.sleep(1)
        assert read(near) == b"last words"
        assert read(near) == b""
        with pytest.raises(OSError, match="descriptor"):
            far.send(b"more")

        other = await network.at("a").connect("b", 9)
        network.reset("b")
        with pytest.raises(ConnectionResetError):
            other.send(b"x")

    connected(scenario)


def test_a_killed_process_hangs_up_and_a_host_without_power_says_nothing() -> None:
    async def scenario(network: SimNetwork, near: SimSocket, far: SimSocket) -> None:
        process = Process("server")
        listener = network.loop.run_in(process, lambda: network.at("b").listen("b", 11, backlog=5))
        for is_killed in (True, False):
            sock = await network.at("a").connect("b", 11)
            if is_killed:
                network.kill(process)
                await asyncio.sleep(1)
                assert read(sock) == b""
                listener = network.loop.run_in(
                    process, lambda: network.at("b").listen("b", 11, backlog=5)
                )
            else:
                network.silence(process)
                await asyncio.sleep(60)
                assert read(sock) is None
                sock.send(b"anybody there?")
                await asyncio.sleep(1)
                with pytest.raises(ConnectionResetError):
                    sock.recv(1)
        assert listener.fileno() == -1

    connected(scenario)
