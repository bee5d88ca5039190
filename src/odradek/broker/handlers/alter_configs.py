"""AlterConfigs: replaces all dynamic settings of a resource."""

from odradek.broker.context import BrokerContext, note_local_end, reply_throttled
from odradek.broker.settings.config_admin import check_config_rights
from odradek.broker.settings.config_changes import Plan, carry_out, plan_each, plan_replacement
from odradek.network.request import Request, Response
from odradek.protocol.codec import parse_message
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
    version = request.header.api_version
    message, _ = parse_message(AlterConfigsRequest, request.payload, version, request.body_offset)
    plans = plan_each(message.resources, lambda resource: _plan(resource, request, context))
    note_local_end(request, context)
    outcomes = await carry_out(plans, request, validate_only=message.validate_only, context=context)
    rows = [
        AlterConfigsResourceResponse(
            error_code=outcome.error,
            error_message=outcome.message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        for resource, outcome in zip(message.resources, outcomes, strict=True)
    ]
    return reply_throttled(request, AlterConfigsResponse(responses=rows), context)


def _plan(resource: AlterConfigsResource, request: Request, context: BrokerContext) -> Plan:
    check_config_rights(resource, Operation.ALTER_CONFIGS, request, context)
    configs = {config.name: config.value for config in resource.configs}
    return plan_replacement(resource.resource_type, resource.resource_name, configs, context)
