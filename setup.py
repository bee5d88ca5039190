"""Builds the optional compiled modules; without a compiler the package installs all the same.

Every ``.pyx`` of ``odradek.records`` becomes one, and each has a pure-Python twin. Everything else
is declared in pyproject.toml. ``ODRADEK_PURE=1`` leaves the compiled modules out on purpose, which
is how the fallback is tested.
"""

import os
from pathlib import Path

from setuptools import Extension, setup

extensions: list[Extension] = []
if os.environ.get("ODRADEK_PURE") != "1":
    try:
        from Cython.Build import cythonize
    except ImportError:
        print("odradek: Cython is missing, the pure-Python record loops will be used")
    else:
        extensions = cythonize(
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

setup(ext_modules=extensions)
