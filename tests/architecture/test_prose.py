"""One hand: loggers have one name, docstrings one mood, sections one form, `Raises:` one case.

A sentence names its subject: the client, the caller, the peer, the request.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

SOURCES = {path: path.read_text() for path in sorted(Path("src/odradek").rglob("*.py"))}
LOOPS = {
    path: path.read_text()
    for path in sorted(Path("src/odradek").rglob("*.p*"))
    if path.suffix in {".pyx", ".pxi", ".pyi"}
}

# Words that a docstring may begin with though they, or their plural, look like a verb.
NOUNS = frozenset(
    {"Change", "Count", "Empty", "End", "Fetch", "It", "Leader", "Live", "Log", "Name", "Offset"}
    | {"Partition", "Pass", "Path", "Record", "Share", "Stage", "Start", "State", "Step", "Version"}
)


def _docstrings() -> Iterator[tuple[str, str]]:
    for path, source in SOURCES.items():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node)
                if text:
                    yield f"{path}:{node.lineno}", text


DOCSTRINGS = list(_docstrings())


def _first_word(text: str) -> str:
    match = re.match(r"[A-Z][a-z]+(?![\w`.(-])", text)
    return match[0] if match else ""


def _third_person(verb: str) -> str:
    if verb == "Have":
        return "Has"
    if verb.endswith(("s", "sh", "ch", "x", "z", "o")):
        return verb + "es"
    if verb.endswith("y") and verb[-2] not in "aeiou":
        return verb[:-1] + "ies"
    return verb + "s"


def test_a_docstring_says_what_the_function_does_in_the_third_person() -> None:
    words = {_first_word(text) for _, text in DOCSTRINGS}
    imperative = [
        (place, text.splitlines()[0])
        for place, text in DOCSTRINGS
        if (word := _first_word(text)) and word not in NOUNS and _third_person(word) in words
    ]

    assert imperative == [], "begin with the third person, as 'Reads the header'"


def test_each_error_under_raises_begins_with_a_capital() -> None:
    small = [
        (place, entry.strip())
        for place, text in DOCSTRINGS
        for entry in text.partition("Raises:\n")[2].splitlines()
        if re.match(r"    \w[\w.]*: [a-z]", entry)
    ]

    assert small == []


def test_a_module_names_its_logger_logger() -> None:
    others = [
        (str(path), name)
        for path, source in SOURCES.items()
        for name in re.findall(r"^(\w+) = logging\.getLogger\(__name__\)", source, re.MULTILINE)
        if name != "logger"
    ]

    assert others == []


def test_the_heading_of_a_section_is_words_without_marks() -> None:
    marked = [
        (str(path), heading.strip())
        for path, source in SOURCES.items()
        for heading in re.findall(r"^ *# -{2,}.*$", source, re.MULTILINE)
        + re.findall(r"\n\n( *# [A-Z][^\n.]{2,60}\.)\n\n", source)
    ]

    assert marked == [], "write a section's heading as '# Reading'"


def test_comments_and_docstrings_name_their_subject() -> None:
    pronouns = re.compile(
        r"\b(nobody|somebody|whoever|whom|whomever|everybody|anybody|who)\b", re.IGNORECASE
    )
    without = [
        (f"{path}:{number}", line.strip())
        for path, source in {**SOURCES, **LOOPS}.items()
        for number, line in enumerate(source.splitlines(), start=1)
        if pronouns.search(line)
    ]

    assert without == [], "say which client, caller, peer, request or thread is meant"
