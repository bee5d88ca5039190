"""ApiVersions (key 18): which requests a broker serves, in which versions."""

from collections.abc import Sequence

from odradek.protocol.primitives import BOOL, INT16, INT32, INT64, STRING
from odradek.protocol.schema import Message, array, wire

__all__ = [
    "ApiVersion",
    "ApiVersionsRequest",
    "ApiVersionsResponse",
    "FinalizedFeatureKey",
    "SupportedFeatureKey",
]


class ApiVersionsRequest(Message, versions="0-4", flexible="3+"):
    """The client's software; nothing else."""

    # 3: flexible; name and version of the client software (KIP-511).

    client_software_name: str = wire(STRING, "3+", ignorable=True)
    client_software_version: str = wire(STRING, "3+", ignorable=True)


class ApiVersion(Message):
    api_key: int = wire(INT16)
    min_version: int = wire(INT16)
    max_version: int = wire(INT16)


class SupportedFeatureKey(Message):
    name: str = wire(STRING, "3+")
    min_version: int = wire(INT16, "3+")
    max_version: int = wire(INT16, "3+")


class FinalizedFeatureKey(Message):
    name: str = wire(STRING, "3+")
    max_version_level: int = wire(INT16, "3+")
    min_version_level: int = wire(INT16, "3+")


class ApiVersionsResponse(Message, versions="0-4", flexible="3+"):
    """A range per key. Its header never has tags, so that a client of any age can read it."""

    # 1: throttle time.
    # 3: flexible; features as tags (KIP-584).
    # 4: a feature's lowest supported level may be 0; up to 3 such features are left out.

    error_code: int = wire(INT16)
    api_keys: Sequence[ApiVersion] = wire(array(ApiVersion))
    throttle_time_ms: int = wire(INT32, "1+", ignorable=True)
    supported_features: Sequence[SupportedFeatureKey] = wire(
        array(SupportedFeatureKey), "3+", tag=0, ignorable=True
    )
    # -1: unknown.
    finalized_features_epoch: int = wire(INT64, "3+", default=-1, tag=1, ignorable=True)
    finalized_features: Sequence[FinalizedFeatureKey] = wire(
        array(FinalizedFeatureKey), "3+", tag=2, ignorable=True
    )
    zk_migration_ready: bool = wire(BOOL, "3+", tag=3, ignorable=True)
