"""Which of its three builds this installation is.

- pure: everything is Python.
- record loops: the loops over the bytes of records are compiled (Cython); a development install.
- compiled: the modules of the hot path are compiled from their own sources, too (mypyc); wheels and
  benchmarks. The build leaves a list of these modules with the checksum of each source.

A compiled module is imported in place of the source beside it. A source that was changed since the
build would silently not be used: `check_sources` refuses such an installation.
"""

import json
import os
import zlib
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES

__all__ = [
    "COMPILED",
    "MANIFEST",
    "PURE",
    "RECORD_LOOPS",
    "StaleBuildError",
    "check_sources",
    "compiled_modules",
    "name_build",
]

PURE = "pure"
RECORD_LOOPS = "record loops"
COMPILED = "compiled"

# Module name -> CRC-32 of the source it was compiled from. Written by setup.py.
MANIFEST = "compiled.json"

_PACKAGE = os.path.dirname(os.path.abspath(__file__))


class StaleBuildError(Exception):
    """A source has changed since its compiled module was built."""


@cache
def compiled_modules(package: str = _PACKAGE) -> dict[str, int]:
    """The modules that were compiled from their own sources, with the checksum of each source."""
    try:
        with open(os.path.join(package, MANIFEST), encoding="utf-8") as file:
            listed: dict[str, int] = json.load(file)
    except FileNotFoundError:
        return {}
    return listed


def name_build(package: str = _PACKAGE) -> str:
    """`pure`, `record loops` or `compiled`."""
    if compiled_modules(package):
        return COMPILED
    walk = os.path.join(package, "records", "_walk")
    is_built = any(os.path.exists(walk + suffix) for suffix in EXTENSION_SUFFIXES)
    return RECORD_LOOPS if is_built else PURE


def check_sources(package: str = _PACKAGE) -> None:
    """Compares the sources with those that the compiled modules were built from.

    Raises:
        StaleBuildError: A source differs; the message says how to build again.
    """
    for name, checksum in compiled_modules(package).items():
        path = os.path.join(package, *name.split(".")[1:]) + ".py"
        try:
            with open(path, "rb") as file:
                found = zlib.crc32(file.read())
        except FileNotFoundError:
            continue  # Installed without its source.
        if found != checksum:
            raise StaleBuildError(
                f"{path} has changed since the compiled {name} was built, which Python would run "
                "instead of it: build again (`make compiled`, or install the wheel again), or "
                "remove the compiled modules (`make setup`)"
            )
