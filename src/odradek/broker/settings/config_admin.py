"""Configuration for administrators: the resources, and their settings.

A resource is a topic, this broker, all brokers (a broker without a name), this broker's loggers, a
client metrics subscription, or a group that the image has. Requests about another broker or its
loggers can be answered by that broker only.
"""

from collections.abc import Sequence
from typing import Final, Protocol, assert_never

from odradek.broker.authorization import check_allowed
from odradek.broker.config import ConfigRow
from odradek.broker.config.client_metrics import client_metrics_rows
from odradek.broker.config.describe import CONFIG_SOURCES
from odradek.broker.context import BrokerContext
from odradek.config import SettingSource
from odradek.errors import ApiError, ErrorCode
from odradek.metadata.image import ConfigResource
from odradek.metadata.topic_names import find_name_problem
from odradek.network.request import Request
from odradek.protocol.enums import ConfigResourceType, ConfigSource, ConfigType
from odradek.security.operations import Operation, ResourceType

__all__ = ["NamedResource", "check_config_rights", "find_resource", "rows_of"]

_OWN_RIGHTS: Final = {
    int(ConfigResourceType.TOPIC): ResourceType.TOPIC,
    int(ConfigResourceType.GROUP): ResourceType.GROUP,
}


class NamedResource(Protocol):
    """A resource in a request."""

    @property
    def resource_type(self) -> int: ...

    @property
    def resource_name(self) -> str: ...


def find_resource(type_number: int, name: str, context: BrokerContext) -> ConfigResource:
    """The resource of a request.

    Raises:
        ApiError: There is no such resource, or it is another broker's.
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
            if not context.cache.contains_topic(name):
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
        case ConfigResourceType.BROKER:
            if name:
                return ConfigResource(kind, _own_id(name, context.broker_id))
        case ConfigResourceType.BROKER_LOGGER:
            return ConfigResource(kind, _own_id(name, context.broker_id))
        case ConfigResourceType.CLIENT_METRICS | ConfigResourceType.GROUP:
            if not name:
                raise ApiError(ErrorCode.INVALID_REQUEST, "expected a name, found an empty one")
        case _:
            assert_never(kind)
    return ConfigResource(kind, name)


def check_config_rights(
    resource: NamedResource, operation: Operation, request: Request, context: BrokerContext
) -> None:
    """Checks the right to a resource: that of a topic or group, otherwise that of the cluster.

    Raises:
        ApiError: The client has not the right.
    """
    kind = _OWN_RIGHTS.get(resource.resource_type)
    if kind is None:
        check_allowed(context.authorizer, request, operation)
    else:
        check_allowed(context.authorizer, request, operation, kind, resource.resource_name)


def _own_id(name: str, broker_id: int) -> str:
    own = str(broker_id)
    if name != own:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"expected broker id {own}, which this request was sent to, found {name!r}",
        )
    return own


def rows_of(resource: ConfigResource, context: BrokerContext) -> Sequence[ConfigRow]:
    """All settings of a resource, sorted by name."""
    match resource.type:
        case ConfigResourceType.TOPIC:
            return context.topic_configs.rows(context.cache.image.topic_configs(resource.name))
        case ConfigResourceType.BROKER:
            settings = context.broker_settings()
            if not resource.name:
                return settings.cluster_default_rows()
            return settings.rows(len(context.cache.get_alive_brokers()))
        case ConfigResourceType.BROKER_LOGGER:
            levels = context.log_levels.levels()
            source = ConfigSource.DYNAMIC_BROKER_LOGGER
            return [_plain_row(name, level, source) for name, level in levels.items()]
        case ConfigResourceType.CLIENT_METRICS:
            return client_metrics_rows(context.cache.image.configs.get(resource, {}))
        case ConfigResourceType.GROUP:
            return _overrides_of(resource, SettingSource.DYNAMIC_GROUP, context)
        case kind:
            assert_never(kind)


def _overrides_of(
    resource: ConfigResource, source: SettingSource, context: BrokerContext
) -> list[ConfigRow]:
    overrides = context.cache.image.configs.get(resource, {})
    return [_plain_row(name, overrides[name], CONFIG_SOURCES[source]) for name in sorted(overrides)]


def _plain_row(name: str, value: str, source: ConfigSource) -> ConfigRow:
    return ConfigRow(
        name=name,
        value=value,
        source=source,
        is_default=False,
        is_read_only=False,
        is_sensitive=False,
        type=ConfigType.STRING,
        documentation="",
        synonyms=(),
    )
