"""Output of commands: tables for people, tab-separated lines for pipes, JSON for programs.

On a terminal a table has bold headings and aligned columns, fits the width, and shows what matters
in colour. In a pipe the same columns are separated by tabs, whole and without headings, so that
`cut -f1` and `while read` work on them.
"""

import os
import sys
from collections.abc import Sequence
from typing import TextIO

__all__ = [
    "CommandError",
    "Marked",
    "bad",
    "counted",
    "good",
    "print_error",
    "print_json",
    "print_table",
    "set_color",
    "sized",
    "strong",
    "styled",
    "warn",
]

_NOTHING = "nothing to show"
_ELLIPSIS = "…"
_GAP = "  "
# A column of text is not cut further, as long as others can be.
_LEAST_WIDTH = 6
# Last words of headings above numbers that are names of something: they are not grouped.
_NAMES = frozenset(
    [
        "ID",
        "EPOCH",
        "PARTITION",
        "LEADER",
        "BROKER",
        "COORDINATOR",
        "CONTROLLER",
        "KEY",
        "LEVEL",
        "SEQUENCE",
        "TIMESTAMP",
    ]
)
_STYLES = {"bold": "1", "red": "31", "green": "32", "yellow": "33"}

# How `--color` was given. There is one command in a process.
_color = "auto"


class CommandError(Exception):
    """A failure that is printed as one line."""


class Marked:
    """A cell of a table that looks different on a terminal.

    Args:
        value: What a pipe gets.
        style: Bold or a colour; None for neither.
        text: What a terminal shows instead of the value.
    """

    __slots__ = ("style", "text", "value")

    def __init__(self, value: object, style: str | None, text: str | None = None) -> None:
        self.value = value
        self.style = style
        self.text = text

    def __str__(self) -> str:
        return "" if self.value is None else str(self.value)


def bad(value: object) -> Marked:
    """Something that needs an administrator."""
    return Marked(value, "red")


def warn(value: object) -> Marked:
    """Something to look at."""
    return Marked(value, "yellow")


def good(value: object) -> Marked:
    """Something that is as it should be."""
    return Marked(value, "green")


def strong(value: object) -> Marked:
    """Something to see first."""
    return Marked(value, "bold")


def sized(count: int | None) -> Marked:
    """Bytes: `1.5 MiB` on a terminal, their number in a pipe."""
    if count is None or count < 0:
        return Marked(None, None, "-")
    size, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return Marked(count, None, f"{count} B" if unit == "B" else f"{size:,.1f} {unit}")


def styled(cell: Marked) -> str:
    """The text of a cell outside of a table, in its colour if the output has colours."""
    return _styled(str(cell), cell, _has_color(sys.stdout))


def set_color(mode: str) -> None:
    """Chooses `auto`, `always` or `never` for all output that follows."""
    global _color
    _color = mode


def counted(number: int, noun: str) -> str:
    """A number and its noun: `1 message`, `1,200 messages`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def print_table(
    headings: Sequence[str], rows: Sequence[Sequence[object]], *, nothing: str = _NOTHING
) -> None:
    """Prints rows; a column whose values are all numbers is aligned right.

    Args:
        headings: One for each column; a last word such as ID or EPOCH means numbers that are names.
        rows: Numbers, text, `Marked` values of these, or None.
        nothing: What a terminal shows if there are no rows.
    """
    is_coloured = _has_color(sys.stdout)
    if not sys.stdout.isatty():
        for row in rows:
            print("\t".join(_styled(_text(cell), cell, is_coloured) for cell in row))
        return
    if not rows:
        print(nothing)
        return
    columns = range(len(headings))
    values = [[cell.value if isinstance(cell, Marked) else cell for cell in row] for row in rows]
    numeric = [_is_numeric([row[column] for row in values]) for column in columns]
    texts = [
        [_shown(cell, heading) for cell, heading in zip(row, headings, strict=True)] for row in rows
    ]
    widths = [
        max(len(heading), *(len(row[column]) for row in texts))
        for column, heading in enumerate(headings)
    ]
    _fit(widths, numeric, _terminal_width())
    _print_row(headings, [strong(heading) for heading in headings], widths, numeric, is_coloured)
    for texts_of_row, row in zip(texts, rows, strict=True):
        _print_row(texts_of_row, row, widths, numeric, is_coloured)


def _print_row(
    texts: Sequence[str],
    cells: Sequence[object],
    widths: Sequence[int],
    numeric: Sequence[bool],
    is_coloured: bool,
) -> None:
    # Lines have no blanks at their end.
    last = max((column for column, text in enumerate(texts) if text), default=-1)
    parts = []
    for column in range(last + 1):
        text, width = texts[column], widths[column]
        cut = text if len(text) <= width else text[: width - 1] + _ELLIPSIS
        padding = " " * (width - len(cut))
        styled = _styled(cut, cells[column], is_coloured)
        if numeric[column]:
            parts.append(padding + styled)
        else:
            parts.append(styled if column == last else styled + padding)
    print(_GAP.join(parts))


def _fit(widths: list[int], numeric: Sequence[bool], most: int | None) -> None:
    """Narrows columns until a row fits: the widest texts first, then any from the right."""
    if most is None:
        return
    excess = sum(widths) + len(_GAP) * (len(widths) - 1) - most
    while excess > 0:
        texts = [
            column
            for column, width in enumerate(widths)
            if width > _LEAST_WIDTH and not numeric[column]
        ]
        others = [column for column, width in enumerate(widths) if width > 1]
        if texts:
            column = max(texts, key=lambda one: widths[one])
        elif others:
            column = others[-1]
        else:
            return
        widths[column] -= 1
        excess -= 1


def _terminal_width() -> int | None:
    """The columns of the terminal; None if it does not tell."""
    told = os.environ.get("COLUMNS", "")
    if told.isdecimal() and int(told):
        return int(told)
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or None
    except (OSError, ValueError):
        return None


def _is_numeric(values: Sequence[object]) -> bool:
    numbers = [value for value in values if value not in (None, "", "-")]
    return bool(numbers) and all(isinstance(value, int | float) for value in numbers)


def _shown(cell: object, heading: str) -> str:
    if isinstance(cell, Marked) and cell.text is not None:
        return cell.text
    value = cell.value if isinstance(cell, Marked) else cell
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if is_number and heading.split("-")[-1] not in _NAMES and not heading.endswith("TIME-MS"):
        return f"{value:,}"
    return _text(value)


def _text(value: object) -> str:
    """One line without control characters, which would move the cursor or break the columns."""
    text = "" if value is None else str(value)
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)


def _styled(text: str, cell: object, is_coloured: bool) -> str:
    if is_coloured and text and isinstance(cell, Marked) and cell.style is not None:
        return f"\x1b[{_STYLES[cell.style]}m{text}\x1b[0m"
    return text


def _has_color(stream: TextIO) -> bool:
    if _color != "auto":
        return _color == "always"
    is_wanted = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return is_wanted and stream.isatty()


def print_json(value: object) -> None:
    """Prints one JSON document: indented on a terminal, else on one line."""
    import json

    print(json.dumps(value, indent=2 if sys.stdout.isatty() else None, ensure_ascii=False))


def print_error(command: str, message: str) -> None:
    """Prints one line on standard error, after all output printed before."""
    from odradek.cli.progress import end_open_line

    sys.stdout.flush()
    end_open_line()
    head = _styled(f"odradek {command}:", bad(""), _has_color(sys.stderr))
    print(f"{head} {' '.join(message.split())}", file=sys.stderr)
