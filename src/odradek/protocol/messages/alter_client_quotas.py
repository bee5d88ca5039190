"""AlterClientQuotas (key 49): set or remove quotas."""

from collections.abc import Sequence

from odradek.protocol.primitives import BOOL, FLOAT64, INT16, INT32, STRING
from odradek.protocol.schema import Message, array, wire

__all__ = [
    "AlterClientQuotasRequest",
    "AlterClientQuotasResponse",
    "EntityData",
    "OpData",
    "RequestEntryData",
    "ResponseEntryData",
]


class EntityData(Message):
    entity_type: str = wire(STRING)
    entity_name: str | None = wire(STRING, nullable="0+")


class OpData(Message):
    key: str = wire(STRING)
    value: float = wire(FLOAT64)
    remove: bool = wire(BOOL)


class RequestEntryData(Message):
    entity: Sequence[EntityData] = wire(array(EntityData))
    ops: Sequence[OpData] = wire(array(OpData))


class AlterClientQuotasRequest(Message, versions="0-1", flexible="1+"):
    """Operations per entity."""

    # 1: flexible.

    entries: Sequence[RequestEntryData] = wire(array(RequestEntryData))
    validate_only: bool = wire(BOOL)


class ResponseEntryData(Message):
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+")
    entity: Sequence[EntityData] = wire(array(EntityData))


class AlterClientQuotasResponse(Message, versions="0-1", flexible="1+"):
    """The outcome per entity."""

    # 1: flexible.

    throttle_time_ms: int = wire(INT32)
    entries: Sequence[ResponseEntryData] = wire(array(ResponseEntryData))
