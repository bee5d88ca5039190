"""DescribeConfigs: settings of topics, brokers and loggers, with their sources."""

from collections.abc import Generator
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from odradek.broker.config import ConfigRow
from odradek.broker.context import BrokerContext
from odradek.broker.settings.config_admin import check_config_rights, find_resource, rows_of
from odradek.broker.slices import Steps, body_of, in_slices, reply_in_slices
from odradek.errors import ApiError, ErrorCode
from odradek.network.request import Request
from odradek.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from odradek.security.operations import Operation

__all__ = ["handle_describe_configs"]

_ROWS_PER_STEP: Final = 50  # Between two readings of the clock.


@in_slices
def handle_describe_configs(request: Request, context: BrokerContext) -> Steps:
    """Answers the settings of each resource, or an error; one that is named twice has one row."""
    message = body_of(DescribeConfigsRequest, request)
    results: list[DescribeConfigsResult] = []
    for asked, keys in (yield from _asked_for(message)).items():
        results.append((yield from _describe(asked, keys, message, request, context)))
        yield
    response = DescribeConfigsResponse(results=results)
    return (yield from reply_in_slices(request, response, context))


class _Asked(NamedTuple):
    """A resource as a request names it."""

    resource_type: int
    resource_name: str


def _asked_for(
    message: DescribeConfigsRequest,
) -> Generator[None, None, dict[_Asked, set[str]]]:
    """The requested keys of each resource; an empty set means all of them."""
    asked: dict[_Asked, set[str]] = {}
    for resource in message.resources:
        name = _Asked(resource.resource_type, resource.resource_name)
        known = asked.get(name)
        # An empty list means all keys, as null does.
        if known is None:
            asked[name] = set(resource.configuration_keys or ())
        elif known and resource.configuration_keys:
            known.update(resource.configuration_keys)
        else:
            known.clear()
        yield
    return asked


def _describe(
    asked: _Asked,
    keys: AbstractSet[str],
    message: DescribeConfigsRequest,
    request: Request,
    context: BrokerContext,
) -> Generator[None, None, DescribeConfigsResult]:
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
    rows = []
    for count, row in enumerate(rows_of(resource, context)):
        if not keys or row.name in keys:
            rows.append(_row(row, message))
        if count % _ROWS_PER_STEP == 0:
            yield
    return DescribeConfigsResult(
        error_code=ErrorCode.NONE,
        error_message=None,
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
        configs=rows,
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
