"""Options of the data source for a pipeline's topics. Pure."""

import json
from collections.abc import Mapping

from odradek.spark.pipeline.graph.model import OnDataLoss, StartPosition, TopicInput

__all__ = ["ending_options", "reading_options", "starting_options", "without_start"]


def reading_options(
    topics: TopicInput, bootstrap: str, *, with_headers: bool, is_streaming: bool
) -> dict[str, str]:
    """The options of `format("odradek")` for a source; those in the file override the others."""
    options = {"kafka.bootstrap.servers": bootstrap}
    options |= {f"kafka.{key}": value for key, value in topics.kafka.items()}
    options["kafka.isolation.level"] = topics.isolation
    options |= _selection(topics)
    options["failOnDataLoss"] = _flag(topics.on_data_loss is OnDataLoss.FAIL)
    if with_headers:
        options["includeHeaders"] = "true"
    if is_streaming:
        options |= starting_options(topics.start)
        options |= _limits(topics)
    return options | dict(topics.options)


def starting_options(start: StartPosition) -> dict[str, str]:
    """The options for the position where a new query begins."""
    if start.edge is not None:
        return {"startingOffsets": start.edge}
    if start.timestamp_ms is not None:
        return {
            "startingTimestamp": str(start.timestamp_ms),
            # A partition without a record at or after that time is read from its end.
            "startingOffsetsByTimestampStrategy": "latest",
        }
    return {"startingOffsets": _offsets_text(start.offsets or {})}


def ending_options(end: StartPosition) -> dict[str, str]:
    """The options for the end of a batch, exclusive; a time ends before its first record."""
    if end.edge is not None:
        return {"endingOffsets": end.edge}
    if end.timestamp_ms is not None:
        return {"endingTimestamp": str(end.timestamp_ms)}
    return {"endingOffsets": _offsets_text(end.offsets or {})}


def without_start(options: Mapping[str, str]) -> dict[str, str]:
    """Options without those for the start."""
    return {
        name: value for name, value in options.items() if not name.lower().startswith("starting")
    }


def _selection(topics: TopicInput) -> dict[str, str]:
    if topics.pattern is not None:
        return {"subscribePattern": topics.pattern}
    if topics.assign is not None:
        wanted = {topic: sorted(partitions) for topic, partitions in topics.assign.items()}
        return {"assign": json.dumps(wanted, sort_keys=True)}
    return {"subscribe": ",".join(topics.topics)}


def _limits(topics: TopicInput) -> dict[str, str]:
    limits = {
        "maxOffsetsPerTrigger": topics.max_records,
        "maxBytesPerTrigger": topics.max_bytes,
        "minOffsetsPerTrigger": topics.min_records,
    }
    options = {name: str(limit) for name, limit in limits.items() if limit is not None}
    if topics.min_records is not None:
        options["maxTriggerDelay"] = f"{topics.max_delay_ms}ms"
    return options


def _offsets_text(offsets: Mapping[str, Mapping[int, int]]) -> str:
    plain = {
        topic: {str(partition): offset for partition, offset in sorted(positions.items())}
        for topic, positions in sorted(offsets.items())
    }
    return json.dumps(plain)


def _flag(value: bool) -> str:
    return "true" if value else "false"
