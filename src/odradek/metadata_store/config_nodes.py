"""The encoding of dynamic configuration, quotas and SCRAM credentials in nodes below /config.

======================  =================================  ===========================
Thing                   entity (path below /config)        key: value of the node
======================  =================================  ===========================
topic overrides         topics/<t>                         as they are
broker overrides        brokers/<id>, brokers/<default>    as they are
client metrics, groups  client-metrics/<n>, groups/<n>     as they are
quotas                  users/<u>, clients/<c>,            quota name: decimal text
                        users/<u>/clients/<c>, ips/<ip>
SCRAM credentials       users/<u>, beside the quotas       SCRAM-SHA-256: salt=…,stored_key=…,
                                                           server_key=…,iterations=…
======================  =================================  ===========================

The default of all has the node name ``<default>``; other names are percent-encoded. An alteration
replaces single keys of a node and keeps all others.
"""

import base64
import binascii
import math
from collections.abc import Mapping
from typing import NamedTuple

from odradek.coordination.paths import (
    DEFAULT_ENTITY,
    ConfigNodeType,
    config_entity,
    sanitize,
    unsanitize,
    user_client_entity,
)
from odradek.errors import ApiError, BadNodeData, ErrorCode
from odradek.metadata.changes import ConfigSet, QuotaSet, ScramRemoved, ScramSet
from odradek.metadata.image import ConfigResource, QuotaEntity, ScramCredential, ScramKey
from odradek.protocol.enums import ConfigResourceType, ScramMechanism

__all__ = [
    "CONFIG_ROOTS",
    "EntityUpdate",
    "ParsedEntity",
    "entity_update",
    "parse_entity",
    "resource_entity",
]

# Node names right below /config whose children are entities.
CONFIG_ROOTS = ("topics", "brokers", "clients", "users", "ips", "client-metrics", "groups")

_RESOURCE_ROOTS = {
    ConfigResourceType.TOPIC: "topics",
    ConfigResourceType.BROKER: "brokers",
    ConfigResourceType.CLIENT_METRICS: "client-metrics",
    ConfigResourceType.GROUP: "groups",
}
_RESOURCE_TYPES = {root: kind for kind, root in _RESOURCE_ROOTS.items()}
_SCRAM_MECHANISMS = {int(number): number.name.replace("_", "-") for number in ScramMechanism}
_SCRAM_NUMBERS = {name: number for number, name in _SCRAM_MECHANISMS.items()}


# Of a path below /config: leaves room in the store's limit for the prefix.
_MAX_ENTITY_LENGTH = 32_000


class EntityUpdate(NamedTuple):
    """Keys to set in the node of an entity; None removes one."""

    entity: str  # Path below /config.
    values: Mapping[str, str | None]

    def __repr__(self) -> str:
        """Without the values, of which some are passwords."""
        return f"EntityUpdate of {', '.join(map(repr, self.values))} for {self.entity!r}"


class ParsedEntity(NamedTuple):
    """The content of an entity's node, by purpose."""

    resource: ConfigResource | None = None
    configs: Mapping[str, str] = {}
    quota_entity: QuotaEntity | None = None
    quotas: Mapping[str, float] = {}
    scram: Mapping[ScramKey, ScramCredential] = {}

    def __repr__(self) -> str:
        """Without the values, of which some are passwords."""
        keys = [*self.configs, *self.quotas, *self.scram]
        return f"ParsedEntity of {keys} for {self.resource or self.quota_entity}"


def resource_entity(resource: ConfigResource) -> str:
    """The entity of a resource.

    Raises:
        ApiError: INVALID_REQUEST, its configuration is not stored.
    """
    root = _RESOURCE_ROOTS.get(resource.type)
    if root is None:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"{resource.type.name} has no stored configuration"
        )
    return _fitting(f"{root}/{sanitize(resource.name) if resource.name else DEFAULT_ENTITY}")


def entity_update(change: ConfigSet | QuotaSet | ScramSet | ScramRemoved) -> EntityUpdate:
    """The node and keys that a change sets.

    Raises:
        ApiError: INVALID_REQUEST, nothing is stored for such an entity.
    """
    match change:
        case ConfigSet(resource=resource, values=values):
            return EntityUpdate(resource_entity(resource), values)
        case QuotaSet(entity=entity, values=quotas):
            texts = {k: None if v is None else _quota_text(v) for k, v in quotas.items()}
            return EntityUpdate(_fitting(_quota_entity_path(entity)), texts)
        case ScramSet(key=key, credential=credential):
            text = _scram_text(credential)
            return EntityUpdate(_user_entity(key), {_SCRAM_MECHANISMS[key.mechanism]: text})
        case ScramRemoved(key=key):
            return EntityUpdate(_user_entity(key), {_SCRAM_MECHANISMS[key.mechanism]: None})


def parse_entity(entity: str, config: Mapping[str, str]) -> ParsedEntity:
    """Parses the configuration of an entity.

    Raises:
        BadNodeData: The kind of the entity is unknown, or a value is malformed.
    """
    parts = entity.split("/")
    if len(parts) == 2 and parts[0] in _RESOURCE_TYPES:
        name = "" if parts[1] == DEFAULT_ENTITY else unsanitize(parts[1])
        resource = ConfigResource(_RESOURCE_TYPES[parts[0]], name)
        return ParsedEntity(resource=resource, configs=dict(config))
    names = [None if part == DEFAULT_ENTITY else unsanitize(part) for part in parts]
    match parts:
        case ["users", _]:
            quota_entity = QuotaEntity((("user", names[1]),))
        case ["clients", _]:
            quota_entity = QuotaEntity((("client-id", names[1]),))
        case ["users", _, "clients", _]:
            quota_entity = QuotaEntity((("client-id", names[3]), ("user", names[1])))
        case ["ips", _]:
            quota_entity = QuotaEntity((("ip", names[1]),))
        case _:
            raise BadNodeData(f"config entity {entity!r}: unknown kind")
    scram: dict[ScramKey, ScramCredential] = {}
    quotas: dict[str, float] = {}
    for key, text in config.items():
        if key in _SCRAM_NUMBERS:
            scram[ScramKey(names[1] or "", _SCRAM_NUMBERS[key])] = _parse_scram(entity, text)
        else:
            quotas[key] = _parse_quota(entity, key, text)
    return ParsedEntity(quota_entity=quota_entity, quotas=quotas, scram=scram)


def _quota_entity_path(entity: QuotaEntity) -> str:
    match entity.components:
        case (("client-id", client),):
            return config_entity(ConfigNodeType.CLIENT, client)
        case (("user", user),):
            return config_entity(ConfigNodeType.USER, user)
        case (("client-id", client), ("user", user)):
            return user_client_entity(user, client)
        case (("ip", address),):
            return config_entity(ConfigNodeType.IP, address)
        case _:
            kinds = [kind for kind, _ in entity.components]
            raise ApiError(ErrorCode.INVALID_REQUEST, f"no quota is kept for {kinds}")


def _user_entity(key: ScramKey) -> str:
    return _fitting(config_entity(ConfigNodeType.USER, key.user))


def _fitting(entity: str) -> str:
    """The entity, unless its path is too long for the store."""
    if len(entity) > _MAX_ENTITY_LENGTH:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"the name has {len(entity)} characters once it is percent-encoded, expected at most"
            f" {_MAX_ENTITY_LENGTH}",
        )
    return entity


def _quota_text(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))


def _parse_quota(entity: str, key: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        # Without the text: it may be the credential of an unknown mechanism.
        raise BadNodeData(f"config entity {entity!r}: {key}: expected a number")
    return value


def _scram_text(credential: ScramCredential) -> str:
    def encoded(data: bytes) -> str:
        return base64.b64encode(data).decode("ascii")

    return (
        f"salt={encoded(credential.salt)},stored_key={encoded(credential.stored_key)},"
        f"server_key={encoded(credential.server_key)},iterations={credential.iterations}"
    )


def _parse_scram(entity: str, text: str) -> ScramCredential:
    fields = dict(part.partition("=")[::2] for part in text.split(","))
    try:
        return ScramCredential(
            salt=base64.b64decode(fields["salt"], validate=True),
            stored_key=base64.b64decode(fields["stored_key"], validate=True),
            server_key=base64.b64decode(fields["server_key"], validate=True),
            iterations=int(fields["iterations"]),
        )
    except (KeyError, ValueError, binascii.Error) as error:
        # Without the text: it is derived from a secret.
        raise BadNodeData(
            f"config entity {entity!r}: malformed SCRAM credential: {type(error).__name__}"
        ) from None
