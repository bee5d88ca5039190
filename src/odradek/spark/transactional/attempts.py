"""Checks that what was sent is what the compute job packed, all of it and once. Pure.

Every task of the compute job has one attempt that counts. Its rows went to several writers; the sum
has to be the total that the attempt told, and no writer may have rows of another attempt. Spark
lets both happen: when an executor with the output of an attempt is lost after some of it was read,
the rest is read from a second attempt, and that one may have other rows (`rand()`).
"""

from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["MixedAttemptsError", "SentRows", "count_sent"]


class SentRows(NamedTuple):
    """Rows of one attempt that one writer has sent; `total` if the writer got the total, too."""

    task: int
    attempt: int
    rows: int
    total: int | None


class MixedAttemptsError(Exception):
    """The writers have sent rows of several attempts of a task, or not all rows of one."""


def count_sent(sent: Iterable[SentRows]) -> int:
    """The number of rows of a batch.

    Raises:
        MixedAttemptsError: See there.
    """
    attempts: dict[int, int] = {}
    rows: dict[int, int] = {}
    totals: dict[int, int] = {}
    for one in sent:
        if attempts.setdefault(one.task, one.attempt) != one.attempt:
            raise MixedAttemptsError(
                f"rows of two attempts ({attempts[one.task]}, {one.attempt}) of task {one.task}"
            )
        rows[one.task] = rows.get(one.task, 0) + one.rows
        if one.total is not None:
            totals[one.task] = one.total
    if rows != totals:
        raise MixedAttemptsError(f"sent rows by task {rows}, packed rows by task {totals}")
    return sum(rows.values())
