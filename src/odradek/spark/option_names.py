"""Names of the data source's options, as the documentation writes them; matched without case.

They have a module of their own, so that a pipeline file is checked without Spark.
"""

from typing import Final

__all__ = ["SELECTING", "SOURCE_OPTIONS"]

# Exactly one of them selects the partitions to read.
SELECTING: Final = ("subscribe", "subscribePattern", "assign")

SOURCE_OPTIONS: Final = (
    *SELECTING,
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsets",
    "startingOffsetsByTimestampStrategy",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "endingOffsets",
    "failOnDataLoss",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxBytesPerTrigger",
    "minPartitions",
    "maxRecordsPerPartition",
    "includeHeaders",
    "columns",
    "pushFilters",
    "checkCrcs",
    "fetchBytes",
    "progressGroup",
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)
