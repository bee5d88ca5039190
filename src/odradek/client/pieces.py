"""Rows to send in one buffer per column: what `send_rows` and `send_arrow` put into batches."""

from typing import NamedTuple

from odradek.records.batch import Buffer
from odradek.records.rows import NumberInput, Rows

__all__ = ["Piece"]


class Piece(NamedTuple):
    """Rows that lie in one buffer per column."""

    rows: Rows
    partitions: NumberInput | None
    # Topics, and the numbers of their rows; None: all of them.
    topics: list[tuple[str, Buffer | None]]
