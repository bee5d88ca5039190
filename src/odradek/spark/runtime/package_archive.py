"""The archive that ships this package to the executors of a cluster.

One tar file with the modules that tasks import: odradek with its compiled modules,
`pyspark_odradek`, and the two small libraries that odradek needs. The cluster must provide pyspark
and pyarrow. The archive fits executors of the same platform and minor version of Python.

It is built once and kept in the user's cache, under a name derived from its content: another
version, or a changed checkout, is another file.
"""

import gzip
import hashlib
import importlib
import importlib.metadata
import io
import os
import tarfile
from collections.abc import Iterator, Mapping
from typing import Final

import odradek
from odradek.spark.runtime.cache import cache_folder, write_whole

__all__ = ["LIBRARIES", "package_archive"]

_PACKAGES: Final = ("odradek", "pyspark_odradek")
LIBRARIES: Final = ("crc32c", "cramjam")  # Distributions, as `pip` names them.

_LEFT_OUT: Final = (".pyc", ".pyx", ".pxi", ".pxd", ".c", ".html")
# The fastest level: an archive is sent once, and the session waits while it is built.
_GZIP_LEVEL: Final = 1


def package_archive(environ: Mapping[str, str]) -> str:
    """The path of the archive, which is built if it does not exist.

    Raises:
        OSError: The cache cannot be written.
    """
    files = sorted(_files())
    told = hashlib.sha256()
    for name, path in files:
        status = os.stat(path)
        told.update(f"{name}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    name = f"odradek-{odradek.__version__}-{told.hexdigest()[:16]}.tar.gz"
    archive = os.path.join(cache_folder(environ), name)
    if not os.path.exists(archive):
        write_whole(archive, _packed(files))
    return archive


def _files() -> Iterator[tuple[str, str]]:
    """Names in the archive, and the paths of the files."""
    for package in _PACKAGES:
        home = os.path.dirname(str(importlib.import_module(package).__file__))
        for folder, folders, names in os.walk(home):
            folders[:] = [one for one in folders if one != "__pycache__"]
            inner = os.path.join(package, os.path.relpath(folder, home))
            for name in names:
                if not name.endswith(_LEFT_OUT):
                    yield os.path.normpath(os.path.join(inner, name)), os.path.join(folder, name)
    for library in LIBRARIES:
        for file in importlib.metadata.files(library) or ():
            # Scripts are outside the folder of packages.
            if ".." not in file.parts and not file.name.endswith(_LEFT_OUT):
                yield str(file), str(file.locate())


def _packed(files: list[tuple[str, str]]) -> bytes:
    """Packs the files; the same files always give the same bytes."""
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=_GZIP_LEVEL, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w") as archive,
    ):
        for name, path in files:
            with open(path, "rb") as file:
                content = file.read()
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            entry.mode = 0o755 if name.endswith(".so") else 0o644
            archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()
