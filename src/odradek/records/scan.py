"""Steps over runs of ordinary batches, as recovery does with nearly all of a log.

An ordinary batch is whole, of magic 2, matches its checksum, begins where the one before it ended,
belongs to no transaction and starts no new leader epoch: of such a batch a recovery keeps nothing
but the largest timestamp, now and then an index entry, and for the last few batches of a producer
their headers. A call per batch costs several times its checksum, so many are stepped over in one
call. A batch that is not ordinary ends the run and is handled by the caller.

A producer's state is made of its newest batches alone, so `ProducerTails` keeps the headers of the
last `TAIL_LENGTH` of each, and drops the others unread. It has a slot for each value of the lowest
bits of a producer id; where two producers share a slot, the headers of the earlier one are set
aside. So it returns at least the last few headers of each producer, in order.

`step_over_headers` steps without checksums, to see whether bytes look like a chain of batches.

The loops are compiled, `_scan.pyx`, where that was built; `scan_pure` is their twin.
"""

from odradek.records.scan_pure import TAIL_LENGTH, IndexEntry, Run

try:
    from odradek.records._scan import ProducerTails, step_over_headers, step_over_run
except ImportError:
    from odradek.records.scan_pure import (  # type: ignore[assignment]  # The twin.
        ProducerTailsPure as ProducerTails,
    )
    from odradek.records.scan_pure import step_over_headers_pure as step_over_headers
    from odradek.records.scan_pure import step_over_run_pure as step_over_run

    IS_COMPILED = False
else:
    IS_COMPILED = True

__all__ = [
    "IS_COMPILED",
    "TAIL_LENGTH",
    "IndexEntry",
    "ProducerTails",
    "Run",
    "step_over_headers",
    "step_over_run",
]
