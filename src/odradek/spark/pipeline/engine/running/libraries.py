"""The libraries that the tasks of a pipeline import, beyond those of every task. Pure.

They have to be installed where Spark's workers run. Libraries that only the driver needs, such as
`deltalake`, are not among them.
"""

from collections.abc import Collection

from odradek.spark.pipeline.graph.model import (
    AvroCodec,
    JdbcTarget,
    Pipeline,
    TopicInput,
    TopicTarget,
)

__all__ = ["task_libraries"]


def task_libraries(pipeline: Pipeline, sinks: Collection[str] | None = None) -> tuple[str, ...]:
    """The modules, in order.

    Args:
        pipeline: The pipeline that runs.
        sinks: Only the tasks of these sinks; None for all.
    """
    targets = [
        sink.target for name, sink in pipeline.sinks.items() if sinks is None or name in sinks
    ]
    inputs = [source.input for source in pipeline.sources.values()]
    codecs = [
        codec
        for one in (*inputs, *targets)
        if isinstance(one, TopicInput | TopicTarget)
        for codec in (one.key, one.value)
    ]
    found = []
    if any(isinstance(codec, AvroCodec) for codec in codecs):
        found.append("fastavro")
    if any(isinstance(target, JdbcTarget) for target in targets):
        found.append("psycopg")
    return tuple(found)
