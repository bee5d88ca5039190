"""Encodes rows in the memory layout of Apache Arrow into batches, without an object per row.

The inverse of `columns`. The caller wraps the buffers of an Arrow library (`BinaryInput` and
others), groups rows by partition, and encodes them batch by batch::

    rows = Rows(count, key=…, value=…, timestamp=now_ms)
    partitions = rows.choose_partitions(4)         # -1 for rows that no key decides.
    rows.spread(partitions, [(2, 16_384), (0, 16_384)])
    numbers, ends = group_rows(partitions, 4)
    encoded, taken, base_timestamp, max_timestamp = rows.encode(numbers, 0, ends[0], 16_384, 61)

`numbers` is an int32 per row, in native byte order; None stands for all rows in their order. Rows
keep their order within a group. Row 0 of a column is entry `start` of its buffers, so that a column
may be a slice. Offsets in the buffers are checked before they are used.
The loops are compiled, `_rows.pyx`, where that was built; `rows_pure` is their twin.
"""

from odradek.records.rows_input import BinaryInput, HeadersInput, NumberInput
from odradek.records.rows_pure import murmur2_pure

try:
    from odradek.records._rows import Rows, group_rows, murmur2
except ImportError:
    from odradek.records.rows_pure import Rows, group_rows

    murmur2 = murmur2_pure
    IS_COMPILED = False
else:
    IS_COMPILED = True

__all__ = [
    "IS_COMPILED",
    "BinaryInput",
    "HeadersInput",
    "NumberInput",
    "Rows",
    "group_rows",
    "murmur2",
]
