"""The fingerprint of a query: decides whether its checkpoint fits a changed pipeline.

Spark finds the sources of a checkpoint by their number and state by its keys; it does not notice
when either has another meaning. So each query has a fingerprint that is kept beside its checkpoint:

| Part | What | Changing it |
|---|---|---|
| `sources` | topics, pattern or partitions of each stream, in the order they are read | refused |
| `state` | grouping keys and windows, join keys, dedup keys | refused |
| `watermarks` | the columns | refused |
| `functions` | Python functions and SQL only Spark reads: their state is not seen | refused |
| `shuffle_partitions` | `spark.sql.shuffle.partitions` | refused |
| `sink` | kind and target | refused |

Everything else keeps the checkpoint: start position, limits, trigger, `kafka`, rules, options of a
sink, delays, static tables, names of steps, and SQL that keeps no state.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from odradek.lazy_dataclass import dataclass
from odradek.spark.pipeline.graph.analysis import analyse
from odradek.spark.pipeline.graph.model import (
    ConsoleTarget,
    DeltaTarget,
    FilesTarget,
    JdbcTarget,
    Pipeline,
    PythonFunction,
    Select,
    Target,
    TopicInput,
    TopicTarget,
)
from odradek.spark.pipeline.graph.queries import DEAD_LETTER_SINK, letter_stages, stages_of

__all__ = ["Change", "changes", "fingerprint", "fingerprint_id", "refusal"]

_VERSION = 1
_SHUFFLE = "spark.sql.shuffle.partitions"
_SHOWN = {
    "version": "the form of the fingerprint",
    "sources": "the topics it reads",
    "state": "the keys of its state (grouping, windows, joins, dedup)",
    "watermarks": "the columns with a watermark",
    "functions": "the Python functions on the way",
    "shuffle_partitions": _SHUFFLE,
    "sink": "the kind or target of the sink",
}


@dataclass(frozen=True, slots=True)
class Change:
    """A part of a fingerprint that has changed."""

    part: str
    before: Any
    after: Any

    def __str__(self) -> str:
        what = _SHOWN.get(self.part, self.part)
        return f"{what}: was {_text(self.before)}, is {_text(self.after)}"


def fingerprint(pipeline: Pipeline, query: str) -> dict[str, Any]:
    """The fingerprint of a query: a JSON document, the same for the same pipeline.

    Args:
        pipeline: The pipeline of the query.
        query: The name of a sink, or `dlq`.
    """
    relations = analyse(pipeline).relations
    if query == DEAD_LETTER_SINK:
        starts = letter_stages(pipeline)
        letters = pipeline.dead_letters
        sink = ["dlq", letters.topic if letters is not None else ""]
    else:
        starts = (pipeline.sinks[query].input,)
        sink = _target(pipeline.sinks[query].target)
    stages = stages_of(pipeline, query)
    streams = [stream for start in starts for stream in relations[start].streams]
    operators = [operator for start in starts for operator in relations[start].operators]
    opaque = dict.fromkeys(name for start in starts for name in relations[start].opaque)
    document: dict[str, Any] = {
        "version": _VERSION,
        "sources": [_topics(pipeline, name) for name in streams],
        "state": [[str(operator.kind), *operator.keys] for operator in operators],
        "watermarks": _watermarks(pipeline, stages),
        "functions": [_function(pipeline, name) for name in opaque],
        "shuffle_partitions": pipeline.spark.conf.get(_SHUFFLE),
        "sink": sink,
    }
    hidden: dict[str, Any] = _without_secrets(document, pipeline.secrets)
    return hidden


def fingerprint_id(document: Mapping[str, Any]) -> str:
    """A short name of a fingerprint."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Change, ...]:
    """The changes of a fingerprint that are refused; none if the checkpoint has no fingerprint."""
    if not before:
        return ()
    return tuple(
        Change(part, before.get(part), after.get(part))
        for part in sorted({*before, *after})
        if before.get(part) != after.get(part)
    )


def refusal(file: str, query: str, found: tuple[Change, ...]) -> str:
    """Why a query must not continue from its checkpoint, and the two remedies."""
    what = "; ".join(str(change) for change in found)
    return (
        f"sink '{query}' cannot continue from its checkpoint, which was made by another pipeline "
        f"({what}). Either start anew with 'odradek pipeline reset {file} --sink {query} --yes', "
        "or give the sink a new name"
    )


def _topics(pipeline: Pipeline, name: str) -> Any:
    topics = pipeline.sources[name].input
    assert isinstance(topics, TopicInput)
    if topics.pattern is not None:
        return {"pattern": topics.pattern}
    if topics.assign is not None:
        return {"assign": {topic: list(one) for topic, one in sorted(topics.assign.items())}}
    return sorted(topics.topics)


def _watermarks(pipeline: Pipeline, stages: tuple[str, ...]) -> list[str]:
    marks = [(pipeline.sources.get(name) or pipeline.transforms[name]).watermark for name in stages]
    return [mark.column.casefold() for mark in marks if mark is not None]


def _function(pipeline: Pipeline, name: str) -> str:
    step = pipeline.transforms[name].step
    match step:
        case PythonFunction():
            return step.reference
        case Select():
            return " ".join(step.sql.split())
        case _:
            return name


def _target(target: Target) -> list[str]:
    match target:
        case TopicTarget():
            return ["topic", target.topic]
        case FilesTarget():
            return ["files", target.format, target.path, *target.partition_by]
        case DeltaTarget():
            return ["delta", target.path, *target.partition_by]
        case JdbcTarget():
            url = urlsplit(target.url)
            host = url.netloc.rpartition("@")[2]
            return ["jdbc", f"{host}{url.path}", target.table, *target.key]
        case ConsoleTarget():
            return ["console"]


def _without_secrets(value: Any, secrets: frozenset[str]) -> Any:
    """The document with a digest in place of each value from the environment."""
    match value:
        case str() if value in secrets:
            return "sha256:" + hashlib.sha256(value.encode()).hexdigest()[:16]
        case list():
            return [_without_secrets(one, secrets) for one in value]
        case dict():
            return {key: _without_secrets(one, secrets) for key, one in value.items()}
        case _:
            return value


def _text(value: Any) -> str:
    if value is None:
        return "not set"
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return "***" if "sha256:" in text else text
