"""The rules for topic names."""

import re

__all__ = ["MAX_TOPIC_NAME_LENGTH", "colliding_name", "find_name_problem"]

MAX_TOPIC_NAME_LENGTH = 249  # Leaves room for "-<partition>.<id>-delete" in a file name.
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)


def find_name_problem(name: str) -> str | None:
    """The reason why a name is not allowed; None if it is."""
    if not name:
        return "a topic name is empty"
    if name in (".", ".."):
        return f"a topic must not be called {name!r}"
    if len(name) > MAX_TOPIC_NAME_LENGTH:
        return f"a topic name has {len(name)} characters, {MAX_TOPIC_NAME_LENGTH} are allowed"
    if _LEGAL.fullmatch(name) is None:
        return f"topic name {name!r} has characters other than ASCII letters, digits, '.', '_', '-'"
    return None


def colliding_name(name: str) -> str:
    """The name in metrics, where '.' and '_' are the same; it must be unique."""
    return name.replace(".", "_")
