"""`make mutants` makes the mutants it says, and excuses none that is not there."""

import ast

import pytest

from scripts.mutants import JUDGED, Judged, equivalents, find_mutants, mutated_tree

SOURCE = """
class Log:
    def accepts(self, offset, start, end):
        return start <= offset < end and self is not None
"""


def test_each_comparison_is_changed_by_one() -> None:
    mutants = find_mutants("odradek.example", SOURCE)
    assert [mutant.after for mutant in mutants] == [
        "start < offset < end",
        "start <= offset <= end",
        "start <= offset + 1 < end",
        "start <= offset < end - 1",
        "self is None",
    ]
    assert {mutant.function for mutant in mutants} == {"Log.accepts"}


def test_a_mutant_differs_in_its_comparison_alone() -> None:
    for mutant in find_mutants("odradek.example", SOURCE):
        changed = ast.unparse(mutated_tree(SOURCE, mutant))
        assert changed == ast.unparse(ast.parse(SOURCE)).replace(mutant.before, mutant.after)


@pytest.mark.parametrize("judged", JUDGED, ids=lambda judged: judged.module)
def test_what_is_judged_has_comparisons(judged: Judged) -> None:
    assert find_mutants(judged.module, judged.path.read_text())


def test_excused_mutants_exist_and_have_a_reason() -> None:
    there = {
        (f"{mutant.module} {mutant.function}", mutant.before, mutant.after)
        for judged in JUDGED
        for mutant in find_mutants(judged.module, judged.path.read_text())
    }
    assert equivalents().keys() <= there
    assert all(equivalents().values())
