"""Avro of a schema registry, for readers without Spark: schemas by their id, and values as JSON."""

from odradek.client.avro.reader import AvroError, AvroSchema
from odradek.client.avro.registry import (
    MissingSchemaError,
    SchemaRegistry,
    SchemaRegistryError,
    frame_prefix,
    split_frame,
)

__all__ = [
    "AvroError",
    "AvroSchema",
    "MissingSchemaError",
    "SchemaRegistry",
    "SchemaRegistryError",
    "frame_prefix",
    "split_frame",
]
