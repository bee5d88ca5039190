"""ApiVersions: the requests and features of this broker, in a form that any client can read."""

from collections.abc import Callable, Iterable

from odradek.broker.context import BrokerContext, is_from_peer_listener, reply_throttled
from odradek.broker.slices import body_of
from odradek.errors import ErrorCode
from odradek.metadata.features import SUPPORTED_FEATURES
from odradek.network.request import (
    ClientInformation,
    Request,
    Response,
    SendResponse,
    is_valid_client_information,
)
from odradek.protocol.api_keys import API_SUPPORT, ApiKey
from odradek.protocol.envelope import encode_response
from odradek.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

__all__ = ["api_versions_handler"]

_FIRST_NAMED_VERSION = 3
_FIRST_LEVEL_0_VERSION = 4
# Of a client's name and version, which become labels of a metric.
_SHOWN_CHARACTERS = 64


def api_versions_handler(
    served: Iterable[ApiKey],
) -> Callable[[Request, BrokerContext], Response]:
    """The handler of a broker that serves these APIs; some of them only to other brokers."""
    peer_rows = [_row(key) for key in sorted(served)]
    client_rows = [_row(key) for key in sorted(served) if not API_SUPPORT[key].inter_broker]

    def handle_api_versions(request: Request, context: BrokerContext) -> Response:
        version = request.header.api_version
        if version not in API_SUPPORT[ApiKey.API_VERSIONS].accepted:
            # The client starts again with the versions it reads in this answer.
            message = ApiVersionsResponse(
                error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[_row(ApiKey.API_VERSIONS)]
            )
            return SendResponse(request, [encode_response(request.header, message)])
        asked = body_of(ApiVersionsRequest, request)
        if version >= _FIRST_NAMED_VERSION and not is_valid_client_information(
            asked.client_software_name, asked.client_software_version
        ):
            refusal = ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
            return reply_throttled(request, refusal, context)
        if version >= _FIRST_NAMED_VERSION:
            request.connection.register_client(
                ClientInformation(
                    asked.client_software_name[:_SHOWN_CHARACTERS],
                    asked.client_software_version[:_SHOWN_CHARACTERS],
                )
            )
        rows = peer_rows if is_from_peer_listener(request, context) else client_rows
        image = context.cache.image
        answer = ApiVersionsResponse(
            error_code=ErrorCode.NONE,
            api_keys=rows,
            supported_features=_supported_features(version),
            finalized_features_epoch=image.features_epoch,
            finalized_features=[
                FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
                for name, level in image.features.items()
            ],
        )
        return reply_throttled(request, answer, context)

    return handle_api_versions


def _supported_features(version: int) -> list[SupportedFeatureKey]:
    """Clients that ask in versions before 4 cannot read that level 0 is supported."""
    return [
        SupportedFeatureKey(name=name, min_version=levels.lowest, max_version=levels.highest)
        for name, levels in SUPPORTED_FEATURES.items()
        if levels.lowest > 0 or version >= _FIRST_LEVEL_0_VERSION
    ]


def _row(key: ApiKey) -> ApiVersion:
    advertised = API_SUPPORT[key].advertised
    return ApiVersion(api_key=key, min_version=advertised.first, max_version=advertised.last)
