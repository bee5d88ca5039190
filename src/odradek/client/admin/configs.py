"""Settings of topics, brokers and loggers: reading them with their sources, changing them."""

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias, TypeVar

from odradek.client.client import Client
from odradek.client.leaders import api_error
from odradek.client.retry import Deadline
from odradek.errors import ApiError, ErrorCode
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.enums import ConfigOperationType, ConfigResourceType, ConfigSource, ConfigType
from odradek.protocol.messages import alter_configs as replacing
from odradek.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from odradek.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from odradek.protocol.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from odradek.protocol.schema import Message
from odradek.protocol.versions import VersionRange

__all__ = [
    "ConfigEntry",
    "ConfigOperation",
    "ConfigResource",
    "ConfigSynonym",
    "alter_configs",
    "describe_configs",
    "list_config_resources",
    "replace_configs",
]


R = TypeVar("R")
M = TypeVar("M", bound=Message)

# ListConfigResources: earlier versions have client metrics alone.
_RESOURCES_OF_ALL_TYPES: Final = VersionRange(1, 32767)


class ConfigResource(NamedTuple):
    """A topic by name, a broker or its loggers by number; an empty broker is all of them."""

    type: ConfigResourceType
    name: str

    def __str__(self) -> str:
        kind = self.type.name.lower().replace("_", " ")
        return f"{kind} {self.name!r}" if self.name else f"every {kind}"


class ConfigSynonym(NamedTuple):
    """A setting that gives the value, or would if those before it were not set."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """One setting."""

    name: str
    value: str | None  # None if it is sensitive, or not set.
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    type: ConfigType = ConfigType.UNKNOWN
    # In order of precedence, the one in effect first; empty unless asked for.
    synonyms: tuple[ConfigSynonym, ...] = ()
    documentation: str | None = None  # None unless asked for.


class ConfigOperation(NamedTuple):
    """One change."""

    name: str
    operation: ConfigOperationType
    value: str | None = None

    @classmethod
    def set(cls, name: str, value: str) -> "ConfigOperation":
        return cls(name, ConfigOperationType.SET, value)

    @classmethod
    def delete(cls, name: str) -> "ConfigOperation":
        """Back to the default."""
        return cls(name, ConfigOperationType.DELETE)

    @classmethod
    def append(cls, name: str, value: str) -> "ConfigOperation":
        """Adds to a list."""
        return cls(name, ConfigOperationType.APPEND, value)

    @classmethod
    def subtract(cls, name: str, value: str) -> "ConfigOperation":
        """Takes out of a list."""
        return cls(name, ConfigOperationType.SUBTRACT, value)


async def describe_configs(
    client: Client,
    resources: Sequence[ConfigResource],
    *,
    names: Collection[str] | None = None,
    include_synonyms: bool = False,
    include_documentation: bool = False,
    deadline: Deadline | None = None,
) -> dict[ConfigResource, list[ConfigEntry] | ApiError]:
    """The settings of each resource, by name; all of them if none is named."""
    deadline = deadline or client.deadline()
    keys = None if names is None else list(names)

    async def ask(
        node_id: int | None, asked: Sequence[ConfigResource]
    ) -> Iterator[tuple[_Outcome, list[ConfigEntry]]]:
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=one.type, resource_name=one.name, configuration_keys=keys
                )
                for one in asked
            ],
            include_synonyms=include_synonyms,
            include_documentation=include_documentation,
        )
        response = await _ask(
            client, node_id, ApiKey.DESCRIBE_CONFIGS, request, DescribeConfigsResponse, deadline
        )
        return (
            (result, sorted(map(_entry, result.configs), key=lambda entry: entry.name))
            for result in response.results
        )

    return await _per_broker(resources, ask)


async def alter_configs(
    client: Client,
    changes: Mapping[ConfigResource, Sequence[ConfigOperation]],
    *,
    validate_only: bool = False,
    deadline: Deadline | None = None,
) -> dict[ConfigResource, ApiError | None]:
    """Changes single settings, all of a resource or none; None for each that was changed."""
    deadline = deadline or client.deadline()

    async def ask(
        node_id: int | None, asked: Sequence[ConfigResource]
    ) -> Iterator[tuple[_Outcome, None]]:
        request = IncrementalAlterConfigsRequest(
            resources=[_alteration(one, changes[one]) for one in asked],
            validate_only=validate_only,
        )
        response = await _ask(
            client,
            node_id,
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            request,
            IncrementalAlterConfigsResponse,
            deadline,
        )
        return ((result, None) for result in response.responses)

    return await _per_broker(list(changes), ask)


async def replace_configs(
    client: Client,
    settings: Mapping[ConfigResource, Mapping[str, str | None]],
    *,
    validate_only: bool = False,
    deadline: Deadline | None = None,
) -> dict[ConfigResource, ApiError | None]:
    """Sets all dynamic settings of each resource; those not named have their default again."""
    deadline = deadline or client.deadline()

    async def ask(
        node_id: int | None, asked: Sequence[ConfigResource]
    ) -> Iterator[tuple[_Outcome, None]]:
        request = replacing.AlterConfigsRequest(
            resources=[
                replacing.AlterConfigsResource(
                    resource_type=one.type,
                    resource_name=one.name,
                    configs=[
                        replacing.AlterableConfig(name=name, value=value)
                        for name, value in settings[one].items()
                    ],
                )
                for one in asked
            ],
            validate_only=validate_only,
        )
        response = await _ask(
            client,
            node_id,
            ApiKey.ALTER_CONFIGS,
            request,
            replacing.AlterConfigsResponse,
            deadline,
        )
        return ((result, None) for result in response.responses)

    return await _per_broker(list(settings), ask)


async def list_config_resources(
    client: Client, types: Sequence[ConfigResourceType] = (), *, deadline: Deadline | None = None
) -> list[ConfigResource]:
    """The resources with settings of their own, of all types if none is named.

    Raises:
        UnsupportedVersionError: Brokers before 4.1 list client metrics only.
        ApiError: The broker refuses.
    """
    deadline = deadline or client.deadline()
    is_of_metrics = set(types) == {ConfigResourceType.CLIENT_METRICS}

    async def attempt() -> ListConfigResourcesResponse:
        connection = await client.any_connection(deadline)
        api_key = ApiKey.LIST_CONFIG_RESOURCES
        within = None if is_of_metrics else _RESOURCES_OF_ALL_TYPES
        tells_all = connection.version_for(api_key, within) in _RESOURCES_OF_ALL_TYPES
        request = ListConfigResourcesRequest(resource_types=tuple(types) if tells_all else ())
        response = await client.ask(
            connection, api_key, request, ListConfigResourcesResponse, deadline, within=within
        )
        if response.error_code != ErrorCode.NONE:
            raise api_error(response.error_code, None, "resources")
        return response

    response = await client.retry("LIST_CONFIG_RESOURCES", attempt, deadline)
    return sorted(
        ConfigResource(ConfigResourceType(one.resource_type), one.resource_name)
        for one in response.config_resources
        if one.resource_type in ConfigResourceType._value2member_map_
    )


# The part that the answers to these requests share.
_Outcome: TypeAlias = (
    DescribeConfigsResult | AlterConfigsResourceResponse | replacing.AlterConfigsResourceResponse
)


async def _per_broker(
    resources: Sequence[ConfigResource],
    ask: Callable[[int | None, Sequence[ConfigResource]], Awaitable[Iterator[tuple[_Outcome, R]]]],
) -> dict[ConfigResource, R | ApiError]:
    """Asks each broker for its own resources, and any broker for the others."""
    by_broker: dict[int | None, list[ConfigResource]] = {}
    for resource in resources:
        by_broker.setdefault(_broker_of(resource), []).append(resource)
    results: dict[ConfigResource, R | ApiError] = {}
    for node_id, asked in by_broker.items():
        try:
            outcomes = await ask(node_id, asked)
        except ApiError as error:
            results |= dict.fromkeys(asked, error)
            continue
        told = {
            (outcome.resource_type, outcome.resource_name): (outcome, value)
            for outcome, value in outcomes
        }
        for resource in asked:
            results[resource] = _result_of(resource, told.get((resource.type, resource.name)))
    return {resource: results[resource] for resource in resources}


def _broker_of(resource: ConfigResource) -> int | None:
    """The broker to ask; None if any will do."""
    if resource.type is ConfigResourceType.TOPIC or not resource.name:
        return None
    return int(resource.name) if resource.name.isascii() and resource.name.isdecimal() else None


def _result_of(resource: ConfigResource, told: tuple[_Outcome, R] | None) -> R | ApiError:
    if told is None:
        return ApiError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"{resource}: the broker left it out of its answer"
        )
    outcome, value = told
    if outcome.error_code != ErrorCode.NONE:
        return api_error(outcome.error_code, outcome.error_message, resource)
    return value


async def _ask(
    client: Client,
    node_id: int | None,
    api_key: ApiKey,
    request: Message,
    answer_type: type[M],
    deadline: Deadline,
) -> M:
    # Setting the same value twice is harmless; so is asking twice.
    if node_id is None:
        return await client.ask_any(api_key, request, answer_type, deadline)
    return await client.ask_broker(node_id, api_key, request, answer_type, deadline)


def _alteration(
    resource: ConfigResource, changes: Sequence[ConfigOperation]
) -> AlterConfigsResource:
    return AlterConfigsResource(
        resource_type=resource.type,
        resource_name=resource.name,
        configs=[
            AlterableConfig(name=one.name, config_operation=one.operation, value=one.value)
            for one in changes
        ],
    )


def _entry(told: DescribeConfigsResourceResult) -> ConfigEntry:
    is_type_known = told.config_type in ConfigType._value2member_map_
    return ConfigEntry(
        name=told.name,
        value=told.value,
        source=_source(told.config_source),
        is_read_only=told.read_only,
        is_sensitive=told.is_sensitive,
        type=ConfigType(told.config_type) if is_type_known else ConfigType.UNKNOWN,
        synonyms=tuple(
            ConfigSynonym(one.name, one.value, _source(one.source)) for one in told.synonyms
        ),
        documentation=told.documentation,
    )


def _source(number: int) -> ConfigSource:
    is_known = number in ConfigSource._value2member_map_
    return ConfigSource(number) if is_known else ConfigSource.UNKNOWN
