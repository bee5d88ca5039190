"""AlterClientQuotas: sets and removes quotas, each entity by itself."""

from collections.abc import Generator, Mapping
from typing import Final

from odradek.broker.authorization import check_allowed
from odradek.broker.context import BrokerContext, note_local_end
from odradek.broker.quotas.entities import (
    check_component_count,
    check_quota,
    check_quota_key,
    quota_entity,
)
from odradek.broker.settings.alterations import refuse_excess, write_in_portions
from odradek.broker.slices import Steps, body_of, finish_in_slices, reply_in_slices
from odradek.errors import ApiError, ErrorCode, without_traceback
from odradek.metadata.changes import QuotaSet
from odradek.metadata.image import QuotaEntity
from odradek.network.request import Request, Response
from odradek.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    RequestEntryData,
    ResponseEntryData,
)
from odradek.security.operations import Operation

__all__ = ["handle_alter_client_quotas"]

# Changes of one entity; there are five keys, and the last change of each counts.
_MAX_OPS: Final = 100


async def handle_alter_client_quotas(request: Request, context: BrokerContext) -> Response:
    """Checks every entity, then stores the valid changes."""
    message = body_of(AlterClientQuotasRequest, request)
    try:
        check_allowed(context.authorizer, request, Operation.ALTER_CONFIGS)
        refuse_excess(len(message.entries))
        plans = await finish_in_slices(_plan_all(message), request, context)
    except ApiError as denial:
        plans = [denial for _ in message.entries]
    changes = [plan for plan in plans if isinstance(plan, QuotaSet)]
    failed: dict[QuotaEntity, ApiError] = {}
    if changes and not message.validate_only:
        note_local_end(request, context)
        errors = await write_in_portions(request, changes, context.controller_port.alter_quotas)
        failed = {
            change.entity: error
            for change, error in zip(changes, errors, strict=True)
            if error is not None
        }
    return await finish_in_slices(
        _answer(request, message, plans, failed, context), request, context
    )


def _plan_all(
    message: AlterClientQuotasRequest,
) -> Generator[None, None, list[QuotaSet | ApiError]]:
    plans: list[QuotaSet | ApiError] = []
    seen: set[QuotaEntity] = set()
    repeated: set[QuotaEntity] = set()
    for entry in message.entries:
        yield
        try:
            plan = _plan(entry)
        except ApiError as error:
            plans.append(without_traceback(error))
            continue
        if plan.entity in seen:
            repeated.add(plan.entity)
        seen.add(plan.entity)
        plans.append(plan)
    if repeated:
        for index, planned in enumerate(plans):
            yield
            if isinstance(planned, QuotaSet) and planned.entity in repeated:
                plans[index] = ApiError(
                    ErrorCode.INVALID_REQUEST, "the entity is named twice in the request"
                )
    return plans


def _answer(
    request: Request,
    message: AlterClientQuotasRequest,
    plans: list[QuotaSet | ApiError],
    failed: Mapping[QuotaEntity, ApiError],
    context: BrokerContext,
) -> Steps:
    rows = []
    for entry, plan in zip(message.entries, plans, strict=True):
        yield
        error = plan if isinstance(plan, ApiError) else failed.get(plan.entity)
        if error is None:
            rows.append((yield from _row(entry, ErrorCode.NONE, None)))
        else:
            rows.append((yield from _row(entry, error.code, str(error))))
    answer = AlterClientQuotasResponse(entries=rows)
    return (yield from reply_in_slices(request, answer, context))


def _plan(entry: RequestEntryData) -> QuotaSet:
    check_component_count(len(entry.entity))
    if len(entry.ops) > _MAX_OPS:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"expected at most {_MAX_OPS} changes of an entity, found {len(entry.ops)}",
        )
    entity = quota_entity([(part.entity_type, part.entity_name) for part in entry.entity])
    values: dict[str, float | None] = {}
    for op in entry.ops:
        if op.remove:
            check_quota_key(entity, op.key)
        else:
            check_quota(entity, op.key, op.value)
        values[op.key] = None if op.remove else op.value
    return QuotaSet(entity, values)


def _row(
    entry: RequestEntryData, error: ErrorCode, message: str | None
) -> Generator[None, None, ResponseEntryData]:
    entity = []
    for part in entry.entity:
        entity.append(EntityData(entity_type=part.entity_type, entity_name=part.entity_name))
        yield
    return ResponseEntryData(error_code=error, error_message=message, entity=entity)
