"""Arguments without an option, wherever they stand."""

import argparse
from collections.abc import Sequence
from typing import Any

__all__ = ["take_anywhere"]


def take_anywhere(parser: argparse.ArgumentParser, name: str) -> None:
    """Lets a positional argument that takes any number of words have those behind options, too.

    Argparse looks for them once: of ``produce t --key k file`` it would not recognize ``file``.
    """
    parse = parser.parse_known_args

    def parse_all(
        words: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        found, rest = parse(words, namespace)
        taken = [word for word in rest if not word.startswith("-") or word == "-"]
        setattr(found, name, [*getattr(found, name), *taken])
        return found, [word for word in rest if word.startswith("-") and word != "-"]

    parser.parse_known_args = parse_all  # type: ignore[assignment]  # one overload is used
