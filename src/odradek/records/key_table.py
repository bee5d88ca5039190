"""The last offset of every key, in bounded memory, and what it leaves of a region of records.

Compaction reads the new part of a log and notes for each key the offset of its last record (`put`),
then reads the log again and keeps a record only if no later one has its key (`filter`)::

    put     offset  0  1  2  3  4         table   a -> 3   b -> 4   c -> 2
            key     a  b  c  a  b
    filter  offset  2  3  4 stay          an older  b at offset 1 goes: 1 < 4

A key is known by a hash of 16 bytes. Two keys with the same hash would take each other for the
same; with a secret that differs from table to table nobody can arrange that, and chance does not.

The number of keys is bounded, because the memory is: 24 bytes for each slot, and no more keys than
the load factor times the slots. `put` says when the next key does not fit; the pass then ends
before its batch, and the next one goes on from there.

Looking at each batch costs far more than looking at a record, and an offsets topic has batches of a
record or two. So `put_run` and `filter_run` do the same for all *plain* batches that follow one
another (`key_runs`); whatever is not plain ends a run and is judged by the caller.

These loops run once per record of a log, so they are compiled, `_key_table.pyx`, where that was
built; `key_table_pure` is their twin. The twins have other hashes and the same answers, down to the
errors.
"""

from odradek.records.key_table_pure import MAX_SLOTS, SECRET_SIZE, SLOT_SIZE, Filtered, FilteredRun

try:
    from odradek.records._key_table import KeyTable, shift_timestamps
except ImportError:
    from odradek.records.key_table_pure import (  # type: ignore[assignment]  # The twin.
        KeyTablePure as KeyTable,
    )
    from odradek.records.key_table_pure import shift_timestamps_pure as shift_timestamps

    IS_COMPILED = False
else:
    IS_COMPILED = True

__all__ = [
    "IS_COMPILED",
    "MAX_SLOTS",
    "SECRET_SIZE",
    "SLOT_SIZE",
    "Filtered",
    "FilteredRun",
    "KeyTable",
    "shift_timestamps",
]
