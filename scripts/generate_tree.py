"""Draws the tree of ARCHITECTURE.md and the page of modules from the first lines of docstrings.

scripts/generate_tree.py            write them
scripts/generate_tree.py --check    only check whether they are current, by the exit status

The tree shows packages and the modules beside them, so that it fits a reader's memory; the page
docs/reference/modules.md lists every module below. A package or module without a docstring is an
error: the reader of the tree would find a name and nothing else.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ARCHITECTURE = ROOT / "ARCHITECTURE.md"
PAGE = ROOT / "docs" / "reference" / "modules.md"
SOURCES = ROOT / "src"

_BEGIN = (
    "<!-- The tree: made by scripts/generate_tree.py from docstrings; do not edit by hand. -->\n"
)
_END = "<!-- End of the tree. -->\n"
_NOTICE = "<!-- Made by scripts/generate_tree.py from docstrings; do not edit by hand. -->\n"
_COLUMN = 26  # Where the sentences of the tree begin, unless a name is longer.


def first_line(path: Path) -> str:
    """The first line of a module's docstring, or of a package's."""
    source = path / "__init__.py" if path.is_dir() else path
    docstring = ast.get_docstring(ast.parse(source.read_text()))
    if not docstring:
        raise SystemExit(
            f"{source.relative_to(ROOT)}: no docstring, but the tree needs its first line"
        )
    return docstring.partition("\n")[0].rstrip(":")


def packages_of(folder: Path) -> list[Path]:
    return sorted(path.parent for path in folder.glob("*/__init__.py"))


def modules_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.py") if path.name != "__init__.py")


def tree() -> str:
    """Every package below the one it is part of; modules only of the packages on top."""
    lines = ["```"]
    for top in packages_of(SOURCES):
        lines.append(_row(0, f"src/{top.name}/", first_line(top)))
        lines += [_row(1, module.name, first_line(module)) for module in modules_of(top)]
        for package in packages_of(top):
            lines += _package_rows(1, package)
    lines.append("```")
    return "\n".join(lines) + "\n"


def _package_rows(depth: int, package: Path) -> Iterator[str]:
    yield _row(depth, f"{package.name}/", first_line(package))
    for below in packages_of(package):
        yield from _package_rows(depth + 1, below)


def _row(depth: int, name: str, sentence: str) -> str:
    return f"{'  ' * depth + name:{_COLUMN}} {sentence}"


def modules_page() -> str:
    """A table for every package: its modules and their first lines."""
    parts = [
        _NOTICE,
        "# Modules\n",
        "Every module and the first line of its docstring, package by package. "
        "[ARCHITECTURE.md](../../ARCHITECTURE.md) says how they work together.\n",
    ]
    for top in packages_of(SOURCES):
        for package in [top, *sorted(path.parent for path in top.glob("*/**/__init__.py"))]:
            modules = modules_of(package)
            if modules:
                name = package.relative_to(SOURCES).as_posix()
                parts.append(f"## {name}/\n\n{first_line(package)}\n")
                parts.append("| Module | |\n|---|---|\n" + "".join(map(_module_row, modules)))
    return "\n".join(parts)


def _module_row(module: Path) -> str:
    return f"| `{module.name}` | {first_line(module).replace('|', chr(92) + '|')} |\n"


def architecture() -> str:
    """ARCHITECTURE.md with the tree as it is now."""
    before, begin, rest = ARCHITECTURE.read_text().partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise SystemExit(f"ARCHITECTURE.md: expected the lines {_BEGIN.strip()} and {_END.strip()}")
    return before + begin + tree() + end + after


def main(arguments: list[str]) -> int:
    pages = {ARCHITECTURE: architecture(), PAGE: modules_page()}
    if arguments == ["--check"]:
        return int(
            any(not path.exists() or path.read_text() != text for path, text in pages.items())
        )
    if arguments:
        print(__doc__, file=sys.stderr)
        return 2
    for path, text in pages.items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
