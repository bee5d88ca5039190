"""Decodes Avro for `consume --registry`: a message names its schema, the registry has it."""

import urllib.parse

from odradek.cli.connecting import CommandError
from odradek.client.avro import (
    AvroError,
    AvroSchema,
    MissingSchemaError,
    SchemaRegistry,
    SchemaRegistryError,
    split_frame,
)

__all__ = ["AvroDecoder"]


class AvroDecoder:
    """Decodes keys or values.

    Args:
        address: Of the registry, with user and password if it asks for them.

    Raises:
        CommandError: It is none.
    """

    def __init__(self, address: str) -> None:
        parts = urllib.parse.urlsplit(address)
        bare = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
        user, password = (
            None if one is None else urllib.parse.unquote(one)
            for one in (parts.username, parts.password)
        )
        try:
            self._registry = SchemaRegistry(bare, user, password)
        except SchemaRegistryError as error:
            raise CommandError(f"--registry: {error}") from None
        self._schemas: dict[int, AvroSchema] = {}

    def decode(self, content: bytes) -> object:
        """The value as JSON.

        Raises:
            AvroError: The bytes are none of the registry's Avro, or the registry lacks the schema.
            CommandError: The registry does not answer.
        """
        try:
            schema_id, payload = split_frame(content)
        except ValueError as error:
            raise AvroError(f"not in the registry's wire format: {error}") from None
        schema = self._schemas.get(schema_id)
        if schema is None:
            try:
                schema = AvroSchema(self._registry.schema_of_id(schema_id))
            except MissingSchemaError as error:
                raise AvroError(str(error)) from None
            except SchemaRegistryError as error:
                raise CommandError(str(error)) from None
            self._schemas[schema_id] = schema
        return schema.read(payload)
