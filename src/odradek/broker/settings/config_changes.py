"""Changes of settings: the common part of AlterConfigs and IncrementalAlterConfigs.

Each resource of a request is planned separately; then all plans are carried out, unless the request
only validates. One resource's failure does not affect the others.

A plan is a function from the stored overrides to the keys to set; it refuses invalid results. It is
called inside the write of its result (`ConfigEdit`), with the stored overrides and not with those
of this broker's image: the image may be behind, and two requests that append to one list would each
write it without the other's item. Only a request that validates calls it with the image's.

Stored changes reach this broker by the config feed, as all others do; the request does not wait.
Levels of loggers are not stored: they are set at once and last until the broker stops.
"""

import logging
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from odradek.broker.config import ConfigRow
from odradek.broker.config.client_metrics import check_client_metrics
from odradek.broker.context import BrokerContext
from odradek.broker.settings.alterations import refuse_excess, write_in_portions
from odradek.broker.settings.config_admin import NamedResource, find_resource, rows_of
from odradek.broker.settings.live_settings import check_certificates
from odradek.broker.slices import finish_in_slices
from odradek.config import SettingSource
from odradek.errors import ApiError, ConfigError, ErrorCode, without_traceback
from odradek.metadata.changes import ConfigEdit
from odradek.metadata.image import ConfigResource
from odradek.network.request import Request
from odradek.protocol.enums import ConfigOperationType, ConfigResourceType, ConfigType

__all__ = [
    "ConfigChangeOutcome",
    "KeyChange",
    "Plan",
    "carry_out",
    "plan_each",
    "plan_incremental",
    "plan_replacement",
]

logger = logging.getLogger(__name__)


class KeyChange(NamedTuple):
    """One key of IncrementalAlterConfigs."""

    name: str
    operation: int
    value: str | None

    def __repr__(self) -> str:
        """Without the value, which may be a password."""
        return f"KeyChange(name={self.name!r}, operation={self.operation})"


class Plan(NamedTuple):
    """The planned change of a resource."""

    resource: ConfigResource
    # From the stored overrides to the keys to set, None removes one; raises ApiError.
    decide: Callable[[Mapping[str, str]], dict[str, str | None]]


class ConfigChangeOutcome(NamedTuple):
    """The result for one resource."""

    error: ErrorCode
    message: str | None = None


Resource = TypeVar("Resource", bound=NamedResource)


def plan_each(
    resources: Sequence[Resource], plan: Callable[[Resource], Plan]
) -> Generator[None, None, list[Plan | ApiError]]:
    """Plans every resource of a request; the result of each is a plan or an error."""
    try:
        refuse_excess(len(resources))
    except ApiError as excess:
        return [excess for _ in resources]
    names = [(resource.resource_type, resource.resource_name) for resource in resources]
    repeated = {name for name, count in Counter(names).items() if count > 1}
    plans: list[Plan | ApiError] = []
    for name, resource in zip(names, resources, strict=True):
        try:
            if name in repeated:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST, f"{name[1]!r} is named twice in the request"
                )
            plans.append(plan(resource))
        except ApiError as error:
            plans.append(without_traceback(error))
        yield
    return plans


async def carry_out(
    plans: Sequence[Plan | ApiError],
    request: Request,
    *,
    validate_only: bool,
    context: BrokerContext,
) -> list[ConfigChangeOutcome]:
    """Carries the plans out; returns the outcome of each, in order."""
    outcomes: dict[int, ApiError | None] = {}
    edits: dict[int, ConfigEdit] = {}
    for index, plan in enumerate(plans):  # Few of them are no errors: see `refuse_excess`.
        if isinstance(plan, ApiError):
            outcomes[index] = plan
            continue
        resource, decide = plan
        if not validate_only and resource.type is not ConfigResourceType.BROKER_LOGGER:
            edits[index] = ConfigEdit(resource, decide)
            continue
        try:
            values = decide(context.cache.image.configs.get(resource, {}))
        except ApiError as error:
            outcomes[index] = without_traceback(error)
        else:
            outcomes[index] = None
            if not validate_only:
                _set_levels(values, context)
    written = await write_in_portions(
        request, list(edits.values()), context.controller_port.alter_configs
    )
    outcomes.update(zip(edits, written, strict=True))
    return await finish_in_slices(_outcomes(outcomes), request, context)


def _outcomes(
    errors: Mapping[int, ApiError | None],
) -> Generator[None, None, list[ConfigChangeOutcome]]:
    outcomes = []
    for index in range(len(errors)):
        outcomes.append(_outcome(errors[index]))
        yield
    return outcomes


def _outcome(error: ApiError | None) -> ConfigChangeOutcome:
    return (
        ConfigChangeOutcome(ErrorCode.NONE)
        if error is None
        else ConfigChangeOutcome(error.code, str(error))
    )


def _set_levels(levels: Mapping[str, str | None], context: BrokerContext) -> None:
    for name, level in levels.items():
        if level is None:
            context.log_levels.clear_level(name)
        else:
            context.log_levels.set_level(name, level)
        logger.info("Level of logger %s: %s", name, level or "that of the logger above")


def plan_incremental(
    type_number: int, name: str, changes: Iterable[KeyChange], context: BrokerContext
) -> Plan:
    """Plans single changes; other keys stay.

    Raises:
        ApiError: The changes are invalid.
    """
    changes = list(changes)
    _check_count(len(changes))
    resource = _find(type_number, name, [change.name for change in changes], context)
    for change in changes:
        if change.operation not in _OPERATIONS:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"{change.name}: there is no operation {change.operation}",
            )
        if change.value is None and change.operation != ConfigOperationType.DELETE:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{change.name}: expected a value")
    if resource.type is ConfigResourceType.BROKER_LOGGER:
        levels = _plan_levels(changes, context)
        return Plan(resource, lambda _stored: levels)

    def decide(stored: Mapping[str, str]) -> dict[str, str | None]:
        values: dict[str, str | None] = {}
        for change in changes:
            match ConfigOperationType(change.operation):
                case ConfigOperationType.SET:
                    values[change.name] = change.value
                case ConfigOperationType.DELETE:
                    values[change.name] = None
                case operation:
                    values[change.name] = _changed_list(
                        change, operation, resource, stored, context
                    )
        _check(resource, _with(stored, values), context)
        return values

    return Plan(resource, decide)


def plan_replacement(
    type_number: int, name: str, configs: Mapping[str, str | None], context: BrokerContext
) -> Plan:
    """Plans that a resource has these overrides and no other.

    Raises:
        ApiError: The overrides are invalid.
    """
    _check_count(len(configs))
    resource = _find(type_number, name, [], context)
    if resource.type is ConfigResourceType.BROKER_LOGGER:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, "levels of loggers are changed by IncrementalAlterConfigs"
        )
    for key, value in configs.items():
        if value is None:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{key}: expected a value")

    def decide(stored: Mapping[str, str]) -> dict[str, str | None]:
        values = {**dict.fromkeys(stored), **configs}
        _check(resource, _with({}, values), context)
        return values

    return Plan(resource, decide)


_OPERATIONS: Final = frozenset(ConfigOperationType)
# Keys of one resource that a request may change: more than any resource has.
_MAX_KEYS: Final = 1_000


def _check_count(count: int) -> None:
    if count > _MAX_KEYS:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"expected at most {_MAX_KEYS} keys, found {count}"
        )


def _find(type_number: int, name: str, keys: list[str], context: BrokerContext) -> ConfigResource:
    resource = find_resource(type_number, name, context)
    if resource.type is ConfigResourceType.GROUP:
        raise ApiError(ErrorCode.INVALID_REQUEST, "settings of groups cannot be changed here")
    if len(set(keys)) < len(keys):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"a key comes twice in {keys}")
    return resource


def _with(overrides: Mapping[str, str], values: Mapping[str, str | None]) -> dict[str, str]:
    """The overrides of a resource once the values are set."""
    changed = {**overrides, **values}
    return {key: value for key, value in changed.items() if value is not None}


def _check(resource: ConfigResource, overrides: Mapping[str, str], context: BrokerContext) -> None:
    if resource.type is ConfigResourceType.TOPIC:
        context.topic_configs.check(overrides)
        return
    if resource.type is ConfigResourceType.CLIENT_METRICS:
        check_client_metrics(overrides)
        return
    source = SettingSource.DYNAMIC_BROKER if resource.name else SettingSource.DYNAMIC_DEFAULT
    current = context.broker_settings()
    stored = context.cache.image.configs.get(resource, {})
    changed = [name for name, value in overrides.items() if stored.get(name) != value]
    try:
        check_certificates(current, current.with_dynamic(source, overrides), changed)
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from error


def _changed_list(
    change: KeyChange,
    operation: ConfigOperationType,
    resource: ConfigResource,
    stored: Mapping[str, str],
    context: BrokerContext,
) -> str:
    """The effective list with missing items appended, or without the subtracted ones."""
    current = {row.name: row for row in _all_rows(resource, stored, context)}.get(change.name)
    if current is None or current.type is not ConfigType.LIST:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"{change.name} is no list: nothing can be appended to it or subtracted from it",
        )
    override = stored.get(change.name)
    items = _split(current.value or "" if override is None else override)
    changed = _split(change.value or "")
    if operation is ConfigOperationType.APPEND:
        present = set(items)
        items += [item for item in dict.fromkeys(changed) if item not in present]
    else:
        removed = set(changed)
        items = [item for item in items if item not in removed]
    return ",".join(items)


def _all_rows(
    resource: ConfigResource, stored: Mapping[str, str], context: BrokerContext
) -> Sequence[ConfigRow]:
    """All keys of the resource; for the default of all brokers the keys of this one."""
    if resource.type is ConfigResourceType.BROKER:
        return context.broker_settings().rows()
    if resource.type is ConfigResourceType.TOPIC:
        return context.topic_configs.rows(stored)
    return rows_of(resource, context)


def _split(text: str) -> list[str]:
    return [item for item in (part.strip() for part in text.split(",")) if item]


def _plan_levels(changes: Iterable[KeyChange], context: BrokerContext) -> dict[str, str | None]:
    levels: dict[str, str | None] = {}
    for change in changes:
        match ConfigOperationType(change.operation):
            case ConfigOperationType.SET:
                levels[change.name] = change.value
            case ConfigOperationType.DELETE:
                levels[change.name] = None
            case operation:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST,
                    f"{operation.name} cannot be applied to the level of logger {change.name}",
                )
        context.log_levels.check(change.name, levels[change.name])
    return levels
