"""TLS to a real ZooKeeper server, and access lists that rest on the client's certificate."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from odradek.broker.config import load_broker_settings
from odradek.broker.tls import zookeeper_context
from odradek.clock import SystemClock
from odradek.coordination.store import ANY_VERSION, CoordinationStore
from odradek.coordination.zookeeper.client import ZooKeeperConfig, open_store
from odradek.coordination.zookeeper.servers import parse_connect_string
from odradek.errors import ConfigError, StoreError
from tests.support.network import make_certificate
from tests.support.ports import free_port
from tests.support.zookeeper import missing_zookeeper, running_zookeeper

pytestmark = pytest.mark.slow


class Secured(NamedTuple):
    """A server with a port for each."""

    plain: str
    tls: str
    material: Path  # Key and certificate, of server and broker alike.


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    if (why := missing_zookeeper()) is not None:
        pytest.skip(why)
    folder = tmp_path_factory.mktemp("tls")
    certificate, private_key = make_certificate(folder)
    material = folder / "both.pem"
    material.write_bytes(private_key.read_bytes() + certificate.read_bytes())
    port = free_port()
    settings = {
        "secureClientPort": port,
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "authProvider.x509": "org.apache.zookeeper.server.auth.X509AuthenticationProvider",
        "ssl.keyStore.location": material,
        "ssl.keyStore.type": "PEM",
        "ssl.trustStore.location": certificate,
        "ssl.trustStore.type": "PEM",
        "ssl.clientAuth": "need",
        "ssl.hostnameVerification": "false",
        "ssl.clientHostnameVerification": "false",
    }
    with running_zookeeper(settings) as running:
        yield Secured(running.address, f"localhost:{port}", material)


def context_of(server: Secured, **more: str) -> ssl.SSLContext | None:
    given = {
        "zookeeper.connect": server.tls,
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.truststore.location": str(server.material),
        **{f"zookeeper.ssl.{name}.location": value for name, value in more.items()},
    }
    return zookeeper_context(load_broker_settings(None, given, {}).zookeeper)


@asynccontextmanager
async def store_on(
    address: str, tls: ssl.SSLContext | None, *, has_acl: bool = False, patience_ms: int = 30_000
) -> AsyncIterator[CoordinationStore]:
    config = ZooKeeperConfig(
        ensemble=parse_connect_string(f"{address}/kafka"),
        connection_timeout_ms=patience_ms,
        has_acl=has_acl,
        tls=tls,
    )
    async with open_store(config, clock=SystemClock(), random=Random(1)) as store:
        yield store


def test_nodes_are_made_for_the_holder_of_the_certificate(server: Secured) -> None:
    """13 section 11: creator all, world read; what may hold passwords, creator alone."""

    async def main() -> None:
        tls = context_of(server, keystore=str(server.material))
        async with store_on(server.tls, tls, has_acl=True) as owner:
            for path in ("/config", "/config/users", "/config/users/alice", "/config/topics"):
                await owner.create(path, b"1")
            await owner.set("/config/topics", b"2", 0)
            async with store_on(server.plain, None) as stranger:
                assert (await stranger.get("/config/topics"))[0] == b"2"
                for refused in (
                    stranger.set("/config/topics", b"3", ANY_VERSION),
                    stranger.create("/config/topics/x"),
                    stranger.get("/config/users/alice"),
                    stranger.children("/config/users"),
                ):
                    with pytest.raises(StoreError, match="access list does not allow it"):
                        await refused

    asyncio.run(main())


def test_a_client_without_a_trusted_certificate_is_refused(server: Secured) -> None:
    async def main() -> None:
        with pytest.raises(ConfigError, match="no server gave a session"):
            async with store_on(server.tls, context_of(server), patience_ms=2_000):
                pass

    asyncio.run(main())


def test_a_server_that_is_not_trusted_is_refused(server: Secured, tmp_path: Path) -> None:
    other, _ = make_certificate(tmp_path)

    async def main() -> None:
        tls = context_of(server, keystore=str(server.material), truststore=str(other))
        with pytest.raises(ConfigError, match="certificate verify failed"):
            async with store_on(server.tls, tls, patience_ms=2_000):
                pass

    asyncio.run(main())
