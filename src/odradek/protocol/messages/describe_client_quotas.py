"""DescribeClientQuotas (key 48): quotas that match a filter."""

from collections.abc import Sequence

from odradek.protocol.primitives import BOOL, FLOAT64, INT8, INT16, INT32, STRING
from odradek.protocol.schema import Message, array, wire

__all__ = [
    "ComponentData",
    "DescribeClientQuotasRequest",
    "DescribeClientQuotasResponse",
    "EntityData",
    "EntryData",
    "ValueData",
]


class ComponentData(Message):
    entity_type: str = wire(STRING)
    match_type: int = wire(INT8)
    match: str | None = wire(STRING, nullable="0+")


class DescribeClientQuotasRequest(Message, versions="0-1", flexible="1+"):
    """Components to match: 0 exact, 1 default, 2 any."""

    # 1: flexible.

    components: Sequence[ComponentData] = wire(array(ComponentData))
    strict: bool = wire(BOOL)


class EntityData(Message):
    entity_type: str = wire(STRING)
    entity_name: str | None = wire(STRING, nullable="0+")


class ValueData(Message):
    key: str = wire(STRING)
    value: float = wire(FLOAT64)


class EntryData(Message):
    entity: Sequence[EntityData] = wire(array(EntityData))
    values: Sequence[ValueData] = wire(array(ValueData))


class DescribeClientQuotasResponse(Message, versions="0-1", flexible="1+"):
    """Entities with their quotas."""

    # 1: flexible.

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+")
    entries: Sequence[EntryData] | None = wire(array(EntryData), nullable="0+")
