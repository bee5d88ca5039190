"""The owner of a data directory: `meta.properties` against the ids of cluster and broker.

Every data directory stores the ids of its cluster and its broker. A directory of another broker or
cluster is refused: its logs would be served under a wrong name.
"""

import os
from collections.abc import Iterable
from typing import NamedTuple

from odradek.config import parse_properties
from odradek.errors import ConfigError
from odradek.files import Disk, read_whole, write_atomically

__all__ = [
    "META_PROPERTIES_FILE",
    "DirectoryOwner",
    "check_directories",
    "check_owner",
    "find_owner",
]

META_PROPERTIES_FILE = "meta.properties"


class DirectoryOwner(NamedTuple):
    """The ids that a data directory stores."""

    path: str  # Of its file.
    broker_id: int | None
    cluster_id: str | None


def find_owner(directories: Iterable[str], disk: Disk) -> DirectoryOwner | None:
    """The owner of the first directory that has one.

    A directory that cannot be read is passed over; it is refused when its logs are loaded.
    """
    for directory in directories:
        path = os.path.join(directory, META_PROPERTIES_FILE)
        try:
            found = parse_properties(read_whole(disk, path).decode("utf-8", "replace"))
        except OSError:
            continue
        stored = found.get("broker.id", "")
        is_number = stored.isascii() and stored.isdigit()
        return DirectoryOwner(path, int(stored) if is_number else None, found.get("cluster.id"))
    return None


def check_owner(owner: DirectoryOwner | None, cluster_id: str | None, ensemble: str) -> None:
    """Compares the cluster that the data directories belong to with that of an ensemble.

    Args:
        cluster_id: None if the ensemble has no cluster yet.

    Raises:
        ConfigError: They differ.
    """
    if owner is None or owner.cluster_id is None or owner.cluster_id == cluster_id:
        return
    held = "has no cluster" if cluster_id is None else f"has cluster.id={cluster_id}"
    raise ConfigError(
        "zookeeper.connect",
        ensemble,
        f"INCONSISTENT_CLUSTER_ID: {owner.path} says cluster.id={owner.cluster_id}, and ZooKeeper"
        f" {held}; correct servers and path, or, for another cluster, give the broker empty"
        " directories",
    )


def check_directories(
    directories: Iterable[str], *, broker_id: int, cluster_id: str, disk: Disk
) -> None:
    """Compares each directory's `meta.properties`, and writes it if it does not exist.

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
