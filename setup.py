"""Builds the optional compiled modules; without a compiler the package installs all the same.

Two groups, each for what its compiler is good at (docs/adr/0009-two-compilers.md). Everything else
is declared in pyproject.toml.

- Every ``.pyx`` of ``odradek.records`` is a loop over bytes in Cython, and has a pure-Python twin.
- The modules of ``tool.odradek.compiled`` in pyproject.toml are the hot path of the broker, which
  mypyc compiles from their own sources. A development install leaves them out.

``ODRADEK_PURE=1`` leaves both groups out on purpose, which is how the fallback is tested.
``ODRADEK_COMPILED=1`` demands both, ``ODRADEK_COMPILED=0`` leaves the second one out; with neither
a wheel gets both, if there is a compiler, and everything else the first one.
"""

import json
import os
import re
import sys
import tomllib
import zlib
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

MANIFEST = Path("odradek/compiled.json")  # As odradek.builds reads it.
OPTIMISATION = "1"  # As fast here as 3, and built in half the time.


def record_loops() -> list[Extension]:
    try:
        from Cython.Build import cythonize
    except ImportError:
        print("odradek: Cython is missing, the pure-Python record loops will be used")
        return []
    extensions: list[Extension] = cythonize(
        [
            Extension(f"odradek.records.{path.stem}", [str(path)])
            for path in sorted(Path("src/odradek/records").glob("*.pyx"))
        ],
        build_dir="build/cython",
        language_level=3,
    )
    for extension in extensions:
        # A failing compiler is a warning, never a failed install. Set here, because cythonize
        # makes new extensions and drops the attribute.
        extension.optional = True
    return extensions


def hot_path_sources() -> dict[str, Path]:
    """The modules that mypyc compiles, with their sources."""
    with open("pyproject.toml", "rb") as file:
        names = tomllib.load(file)["tool"]["odradek"]["compiled"]
    return {name: Path("src", *name.split(".")).with_suffix(".py") for name in names}


def hot_path(*, is_demanded: bool) -> list[Extension]:
    try:
        from mypyc.build import mypycify
    except ImportError:
        if is_demanded:
            raise
        print("odradek: mypy is missing, the hot path will not be compiled")
        return []
    try:
        extensions: list[Extension] = mypycify(
            [str(path) for path in hot_path_sources().values()],
            opt_level=OPTIMISATION,
            debug_level="0",  # Tracebacks have their lines without it.
            target_dir="build/mypyc",
            group_name="odradek",
        )
    except SystemExit:  # Its way to say that mypy has found errors, which are printed.
        if is_demanded:
            raise
        print("odradek: mypyc refuses the hot path, which will not be compiled")
        return []
    for extension in extensions:
        extension.optional = not is_demanded
    return extensions


def page_of_index(readme: str, base: str | None) -> str:
    """The README as the page of a package index, where relative links lead nowhere.

    Args:
        base: Where the files of the repository can be read. None: links become plain text.
    """

    def link(match: re.Match[str]) -> str:
        text, target = match.groups()
        if "://" in target:
            return match.group()
        return f"[{text}]({base.rstrip('/')}/{target})" if base else text

    page = re.sub(r"\[([^\]]*)\]\(([^)\s#][^)\s]*)\)", link, readme)
    # Headings get no anchors there.
    return re.sub(r"\[([^\]]*)\]\(#[^)\s]*\)", r"\1", page)


def project_page() -> str:
    with open("pyproject.toml", "rb") as file:
        urls = tomllib.load(file)["project"].get("urls", {})
    return page_of_index(Path("README.md").read_text(encoding="utf-8"), urls.get("Source"))


class BuildWithManifest(build_ext):
    """Lists the modules that mypyc compiled, beside them, with the checksums of their sources.

    The modules of the group know one another's memory layout: all of them are built or none.
    """

    def run(self) -> None:
        super().run()
        built = [
            Path(self.get_ext_fullpath(extension.name))
            for extension in self.extensions
            if extension in hot_path_extensions
        ]
        manifest = Path("src" if self.inplace else self.build_lib) / MANIFEST
        if all(path.exists() for path in built):
            manifest.write_text(json.dumps(checksums, indent=1) + "\n")
        else:
            print("odradek: the hot path could not be compiled, its sources will be used")
            for path in (*built, manifest):
                path.unlink(missing_ok=True)


is_pure = os.environ.get("ODRADEK_PURE") == "1"
asked = os.environ.get("ODRADEK_COMPILED", "")
is_wheel = "bdist_wheel" in sys.argv
loop_extensions = [] if is_pure else record_loops()
hot_path_extensions = []
# Taken first: a source that changes during the build then differs from its checksum.
checksums = {name: zlib.crc32(path.read_bytes()) for name, path in hot_path_sources().items()}
if not is_pure and (asked == "1" or (is_wheel and asked != "0")):
    hot_path_extensions = hot_path(is_demanded=asked == "1")

for each in [*loop_extensions, *hot_path_extensions] if is_wheel else []:
    # Without tables for debuggers, which are half of the size.
    each.extra_compile_args.append("-g0")
    each.extra_link_args.append("-s")

setup(
    long_description=project_page(),
    long_description_content_type="text/markdown",
    ext_modules=[*loop_extensions, *hot_path_extensions],
    cmdclass={"build_ext": BuildWithManifest} if hot_path_extensions else {},
)
