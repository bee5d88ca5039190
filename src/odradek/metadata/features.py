"""The features of a cluster (KIP-584): their levels, and which of them this release serves. Pure.

A feature's finalized level is one number for the whole cluster, kept in the store; all brokers obey
it at run time. Level 0, which is not stored, is the state without the feature.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

__all__ = ["NEW_CLUSTER_LEVELS", "SUPPORTED_FEATURES", "TRANSACTION_VERSION", "LevelRange"]

# 0: as clients before Kafka 4 expect; 1: records of `__transaction_state` may have later fields;
# 2: every transaction has an epoch of its own (KIP-890, part 2).
TRANSACTION_VERSION: Final = "transaction.version"


class LevelRange(NamedTuple):
    """The levels of a feature, both inclusive."""

    lowest: int
    highest: int


SUPPORTED_FEATURES: Final[Mapping[str, LevelRange]] = MappingProxyType(
    {TRANSACTION_VERSION: LevelRange(0, 2)}
)

# Of a cluster that is started for the first time. An older one stays at level 0 until its
# administrator raises it.
NEW_CLUSTER_LEVELS: Final[Mapping[str, int]] = MappingProxyType({TRANSACTION_VERSION: 2})
