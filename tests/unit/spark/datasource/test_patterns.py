"""`subscribePattern`."""

import pytest

from odradek.spark.datasource.patterns import compile_pattern


@pytest.mark.parametrize(
    ("pattern", "name", "is_match"),
    [
        ("orders-.*", "orders-eu", True),
        ("orders", "orders-eu", False),
        ("a|b", "b", True),
        ("a|b", "ab", False),
        (r"logs\.\d+", "logs.42", True),
        ("[a-c]+", "abc", True),
        ("(?i)ORDERS", "orders", True),
        ("(?:a|b)c", "bc", True),
        ("(?!__).*", "__consumer_offsets", False),
        (r"\w+", "größe", False),
        (r"a\+b", "a+b", True),
        ("a{2}", "aa", True),
        ("a??b", "ab", True),
        (r"[\]x]", "]", True),
    ],
)
def test_the_whole_name_must_match(pattern: str, name: str, is_match: bool) -> None:
    """12:SP-29."""
    assert (compile_pattern(pattern).fullmatch(name) is not None) is is_match


@pytest.mark.parametrize(
    "pattern",
    [
        "a*+",
        "a++",
        "a?+",
        "a{2}+",
        r"\p{Lu}.*",
        r"\P{L}",
        "(?>a)",
        "(?<name>a)",
        r"\Qa.b\E",
        r"a\z",
        r"\h",
        "[a[b]]",
        "[a-z&&[def]]",
        "(?u)a",
        "(?x)a b",
        "(?-i)a",
        "a(?i)b",
        r"[\p{L}]",
        "[]a]",
        "[^]a]",
    ],
)
def test_what_python_lacks_is_refused_with_the_reason(pattern: str) -> None:
    """12:SP-29."""
    with pytest.raises(ValueError, match="Python's re lacks"):
        compile_pattern(pattern)


@pytest.mark.parametrize("pattern", ["(", "a{3,1}", "[", "*", "a\\"])
def test_what_is_not_well_formed_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="not a regular expression"):
        compile_pattern(pattern)
