"""The registry of schemas of a pipeline: `odradek.client.avro`, with the errors of pipelines."""

from collections.abc import Callable

from odradek.client.avro.registry import (
    PREFIX_BYTES,
    RegisteredSchema,
    SchemaRegistry,
    frame_prefix,
    split_frame,
)
from odradek.clock import Clock
from odradek.spark.pipeline.engine.problems import RegistryError, UnknownSchemaError
from odradek.spark.pipeline.graph.model import Registry

__all__ = ["PREFIX_BYTES", "RegisteredSchema", "RegistryClient", "frame_prefix", "split_frame"]


class RegistryClient(SchemaRegistry):
    """A client of one registry. Not thread-safe."""

    failure = RegistryError
    missing = UnknownSchemaError

    def __init__(
        self,
        registry: Registry,
        *,
        sleep: Callable[[float], None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(registry.url, registry.user, registry.password, sleep=sleep, clock=clock)
