"""The owner of a data directory: `meta.properties` against the ids of cluster and broker.

Every data directory stores the ids of its cluster and its broker. A directory of another broker or
cluster is refused: its logs would be served under a wrong name.
"""

import os
from collections.abc import Iterable

from odradek.config import parse_properties
from odradek.errors import ConfigError
from odradek.files import Disk, read_whole, write_atomically

__all__ = ["META_PROPERTIES_FILE", "check_directories"]

META_PROPERTIES_FILE = "meta.properties"


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
