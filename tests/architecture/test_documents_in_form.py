"""Documents in one form: a changelog under four headings, sentences that name their subject."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
KINDS = ("Added", "Changed", "Fixed", "Performance")
_NAMELESS = re.compile(r"\b(?:any|every|no|some)body\b|\bwhoever\b", re.IGNORECASE)

# Left out: the specifications.
DOCUMENTS = sorted(
    path
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    if "spec" not in path.relative_to(ROOT).parts
)


def releases(text: str) -> dict[str, str]:
    """Release -> all that changed in it."""
    parts = re.split(r"^## (.+)\n", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_the_changelog_has_four_kinds_of_entries() -> None:
    found = releases((ROOT / "CHANGELOG.md").read_text())

    assert found
    for release, text in found.items():
        head, *sections = re.split(r"^### (.+)\n", text, flags=re.MULTILINE)
        headings = sections[::2]
        assert not head.strip(), f"{release}: each entry belongs under one of {KINDS}"
        assert headings == [kind for kind in KINDS if kind in headings], release


def test_the_changelog_has_each_entry_once() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    found = re.findall(r"^- (.+(?:\n  .+)*)", text, re.MULTILINE)
    entries = [" ".join(entry.split()) for entry in found]

    assert len(entries) > 50  # the expression above still finds them
    assert sorted(entries) == sorted(set(entries))


@pytest.mark.parametrize(
    "document", DOCUMENTS, ids=[str(path.relative_to(ROOT)) for path in DOCUMENTS]
)
def test_sentences_name_their_subject(document: Path) -> None:
    """A client, caller, peer, request or broker acts: a sentence is read once."""
    lines = document.read_text().splitlines()
    found = [f"{number}: {line}" for number, line in enumerate(lines, 1) if _NAMELESS.search(line)]

    assert found == []
