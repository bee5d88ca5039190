"""ApiVersions: the requests that this broker serves, in a form that clients of any age can read."""

from collections.abc import Callable, Iterable

from odradek.broker.context import BrokerContext, is_from_peer_listener, reply_throttled
from odradek.errors import ErrorCode
from odradek.network.request import (
    ClientInformation,
    Request,
    Response,
    SendResponse,
    is_valid_client_information,
)
from odradek.protocol.api_keys import API_SUPPORT, ApiKey
from odradek.protocol.codec import parse_message
from odradek.protocol.envelope import encode_response
from odradek.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)

__all__ = ["api_versions_handler"]

_FIRST_NAMED_VERSION = 3
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
        asked, _ = parse_message(ApiVersionsRequest, request.payload, version, request.body_offset)
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
        answer = ApiVersionsResponse(error_code=ErrorCode.NONE, api_keys=rows)
        return reply_throttled(request, answer, context)

    return handle_api_versions


def _row(key: ApiKey) -> ApiVersion:
    advertised = API_SUPPORT[key].advertised
    return ApiVersion(api_key=key, min_version=advertised.first, max_version=advertised.last)
