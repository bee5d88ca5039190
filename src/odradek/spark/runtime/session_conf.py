"""The configuration of a Spark session, decided without Spark.

Settings of the user override all of these; only Java's options are joined. The defaults suit a
pipeline on one machine; for a cluster, its own configuration decides most settings.
"""

import os
import re
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

from odradek.errors import ConfigError

__all__ = ["effective_master", "is_connect", "is_local", "session_conf"]

_LOCAL: Final = re.compile(r"local(?:\[(?P<threads>\d+|\*)(?:\s*,\s*(?P<failures>\d+))?\])?")
_ANY_MASTER: Final = re.compile(
    r"local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]|(?:spark|k8s|sc)://.+|yarn"
)
# As on a cluster. `local[N]` would end a query at the first task that fails.
_TASK_ATTEMPTS: Final = 4

_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_EVERYWHERE: Final = {
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
    # A sink that hangs must not keep a run from ending.
    "spark.sql.streaming.stopTimeout": "60s",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}
_LOCAL_ONLY: Final = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
# Renames a finished file into place. Half the cost of a micro-batch, and safe where a rename is
# atomic and stays on this machine.
_LOCAL_CHECKPOINT: Final = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing."
        "FileSystemBasedCheckpointFileManager"
    )
}


def is_local(master: str) -> bool:
    """Whether all of Spark runs in one process on this machine."""
    return _LOCAL.fullmatch(master) is not None


def is_connect(master: str) -> bool:
    """Whether the master is a Spark Connect server."""
    return master.startswith("sc://")


def effective_master(master: str) -> str:
    """The master to use: a local one is changed so that it retries a failed task.

    Raises:
        ConfigError: Spark knows no such master.
    """
    found = _LOCAL.fullmatch(master)
    if found is None:
        if _ANY_MASTER.fullmatch(master) is None:
            raise ConfigError(
                "spark.master",
                master,
                "expected local[N], local[*], spark://host:port, yarn, k8s://… or sc://host:port",
            )
        return master
    threads, failures = found["threads"] or "1", found["failures"] or str(_TASK_ATTEMPTS)
    return f"local[{threads},{failures}]"


def session_conf(
    master: str,
    given: Mapping[str, str],
    *,
    java_options: Sequence[str] = (),
    checkpoint: str | None = None,
    cpu_count: int | None = None,
) -> dict[str, str]:
    """The whole configuration of a session.

    Args:
        master: As `effective_master` returns it.
        given: The user's settings, which override the others.
        java_options: For the driver's Java, before the user's.
        checkpoint: Folder of the queries' checkpoints, if it is known.
        cpu_count: The number that ``*`` means.

    Raises:
        ConfigError: A key is not Spark's.
    """
    for key, value in given.items():
        if not key.startswith("spark."):
            raise ConfigError(key, value, "a setting of Spark begins with spark.")
    conf = dict(_EVERYWHERE)
    if is_connect(master):  # A running server accepts no other settings.
        conf = {key: value for key, value in conf.items() if key.startswith("spark.sql.")}
    found = _LOCAL.fullmatch(master)
    if found is not None:
        conf |= _LOCAL_ONLY
        threads = found["threads"] or "1"
        # A stateful query keeps this number in its checkpoint from its first run on.
        shuffles = (cpu_count or os.cpu_count() or 1) if threads == "*" else int(threads)
        conf["spark.sql.shuffle.partitions"] = str(shuffles)
        if checkpoint is not None and _is_local_path(checkpoint):
            conf |= _LOCAL_CHECKPOINT
    conf |= given
    if java_options:
        theirs = [given[_JAVA_OPTIONS]] if _JAVA_OPTIONS in given else []
        conf[_JAVA_OPTIONS] = " ".join([*java_options, *theirs])
    return conf


def _is_local_path(path: str) -> bool:
    return urlsplit(path).scheme in ("", "file")
