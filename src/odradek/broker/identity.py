"""Who a data directory belongs to: `meta.properties` against the cluster's own id.

The first broker of a cluster makes up the cluster id and stores it under `/cluster/id`; every data
directory keeps it beside the broker's id. A directory of another broker or cluster is refused: its
logs would be served under a wrong name.
"""

import os
import uuid
from collections.abc import Callable, Iterable

from odradek.config import parse_properties
from odradek.coordination.nodes import encode_cluster_id, parse_cluster_id
from odradek.coordination.paths import CLUSTER_ID
from odradek.coordination.store import CoordinationStore
from odradek.errors import ConfigError, NodeExists, NoNode
from odradek.files import Disk, read_whole, write_atomically
from odradek.model import uuid_text

__all__ = ["META_PROPERTIES_FILE", "check_directories", "load_cluster_id"]

META_PROPERTIES_FILE = "meta.properties"


async def load_cluster_id(store: CoordinationStore, new_id: Callable[[], uuid.UUID]) -> str:
    """The cluster's id; the first broker makes it."""
    while True:
        try:
            data, _ = await store.get(CLUSTER_ID)
            return parse_cluster_id(data)
        except NoNode:
            pass
        try:
            await store.create(CLUSTER_ID, encode_cluster_id(uuid_text(new_id())))
        except NodeExists:
            continue


def check_directories(
    directories: Iterable[str], *, broker_id: int, cluster_id: str, disk: Disk
) -> None:
    """Compares each directory's `meta.properties`, and writes it where there is none.

    Raises:
        ConfigError: A directory belongs to another broker or cluster.
    """
    for directory in directories:
        path = os.path.join(directory, META_PROPERTIES_FILE)
        try:
            found = parse_properties(read_whole(disk, path).decode("utf-8", "replace"))
        except FileNotFoundError:
            content = f"version=0\nbroker.id={broker_id}\ncluster.id={cluster_id}\n"
            write_atomically(disk, path, content.encode())
            continue
        for key, expected in (("broker.id", str(broker_id)), ("cluster.id", cluster_id)):
            if found.get(key, expected) != expected:
                raise ConfigError(
                    "log.dirs",
                    directory,
                    f"{path} says {key}={found[key]}, this broker has {expected};"
                    " give it a directory of its own",
                )
