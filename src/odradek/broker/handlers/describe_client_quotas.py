"""DescribeClientQuotas: the quotas whose entities match a filter."""

from odradek.broker.authorization import check_allowed
from odradek.broker.context import BrokerContext, reply_throttled
from odradek.broker.quotas.entities import (
    EntityMatch,
    check_component_count,
    matching_entities,
)
from odradek.broker.slices import Steps, body_of, in_slices, reply_in_slices
from odradek.errors import ApiError, ErrorCode
from odradek.metadata.image import QuotaEntity
from odradek.network.request import Request
from odradek.protocol.enums import QuotaMatchType
from odradek.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from odradek.security.operations import Operation

__all__ = ["handle_describe_client_quotas"]


@in_slices
def handle_describe_client_quotas(request: Request, context: BrokerContext) -> Steps:
    """Answers from the image that is published now."""
    message = body_of(DescribeClientQuotasRequest, request)
    quotas = context.cache.image.quotas
    try:
        check_allowed(context.authorizer, request, Operation.DESCRIBE_CONFIGS)
        check_component_count(len(message.components))
        filters = [_match(component) for component in message.components]
        entities = matching_entities(quotas, filters, is_strict=message.strict)
    except ApiError as error:
        response = DescribeClientQuotasResponse(
            error_code=error.code, error_message=str(error), entries=None
        )
        return reply_throttled(request, response, context)
    entries: list[EntryData] = []
    for components in sorted((entity.components for entity in entities), key=_default_first):
        values = quotas[QuotaEntity(components)]
        entries.append(
            EntryData(
                entity=[
                    EntityData(entity_type=kind, entity_name=name) for kind, name in components
                ],
                values=[ValueData(key=key, value=value) for key, value in sorted(values.items())],
            )
        )
        yield
    response = DescribeClientQuotasResponse(
        error_code=ErrorCode.NONE, error_message=None, entries=entries
    )
    return (yield from reply_in_slices(request, response, context))


def _match(component: ComponentData) -> EntityMatch:
    try:
        match = QuotaMatchType(component.match_type)
    except ValueError:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"expected match type 0 (exact), 1 (default) or 2 (any), found {component.match_type}",
        ) from None
    if match is QuotaMatchType.EXACT and component.match is None:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"{component.entity_type}: expected a name to match"
        )
    return EntityMatch(component.entity_type, match, component.match)


def _default_first(
    components: tuple[tuple[str, str | None], ...],
) -> list[tuple[str, bool, str]]:
    return [(kind, name is not None, name or "") for kind, name in components]
