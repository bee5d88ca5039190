"""What a topic may be called."""

import pytest

from odradek.metadata.topic_names import colliding_name, find_name_problem


@pytest.mark.parametrize("name", ["a", "Orders-2.eu_west", "__consumer_offsets", "...", "x" * 249])
def test_allowed(name: str) -> None:
    assert find_name_problem(name) is None


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "empty"),
        (".", "must not be called '.'"),
        ("..", "must not be called '..'"),
        ("x" * 250, "250 characters, 249 are allowed"),
        ("a b", "'a b'"),
        ("a/b", "'a/b'"),
        ("a\n", "characters other than"),
        ("größe", "größe"),
        ("\u0661", "characters other than"),  # A digit, but not of ASCII.
    ],
)
def test_not_allowed(name: str, why: str) -> None:
    problem = find_name_problem(name)
    assert problem is not None
    assert why in problem


def test_names_that_are_one_in_metrics() -> None:
    assert colliding_name("a.b_c") == colliding_name("a_b.c") == "a_b_c"
    assert colliding_name("a-b") != colliding_name("a_b")
