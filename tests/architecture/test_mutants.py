"""`make mutants` makes the mutants it says, and excuses none that is not there."""

import ast

import pytest

from scripts.mutants import JUDGED, ROOT, Judged, equivalents, find_mutants, mutated_tree

SOURCE = """
class Log:
    def accepts(self, offset, start, end):
        return start <= offset < end and self is not None

    def after(self, offset):
        return offset + 1
"""


def test_each_border_is_moved_by_one() -> None:
    mutants = find_mutants("odradek.example", SOURCE)
    assert [mutant.after for mutant in mutants] == [
        "start < offset < end",
        "start <= offset <= end",
        "start <= offset + 1 < end",
        "start <= offset < end - 1",
        "self is None",
        "offset",
        "offset + 2",
    ]
    assert [mutant.function for mutant in mutants] == ["Log.accepts"] * 5 + ["Log.after"] * 2


def test_a_mutant_differs_in_its_expression_alone() -> None:
    for mutant in find_mutants("odradek.example", SOURCE):
        changed = ast.unparse(mutated_tree(SOURCE, mutant))
        assert changed == ast.unparse(ast.parse(SOURCE)).replace(mutant.before, mutant.after)


@pytest.mark.parametrize("judged", JUDGED, ids=lambda judged: judged.module)
def test_what_is_judged_has_mutants_and_tests(judged: Judged) -> None:
    """Mutants within functions, whose code can be exchanged."""
    mutants = find_mutants(judged.module, judged.path.read_text())
    assert mutants
    assert all(mutant.function for mutant in mutants)
    assert all(list(ROOT.glob(pattern)) for pattern in judged.patterns)


def test_excused_mutants_exist_and_have_a_reason() -> None:
    there = {
        (f"{mutant.module} {mutant.function}", mutant.before, mutant.after)
        for judged in JUDGED
        for mutant in find_mutants(judged.module, judged.path.read_text())
    }
    assert equivalents().keys() <= there
    assert all(equivalents().values())
