"""Pages that are generated say what the code declares."""

from pathlib import Path

import pytest

from scripts import generate_tree
from scripts.generate_reference import PAGE, configuration_page
from scripts.generate_tree import ARCHITECTURE, architecture, first_line, modules_page


def test_the_configuration_page_is_current() -> None:
    assert PAGE.read_text() == configuration_page(), "run `make docs`"


def test_the_tree_of_the_architecture_is_current() -> None:
    assert ARCHITECTURE.read_text() == architecture(), "run `make docs`"


def test_the_page_of_modules_is_current() -> None:
    assert generate_tree.PAGE.read_text() == modules_page(), "run `make docs`"


def test_a_module_without_a_docstring_cannot_be_in_the_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generate_tree, "ROOT", tmp_path)
    (tmp_path / "silent.py").write_text("ANSWER = 42\n")

    with pytest.raises(SystemExit, match=r"silent\.py: no docstring"):
        first_line(tmp_path / "silent.py")
