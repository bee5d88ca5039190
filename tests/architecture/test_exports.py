"""What modules offer, that they can be imported, and that they name no machine's paths."""

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from odradek.cli.main import COMMANDS

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
CORE_REQUIREMENTS = {"odradek", "crc32c", "cramjam"}
# Fronts for the programs of users, tests and benchmarks.
FRONTS_FOR_OTHERS = {
    "odradek",
    "odradek.coordination",
    "odradek.network",
    "odradek.spark",
    "odradek.spark.progress",
    "odradek.testing",
}


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = sorted((SOURCE / "odradek").rglob("*.py"))
PACKAGES = [path for path in FILES if path.name == "__init__.py"]
# Importing __main__ runs it.
MODULES = [module_name(path) for path in FILES if path.stem != "__main__"]

# Imports each module in a process of its own, forked before anything of ours was imported: an
# import cycle shows only to the one who comes in at the wrong place.
IMPORT_EACH_FIRST = """
import asyncio, dataclasses, gc, importlib, os, sys, traceback
sys.path.insert(0, sys.argv[1])
# Whatever the environment says: each module is compiled once, not once for every process.
sys.dont_write_bytecode, sys.pycache_prefix = False, sys.argv[2]
gc.disable()  # A collection in a child would copy every page.
libraries = ["deltalake", "psycopg", "pyarrow.dataset", "pyspark.sql.pandas.types", "sqlglot"]
for name in sys.argv[3:]:
    # Others' libraries take seconds, and are not what is asked about. To fork them takes long, too:
    # the modules that do not need them come before.
    while libraries and name.startswith("odradek.spark"):
        try:
            importlib.import_module(libraries.pop())
        except ModuleNotFoundError:
            pass
    child = os.fork()
    if child == 0:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            print(f"missing {error.name} {name}", flush=True)
        except BaseException:
            print(f"broken {name} {traceback.format_exc()!r}", flush=True)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if status:
        print(f"broken {name} {status}", flush=True)
"""


def export_order(name: str) -> tuple[int, list[str | int]]:
    """Constants, classes, functions; numbers inside of names by value."""
    kind = 0 if name.isupper() and len(name) > 1 else 1 if name[:1].isupper() else 2
    pieces = re.split(r"(\d+)", name)
    return kind, [int(piece) if piece.isdigit() else piece for piece in pieces]


@pytest.mark.parametrize("path", PACKAGES, ids=module_name)
def test_a_package_only_re_exports(path: Path) -> None:
    body = ast.parse(path.read_text(encoding="utf-8")).body
    if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        body = body[1:]
    assigned = set()
    for statement in body:
        match statement:
            case ast.Import() | ast.ImportFrom():
                continue
            case ast.Assign(targets=[ast.Name(id="__all__" | "__version__" as name)]):
                assigned.add(name)
            case _:
                pytest.fail(f"{path}:{statement.lineno}: logic in a package's __init__")
    assert not body or "__all__" in assigned


def test_a_front_has_users() -> None:
    """A name that a package exports to no module has two homes, and its import costs time."""
    fronts = {module_name(path) for path in PACKAGES if "__all__" in path.read_text()}
    imported = {
        node.module
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
        and node.module is not None
        and not f"{module_name(path)}.".startswith(f"{node.module}.")
    }

    by_name = {module for module, _ in COMMANDS.values()}

    assert fronts - imported - by_name == FRONTS_FOR_OTHERS


@pytest.mark.parametrize("name", MODULES)
def test_exports_are_sorted_and_there(name: str) -> None:
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        skip_if_optional(error.name or "")
        raise
    exports: list[str] = getattr(module, "__all__", [])

    assert exports == sorted(exports, key=export_order)
    assert len(exports) == len(set(exports))
    assert [export for export in exports if not hasattr(module, export)] == []


def skip_if_optional(missing: str) -> None:
    if missing.partition(".")[0] not in CORE_REQUIREMENTS:
        pytest.skip(f"{missing} is not installed")


def is_of_pipeline(name: str) -> bool:
    return name.startswith("odradek.spark")


@pytest.mark.slow
@pytest.mark.timeout(900)  # Half a minute of CPU, on a machine that may have much else to do.
def test_each_module_can_be_the_first_to_be_imported(tmp_path: Path) -> None:
    code = ["-W", "error", "-c", IMPORT_EACH_FIRST]
    result = subprocess.run(
        [sys.executable, *code, str(SOURCE), str(tmp_path), *sorted(MODULES, key=is_of_pipeline)],
        capture_output=True,
        text=True,
        check=True,
        timeout=880,
    )
    failures = [
        line
        for line in result.stdout.splitlines()
        if line.startswith("broken") or line.split()[1].partition(".")[0] in CORE_REQUIREMENTS
    ]

    assert failures == []
    assert result.stderr == ""


@pytest.mark.parametrize("folder", ["src", "docs"])
def test_no_file_names_the_paths_of_a_machine(folder: str) -> None:
    """Homes, and the place of this checkout: they mean nothing to any other reader."""
    own = [re.escape(str(ROOT))] if len(ROOT.parts) > 2 else []
    machine_path = re.compile("|".join([r"(?<![\w.])/(?:home|root|Users|work)/\w", *own]))
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in {".py", ".pyi", ".pyx", ".md", ".txt", ".toml", ".json", ".html"}
        and "egg-info" not in str(path)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if machine_path.search(line)
    ]

    assert found == []
