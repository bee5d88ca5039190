"""Requirements on documents: each must have its place, and the figures in it must be right."""

import re
from pathlib import Path

import pytest

from odradek.errors import ErrorCode

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


def sections(document: Path) -> dict[str, str]:
    """Heading -> text below it."""
    parts = re.split(r"^## (.+)\n", document.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize(
    ("heading", "said"),
    [
        pytest.param("Memory", ["no heap", "1.5 to 2 times", "page cache"], id="08:F-9"),
        pytest.param("Disk", ["1 KB", "three replicas", "3 KB"], id="08:F-10 disk"),
        pytest.param("Network", ["90 %", "1 or 10 Gbit/s"], id="08:F-10 network"),
        pytest.param("How many partitions", ["no one number", "open files"], id="08:P-2"),
        pytest.param("Why followers do not serve every read", ["pull", "stale"], id="08:F-20"),
    ],
)
def test_sizing_guidance(heading: str, said: list[str]) -> None:
    text = sections(DOCS / "operations" / "sizing.md")[heading]
    assert [one for one in said if one not in text] == []


def test_the_set_of_documents() -> None:
    """08:P-1: configuration (every parameter), operations, security and stream processing."""
    reference = (DOCS / "reference" / "configuration.md").read_text()
    assert reference.count("\n### `") > 100
    assert {"configuration.md", "observability.md", "security.md", "sizing.md"} <= {
        path.name for path in (DOCS / "operations").iterdir()
    }
    streaming = {path.name for path in (DOCS / "streaming").iterdir()}
    assert {"tutorial.md", "pipeline-file.md", "guarantees.md", "operations.md"} <= streaming
    linked = set(re.findall(r"streaming/([\w-]+\.md)", (ROOT / "README.md").read_text()))
    assert linked, "nobody finds a chapter that the first page does not name"
    assert linked <= streaming


def test_known_issues_are_searchable() -> None:
    """08:P-4: each has a version and a cause; an error that a document names exists."""
    page = (DOCS / "known-issues.md").read_text()
    rows = [line for line in page.splitlines() if re.match(r"\| \d", line)]
    assert rows
    for row in rows:
        version, symptom, cause, cure = (cell.strip() for cell in row.strip("|").split("|"))
        assert re.fullmatch(r"\d+\.\d+\.\d+", version)
        assert symptom
        assert cause
        assert cure
    names = set(re.findall(r"`([A-Z]+(?:_[A-Z]+)+)`", page))
    assert names
    assert names <= {code.name for code in ErrorCode}


def test_how_to_contribute() -> None:
    """08:P-5."""
    text = sections(ROOT / "CONTRIBUTING.md")["Questions, changes, proposals"]
    for word in ("ticket", "`MINOR:`", "proposal", "next number", "reviewed", "LGTM"):
        assert word in text
