"""`subscribePattern`: the Java regular expressions with the same meaning in Python's `re`. Pure.

Java's and Python's expressions share most of their syntax. Syntax that only Java has is refused by
name, because a pattern with another meaning would subscribe to other topics. A topic is selected if
its whole name matches.
"""

import re
from typing import Final

__all__ = ["compile_pattern"]

_FLAGS: Final = "ims"  # Flags of (?...) with the same meaning in both.


def compile_pattern(text: str) -> re.Pattern[str]:
    """Compiles the pattern, to be used with `fullmatch`.

    Raises:
        ValueError: It is not well-formed, or uses syntax that Python's `re` lacks.
    """
    _refuse_java_only(text)
    try:
        # Java's classes (\\d, \\w, \\s, \\b) are ASCII by default.
        return re.compile(text, re.ASCII)
    except (re.error, OverflowError) as error:
        raise ValueError(f"{text!r} is not a regular expression: {error}") from None


def _refuse_java_only(text: str) -> None:
    """Refuses syntax that only Java has, or that has another meaning in Python.

    Raises:
        ValueError: The pattern uses such syntax.
    """
    at, in_class = 0, False
    while at < len(text):
        character, following = text[at], text[at + 1 : at + 2]
        if character == "\\":
            _check_escape(text, following)
            at += 2
            continue
        if in_class:
            if character == "[":
                raise _refused(text, "a class within a class, [a[b]]")
            if text.startswith("&&", at):
                raise _refused(text, "the intersection of classes, &&")
            in_class = character != "]"
        elif character == "[":
            in_class = True
            # In Python a closing bracket that comes first is a plain character; in Java it is not.
            begin = at + 2 if following == "^" else at + 1
            if text[begin : begin + 1] == "]":
                raise _refused(text, "a class that begins with ]")
        elif text.startswith("(?", at):
            _check_group(text, at)
        elif character in "*+?}" and following == "+" and at:
            raise _refused(text, f"the possessive quantifier {character}+")
        at += 1


def _check_escape(text: str, following: str) -> None:
    if following in ("p", "P"):
        raise _refused(text, rf"the class \{following}{{...}}")
    if following and following in "QEGRXNhHvVzZekcxuo":
        raise _refused(text, rf"\{following}")


def _check_group(text: str, at: int) -> None:
    rest = text[at + 2 :]
    if rest.startswith(("<=", "<!", ":", "=", "!")):
        return
    if rest.startswith(">"):
        raise _refused(text, "the independent group (?>...)")
    if rest.startswith("<"):
        raise _refused(text, "the named group (?<name>...)")
    flags = re.match(r"([a-zA-Z]*)(-[a-zA-Z]*)?[:)]", rest)
    if flags is None or flags[2] or not set(flags[1]) <= set(_FLAGS):
        raise _refused(text, f"(?{rest[:1]}")
    if at and rest[flags.end() - 1] == ")":
        raise _refused(text, "flags that are not at the beginning")


def _refused(text: str, what: str) -> ValueError:
    return ValueError(
        f"{text!r} has {what}, which Python's re lacks or reads differently; "
        "write it without, or name the topics with subscribe"
    )
