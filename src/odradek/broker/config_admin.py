"""Configuration as administrators see it: which resources there are, and how settings are told.

A resource is a topic, this broker, all brokers (a broker without a name), this broker's loggers,
and, as far as the image has any, client metrics subscriptions and groups. Requests about another
broker or its loggers are for that broker alone to answer.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Protocol, assert_never

from odradek.config import Setting, Source, Update, Value, format_value
from odradek.errors import ApiError, ErrorCode
from odradek.metadata.image import ClusterImage, ConfigResource, ConfigResourceType
from odradek.metadata.topic_names import find_name_problem

__all__ = [
    "LOGGER_SOURCE",
    "ResourceConfigs",
    "find_resource",
    "is_read_only",
    "override_source",
    "setting_text",
]

LOGGER_SOURCE: Final = 6  # The number of a logger's level as a source, in DescribeConfigs.

_OVERRIDE_SOURCES: Final = {
    ConfigResourceType.TOPIC: Source.DYNAMIC_TOPIC,
    ConfigResourceType.CLIENT_METRICS: Source.DYNAMIC_CLIENT_METRICS,
    ConfigResourceType.GROUP: Source.DYNAMIC_GROUP,
}


class ResourceConfigs(Protocol):
    """The keys of topics and brokers, what counts for each now, and what may be set."""

    def describe_topic(self, overrides: Mapping[str, str]) -> Sequence[Setting]:
        """Every key of a topic with these overrides, sorted by name."""
        ...

    def describe_broker(self) -> Sequence[Setting]:
        """Every key of this broker, sorted by name."""
        ...

    def check_topic(self, overrides: Mapping[str, str]) -> None:
        """Raises:
        ConfigError: A topic cannot have these overrides.
        """
        ...

    def check_broker(self, overrides: Mapping[str, str], *, is_default: bool) -> None:
        """Whether this broker, or all if `is_default`, can have these dynamic values.

        Raises:
            ConfigError: It cannot.
        """
        ...


def find_resource(
    type_number: int, name: str, *, image: ClusterImage, broker_id: int
) -> ConfigResource:
    """The resource a request names.

    Raises:
        ApiError: There is none, or it is another broker's.
    """
    try:
        kind = ConfigResourceType(type_number)
    except ValueError:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"resource type {type_number} has no settings"
        ) from None
    match kind:
        case ConfigResourceType.TOPIC:
            problem = find_name_problem(name)
            if problem is not None:
                raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
            if name not in image.topics:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no topic {name}")
        case ConfigResourceType.BROKER:
            if name:
                return ConfigResource(kind, _own_id(name, broker_id))
        case ConfigResourceType.BROKER_LOGGER:
            return ConfigResource(kind, _own_id(name, broker_id))
        case ConfigResourceType.CLIENT_METRICS | ConfigResourceType.GROUP:
            if not name:
                raise ApiError(ErrorCode.INVALID_REQUEST, "expected a name, found an empty one")
        case _:
            assert_never(kind)
    return ConfigResource(kind, name)


def _own_id(name: str, broker_id: int) -> str:
    if not (name.isascii() and name.isdigit() and name.lstrip("0") == str(broker_id).lstrip("0")):
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"expected broker id {broker_id}, which this request was sent to, found {name!r}",
        )
    return str(broker_id)


def override_source(resource: ConfigResource) -> Source:
    """Where the values come from that are set for a resource."""
    if resource.type is ConfigResourceType.BROKER:
        return Source.DYNAMIC_BROKER if resource.name else Source.DYNAMIC_DEFAULT
    return _OVERRIDE_SOURCES[resource.type]


def setting_text(setting: Setting, value: Value) -> str | None:
    """A value of a setting as it is told: secrets are not."""
    return None if setting.key.is_sensitive else format_value(value)


def is_read_only(setting: Setting) -> bool:
    """Whether only a restart changes it."""
    return setting.key.update is Update.READ_ONLY
