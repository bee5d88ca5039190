"""Documents name what exists: files, links, commands, versions."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.support.apache_kafka import KAFKA_VERSIONS

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

_FENCE = re.compile(r"^```\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CODE_SPAN = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_FILE = re.compile(r"[\w-]+\.(?:py|pyx|md|toml)")


def paths_of_tree(block: str) -> list[str]:
    """The paths that an indented tree names.

    A folder (it ends in ``/``) that opens a line holds the lines indented below it; everything
    else named on a line lies beside what opens it.
    """
    found: list[str] = []
    folders: list[tuple[int, str]] = []  # (indent, path) of the folders around the line
    for line in block.splitlines():
        indent = len(line) - len(line.lstrip())
        while folders and folders[-1][0] >= indent:
            folders.pop()
        parent = folders[-1][1] if folders else ""
        words = [word.rstrip(",") for word in line.split()]
        found += [parent + word for word in words if word.endswith("/") or _FILE.fullmatch(word)]
        if words and words[0].endswith("/"):
            folders.append((indent, parent + words[0]))
    return found


def named_paths(text: str) -> set[str]:
    """Every path that a document names in a tree or in backquotes."""
    paths = {path for block in _FENCE.findall(text) for path in paths_of_tree(block)}
    for span in _CODE_SPAN.findall(_FENCE.sub("", text)):
        if re.fullmatch(r"[\w./-]*\w\.(?:py|pyx|md|toml)|[\w.-]+(?:/[\w.-]+)*/", span):
            paths.add(span)
    return paths


def exists(path: str) -> bool:
    return (ROOT / path).exists() or (ROOT / "src" / "odradek" / path).exists()


def test_every_path_in_the_architecture_exists() -> None:
    paths = named_paths((ROOT / "ARCHITECTURE.md").read_text())

    assert len(paths) > 40  # the reader above still finds them
    assert [path for path in sorted(paths) if not exists(path)] == []


def test_every_storage_and_records_module_is_in_the_architecture() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    packages = [ROOT / "src" / "odradek" / name for name in ("records", "storage")]
    modules = [path.name for package in packages for path in package.glob("*.py")]

    assert [name for name in sorted(modules) if name not in text and name != "__init__.py"] == []


def test_every_path_in_the_glossary_and_the_decisions_exists() -> None:
    documents = [ROOT / "docs" / "glossary.md", *(ROOT / "docs" / "adr").glob("*.md")]
    paths = {path for document in documents for path in named_paths(document.read_text())}

    assert [path for path in sorted(paths) if not exists(path)] == []


@pytest.mark.parametrize(
    "document", DOCUMENTS, ids=[str(path.relative_to(ROOT)) for path in DOCUMENTS]
)
def test_relative_links_lead_somewhere(document: Path) -> None:
    text = _CODE_SPAN.sub("", _FENCE.sub("", document.read_text()))
    targets = [link.partition("#")[0] for link in _LINK.findall(text) if "://" not in link]

    assert [target for target in targets if not (document.parent / target).exists()] == []


def test_the_readme_has_the_two_commands() -> None:
    text = (ROOT / "README.md").read_text()

    assert re.search(r"^    make demo\b", text, re.MULTILINE)
    assert re.search(r"^    make test\b", text, re.MULTILINE)


def test_make_help_lists_every_target() -> None:
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert phony is not None

    shown = subprocess.run(
        ["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout

    listed = re.findall(r"^make (\w+) +\S", shown, re.MULTILINE)
    assert sorted(listed) == sorted(phony[1].split())


def test_documents_name_only_make_targets_that_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    documents = [path for path in DOCUMENTS if "spec" not in path.parts]
    named = {
        target
        for document in documents
        for target in re.findall(r"(?:^    |`)make ([a-z]+)", document.read_text(), re.MULTILINE)
    }

    assert named - targets == set()


def test_ci_runs_the_test_command_of_the_readme_and_nothing_else() -> None:
    lines = (ROOT / ".ci" / "run").read_text().splitlines()

    assert lines[-1] == "make test"
    assert [line for line in lines if "make" in line] == ["make test"]


def test_the_tests_and_the_fetcher_agree_on_kafka_versions() -> None:
    default = re.search(
        r"\|\| set -- (.*)$", (ROOT / "scripts" / "kafka").read_text(), re.MULTILINE
    )
    assert default is not None

    assert tuple(default[1].split()) == KAFKA_VERSIONS
