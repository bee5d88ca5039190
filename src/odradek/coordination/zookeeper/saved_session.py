"""The session's id and password in the data directory, so that the next life can end it.

A broker that was killed leaves a session whose ephemeral nodes stay for the session's timeout. The
process that holds the lock of the data directory is the only heir: it ends that session at once,
instead of waiting for its own old registration to disappear.
"""

import json
import logging
import os
from typing import Final

from odradek.coordination.zookeeper.link import Credentials
from odradek.files import Disk, read_whole, remove_files, write_atomically

__all__ = ["SESSION_FILE", "SavedSession"]

logger = logging.getLogger(__name__)

SESSION_FILE: Final = "zookeeper.session"
_VERSION: Final = 1


class SavedSession:
    """The file of a data directory; its calls block."""

    __slots__ = ("_disk", "_path")

    def __init__(self, directory: str, disk: Disk) -> None:
        self._path = os.path.join(directory, SESSION_FILE)
        self._disk = disk

    def load(self) -> Credentials | None:
        """The session of the former life; None if there is none, or the file is damaged."""
        try:
            saved = json.loads(read_whole(self._disk, self._path))
            if saved["version"] != _VERSION:
                raise ValueError(f"expected version {_VERSION}, found {saved['version']!r}")
            return Credentials(int(saved["session_id"], 16), bytes.fromhex(saved["password"]))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError) as error:
            logger.warning(
                "%s cannot be read, a session of a former life ends by its timeout: %s",
                self._path,
                error,
            )
            return None

    def save(self, credentials: Credentials) -> None:
        """Keeps the session; only the broker's user may read the file."""
        content = {
            "version": _VERSION,
            "session_id": f"{credentials.session_id:#x}",
            "password": credentials.password.hex(),
        }
        try:
            write_atomically(
                self._disk, self._path, json.dumps(content).encode() + b"\n", is_secret=True
            )
        except OSError as error:
            logger.warning(
                "%s cannot be written; after a kill the next start waits for the session's end: %s",
                self._path,
                error,
            )

    def remove(self) -> None:
        """Forgets the session, which has ended."""
        try:
            remove_files(self._disk, [self._path])
        except OSError as error:
            logger.warning("%s cannot be removed: %s", self._path, error)
