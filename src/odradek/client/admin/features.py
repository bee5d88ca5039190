"""Features of the cluster: what brokers can do, and the levels that are in force for all."""

from collections.abc import Mapping
from typing import NamedTuple

from odradek.client.client import Client
from odradek.client.leaders import api_error
from odradek.client.retry import Deadline
from odradek.errors import ApiError, ErrorCode
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.enums import FeatureUpgrade
from odradek.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

__all__ = ["FeatureDescription", "describe_features", "update_features"]


class FeatureDescription(NamedTuple):
    """A feature of the cluster."""

    name: str
    # The levels that the broker that was asked can serve; -1 if it does not know the feature.
    min_supported: int
    max_supported: int
    # The level that is in force; 0 if none is.
    level: int


async def describe_features(client: Client, *, deadline: Deadline) -> list[FeatureDescription]:
    """The features by name, as one broker describes them.

    Raises:
        ApiError: No broker answers.
    """
    request = ApiVersionsRequest(client_software_name="odradek", client_software_version="0.1.0")
    told = await client.ask_any(ApiKey.API_VERSIONS, request, ApiVersionsResponse, deadline)
    supported = {one.name: one for one in told.supported_features}
    levels = {one.name: one.max_version_level for one in told.finalized_features}
    return [
        FeatureDescription(
            name,
            supported[name].min_version if name in supported else -1,
            supported[name].max_version if name in supported else -1,
            levels.get(name, 0),
        )
        for name in sorted({*supported, *levels})
    ]


async def update_features(
    client: Client,
    levels: Mapping[str, int],
    *,
    upgrade: FeatureUpgrade = FeatureUpgrade.UPGRADE,
    validate_only: bool = False,
    deadline: Deadline,
) -> dict[str, ApiError | None]:
    """Puts levels in force; None for each feature that has its level. 0 takes a feature back.

    Newer brokers change all or none, and tell one error for all.
    """
    if not levels:
        return {}
    request = UpdateFeaturesRequest(
        timeout_ms=deadline.left_ms(),
        feature_updates=[
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=upgrade)
            for name, level in levels.items()
        ],
        validate_only=validate_only,
    )

    async def attempt() -> UpdateFeaturesResponse:
        response = await client.ask_controller(
            ApiKey.UPDATE_FEATURES, request, UpdateFeaturesResponse, deadline, repeatable=True
        )
        if response.error_code != ErrorCode.NONE:
            raise api_error(response.error_code, response.error_message, "features")
        return response

    try:
        response = await client.retry("UPDATE_FEATURES", attempt, deadline)
    except ApiError as error:
        return dict.fromkeys(levels, error)
    results: dict[str, ApiError | None] = dict.fromkeys(levels)
    for one in response.results:
        if one.error_code != ErrorCode.NONE:
            what = f"feature {one.feature!r}"
            results[one.feature] = api_error(one.error_code, one.error_message, what)
    return results
