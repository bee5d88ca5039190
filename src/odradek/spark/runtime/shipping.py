"""Ships odradek to the executors of a cluster, and checks that they run the driver's versions.

Files that are added while a session runs do not reach a data source that Spark finds by itself. So
the package is sent as an archive that every executor unpacks before its first task
(``spark.archives``) and finds through ``spark.executorEnv.PYTHONPATH``. A first small job then
collects the versions on the executors: Python, odradek, pyarrow and the libraries for checksums and
compression must be those of the driver, because tasks are pickled and record batches are exchanged.
Other modules that the tasks of a pipeline import must be installed, in any version.
"""

import socket
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from odradek.errors import OdradekError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "Installation",
    "VersionsDifferError",
    "check_executors",
    "differences",
    "needs_shipping",
    "shipping_conf",
]

_FOLDER: Final = "odradek_pkg"  # Of the archive, in the working folder of an executor.
_ARCHIVES: Final = "spark.archives"
_PYTHONPATH: Final = "spark.executorEnv.PYTHONPATH"
# Tasks of the job per thread of the executors: with one, some executors would run none.
_TASKS_PER_THREAD: Final = 2
_MAX_TASKS: Final = 200
_ALWAYS: Final = ("odradek", "pyarrow", "crc32c", "cramjam")
_MISSING: Final = "none"  # Prefix of the answer for a module that cannot be imported.


class VersionsDifferError(OdradekError):
    """Executors have other versions than the driver, or lack a module."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """Versions of the modules that one Python can import."""

    where: str
    versions: Mapping[str, str]


def needs_shipping(master: str) -> bool:
    """Whether executors run on machines that may lack this package."""
    return master == "yarn" or master.startswith(("spark://", "k8s://"))


def shipping_conf(archive: str, given: Mapping[str, str]) -> dict[str, str]:
    """Settings that ship an archive to executors, added to the user's values."""
    archives, path = given.get(_ARCHIVES), given.get(_PYTHONPATH)
    ours = f"{archive}#{_FOLDER}"
    return {
        _ARCHIVES: f"{archives},{ours}" if archives else ours,
        _PYTHONPATH: f"./{_FOLDER}:{path}" if path else f"./{_FOLDER}",
    }


def check_executors(
    session: "SparkSession", *, is_shipped: bool, libraries: Sequence[str] = ()
) -> None:
    """Compares the versions on the executors with those of the driver.

    Args:
        session: The session whose executors are asked.
        is_shipped: Whether the package was sent to them.
        libraries: Modules that tasks will import, in any version.

    Raises:
        VersionsDifferError: A version differs, or a library is missing.
    """
    ask = _question((*_ALWAYS, *libraries))
    context = session.sparkContext
    count = min(context.defaultParallelism * _TASKS_PER_THREAD, _MAX_TASKS)
    answers = context.range(0, count, 1, count).map(lambda _: ask()).distinct().collect()
    there = [Installation(where=where, versions=dict(told)) for where, told in sorted(answers)]
    _, told = ask()
    here = Installation(where=f"driver on {socket.gethostname()}", versions=dict(told))
    if table := differences(here, there, any_version=libraries):
        hint = _hint(here, there, libraries, is_shipped=is_shipped)
        raise VersionsDifferError(f"executors have other versions than the driver; {hint}\n{table}")


def _hint(
    here: Installation,
    there: Sequence[Installation],
    libraries: Sequence[str],
    *,
    is_shipped: bool,
) -> str:
    """Advice for the error: what to install, and where."""
    hints = []
    always = {name: told for name, told in here.versions.items() if name not in libraries}
    if differences(Installation(where=here.where, versions=always), there):
        hints.append(
            "use the same Python on the cluster, and install the missing modules there"
            if is_shipped
            else "install the driver's versions on the cluster, or let the package be shipped"
        )
    lacking = [
        name
        for name in libraries
        if any(one.versions.get(name, _MISSING).startswith(_MISSING) for one in there)
    ]
    if lacking:
        hints.append(
            f"the tasks of this pipeline import {', '.join(lacking)}: install it on every machine"
            " of the cluster, for the Python that executors run (PYSPARK_PYTHON)"
        )
    return "; ".join(hints)


def _question(
    names: Sequence[str] = _ALWAYS,
) -> Callable[[], tuple[str, tuple[tuple[str, str], ...]]]:
    """A function that is pickled by value, since an executor may lack this module."""

    def ask() -> tuple[str, tuple[tuple[str, str], ...]]:
        import importlib
        import os
        import platform
        import sys

        def version_of(name: str) -> str:
            try:
                module = importlib.import_module(name)
                # The version that a task imports, not only one that is installed.
                if name == "odradek":
                    importlib.import_module("odradek.records.codec")
                    importlib.import_module("pyspark_odradek")
            except Exception as error:  # noqa: BLE001 - a broken module is as bad as none
                return f"none: {error}"
            found = getattr(module, "__version__", None)
            if found is None:
                from importlib.metadata import PackageNotFoundError, version

                try:
                    found = version(name)
                except PackageNotFoundError:
                    found = "unknown"
            return str(found)

        versions = {"python": f"{sys.version_info[0]}.{sys.version_info[1]}"}
        for name in names:
            versions[name] = version_of(name)
        where = f"executor {os.environ.get('SPARK_EXECUTOR_ID', '')} on {platform.node()}"
        return where.replace("  ", " "), tuple(versions.items())

    return ask


def differences(
    here: Installation, there: Iterable[Installation], *, any_version: Collection[str] = ()
) -> str:
    """A table of the differences, empty if there are none; `any_version` need only exist."""

    def differs(one: Installation, name: str) -> bool:
        found = one.versions.get(name, _MISSING)
        if name in any_version:
            return found.startswith(_MISSING)
        return found != here.versions[name]

    others = [one for one in there if any(differs(one, name) for name in here.versions)]
    names = [name for name in here.versions if any(differs(one, name) for one in others)]
    if not names:
        return ""
    rows = [["", *names]]
    rows += [
        [one.where, *(one.versions.get(name, _MISSING) for name in names)]
        for one in (here, *others)
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)
