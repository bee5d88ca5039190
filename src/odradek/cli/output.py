"""Output of commands: tables for people, tab-separated lines for pipes, JSON for programs.

On a terminal a table has headings and aligned columns. In a pipe the same columns are separated by
tabs and have no headings, so that `cut -f1` and `while read` work on them.
"""

import sys
from collections.abc import Sequence

__all__ = ["print_error", "print_json", "print_table"]


def print_table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Prints rows; a column whose values are all numbers is aligned right."""
    texts = [["" if value is None else str(value) for value in row] for row in rows]
    if not sys.stdout.isatty():
        for row in texts:
            print("\t".join(row))
        return
    widths = [
        max(len(heading), *(len(row[column]) for row in texts), 0)
        for column, heading in enumerate(headings)
    ]
    numeric = [
        bool(rows) and all(isinstance(row[column], int) for row in rows)
        for column in range(len(headings))
    ]
    for row in [list(headings), *texts]:
        cells = [
            text.rjust(width) if is_number else text.ljust(width)
            for text, width, is_number in zip(row, widths, numeric, strict=True)
        ]
        print("  ".join(cells).rstrip())


def print_json(value: object) -> None:
    """Prints one JSON document: indented on a terminal, else on one line."""
    import json

    print(json.dumps(value, indent=2 if sys.stdout.isatty() else None, ensure_ascii=False))


def print_error(command: str, message: str) -> None:
    """Prints one line on standard error, after all output printed before."""
    from odradek.cli.progress import end_open_line

    sys.stdout.flush()
    end_open_line()
    print(f"odradek {command}: {' '.join(message.split())}", file=sys.stderr)
