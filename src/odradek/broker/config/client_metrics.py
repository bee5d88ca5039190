"""Settings of client metrics subscriptions: stored and checked as in Kafka, but not used.

A subscription names metrics that clients of some kind are to push to the broker (KIP-714). This
broker does not offer to collect any, so no client sends them; the settings are stored for the
tools that manage subscriptions.
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import Final

from odradek.broker.config.describe import ConfigRow, row_of
from odradek.config import Definition, Kind, Settings, SettingSource, key
from odradek.config.checks import Rule
from odradek.config.values import Value
from odradek.errors import ApiError, ConfigError, ErrorCode
from odradek.lazy_dataclass import dataclass

__all__ = ["ClientMetricsConfig", "check_client_metrics", "client_metrics_rows"]

MIN_INTERVAL_MS: Final = 100
MAX_INTERVAL_MS: Final = 3_600_000
# The properties of a client that a pattern can match.
MATCHED: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)

# Patterns are Java's: character classes that Python writes differently or lacks.
_JAVA_CLASS: Final = re.compile(r"\\[pP](?:\{\w[^}]*\}|\w)")
_JAVA_GROUP: Final = re.compile(r"\(\?<(?=[A-Za-z])")


def _are_patterns(value: Value) -> bool:
    assert isinstance(value, tuple)
    return all(_is_pattern(item) for item in value if item)


def _is_pattern(text: str) -> bool:
    parts = text.split("=")
    if len(parts) != 2 or parts[0].strip() not in MATCHED or not parts[1]:
        return False
    try:
        re.compile(_JAVA_GROUP.sub("(?P<", _JAVA_CLASS.sub(r"\\w", parts[1].strip())))
    except re.error:
        return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientMetricsConfig:
    """One subscription."""

    interval_ms: int = key(
        "interval.ms",
        default=300_000,
        dynamic=True,
        doc="How often clients push their metrics, from 100 to 3600000.",
    )
    match: tuple[str, ...] = key(
        "match",
        kind=Kind.LIST,
        default=(),
        dynamic=True,
        checks=(Rule(f"a list of name=pattern, names out of {', '.join(MATCHED)}", _are_patterns),),
        doc="The clients it applies to, as name=pattern; all if empty.",
    )
    metrics: tuple[str, ...] = key(
        "metrics",
        kind=Kind.LIST,
        default=(),
        dynamic=True,
        doc="Prefixes of names of metrics; * for all.",
    )


@cache
def _base() -> Settings:
    return Settings(Definition(ClientMetricsConfig))


def check_client_metrics(overrides: Mapping[str, str]) -> None:
    """Checks the settings of a subscription.

    Raises:
        ApiError: INVALID_REQUEST for an unknown key or interval, INVALID_CONFIG for other values.
    """
    known = _base().definition.keys
    for name in overrides:
        if name not in known:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"client metrics have no key {name}: expected one of {', '.join(sorted(known))}",
            )
    try:
        config = _base().with_layer(SettingSource.DYNAMIC_CLIENT_METRICS, overrides)
        interval_ms = config.build(ClientMetricsConfig).interval_ms
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from None
    if not MIN_INTERVAL_MS <= interval_ms <= MAX_INTERVAL_MS:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"interval.ms: expected {MIN_INTERVAL_MS} to {MAX_INTERVAL_MS}, found {interval_ms}",
        )


def client_metrics_rows(overrides: Mapping[str, str]) -> list[ConfigRow]:
    """All settings of a subscription; stored values that cannot be used are left out."""
    try:
        settings = _base().with_layer(SettingSource.DYNAMIC_CLIENT_METRICS, overrides)
    except ConfigError:
        settings = _base()
    return [row_of(settings.get(name)) for name in sorted(settings.definition.keys)]
