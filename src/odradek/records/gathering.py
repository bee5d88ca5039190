"""The records of a batch that is still open: each is encoded when it comes.

`add` either puts the record in, for good, or says that it did not: a record is never added to a
batch that somebody has closed. It is what every record of a producer passes through, so it is
compiled, `_gathering.pyx`, where that was built; `gathering_pure` is its twin. Threads may call the
compiled form at will (`IS_ATOMIC`); around the pure one they need a lock.
"""

from odradek.records.gathering_pure import RECORD_OVERHEAD

try:
    from odradek.records._gathering import Gathering
except ImportError:
    from odradek.records.gathering_pure import (  # type: ignore[assignment]  # The twin.
        GatheringPure as Gathering,
    )

    IS_ATOMIC = False
else:
    IS_ATOMIC = True

__all__ = ["IS_ATOMIC", "RECORD_OVERHEAD", "Gathering"]
