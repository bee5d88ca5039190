"""The last offset of every key in bounded memory, and the filter of records by it.

Compaction reads the new part of a log and keeps for each key the offset of its last record (`put`),
then reads the log again and keeps a record only if no later one has its key (`filter`)::

    put     offset  0  1  2  3  4         table   a -> 3   b -> 4   c -> 2
            key     a  b  c  a  b
    filter  offset  2  3  4 stay          b at offset 1 is dropped: 1 < 4

A key is identified by a hash of 16 bytes. Two keys with the same hash would count as one key; with
a secret that differs from table to table no producer can make such keys, and chance does not.

The number of keys is bounded, because the memory is: 24 bytes for each slot, and no more keys than
the load factor times the slots. `put` returns whether all keys fit; if not, the pass ends before
that batch, and the next pass begins with it.

A call per batch costs far more than a record, and an offsets topic has batches of a record or two.
So `put_run` and `filter_run` do the same for a run of *plain* batches (`key_runs`); a batch that is
not plain ends the run and is handled by the caller.

These loops run once per record of a log, so they are compiled, `_key_table.pyx`, where that was
built; `key_table_pure` is their twin. The twins have different hashes and the same results, down to
the errors.
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
