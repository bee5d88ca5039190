"""The requests that a broker serves."""

from typing import NamedTuple

from odradek.client.client import Client
from odradek.client.retry import Deadline
from odradek.protocol.api_keys import API_SUPPORT, ApiKey
from odradek.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.protocol.versions import VersionRange

__all__ = ["ApiRow", "BrokerVersions", "describe_api_versions"]


class ApiRow(NamedTuple):
    """One request type of a broker."""

    key: int
    name: str  # Empty for one that this client does not know.
    versions: VersionRange
    usable: int | None  # The newest version that both sides know; None if there is none.


class BrokerVersions(NamedTuple):
    """The requests of one broker."""

    node_id: int
    host: str
    port: int
    apis: list[ApiRow]


async def describe_api_versions(
    client: Client, *, deadline: Deadline | None = None
) -> list[BrokerVersions]:
    """The versions of every broker of the cluster, in order of their ids.

    Raises:
        ApiError: A broker does not answer.
    """
    deadline = deadline or client.deadline()
    request = ApiVersionsRequest(client_software_name="odradek", client_software_version="0.1.0")
    told = []
    for node in sorted(client.cluster.nodes.values()):
        response = await client.ask_broker(
            node.id, ApiKey.API_VERSIONS, request, ApiVersionsResponse, deadline
        )
        rows = [
            _row(one.api_key, VersionRange(one.min_version, one.max_version))
            for one in response.api_keys
        ]
        told.append(BrokerVersions(node.id, node.host, node.port, sorted(rows)))
    return told


def _row(key: int, theirs: VersionRange) -> ApiRow:
    if key not in ApiKey._value2member_map_:
        return ApiRow(key, "", theirs, None)
    api_key = ApiKey(key)
    support = API_SUPPORT.get(api_key)
    if support is None:
        return ApiRow(key, api_key.name, theirs, None)
    last = min(support.parsed.last, theirs.last)
    is_usable = last >= max(support.parsed.first, theirs.first)
    return ApiRow(key, api_key.name, theirs, last if is_usable else None)
