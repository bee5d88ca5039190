"""Settings of the network that administrators change while the broker runs."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from odradek.broker.broker import Broker
from odradek.broker.config import load_broker_settings
from odradek.network.socket_server import SocketServer
from tests.support.commands import Commands, Outcome
from tests.support.network import eventually, make_certificate

pytestmark = pytest.mark.slow

_TIMEOUT_S = 60


@asynccontextmanager
async def running(path: Path, **settings: str) -> AsyncIterator[tuple[Broker, SocketServer]]:
    defaults = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(path / "data")}
    named = {name.replace("_", "."): value for name, value in settings.items()}
    broker = Broker(load_broker_settings(None, {**defaults, **named}, {}))
    await broker.start()
    assert broker._network is not None
    try:
        yield broker, broker._network.server
    finally:
        await broker.stop()


async def alter(broker: Broker, *changes: str, resource: str = "0") -> Outcome:
    """`key=value` sets a key of the broker, `key` alone deletes it."""
    words = [
        word for change in changes for word in ("--set" if "=" in change else "--delete", change)
    ]
    command = Commands(broker.bootstrap_server)
    return await asyncio.to_thread(
        command, "configs", "alter", "broker", resource, *words, "--request-timeout", _TIMEOUT_S
    )


async def alter_all(broker: Broker, *changes: str) -> None:
    assert (await alter(broker, *changes, resource="default")).code == 0


def test_threads_follow_in_allowed_steps_and_are_kept(tmp_path: Path) -> None:
    """02 section 1: at least half, at most twice as many."""

    async def scenario() -> None:
        async with running(tmp_path) as (broker, server):
            assert server.data_channel.slot_count == 8
            refused = await alter(broker, "num.io.threads=17")
            assert "must be at most twice the current 8" in refused.err
            await alter_all(broker, "num.io.threads=16")
            await eventually(lambda: server.data_channel.slot_count == 16, "slots")
            await alter_all(broker, "num.io.threads=20", "num.network.threads=5")
            await eventually(lambda: server.data_channel.slot_count == 20, "slots")
            (listener,) = server.listeners.values()
            await eventually(lambda: len(listener.processors) == 5, "processors")
        # Not one allowed step from what the file says; yet it was stored in such steps.
        async with running(tmp_path) as (broker, server):
            assert server.data_channel.slot_count == 20
            await alter_all(broker, "num.io.threads=10")
            await eventually(lambda: server.data_channel.slot_count == 10, "fewer slots")
            await alter_all(broker, "num.io.threads")
            await eventually(lambda: server.data_channel.slot_count == 8, "the file's")

    asyncio.run(scenario())


def test_limits_of_connections(tmp_path: Path) -> None:
    """02 section 1: the dynamic set of the server."""

    async def scenario() -> None:
        async with running(tmp_path) as (broker, server):
            host, _, port = broker.bootstrap_server.rpartition(":")
            opened = [await asyncio.open_connection(host, int(port)) for _ in range(3)]
            await eventually(lambda: server.connection_count == 3, "three are let in")
            assert (await alter(broker, "max.connections.per.ip=1")).code == 0
            for _, writer in opened:
                writer.close()
            refused = False
            async with asyncio.timeout(_TIMEOUT_S):
                while not refused:  # The change is taken over within a moment.
                    for _ in range(2):
                        opened.append(await asyncio.open_connection(host, int(port)))
                    for reader, _ in opened[-2:]:
                        try:
                            refused |= await asyncio.wait_for(reader.read(1), 0.5) == b""
                        except TimeoutError:
                            continue
                        except ConnectionError:
                            refused = True
                    for _, writer in opened:
                        writer.close()
            assert refused

    asyncio.run(scenario())


def test_a_listener_is_opened_announced_and_closed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as (broker, server):
            both = "PLAINTEXT://127.0.0.1:0,EXTRA://127.0.0.1:0"
            protocols = "PLAINTEXT:PLAINTEXT,EXTRA:PLAINTEXT"
            changes = f"listeners={both}", f"listener.security.protocol.map={protocols}"
            assert (await alter(broker, *changes)).code == 0
            await eventually(lambda: "EXTRA" in server.listeners, "opened")
            extra = f"127.0.0.1:{server.listeners['EXTRA'].bound_port}"
            assert [e.listener for e in broker.endpoints] == ["PLAINTEXT", "EXTRA"]

            def is_announced() -> bool:
                known = broker._state.cache.image.brokers[0].endpoints
                return [e.listener for e in known] == ["PLAINTEXT", "EXTRA"]

            await eventually(is_announced, "announced")
            # Whoever comes by it is sent to it, and not to another one.
            made = await asyncio.to_thread(Commands(extra), "topics", "create", "t")
            assert made.code == 0

            refused = await alter(broker, "listeners=EXTRA://127.0.0.1:0")
            assert refused.code == 1
            assert "PLAINTEXT" in refused.err  # The listener of brokers cannot go.
            assert (await alter(broker, "listeners")).code == 0
            await eventually(lambda: "EXTRA" not in server.listeners, "closed")
            assert [e.listener for e in broker.endpoints] == ["PLAINTEXT"]

    asyncio.run(scenario())


def pem_of(folder: Path) -> tuple[Path, Path]:
    folder.mkdir()
    certificate, key = make_certificate(folder)
    pem = folder / "keystore.pem"
    pem.write_bytes(key.read_bytes() + certificate.read_bytes())
    return certificate, pem


def test_certificates_are_replaced_and_bad_ones_refused(tmp_path: Path) -> None:
    (old, old_pem), (new, new_pem) = pem_of(tmp_path / "old"), pem_of(tmp_path / "new")

    async def is_trusted(port: int, certificate: Path) -> bool:
        context = ssl.create_default_context(cafile=str(certificate))
        try:
            _, writer = await asyncio.open_connection(
                "127.0.0.1", port, ssl=context, server_hostname="localhost"
            )
        except ssl.SSLCertVerificationError:
            return False
        writer.close()
        return True

    async def scenario() -> None:
        settings = {
            "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(old_pem),
        }
        async with running(tmp_path, **settings) as (broker, server):
            port = server.listeners["SSL"].bound_port
            assert await is_trusted(port, old)
            location = "listener.name.ssl.ssl.keystore.location"
            refused = await alter(broker, f"{location}={tmp_path / 'missing.pem'}")
            assert "cannot be used" in refused.err
            assert await is_trusted(port, old)
            assert (await alter(broker, f"{location}={new_pem}")).code == 0
            async with asyncio.timeout(_TIMEOUT_S):
                while not await is_trusted(port, new):
                    continue
            assert not await is_trusted(port, old)

    asyncio.run(scenario())
