"""Columns to batches: rows in the memory layout of Apache Arrow, without an object per row.

The way back of `columns`. The caller wraps what an Arrow library holds (`BinaryInput` and others),
says which rows go together, and has them encoded batch by batch::

    rows = Rows(count, key=…, value=…, timestamp=now_ms)
    partitions = rows.choose_partitions(4)         # -1 for rows that no key decides.
    rows.spread(partitions, [(2, 16_384), (0, 16_384)])
    numbers, ends = group_rows(partitions, 4)
    encoded, taken, base_timestamp, max_timestamp = rows.encode(numbers, 0, ends[0], 16_384, 61)

`numbers` is an int32 per row, in native byte order; None stands for all rows in their order. Rows
keep their order within a group. An entry of a column is looked for `start` entries into its
buffers, so a slice is as good as a whole. What the buffers say is checked before it is believed.
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
