"""Names for the numbers in fields of requests and answers; each is wire contract.

The numbers of operations, resources and permissions are in `odradek.security.operations`, those of
security protocols in `odradek.model`, and errors in `odradek.errors`.
"""

from enum import IntEnum
from typing import Final

__all__ = [
    "EARLIEST",
    "EARLIEST_LOCAL",
    "EARLIEST_PENDING_UPLOAD",
    "LATEST",
    "LATEST_TIERED",
    "MAX_TIMESTAMP",
    "ConfigOperationType",
    "ConfigResourceType",
    "ConfigSource",
    "ConfigType",
    "CoordinatorType",
    "ElectionType",
    "FeatureUpgrade",
    "IsolationLevel",
    "QuotaMatchType",
    "ScramMechanism",
]

# Timestamps of ListOffsets that name a place in the log instead of a time.
LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3  # The record with the largest timestamp.
EARLIEST_LOCAL: Final = -4  # The first offset on the broker's own disk.
LATEST_TIERED: Final = -5  # The last offset in tiered storage.
EARLIEST_PENDING_UPLOAD: Final = -6  # The first offset that is not in tiered storage yet.


class ConfigOperationType(IntEnum):
    """The operations of IncrementalAlterConfigs on a setting."""

    SET = 0
    DELETE = 1  # Back to the default.
    APPEND = 2  # To a list.
    SUBTRACT = 3  # From a list.


class ConfigResourceType(IntEnum):
    """The types of resources with settings that can be changed at run time."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    """Where the value of a setting comes from."""

    UNKNOWN = 0
    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class ConfigType(IntEnum):
    """The types of values of settings."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class CoordinatorType(IntEnum):
    """The types of keys whose coordinator FindCoordinator looks up."""

    GROUP = 0
    TRANSACTION = 1


class ElectionType(IntEnum):
    """How ElectLeaders chooses a leader."""

    PREFERRED = 0  # The first replica of the assignment.
    UNCLEAN = 1  # Any live replica, at the cost of records.


class FeatureUpgrade(IntEnum):
    """The ways in which UpdateFeatures may change the level of a feature."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2  # One that loses nothing.
    UNSAFE_DOWNGRADE = 3


class IsolationLevel(IntEnum):
    """The end of a log as Fetch and ListOffsets see it."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1  # The last stable offset: no open transaction.


class QuotaMatchType(IntEnum):
    """How a filter of DescribeClientQuotas names a component."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


class ScramMechanism(IntEnum):
    """The mechanisms of SCRAM credentials."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2
