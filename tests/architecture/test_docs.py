"""Documents name what exists: files, links, commands, versions."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from odradek.broker.dispatch import HANDLERS
from odradek.cli.main import COMMANDS
from odradek.protocol.api_keys import API_SUPPORT
from odradek.testing import EmbeddedBroker
from tests.support.apache_kafka import KAFKA_VERSIONS

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)  # (language, content)
_CODE_SPAN = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_FILE = re.compile(r"[\w-]+\.(?:py|pyx|md|toml)")
_ADR = ROOT / "docs" / "adr"
# Files that a reader may have, not we.
_EXAMPLES = frozenset({"test_orders.py", "conftest.py"})


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
    """Every path that a document names in backquotes or in a tree: a block of no language."""
    trees = [block for language, block in _FENCE.findall(text) if not language]
    paths = {path for tree in trees for path in paths_of_tree(tree)}
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


def test_every_package_is_in_the_layers() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    layers = text.partition("\n## The layers\n")[2].partition("\n## ")[0]
    found = {path.parent.name for path in (ROOT / "src" / "odradek").glob("*/__init__.py")}

    assert [name for name in sorted(found) if f"{name}/" not in layers] == []


@pytest.mark.parametrize("parent", ["tests", "docs"])
def test_every_folder_beside_the_sources_is_in_the_architecture(parent: str) -> None:
    tree = (ROOT / "ARCHITECTURE.md").read_text().partition("\nBeside the sources:\n")[2]
    folders = {path.parent.name for path in (ROOT / parent).glob("*/*.*")} - {"__pycache__"}

    assert [name for name in sorted(folders) if f" {name}/" not in tree] == []


def test_every_path_that_a_document_names_exists() -> None:
    """Left out: specifications, which say what must be, and the page that is made of the files."""
    missing = {
        f"{document.relative_to(ROOT)}: {path}"
        for document in DOCUMENTS
        if "spec" not in document.parts and document.name != "modules.md"
        for path in named_paths(document.read_text())
        if path not in _EXAMPLES and not exists(path)
    }

    assert sorted(missing) == []


def test_every_decision_is_in_the_index_and_numbered_in_order() -> None:
    decisions = sorted(path for path in _ADR.glob("*.md") if path.name != "README.md")
    index = (_ADR / "README.md").read_text()
    rows = re.findall(r"^\| \[(\d+)\]\((.+?)\) \| (.*) \|$", index, re.MULTILINE)

    assert rows == [
        (str(number), path.name, path.read_text().splitlines()[0].partition(". ")[2])
        for number, path in enumerate(decisions, start=1)
    ]
    for number, path in enumerate(decisions, start=1):
        assert path.name.startswith(f"{number:04d}-")
        assert re.findall("^## (.*)$", path.read_text(), re.MULTILINE) == [
            "Context",
            "Decision",
            "Consequences",
        ]


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached = {ROOT / "README.md"}
    waiting = list(reached)
    while waiting:
        document = waiting.pop()
        for link in _LINK.findall(document.read_text()):
            target = (document.parent / link.partition("#")[0]).resolve()
            if target.suffix == ".md" and target.is_file() and target not in reached:
                reached.add(target)
                waiting.append(target)

    assert [str(path.relative_to(ROOT)) for path in DOCUMENTS if path not in reached] == []


@pytest.mark.parametrize(
    "document", DOCUMENTS, ids=[str(path.relative_to(ROOT)) for path in DOCUMENTS]
)
def test_relative_links_lead_somewhere(document: Path) -> None:
    text = _CODE_SPAN.sub("", _FENCE.sub("", document.read_text()))
    targets = [link.partition("#")[0] for link in _LINK.findall(text) if "://" not in link]

    assert [target for target in targets if not (document.parent / target).exists()] == []


def anchors_of(document: Path) -> set[str]:
    """The anchors of a page's headings, as a forge makes them."""
    headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", document.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_anchors_of_links_are_headings() -> None:
    missing = [
        f"{document.relative_to(ROOT)}: {link}"
        for document in DOCUMENTS
        for link in _LINK.findall(_CODE_SPAN.sub("", _FENCE.sub("", document.read_text())))
        if "://" not in link and ".md#" in f"{document.name if link[0] == '#' else ''}{link}"
        for name, _, anchor in [link.partition("#")]
        if anchor not in anchors_of(document.parent / name if name else document)
    ]

    assert missing == []


def test_the_readme_has_the_two_commands() -> None:
    text = (ROOT / "README.md").read_text()

    assert re.search(r"^    make demo\b", text, re.MULTILINE)
    assert re.search(r"^    make test\b", text, re.MULTILINE)


def test_the_readme_has_the_requests_that_are_served() -> None:
    rows = re.findall(r"`([A-Z]\w+)` (\d+(?:-\d+)?)", (ROOT / "README.md").read_text())

    assert sorted(rows) == sorted(
        (key.name.title().replace("_", ""), str(API_SUPPORT[key].advertised)) for key in HANDLERS
    )


@pytest.mark.slow
def test_the_readme_has_an_example_that_works() -> None:
    blocks = _FENCE.findall((ROOT / "README.md").read_text())
    (example,) = [block for language, block in blocks if language == "python"]
    with EmbeddedBroker() as broker:
        code = example.replace("localhost:9092", broker.bootstrap_servers)
        run = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
        )

    assert (run.returncode, run.stdout) == (0, "0\npeople 0 0 b'alice' b'41'\n"), run.stderr


def test_documents_name_only_commands_that_exist() -> None:
    named = {
        command
        for document in DOCUMENTS
        if "spec" not in document.parts
        for command in re.findall(
            r"(?:^    (?:.*\| )?(?:\.venv/bin/)?|`(?:\.venv/bin/)?)odradek ([a-z][a-z-]*)",
            document.read_text(),
            re.MULTILINE,
        )
    }

    assert named - set(COMMANDS) == set()
    assert set(COMMANDS) - named == set()


def test_make_help_lists_every_target() -> None:
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert phony is not None

    shown = subprocess.run(
        ["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout

    listed = re.findall(r"^make ([\w-]+) +\S", shown, re.MULTILINE)
    assert sorted(listed) == sorted(phony[1].split())


def test_documents_name_only_make_targets_that_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    documents = [path for path in DOCUMENTS if "spec" not in path.parts]
    named = {
        target
        for document in documents
        for target in re.findall(r"(?:^    |`)make ([a-z-]+)", document.read_text(), re.MULTILINE)
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
