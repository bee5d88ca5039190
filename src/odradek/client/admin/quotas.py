"""Quotas of clients, users and addresses."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from odradek.client.client import Client
from odradek.client.leaders import api_error
from odradek.client.retry import Deadline
from odradek.errors import ApiError, ErrorCode
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.enums import QuotaMatchType
from odradek.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    OpData,
    RequestEntryData,
)
from odradek.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

__all__ = ["ANY_NAME", "QuotaEntity", "alter_client_quotas", "describe_client_quotas"]

# In a filter: every entity of a type.
ANY_NAME: Final = object()

_Pair: TypeAlias = tuple[str, str | None]


class QuotaEntity(NamedTuple):
    """The entity of a quota: names by type (`user`, `client-id`, `ip`); None is the default."""

    parts: tuple[_Pair, ...]

    @classmethod
    def of(cls, parts: Mapping[str, str | None]) -> "QuotaEntity":
        return cls(tuple(sorted(parts.items())))

    def __str__(self) -> str:
        return ", ".join(
            f"{kind} {name!r}" if name is not None else f"default {kind}"
            for kind, name in self.parts
        )


async def describe_client_quotas(
    client: Client,
    components: Mapping[str, object],
    *,
    strict: bool = False,
    deadline: Deadline,
) -> dict[QuotaEntity, dict[str, float]]:
    """The quotas of the entities that match; all of them if nothing is asked for.

    Args:
        components: By type, a name, None for the default entity, or `ANY_NAME`.
        strict: Whether an entity of further types does not match.

    Raises:
        ApiError: The broker refuses.
    """
    request = DescribeClientQuotasRequest(
        components=[_component(kind, name) for kind, name in components.items()], strict=strict
    )

    async def attempt() -> DescribeClientQuotasResponse:
        response = await client.ask_any(
            ApiKey.DESCRIBE_CLIENT_QUOTAS, request, DescribeClientQuotasResponse, deadline
        )
        if response.error_code != ErrorCode.NONE:
            raise api_error(response.error_code, response.error_message, "quotas")
        return response

    response = await client.retry("DESCRIBE_CLIENT_QUOTAS", attempt, deadline)
    return {
        QuotaEntity.of({one.entity_type: one.entity_name for one in entry.entity}): {
            one.key: one.value for one in entry.values
        }
        for entry in response.entries or ()
    }


async def alter_client_quotas(
    client: Client,
    changes: Mapping[QuotaEntity, Mapping[str, float | None]],
    *,
    validate_only: bool = False,
    deadline: Deadline,
) -> dict[QuotaEntity, ApiError | None]:
    """Sets quotas, or removes those that are None; None for each entity that was changed."""
    request = AlterClientQuotasRequest(
        entries=[_entry(entity, quotas) for entity, quotas in changes.items()],
        validate_only=validate_only,
    )
    # To set the same values twice does no harm.
    response = await client.ask_any(
        ApiKey.ALTER_CLIENT_QUOTAS, request, AlterClientQuotasResponse, deadline
    )
    results: dict[QuotaEntity, ApiError | None] = {}
    for one in response.entries:
        entity = QuotaEntity.of({part.entity_type: part.entity_name for part in one.entity})
        is_done = one.error_code == ErrorCode.NONE
        results[entity] = None if is_done else api_error(one.error_code, one.error_message, entity)
    missing = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the broker left it out of its answer")
    return {entity: results.get(entity, missing) for entity in changes}


def _component(kind: str, name: object) -> ComponentData:
    if name is ANY_NAME:
        return ComponentData(entity_type=kind, match_type=QuotaMatchType.ANY, match=None)
    if name is None:
        return ComponentData(entity_type=kind, match_type=QuotaMatchType.DEFAULT, match=None)
    return ComponentData(entity_type=kind, match_type=QuotaMatchType.EXACT, match=str(name))


def _entry(entity: QuotaEntity, quotas: Mapping[str, float | None]) -> RequestEntryData:
    operations: Sequence[OpData] = [
        OpData(key=key, value=0.0 if value is None else float(value), remove=value is None)
        for key, value in quotas.items()
    ]
    return RequestEntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.parts],
        ops=operations,
    )
