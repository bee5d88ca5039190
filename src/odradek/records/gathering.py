"""The records of an open batch: each is encoded when it is added.

`add` either adds the record, for good, or returns that it did not: a record is never added to a
closed batch. Every record of a producer is added by it, so it is compiled, `_gathering.pyx`, where
that was built; `gathering_pure` is its twin. Several threads may call the compiled twin
(`IS_ATOMIC`); for the pure one they need a lock.
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
