"""Writes of nodes below /config: overrides, quotas, credentials, and the notification of brokers.

A node has all keys of its entity, and an alteration is about some of them. So the node is read, the
edit decides on the stored keys, and the result is written only if the node still has the version
that was read; otherwise all of it is repeated. If two administrators append to one list at the same
time, both items are in it afterwards.

Several entities are written as one transaction: one sync of the store for all of them. Example of
two edits of which one is refused by its `decide`::

    read users/a v3, users/b (none) ── decide ──► a: {…}, b: ApiError
    multi [Set users/a v3, Create notification of users/a]      a is stored, b gets its error
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from odradek.coordination.nodes import encode_config, encode_config_change, parse_config
from odradek.coordination.paths import CONFIG_CHANGE_PREFIX, ancestors, config_change_path
from odradek.coordination.store import CoordinationStore, Create, Operation, Set
from odradek.errors import (
    ApiError,
    BadNodeData,
    BadVersion,
    ConnectionLost,
    ErrorCode,
    NodeExists,
    NoNode,
    OdradekError,
    StoreError,
    without_traceback,
)
from odradek.metadata.changes import ConfigEdit, ConfigSet, QuotaSet, ScramRemoved, ScramSet
from odradek.metadata_store.config_nodes import entity_update, resource_entity

__all__ = [
    "MAX_RENDERINGS",
    "EntityEdit",
    "as_api_error",
    "edit_of",
    "missing_nodes",
    "write_entities",
    "write_entity",
]

# Attempts at a change that failed for another reason than its guard. Each failure needs another
# writer at just that node; an endless loop would hide that writer.
MAX_RENDERINGS = 10


class EntityEdit(NamedTuple):
    """An alteration of one entity's node."""

    entity: str  # Path below /config.
    # Gets the stored keys, returns those to set, None to remove one; raises ApiError to refuse.
    decide: Callable[[Mapping[str, str]], Mapping[str, str | None]]


class _Draft:
    """The next content of a node."""

    __slots__ = ("config", "entity", "version")

    def __init__(self, entity: str, config: dict[str, str], version: int | None) -> None:
        self.entity = entity
        self.config = config
        self.version = version  # None: there is no node yet.


def edit_of(change: ConfigEdit | ConfigSet | QuotaSet | ScramSet | ScramRemoved) -> EntityEdit:
    """The edit that carries out a change.

    Raises:
        ApiError: INVALID_REQUEST, nothing is stored for such an entity.
    """
    if isinstance(change, ConfigEdit):
        return EntityEdit(resource_entity(change.resource), change.decide)
    update = entity_update(change)
    return EntityEdit(update.entity, lambda _stored: update.values)


async def write_entity(
    store: CoordinationStore,
    change: ConfigSet | QuotaSet | ScramSet | ScramRemoved,
    *,
    fence: int | None = None,
) -> None:
    """Writes single keys of an entity's configuration and notifies all brokers.

    Raises:
        ApiError: INVALID_REQUEST, nothing is stored for such an entity.
        StoreError: The store refused, or other writers kept changing the node.
    """
    [error] = await write_entities(store, [edit_of(change)], fence=fence)
    if error is not None:
        raise error


async def write_entities(
    store: CoordinationStore, edits: Sequence[EntityEdit], *, fence: int | None = None
) -> list[OdradekError | None]:
    """Writes edits as one transaction and notifies all brokers; returns each one's error or None.

    An edit that is refused, or whose node cannot be read, does not affect the others.

    Raises:
        StoreError: The store refused the transaction, or other writers kept changing the nodes.
    """
    for _ in range(MAX_RENDERINGS):
        drafts: dict[str, _Draft] = {}
        errors = [await _decide(store, edit, drafts) for edit in edits]
        operations = await _render(store, drafts)
        if not operations:
            return errors
        try:
            await store.multi(operations, fence=fence)
        except (NodeExists, NoNode, BadVersion, ConnectionLost):
            # Changed meanwhile, or the outcome is unknown: deciding once more is harmless, since an
            # edit that was applied finds its result in the stored keys.
            continue
        return errors
    entities = ", ".join(edit.entity for edit in edits)
    raise StoreError(f"{entities}: could not be written in {MAX_RENDERINGS} attempts")


async def _decide(
    store: CoordinationStore, edit: EntityEdit, drafts: dict[str, _Draft]
) -> OdradekError | None:
    """Adds the result of an edit to the drafts; returns the error that prevents it, or None."""
    path = config_change_path(edit.entity)
    draft = drafts.get(path)
    if draft is None:
        try:
            data, stat = await store.get(path)
            draft = _Draft(edit.entity, parse_config(data), stat.version)
        except NoNode:
            draft = _Draft(edit.entity, {}, None)
        except BadNodeData as error:
            return without_traceback(error)
    try:
        values = edit.decide(draft.config)
    except ApiError as error:
        return without_traceback(error)
    for key, value in values.items():
        if value is None:
            draft.config.pop(key, None)
        else:
            draft.config[key] = value
    drafts[path] = draft
    return None


async def _render(store: CoordinationStore, drafts: Mapping[str, _Draft]) -> list[Operation]:
    parents: dict[str, None] = {}
    operations: list[Operation] = []
    for path, draft in drafts.items():
        data = encode_config(draft.config)
        if draft.version is None:
            parents.update(dict.fromkeys(ancestors(path)))
            operations.append(Create(path, data))
        else:
            operations.append(Set(path, data, draft.version))
        notice = encode_config_change(draft.entity)
        operations.append(Create(CONFIG_CHANGE_PREFIX, notice, sequential=True))
    # A node written here may be the parent of another one: users/u of users/u/clients/c.
    operations += await missing_nodes(store, [path for path in parents if path not in drafts])
    return sorted(operations, key=lambda operation: operation.path.count("/"))


async def missing_nodes(store: CoordinationStore, paths: Sequence[str]) -> list[Operation]:
    """The operations that create those of `paths` that do not exist."""
    return [Create(path) for path in paths if await store.exists(path) is None]


def as_api_error(error: OdradekError) -> ApiError:
    """The answer to an administrator about an entity that was not written."""
    if isinstance(error, ApiError):
        return error
    return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the stored entity cannot be read or written")
