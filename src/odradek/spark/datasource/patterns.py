"""`subscribePattern`: a Java regular expression, as far as Python's `re` means the same. Pure.

Java's and Python's expressions share most of their syntax. What only Java knows is refused with its
name, because a pattern that quietly means something else would subscribe to other topics. A topic
belongs if the whole of its name matches.
"""

import re
from typing import Final

__all__ = ["compile_pattern"]

_FLAGS: Final = "ims"  # Of (?...): those that mean the same in both.


def compile_pattern(text: str) -> re.Pattern[str]:
    """The pattern as Python has it, to be used with `fullmatch`.

    Raises:
        ValueError: It is not well-formed, or has what Python's `re` lacks.
    """
    _refuse_java_only(text)
    try:
        # Java's classes (\\d, \\w, \\s, \\b) mean ASCII unless asked otherwise.
        return re.compile(text, re.ASCII)
    except (re.error, OverflowError) as error:
        raise ValueError(f"{text!r} is no regular expression: {error}") from None


def _refuse_java_only(text: str) -> None:
    """Raises:
    ValueError: Something in it is Java's alone, or means another thing in Python.
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
            # In Python a bracket that comes first stands for itself, in Java it does not.
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
        f"{text!r} has {what}, which Python's re lacks or reads otherwise; "
        "write it without, or name the topics with subscribe"
    )
