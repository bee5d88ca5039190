"""What a test does to the session of a store from outside."""

import contextlib

from odradek.coordination.zookeeper.client import stream_opener
from odradek.coordination.zookeeper.link import Credentials, LinkBroken, end_session
from odradek.coordination.zookeeper.servers import Server
from odradek.coordination.zookeeper.store import ZooKeeperStore

__all__ = ["credentials_of", "end_from_outside"]


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
