"""The first writes of a broker to a store: parent nodes, the cluster's id, the broker's id."""

from collections.abc import Callable

from odradek.coordination.nodes import encode_cluster_id, parse_cluster_id
from odradek.coordination.paths import (
    BROKER_SEQUENCE_ID,
    CLUSTER_ID,
    INITIAL_PATHS,
    ancestors,
)
from odradek.coordination.store import ANY_VERSION, CoordinationStore, Create
from odradek.errors import ConnectionLost, NodeExists, NoNode

__all__ = ["claim_cluster_id", "create_parents", "draw_broker_id"]


async def create_parents(store: CoordinationStore) -> None:
    """Makes the parents of all other nodes; existing ones stay as they are."""
    while True:
        missing = [Create(path) for path in INITIAL_PATHS if await store.exists(path) is None]
        if not missing:
            return
        try:
            await store.multi(missing)
        except (NodeExists, ConnectionLost):
            continue  # Another broker starts at the same time: look again which are missing.


async def claim_cluster_id(store: CoordinationStore, new_id: Callable[[], str]) -> str:
    """The id of the cluster; the first broker makes it.

    Raises:
        BadNodeData: The stored id cannot be read.
    """
    while True:
        try:
            data, _ = await store.get(CLUSTER_ID)
            return parse_cluster_id(data)
        except NoNode:
            parents = [Create(p) for p in ancestors(CLUSTER_ID) if await store.exists(p) is None]
            try:
                await store.multi([*parents, Create(CLUSTER_ID, encode_cluster_id(new_id()))])
            except (NodeExists, ConnectionLost):
                continue


async def draw_broker_id(store: CoordinationStore, reserved_max_id: int) -> int:
    """An id above `reserved_max_id` that no broker has drawn before."""
    while True:
        try:
            stat = await store.set(BROKER_SEQUENCE_ID, b"", ANY_VERSION)
        except ConnectionLost:
            await store.sync()  # Waits for a link. A number may be skipped.
            continue
        return reserved_max_id + stat.version
