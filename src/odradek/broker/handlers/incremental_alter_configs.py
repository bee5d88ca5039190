"""IncrementalAlterConfigs: changes single dynamic settings, and levels of loggers."""

from odradek.broker.context import BrokerContext, note_local_end, reply_throttled
from odradek.broker.settings.config_admin import check_config_rights
from odradek.broker.settings.config_changes import (
    KeyChange,
    Plan,
    carry_out,
    plan_each,
    plan_incremental,
)
from odradek.network.request import Request, Response
from odradek.protocol.codec import parse_message
from odradek.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from odradek.security.operations import Operation

__all__ = ["handle_incremental_alter_configs"]


async def handle_incremental_alter_configs(request: Request, context: BrokerContext) -> Response:
    """Plans each resource, then carries out the valid plans."""
    version = request.header.api_version
    message, _ = parse_message(
        IncrementalAlterConfigsRequest, request.payload, version, request.body_offset
    )
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
    return reply_throttled(request, IncrementalAlterConfigsResponse(responses=rows), context)


def _plan(resource: AlterConfigsResource, request: Request, context: BrokerContext) -> Plan:
    check_config_rights(resource, Operation.ALTER_CONFIGS, request, context)
    changes = [
        KeyChange(config.name, config.config_operation, config.value) for config in resource.configs
    ]
    return plan_incremental(resource.resource_type, resource.resource_name, changes, context)
