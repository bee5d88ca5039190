"""Batches for a broker that does not run: those that no client of a running one may write."""

import os

from odradek.model import AppendOrigin, TopicPartition
from odradek.storage.directories.log_manager import LogManager
from tests.support.logs import make_services

__all__ = ["append_while_stopped"]


def append_while_stopped(
    log_dir: str | os.PathLike[str], partition: TopicPartition, *batches: bytes
) -> None:
    """Appends to a partition that is there, as the broker's own coordinators would."""
    manager = LogManager([os.fspath(log_dir)], services=make_services())
    manager.startup()
    log = manager.get_log(partition)
    assert log is not None
    for batch in batches:
        log.append_as_leader(bytearray(batch), leader_epoch=0, origin=AppendOrigin.COORDINATOR)
    manager.shutdown()
