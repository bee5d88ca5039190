"""Entities of client quotas: keys, values and filters, and the quota that applies to a request.

A quota is for an *entity*: a user, a client id, both, or an IP address; None is the default for
every user, client or address without an entry of its own. Of the entities that match a request the
first one in this table that has the key counts:

| # | user    | client id | bucket                            |
|---|---------|-----------|-----------------------------------|
| 1 | name    | name      | of that user with that client id  |
| 2 | name    | default   | of that user with that client id  |
| 3 | name    | none      | of that user, all client ids      |
| 4 | default | name      | of that user with that client id  |
| 5 | default | default   | of that user with that client id  |
| 6 | default | none      | of that user, all client ids      |
| 7 | none    | name      | of that client id, all users      |
| 8 | none    | default   | of that client id, all users      |

With a default *each* user has a bucket of its own; they do not share one.
"""

import ipaddress
import math
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple

from odradek.errors import ApiError, ErrorCode
from odradek.metadata.image import QuotaEntity
from odradek.network.connection_quotas import UNLIMITED
from odradek.protocol.enums import QuotaMatchType

__all__ = [
    "Bucket",
    "EntityMatch",
    "QuotaKey",
    "check_component_count",
    "check_quota",
    "check_quota_key",
    "ip_connection_rates",
    "is_usable_bound",
    "matching_entities",
    "quota_entity",
    "resolve_quota",
]

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
_TYPES: Final = (USER, CLIENT_ID, IP)


class QuotaKey(Enum):
    """The kinds of quotas."""

    PRODUCE = "producer_byte_rate"
    FETCH = "consumer_byte_rate"
    REQUEST = "request_percentage"
    CONTROLLER_MUTATION = "controller_mutation_rate"
    CONNECTION = "connection_creation_rate"


# Largest value of the keys that are whole numbers; the others may have fractions.
_WHOLE: Final = {
    QuotaKey.PRODUCE: 2**63 - 1,
    QuotaKey.FETCH: 2**63 - 1,
    QuotaKey.CONNECTION: 2**31 - 1,
}


class Bucket(NamedTuple):
    """The clients whose use is counted together; None for any."""

    user: str | None
    client_id: str | None


class EntityMatch(NamedTuple):
    """One component of a filter."""

    entity_type: str
    match: QuotaMatchType
    name: str | None  # Only for an exact match.


def check_component_count(count: int) -> None:
    """Refuses more components than there are types, before each of them is looked at.

    Raises:
        ApiError: INVALID_REQUEST.
    """
    if count > len(_TYPES):
        raise _invalid(f"expected at most {len(_TYPES)} components, found {count}")


def quota_entity(components: Sequence[tuple[str, str | None]]) -> QuotaEntity:
    """The entity of a request, by (type, name) with None for the default.

    Raises:
        ApiError: INVALID_REQUEST, there is no such entity.
    """
    types = [kind for kind, _ in components]
    _check_types(types)
    if not components:
        raise _invalid("an entity needs a user, a client-id or an ip")
    for kind, name in components:
        if name == "":
            raise _invalid(f"{kind}: expected a name, found an empty one")
        if kind == IP and name is not None:
            _check_address(name)
    return QuotaEntity(tuple(sorted(components, key=lambda component: component[0])))


def check_quota(entity: QuotaEntity, key: str, value: float) -> None:
    """Refuses an invalid quota.

    Raises:
        ApiError: INVALID_REQUEST, the key is not for such an entity, or the value is invalid.
    """
    known = _key_for(entity, key)
    if not is_usable_bound(value):
        raise _invalid(f"{key}={value}: must be a number above 0")
    largest = _WHOLE.get(known)
    if largest is None:
        return
    if not value.is_integer():
        raise _invalid(f"{key}={value}: must be a whole number")
    if value > largest:
        raise _invalid(f"{key}={value}: must not be above {largest}")


def is_usable_bound(value: float) -> bool:
    """Whether a stored value can be a bound."""
    return math.isfinite(value) and value > 0


def check_quota_key(entity: QuotaEntity, key: str) -> None:
    """Refuses a key that such an entity cannot have.

    Raises:
        ApiError: INVALID_REQUEST.
    """
    _key_for(entity, key)


def matching_entities(
    quotas: Mapping[QuotaEntity, Mapping[str, float]],
    filters: Sequence[EntityMatch],
    *,
    is_strict: bool,
) -> list[QuotaEntity]:
    """The entities that match the filter of a DescribeClientQuotas.

    Args:
        is_strict: Whether an entity may have no other components than those of the filter.

    Raises:
        ApiError: INVALID_REQUEST, no entity could have these components.
    """
    _check_types([component.entity_type for component in filters])
    found: list[QuotaEntity] = []
    for entity in quotas:
        components = dict(entity.components)
        if is_strict and len(components) != len(filters):
            continue
        if all(_matches(components, component) for component in filters):
            found.append(entity)
    return found


def resolve_quota(
    bounds: Mapping[QuotaEntity, float], user: str, client_id: str
) -> tuple[Bucket, float] | None:
    """The bucket and bound of a client, by the module's table; None for no limit.

    Args:
        bounds: The bounds of one key, by entity.
    """
    exact = Bucket(user, client_id)
    for user_name in (user, None):
        for components, bucket in (
            (((CLIENT_ID, client_id), (USER, user_name)), exact),
            (((CLIENT_ID, None), (USER, user_name)), exact),
            (((USER, user_name),), Bucket(user, None)),
        ):
            bound = bounds.get(QuotaEntity(components))
            if bound is not None:
                return bucket, bound
    for name in (client_id, None):
        bound = bounds.get(QuotaEntity(((CLIENT_ID, name),)))
        if bound is not None:
            return Bucket(None, client_id), bound
    return None


def ip_connection_rates(
    quotas: Mapping[QuotaEntity, Mapping[str, float]],
) -> tuple[int, dict[str, int]]:
    """New connections per second of any one address, and of some, for `ConnectionQuotas`."""
    default = UNLIMITED
    overrides: dict[str, int] = {}
    for entity, values in quotas.items():
        rate = values.get(QuotaKey.CONNECTION.value)
        kind, name = entity.components[0]
        if kind != IP or rate is None or not is_usable_bound(rate):
            continue
        if name is None:
            default = int(rate)
        else:
            overrides[name] = int(rate)
    return default, overrides


def _check_types(types: Sequence[str]) -> None:
    for kind in types:
        if kind not in (USER, CLIENT_ID, IP):
            raise _invalid(f"{kind!r} is none of user, client-id, ip")
    if len(set(types)) != len(types):
        raise _invalid(f"a type comes twice in {', '.join(types)}")
    if IP in types and len(types) > 1:
        raise _invalid("an ip goes with no other component")


def _check_address(name: str) -> None:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        raise _invalid(f"{name!r} is no IP address") from None


def _key_for(entity: QuotaEntity, key: str) -> QuotaKey:
    is_address = entity.components[0][0] == IP
    for known in QuotaKey:
        if known.value == key and (known is QuotaKey.CONNECTION) == is_address:
            return known
    what = "an ip" if is_address else "a user or client-id"
    raise _invalid(f"{key!r} is no quota of {what}")


def _matches(components: Mapping[str, str | None], wanted: EntityMatch) -> bool:
    if wanted.entity_type not in components:
        return False
    name = components[wanted.entity_type]
    match wanted.match:
        case QuotaMatchType.EXACT:
            return name is not None and name == wanted.name
        case QuotaMatchType.DEFAULT:
            return name is None
        case QuotaMatchType.ANY:
            return True


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)
