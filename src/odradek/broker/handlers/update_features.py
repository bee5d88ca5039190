"""UpdateFeatures: moves the levels of the cluster's features, while clients run."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from odradek.broker.authorization import check_allowed
from odradek.broker.context import BrokerContext, note_local_end, reply_throttled
from odradek.broker.settings.alterations import refuse_excess
from odradek.broker.slices import body_of
from odradek.errors import ApiError, ErrorCode
from odradek.metadata.changes import FeatureSet
from odradek.metadata.features import SUPPORTED_FEATURES
from odradek.network.request import Request, Response
from odradek.protocol.enums import FeatureUpgrade
from odradek.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from odradek.security.operations import Operation

__all__ = ["handle_update_features"]

_UPGRADES: Final = tuple(FeatureUpgrade)
_FIRST_TYPED_VERSION: Final = 1
_FIRST_WHOLE_VERSION: Final = 2  # All updates are made, or none, and one error tells which.


async def handle_update_features(request: Request, context: BrokerContext) -> Response:
    """Answers when the levels are stored; every broker obeys them a moment later."""
    message = body_of(UpdateFeaturesRequest, request)
    version = request.header.api_version
    updates = message.feature_updates
    try:
        check_allowed(context.authorizer, request, Operation.ALTER)
        refuse_excess(len(updates))
        if not updates:
            raise ApiError(ErrorCode.INVALID_REQUEST, "expected at least one feature")
    except ApiError as denial:
        return _reply(request, context, denial, [])
    plans = _plan(updates, version)
    is_whole = version >= _FIRST_WHOLE_VERSION
    outcomes = [plan if isinstance(plan, ApiError) else None for plan in plans]
    if not is_whole or not any(outcomes):
        changes = [plan for plan in plans if isinstance(plan, FeatureSet)]
        note_local_end(request, context)
        if changes:
            written = iter(await _write(changes, message, context, is_whole=is_whole))
            outcomes = [plan if isinstance(plan, ApiError) else next(written) for plan in plans]
    first = next((outcome for outcome in outcomes if outcome is not None), None)
    rows = [
        UpdatableFeatureResult(
            feature=update.feature,
            error_code=ErrorCode.NONE if outcome is None else outcome.code,
            error_message=None if outcome is None else str(outcome),
        )
        for update, outcome in zip(updates, outcomes, strict=True)
    ]
    return _reply(request, context, first if is_whole else None, rows)


async def _write(
    changes: Sequence[FeatureSet],
    message: UpdateFeaturesRequest,
    context: BrokerContext,
    *,
    is_whole: bool,
) -> list[ApiError | None]:
    port = context.controller_port
    if message.validate_only or is_whole:
        errors = await port.alter_features(changes, is_checked_only=True)
        if message.validate_only or any(errors):
            return errors
    return await port.alter_features(changes)


def _plan(updates: Sequence[FeatureUpdateKey], version: int) -> list[FeatureSet | ApiError]:
    names = Counter(update.feature for update in updates)
    plans: list[FeatureSet | ApiError] = []
    for update in updates:
        if names[update.feature] > 1:
            plans.append(ApiError(ErrorCode.INVALID_REQUEST, "the feature is named twice"))
        else:
            plans.append(_check(update, version))
    return plans


def _check(update: FeatureUpdateKey, version: int) -> FeatureSet | ApiError:
    levels = SUPPORTED_FEATURES.get(update.feature)
    level = update.max_version_level
    if levels is None:
        return ApiError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"expected one of the features {sorted(SUPPORTED_FEATURES)}",
        )
    if not levels.lowest <= level <= levels.highest:
        return ApiError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"{update.feature}: expected a level from {levels.lowest} to {levels.highest}, found"
            f" {level}",
        )
    may_lower = update.allow_downgrade
    if version >= _FIRST_TYPED_VERSION:
        kind = update.upgrade_type
        if kind not in _UPGRADES:
            return ApiError(
                ErrorCode.INVALID_REQUEST, f"expected an upgrade type from 1 to 3, found {kind}"
            )
        may_lower = kind != FeatureUpgrade.UPGRADE
    return FeatureSet(update.feature, level, may_lower)


def _reply(
    request: Request,
    context: BrokerContext,
    error: ApiError | None,
    rows: Sequence[UpdatableFeatureResult],
) -> Response:
    response = UpdateFeaturesResponse(
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else str(error),
        results=rows,
    )
    return reply_throttled(request, response, context)
