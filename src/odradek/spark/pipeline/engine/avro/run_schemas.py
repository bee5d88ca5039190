"""Chooses, once for a run, the Avro schemas with which sources are read and sinks written.

The newest version of a subject is fetched when it is first needed and then kept: a version that is
registered while the pipeline runs is used from its next start on.
"""

from collections.abc import Callable

from odradek.spark.pipeline.engine.avro.frames import AvroReader, AvroWriter
from odradek.spark.pipeline.engine.avro.registry import RegisteredSchema, RegistryClient
from odradek.spark.pipeline.engine.problems import PipelineError
from odradek.spark.pipeline.graph.model import AvroCodec, Registry, TopicInput

__all__ = ["AvroSchemas"]


class AvroSchemas:
    """The schemas of one run."""

    def __init__(
        self,
        registry: Registry | None,
        connect: Callable[[Registry], RegistryClient] = RegistryClient,
    ) -> None:
        self._registry = registry
        self._connect = connect
        self._newest: dict[str, RegisteredSchema] = {}

    def reader(self, topics: TopicInput, codec: AvroCodec, is_key: bool) -> AvroReader:
        """How the Avro of a source is read.

        Raises:
            PipelineError: The topics do not determine a subject, or there is no registry.
            RegistryError: The registry does not answer.
        """
        if codec.schema is not None:
            return AvroReader(codec.schema, None)
        subject = codec.subject
        if subject is None:
            if len(topics.topics) != 1:
                raise PipelineError(
                    "expected a `subject` beside `format: avro` of a source that does not read"
                    " exactly one topic"
                )
            subject = _subject(topics.topics[0], is_key)
        return AvroReader(self._find(subject).text, self._known_registry(subject))

    def writer(self, topic: str, codec: AvroCodec, is_key: bool) -> AvroWriter:
        """How the Avro of a topic sink is written; raises as `reader` does."""
        if codec.schema is not None:
            return AvroWriter(codec.schema, None)
        found = self._find(codec.subject or _subject(topic, is_key))
        return AvroWriter(found.text, found.id)

    def _find(self, subject: str) -> RegisteredSchema:
        found = self._newest.get(subject)
        if found is None:
            found = self._connect(self._known_registry(subject)).newest(subject)
            self._newest[subject] = found
        return found

    def _known_registry(self, subject: str) -> Registry:
        if self._registry is None:
            raise PipelineError(f"expected `registry` in the file, to find the subject {subject!r}")
        return self._registry


def _subject(topic: str, is_key: bool) -> str:
    return f"{topic}-{'key' if is_key else 'value'}"
