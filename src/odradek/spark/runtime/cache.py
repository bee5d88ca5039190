"""The user's cache: a folder of files that are made once and reused by later starts.

A file appears complete, by a rename, so that two processes may write it at the same time.
"""

import os
import tempfile
from collections.abc import Mapping

__all__ = ["cache_folder", "write_whole"]


def cache_folder(environ: Mapping[str, str]) -> str:
    """``$ODRADEK_CACHE``, else ``$XDG_CACHE_HOME/odradek``, else ``~/.cache/odradek``."""
    if folder := environ.get("ODRADEK_CACHE"):
        return folder
    home = environ.get("HOME") or os.path.expanduser("~")
    return os.path.join(environ.get("XDG_CACHE_HOME") or os.path.join(home, ".cache"), "odradek")


def write_whole(path: str, content: bytes, *, mode: int = 0o644) -> None:
    """Writes a file unless it has this content already."""
    try:
        with open(path, "rb") as there:
            if there.read() == content and os.stat(path).st_mode & 0o777 == mode:
                return
    except OSError:
        pass
    folder = os.path.dirname(path)
    os.makedirs(folder, exist_ok=True)
    descriptor, fresh = tempfile.mkstemp(dir=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.chmod(fresh, mode)
        os.replace(fresh, path)
    except BaseException:
        os.unlink(fresh)
        raise
