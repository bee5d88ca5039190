"""The plan of a run as a document: sources, steps, and per query its inputs and its sink.

The same pipeline has the same plan, in whichever form it was written. Secrets are shown as `***`.
"""

from collections.abc import Mapping
from typing import Any

from odradek.spark.pipeline.graph.analysis import analyse
from odradek.spark.pipeline.graph.fingerprint import fingerprint, fingerprint_id
from odradek.spark.pipeline.graph.guarantees import guarantee_of
from odradek.spark.pipeline.graph.model import (
    ConsoleTarget,
    Dedup,
    DeltaTarget,
    FilesTarget,
    JdbcTarget,
    Pipeline,
    PythonFunction,
    RowsInput,
    Select,
    Source,
    TableInput,
    Target,
    TopicInput,
    TopicTarget,
    Transform,
    Trigger,
    TriggerKind,
)
from odradek.spark.pipeline.graph.order import in_order
from odradek.spark.pipeline.graph.queries import (
    DEAD_LETTER_SINK,
    checkpoint_path,
    group_id,
    letter_stages,
    letters_mode,
    query_names,
    stages_of,
)
from odradek.spark.pipeline.graph.relations import Relation

__all__ = ["plan"]

_SHORTEST_HIDDEN_PART = 4


def plan(pipeline: Pipeline) -> dict[str, Any]:
    """The plan of a pipeline, as a JSON document."""
    relations = analyse(pipeline).relations
    # Names decide the order, not places in files.
    steps = in_order({name: one.inputs for name, one in sorted(pipeline.transforms.items())})
    names = sorted(query_names(pipeline), key=lambda name: (name == DEAD_LETTER_SINK, name))
    document: dict[str, Any] = {
        "pipeline": pipeline.name,
        "bootstrap": pipeline.bootstrap,
        "master": pipeline.spark.master,
        "sources": {
            name: _source(source, relations[name])
            for name, source in sorted(pipeline.sources.items())
        },
        "transforms": {
            name: _transform(pipeline.transforms[name], relations[name]) for name in steps
        },
        "queries": {name: _query(pipeline, name, relations) for name in names},
    }
    secrets = sorted(pipeline.secrets, key=len, reverse=True)
    shown: dict[str, Any] = _hidden(document, secrets)
    return shown


def _source(source: Source, relation: Relation) -> dict[str, Any]:
    read: dict[str, Any]
    match source.input:
        case TopicInput(pattern=str() as pattern):
            read = {"kind": "topic_pattern", "topics": pattern}
        case TopicInput(assign=assign) if assign is not None:
            topics = {topic: list(partitions) for topic, partitions in assign.items()}
            read = {"kind": "assign", "topics": topics}
        case TopicInput():
            read = {"kind": "topic", "topics": list(source.input.topics)}
        case TableInput():
            read = {"kind": "table", "format": source.input.format, "path": source.input.path}
        case RowsInput():
            read = {"kind": "rows", "rows": len(source.input.rows)}
    return {**read, **_stage(source, relation)}


def _transform(transform: Transform, relation: Relation) -> dict[str, Any]:
    step: dict[str, Any]
    match transform.step:
        case Select():
            step = {"kind": "sql"}
        case PythonFunction():
            step = {"kind": "python", "function": transform.step.reference}
        case Dedup():
            keys = list(transform.step.keys)
            step = {"kind": "dedup", "keys": keys, "within_ms": transform.step.within_ms}
    state = [
        {"kind": str(one.kind), "keys": list(one.keys)}
        for one in relation.operators
        if one.step == transform.name
    ]
    return {**step, "inputs": list(transform.inputs), "state": state, **_stage(transform, relation)}


def _stage(stage: Source | Transform, relation: Relation) -> dict[str, Any]:
    mark = stage.watermark
    return {
        "stream": relation.is_stream,
        "columns": [one.name for one in relation.columns] if relation.columns is not None else None,
        "watermark": {"column": mark.column, "delay_ms": mark.delay_ms} if mark else None,
        "expect": [{"name": rule.name, "action": str(rule.action)} for rule in stage.expect],
    }


def _query(pipeline: Pipeline, name: str, relations: Mapping[str, Relation]) -> dict[str, Any]:
    stages = stages_of(pipeline, name)
    if name == DEAD_LETTER_SINK:
        assert pipeline.dead_letters is not None
        sink: dict[str, Any] = {
            "from": list(letter_stages(pipeline)),
            "kind": "topic",
            "target": pipeline.dead_letters.topic,
            "output_mode": str(letters_mode(pipeline)),
            "trigger": _trigger(pipeline.trigger),
        }
        promise = guarantee_of(pipeline.dead_letters)
    else:
        declared = pipeline.sinks[name]
        kind, target = _target(declared.target)
        sink = {
            "from": [declared.input],
            "kind": kind,
            "target": target,
            "output_mode": str(declared.output_mode),
            "trigger": _trigger(declared.trigger),
        }
        promise = guarantee_of(declared.target, relations[declared.input].unrepeatable)
    return {
        **sink,
        "reads": [one for one in stages if one in pipeline.sources],
        "through": sorted(one for one in stages if one in pipeline.transforms),
        "checkpoint": checkpoint_path(pipeline, name),
        "group": group_id(pipeline, name),
        "guarantee": promise.name,
        "limit": promise.limit,
        "fingerprint": fingerprint_id(fingerprint(pipeline, name)),
    }


def _target(target: Target) -> tuple[str, str]:
    match target:
        case TopicTarget():
            return "topic", target.topic
        case FilesTarget():
            return f"files ({target.format})", target.path
        case DeltaTarget():
            return "delta (upsert)" if target.merge_key else "delta", target.path
        case JdbcTarget():
            return "jdbc", target.table
        case ConsoleTarget():
            return "console", f"{target.rows} rows"


def _trigger(trigger: Trigger) -> str:
    if trigger.kind is TriggerKind.EVERY:
        return f"every {trigger.interval_ms} ms"
    return str(trigger.kind)


def _hidden(value: Any, secrets: list[str]) -> Any:
    match value:
        case str():
            for secret in secrets:
                if value == secret:
                    return "***"
                if len(secret) >= _SHORTEST_HIDDEN_PART:
                    value = value.replace(secret, "***")
            return value
        case list():
            return [_hidden(one, secrets) for one in value]
        case dict():
            return {key: _hidden(one, secrets) for key, one in value.items()}
        case _:
            return value
