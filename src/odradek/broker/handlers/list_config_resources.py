"""ListConfigResources: the resources that have settings, by type."""

from collections.abc import Iterator
from typing import Final

from odradek.broker.authorization import is_allowed
from odradek.broker.context import BrokerContext, reply_throttled
from odradek.broker.slices import Steps, body_of, in_slices, reply_in_slices
from odradek.errors import ErrorCode
from odradek.metadata.image import ClusterImage
from odradek.network.request import Request
from odradek.protocol.enums import ConfigResourceType
from odradek.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from odradek.security.operations import Operation

__all__ = ["handle_list_config_resources"]

_FIRST_TYPED_VERSION: Final = 1


@in_slices
def handle_list_config_resources(request: Request, context: BrokerContext) -> Steps:
    """Lists topics and brokers whether they have overrides or not, others if they have some."""
    version = request.header.api_version
    message = body_of(ListConfigResourcesRequest, request)
    if not is_allowed(context.authorizer, request, Operation.DESCRIBE_CONFIGS):
        denied = ListConfigResourcesResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return reply_throttled(request, denied, context)
    asked = set(message.resource_types)
    if version < _FIRST_TYPED_VERSION:
        asked = {int(ConfigResourceType.CLIENT_METRICS)}
    known = {int(kind) for kind in ConfigResourceType}
    if not asked <= known:
        response = ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        return reply_throttled(request, response, context)
    image = context.cache.image
    rows: list[ConfigResource] = []
    for kind in ConfigResourceType:
        if kind in (asked or known):
            for name in _names(kind, image):
                rows.append(ConfigResource(resource_name=name, resource_type=kind))
                yield
    response = ListConfigResourcesResponse(error_code=ErrorCode.NONE, config_resources=rows)
    return (yield from reply_in_slices(request, response, context))


def _names(kind: ConfigResourceType, image: ClusterImage) -> Iterator[str]:
    match kind:
        case ConfigResourceType.TOPIC:
            yield from sorted(image.topics)
        case ConfigResourceType.BROKER | ConfigResourceType.BROKER_LOGGER:
            yield from (str(broker_id) for broker_id in sorted(image.brokers))
        case _:
            yield from sorted(name for type_, name in image.configs if type_ is kind)
