"""The sessions of a test on a ZooKeeper: a store on nodes of its own, and a session's end."""

import contextlib
from collections.abc import AsyncIterator
from random import Random
from uuid import uuid4

from odradek.clock import SystemClock
from odradek.coordination.zookeeper.client import ZooKeeperConfig, open_store, stream_opener
from odradek.coordination.zookeeper.link import Credentials, LinkBroken, end_session
from odradek.coordination.zookeeper.servers import Server, parse_connect_string
from odradek.coordination.zookeeper.store import ZooKeeperStore
from tests.support.zookeeper import ZooKeeperProcess

__all__ = ["credentials_of", "end_from_outside", "fresh_store"]


@contextlib.asynccontextmanager
async def fresh_store(server: ZooKeeperProcess) -> AsyncIterator[ZooKeeperStore]:
    """A session of a store that is still empty, below a path that no other test uses."""
    config = ZooKeeperConfig(
        ensemble=parse_connect_string(f"{server.address}/{uuid4().hex}"),
        session_timeout_ms=30_000,
        connection_timeout_ms=30_000,
    )
    async with open_store(config, clock=SystemClock(), random=Random(1)) as store:
        yield store


def credentials_of(store: ZooKeeperStore) -> Credentials:
    """The id and the password of a store's session."""
    return store.session._credentials


async def end_from_outside(store: ZooKeeperStore, server: Server) -> None:
    """Ends a session on a server, as its expiry would: the store learns of it afterwards."""
    credentials = credentials_of(store)
    lives = True
    while lives:
        # The store comes back, and takes the session from our connection, until it has ended.
        with contextlib.suppress(LinkBroken):
            await end_session(
                stream_opener(None), server, credentials, timeout_ms=store.session.timeout_ms
            )
            lives = False
