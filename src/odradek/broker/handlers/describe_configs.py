"""DescribeConfigs: settings of topics, brokers and loggers, and where they come from."""

from odradek.broker.authorization import Operation
from odradek.broker.config import ConfigRow
from odradek.broker.config_admin import check_config_rights, find_resource, rows_of
from odradek.broker.context import BrokerContext, reply_throttled
from odradek.errors import ApiError, ErrorCode
from odradek.network.request import Request, Response
from odradek.protocol.codec import parse_message
from odradek.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

__all__ = ["handle_describe_configs"]


def handle_describe_configs(request: Request, context: BrokerContext) -> Response:
    """Tells the settings of each resource, or why it cannot."""
    version = request.header.api_version
    message, _ = parse_message(
        DescribeConfigsRequest, request.payload, version, request.body_offset
    )
    results = [_describe(resource, message, request, context) for resource in message.resources]
    return reply_throttled(request, DescribeConfigsResponse(results=results), context)


def _describe(
    asked: DescribeConfigsResource,
    message: DescribeConfigsRequest,
    request: Request,
    context: BrokerContext,
) -> DescribeConfigsResult:
    try:
        check_config_rights(asked, Operation.DESCRIBE_CONFIGS, request, context)
        resource = find_resource(asked.resource_type, asked.resource_name, context)
    except ApiError as error:
        return DescribeConfigsResult(
            error_code=error.code,
            error_message=str(error),
            resource_type=asked.resource_type,
            resource_name=asked.resource_name,
        )
    # No key at all asks for every one of them, as null does.
    keys = set(asked.configuration_keys or ())
    return DescribeConfigsResult(
        error_code=ErrorCode.NONE,
        error_message=None,
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
        configs=[
            _row(row, message) for row in rows_of(resource, context) if not keys or row.name in keys
        ],
    )


def _row(row: ConfigRow, message: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = row.synonyms if message.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=row.name,
        value=row.value,
        read_only=row.is_read_only,
        config_source=row.source,
        is_sensitive=row.is_sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=name, value=value, source=source)
            for name, value, source in synonyms
        ],
        config_type=row.type,
        documentation=row.documentation if message.include_documentation else None,
    )
