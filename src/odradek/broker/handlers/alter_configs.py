"""AlterConfigs: replaces all dynamic settings of a resource."""

from collections.abc import Sequence

from odradek.broker.context import BrokerContext, note_local_end
from odradek.broker.settings.config_admin import check_config_rights
from odradek.broker.settings.config_changes import (
    ConfigChangeOutcome,
    Plan,
    carry_out,
    plan_each,
    plan_replacement,
)
from odradek.broker.slices import Steps, body_of, finish_in_slices, reply_in_slices
from odradek.network.request import Request, Response
from odradek.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from odradek.security.operations import Operation

__all__ = ["handle_alter_configs"]


async def handle_alter_configs(request: Request, context: BrokerContext) -> Response:
    """Plans each resource, then carries out the valid plans."""
    message = body_of(AlterConfigsRequest, request)
    plans = await finish_in_slices(
        plan_each(message.resources, lambda resource: _plan(resource, request, context)),
        request,
        context,
    )
    note_local_end(request, context)
    outcomes = await carry_out(plans, request, validate_only=message.validate_only, context=context)
    answer = _answer(message.resources, outcomes, request, context)
    return await finish_in_slices(answer, request, context)


def _answer(
    resources: Sequence[AlterConfigsResource],
    outcomes: Sequence[ConfigChangeOutcome],
    request: Request,
    context: BrokerContext,
) -> Steps:
    rows = []
    for resource, outcome in zip(resources, outcomes, strict=True):
        rows.append(
            AlterConfigsResourceResponse(
                error_code=outcome.error,
                error_message=outcome.message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
        yield
    return (yield from reply_in_slices(request, AlterConfigsResponse(responses=rows), context))


def _plan(resource: AlterConfigsResource, request: Request, context: BrokerContext) -> Plan:
    check_config_rights(resource, Operation.ALTER_CONFIGS, request, context)
    configs = {config.name: config.value for config in resource.configs}
    return plan_replacement(resource.resource_type, resource.resource_name, configs, context)
