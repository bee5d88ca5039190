"""Patterns of transactional ids: those of RE2 that need no backtracking, and nothing slower."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.transactions.patterns import PatternError, compile_pattern

_PARTS = st.sampled_from(
    ["a", "b", ".", "[ab]", "[^a]", r"\d", r"\w", "a*", "b+", "a?", "(a|b)*", "(?:ab){1,2}", "a{2}",
     "b{0,}", "(a|)", "[a-c]+?"]
)  # fmt: skip


@given(parts=st.lists(_PARTS, max_size=5), text=st.text("ab1c", max_size=8))
def test_a_pattern_matches_as_expressions_of_the_library_do(parts: list[str], text: str) -> None:
    pattern = "".join(parts)
    assert compile_pattern(pattern).matches(text) is (re.fullmatch(pattern, text) is not None)


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("orders-.*", "orders-1", "my-orders-1"),
        (r"a\.b", "a.b", "axb"),
        (r"[\w.-]+", "a_b.c-9", "a b"),
        ("^ab$", "ab", "abc"),
        ("[]a]+", "]a", "b"),
        ("[a-]+", "a-", "b"),
        ("é+", "éé", "e"),
        ("", "", "a"),
    ],
)
def test_examples(pattern: str, matching: str, other: str) -> None:
    compiled = compile_pattern(pattern)
    assert compiled.matches(matching)
    assert not compiled.matches(other)


@pytest.mark.parametrize(
    "pattern",
    [
        "(", ")", "a)", "[", "[a", "*", "a**", "a{2", "a{3,1}", "a{x}", "(?=a)", "(?P<n>a)", r"\1",
        "a\\", "a^b", "a$b", "[b-a]", "(" * 60 + ")" * 60, "a" * 1_001, "(a{1000}){1000}",
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_named(pattern: str) -> None:
    with pytest.raises(PatternError):
        compile_pattern(pattern)


def test_a_pattern_that_explodes_elsewhere_takes_its_time_once() -> None:
    compiled = compile_pattern("(a|a)*(a*)*b")
    assert not compiled.matches("a" * 200)
