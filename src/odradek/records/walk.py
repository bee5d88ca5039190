"""The checks of a produced batch: the walk over its records, and the check of a plain batch.

`walk_records` checks the structure of every record, finds the largest timestamp, and lists records
without a key or with a timestamp outside the topic's window. It makes no object per record. This is
the only cost of an append that is paid per record.

`check_plain_batch` makes all checks of a plain batch in one call: header, checksum, every record. A
plain batch is what clients usually send: one batch of the current format, neither compressed nor
transactional, its offsets not assigned yet, its records 0, 1, 2, … with a timestamp. Four calls and
as many values between them cost more than the work itself. A batch of another kind, or an invalid
one, is left to the general checks, which say why.

Both are compiled, `_walk.pyx`, where that was built; `walk_pure` is their twin.
"""

from odradek.records.walk_pure import (
    MAX_BAD_RECORDS,
    NULL_KEY,
    TIMESTAMP_OUT_OF_RANGE,
    PlainBatch,
    WalkResult,
)

try:
    from odradek.records._walk import check_plain_batch, walk_records
except ImportError:
    from odradek.records.walk_pure import check_plain_batch_pure as check_plain_batch
    from odradek.records.walk_pure import walk_records_pure as walk_records

    IS_COMPILED = False
else:
    IS_COMPILED = True

__all__ = [
    "IS_COMPILED",
    "MAX_BAD_RECORDS",
    "NULL_KEY",
    "TIMESTAMP_OUT_OF_RANGE",
    "PlainBatch",
    "WalkResult",
    "check_plain_batch",
    "walk_records",
]
