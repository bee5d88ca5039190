"""UpdateFeatures (key 57): finalised levels of the cluster's features. Flexible throughout."""

from collections.abc import Sequence

from odradek.protocol.primitives import BOOL, INT8, INT16, INT32, STRING
from odradek.protocol.schema import Message, array, wire

__all__ = [
    "FeatureUpdateKey",
    "UpdatableFeatureResult",
    "UpdateFeaturesRequest",
    "UpdateFeaturesResponse",
]


class FeatureUpdateKey(Message):
    feature: str = wire(STRING)
    # Below 1: the feature is no longer finalised.
    max_version_level: int = wire(INT16)
    allow_downgrade: bool = wire(BOOL, "0")
    # 1 upgrade only, 2 a downgrade that loses nothing, 3 any downgrade.
    upgrade_type: int = wire(INT8, "1+", default=1)


class UpdateFeaturesRequest(Message, versions="0-2", flexible="0+"):
    """New levels, all of them or none."""

    # 1: the type of a downgrade, and only checking (KIP-778).
    # 2: one result for all features (KIP-1022).

    timeout_ms: int = wire(INT32, default=60000)
    feature_updates: Sequence[FeatureUpdateKey] = wire(array(FeatureUpdateKey))
    validate_only: bool = wire(BOOL, "1+")


class UpdatableFeatureResult(Message):
    feature: str = wire(STRING)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+")


class UpdateFeaturesResponse(Message, versions="0-2", flexible="0+"):
    """An error for all, and up to version 1 one for each."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+")
    results: Sequence[UpdatableFeatureResult] = wire(
        array(UpdatableFeatureResult), "0-1", ignorable=True
    )
