"""Names of the data source's options, as the documentation writes them; matched without case.

They stand apart from the source, so that a pipeline file is checked without Spark.
"""

from typing import Final

__all__ = ["SELECTING", "SOURCE_OPTIONS"]

# Exactly one of them says which partitions are read.
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
