"""The config feed of store mode: dynamic configuration and features, turned into deltas.

All nodes below /config are read once; then a notification names each entity that was altered, and
that entity is read again. The order of notifications does not matter: the node's content when it is
read counts. The creation of a topic is not notified: its overrides are read (`read_topic`) before
its first log is made.

Features have one node, /feature, which is watched itself.

Notifications are purged 15 minutes after this broker has seen them. After a lost session, whose
watches are lost, too, all nodes are read again, and entities that have vanished are removed.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from odradek.clock import Clock
from odradek.coordination.nodes import FeatureNode, parse_config, parse_config_change
from odradek.coordination.paths import (
    CONFIG_CHANGES,
    FEATURE,
    ConfigNodeType,
    config_change_path,
    config_entity,
)
from odradek.coordination.store import ANY_VERSION, CoordinationStore, SessionState, WatchEvent
from odradek.errors import BadNodeData, ConnectionLost, NoNode, SessionExpired
from odradek.metadata.delta import ClusterDelta
from odradek.metadata.image import ConfigResource, QuotaEntity, ScramCredential, ScramKey
from odradek.metadata_store.config_nodes import CONFIG_ROOTS, ParsedEntity, parse_entity

__all__ = ["ENTITIES_PER_TURN", "PURGE_AFTER_MS", "ConfigFeed"]

logger = logging.getLogger(__name__)

PURGE_AFTER_MS = 15 * 60 * 1000
# Entities read, or notifications deleted, before other tasks of the loop run: a millisecond.
ENTITIES_PER_TURN = 20


class ConfigFeed:
    """Configs, quotas and SCRAM credentials of the store as cluster deltas.

    Args:
        store: This broker's session.
        clock: For the age of notifications.
        on_change: Called when there may be something to `read`.
    """

    def __init__(
        self, store: CoordinationStore, *, clock: Clock, on_change: Callable[[], None]
    ) -> None:
        self._store = store
        self._clock = clock
        self._on_change = on_change
        self._is_complete = False  # Whether all nodes were read in this session.
        self._is_feature_read = False  # Whether /feature was read since its watch fired.
        self._levels: Mapping[str, int] = {}  # Finalized, as of the last delta.
        self._seen: dict[str, int] = {}  # Notification → monotonic time of its discovery.
        # The entities that the deltas so far put into the image, to remove those that vanish.
        self._entities: dict[str, ParsedEntity] = {}
        store.session.on_state(self._on_state)

    async def read(self) -> ClusterDelta | None:
        """Reads all configuration the first time, then altered entities; None: no change.

        Also returns None without a link to the store; `on_change` is called when it is back.
        """
        try:
            return await self._read()
        except (SessionExpired, ConnectionLost) as error:
            logger.info("the config feed waits for the store: %s", error)
            self._is_complete = self._is_feature_read = False
            return None

    async def read_topic(self, topic: str) -> dict[str, str]:
        """The overrides of a topic; empty if there is no node.

        Raises:
            BadNodeData: The node is malformed.
        """
        entity = config_entity(ConfigNodeType.TOPIC, topic)
        try:
            data, _ = await self._store.get(config_change_path(entity))
        except NoNode:
            return {}
        return parse_config(data)

    # Reading

    async def _read(self) -> ClusterDelta | None:
        # The watch is armed before anything is read, so that no change in between is missed.
        names, _ = await self._store.children(CONFIG_CHANGES, self._on_notification)
        new = [name for name in names if name not in self._seen]
        now_ms = self._clock.monotonic_ms()
        if not self._is_complete:
            entities = dict.fromkeys(await self._all_entities())
            entities.update(dict.fromkeys(self._entities))
        else:
            entities = dict.fromkeys(await self._notified(new))
        delta = await self._delta(entities)
        has_features = not self._is_feature_read
        if has_features:
            delta = await self._with_features(delta)
        is_first, self._is_complete = not self._is_complete, True
        self._seen.update(dict.fromkeys(new, now_ms))
        await self._purge(names, now_ms)
        return delta if is_first or entities or has_features else None

    async def _with_features(self, delta: ClusterDelta) -> ClusterDelta:
        self._is_feature_read = True  # The watch is armed before the node is read.
        if await self._store.exists(FEATURE, self._on_feature) is None:
            return delta
        try:
            data, stat = await self._store.get(FEATURE)
            node = FeatureNode.parse(data)
        except NoNode:
            return delta  # Removed since: the watch has fired.
        except BadNodeData as error:
            logger.warning("%s is ignored, the levels of features stay: %s", FEATURE, error)
            return delta
        levels = node.levels if node.is_enabled else {}
        changes = {**dict.fromkeys(self._levels, 0), **levels}
        self._levels = levels
        return replace(delta, features=changes, features_epoch=stat.version)

    async def _all_entities(self) -> list[str]:
        entities: list[str] = []
        for root in CONFIG_ROOTS:
            for name in await self._children(root):
                entities.append(f"{root}/{name}")
                if root == "users":
                    clients = f"{root}/{name}/clients"
                    entities += [f"{clients}/{c}" for c in await self._children(clients)]
        return entities

    async def _children(self, entity: str) -> list[str]:
        try:
            names, _ = await self._store.children(config_change_path(entity))
        except NoNode:
            return []
        return names

    async def _notified(self, names: Iterable[str]) -> list[str]:
        entities = []
        for count, name in enumerate(names):
            if count % ENTITIES_PER_TURN == ENTITIES_PER_TURN - 1:
                await asyncio.sleep(0)
            path = f"{CONFIG_CHANGES}/{name}"
            try:
                data, _ = await self._store.get(path)
                entities.append(parse_config_change(data))
            except NoNode:
                continue  # Purged by another broker.
            except BadNodeData as error:
                logger.warning("%s is ignored: %s", path, error)
        return entities

    async def _delta(self, entities: Iterable[str]) -> ClusterDelta:
        configs: dict[ConfigResource, dict[str, str]] = {}
        quotas: dict[QuotaEntity, dict[str, float]] = {}
        scram: dict[ScramKey, ScramCredential | None] = {}
        for count, entity in enumerate(entities):
            if count % ENTITIES_PER_TURN == ENTITIES_PER_TURN - 1:
                await asyncio.sleep(0)
            try:
                parsed = await self._parse(entity)
            except BadNodeData as error:
                logger.warning("config entity %s keeps its old values: %s", entity, error)
                continue
            if parsed.resource is not None:
                configs[parsed.resource] = dict(parsed.configs)
            if parsed.quota_entity is not None:
                quotas[parsed.quota_entity] = dict(parsed.quotas)
            before = self._entities.get(entity)
            scram.update(dict.fromkeys(before.scram if before else ()))
            scram.update(parsed.scram)
            if parsed.configs or parsed.quotas or parsed.scram:
                self._entities[entity] = parsed
            else:
                self._entities.pop(entity, None)
        return ClusterDelta(configs=configs, quotas=quotas, scram=scram)

    async def _parse(self, entity: str) -> ParsedEntity:
        """Parses an entity's node; without a node the result is empty."""
        path = config_change_path(entity)
        try:
            data, _ = await self._store.get(path)
        except NoNode:
            data = None
        return parse_entity(entity, parse_config(data))

    # Notifications

    async def _purge(self, names: Iterable[str], now_ms: int) -> None:
        present = set(names)
        old: list[str] = []
        for name, seen_ms in list(self._seen.items()):
            if name not in present:
                del self._seen[name]
            elif now_ms - seen_ms >= PURGE_AFTER_MS:
                old.append(name)
        for start in range(0, len(old), ENTITIES_PER_TURN):
            portion = old[start : start + ENTITIES_PER_TURN]
            await asyncio.gather(*map(self._delete_notification, portion))

    async def _delete_notification(self, name: str) -> None:
        with contextlib.suppress(NoNode):  # Another broker was faster.
            await self._store.delete(f"{CONFIG_CHANGES}/{name}", ANY_VERSION)
        del self._seen[name]

    def _on_notification(self, _event: WatchEvent) -> None:
        self._on_change()

    def _on_feature(self, _event: WatchEvent) -> None:
        self._is_feature_read = False
        self._on_change()

    def _on_state(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            self._is_complete = self._is_feature_read = False
        elif state is SessionState.CONNECTED and not self._is_complete:
            self._on_change()
