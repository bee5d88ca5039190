"""The first writes to a store: parent nodes, the ids of cluster and broker, the features."""

import logging
from collections.abc import Callable, Mapping

from odradek.coordination.nodes import FeatureNode, encode_cluster_id, parse_cluster_id
from odradek.coordination.paths import (
    BROKER_SEQUENCE_ID,
    BROKER_TOPICS,
    CLUSTER_ID,
    FEATURE,
    INITIAL_PATHS,
    ancestors,
)
from odradek.coordination.store import ANY_VERSION, CoordinationStore, Create
from odradek.errors import BadNodeData, BadVersion, ConnectionLost, NodeExists, NoNode, StoreError
from odradek.metadata.features import NEW_CLUSTER_LEVELS
from odradek.metadata.ports import Fence
from odradek.metadata_store.entity_writes import MAX_RENDERINGS
from odradek.protocol.inter_broker import NEWEST_NODE_FORMS, NodeForms

__all__ = ["claim_cluster_id", "create_parents", "draw_broker_id", "write_features"]

logger = logging.getLogger(__name__)


async def create_parents(store: CoordinationStore) -> None:
    """Makes the parents of all other nodes; existing ones stay as they are."""
    while True:
        missing = [Create(path) for path in INITIAL_PATHS if await store.exists(path) is None]
        if not missing:
            return
        try:
            await store.multi(missing)
        except (NodeExists, ConnectionLost):
            continue  # Another broker starts at the same time: look again which are missing.


async def claim_cluster_id(store: CoordinationStore, new_id: Callable[[], str]) -> str:
    """The id of the cluster; the first broker makes it.

    Raises:
        BadNodeData: The stored id cannot be read.
    """
    while True:
        try:
            data, _ = await store.get(CLUSTER_ID)
            return parse_cluster_id(data)
        except NoNode:
            parents = [Create(p) for p in ancestors(CLUSTER_ID) if await store.exists(p) is None]
            try:
                await store.multi([*parents, Create(CLUSTER_ID, encode_cluster_id(new_id()))])
            except (NodeExists, ConnectionLost):
                continue


async def draw_broker_id(store: CoordinationStore, reserved_max_id: int) -> int:
    """An id above `reserved_max_id` that no broker has drawn before."""
    while True:
        try:
            stat = await store.set(BROKER_SEQUENCE_ID, b"", ANY_VERSION)
        except ConnectionLost:
            await store.sync()  # Waits for a link. A number may be skipped.
            continue
        return reserved_max_id + stat.version


async def write_features(store: CoordinationStore, fence: Fence, forms: NodeForms) -> None:
    """Writes /feature as a controller of Kafka does with the same protocol version.

    Levels that count are kept. A node that cannot be read stays as it is, and one line tells so.

    Raises:
        ControllerMoved: The fence failed.
        StoreError: Other writers kept changing the node.
    """
    for _ in range(MAX_RENDERINGS):
        try:
            try:
                data, stat = await store.get(FEATURE)
                found = FeatureNode.parse(data)
            except NoNode:
                levels = await _initial_levels(store, forms)
                node = FeatureNode(levels, is_enabled=forms.has_features, version=forms.feature)
                await store.create(FEATURE, node.encode(), fence=fence)
                return
            except BadNodeData as error:
                logger.warning("%s is ignored: %s", FEATURE, error)
                return
            wanted = _features(forms, found)
            if wanted != found:
                await store.set(FEATURE, wanted.encode(), stat.version, fence=fence)
        except (NodeExists, NoNode, BadVersion, ConnectionLost):
            continue  # Another writer came in between, or the link broke: look again.
        return
    raise StoreError(f"{FEATURE} could not be written in {MAX_RENDERINGS} attempts", path=FEATURE)


async def _initial_levels(store: CoordinationStore, forms: NodeForms) -> Mapping[str, int]:
    """The levels of a cluster without the node: the newest ones if it is a new cluster.

    A cluster that has topics is older than the node. One whose protocol is set to an old version
    may get brokers of other releases.
    """
    if forms != NEWEST_NODE_FORMS:
        return {}
    try:
        topics, _ = await store.children(BROKER_TOPICS)
    except NoNode:
        topics = []
    return {} if topics else NEW_CLUSTER_LEVELS


def _features(forms: NodeForms, found: FeatureNode) -> FeatureNode:
    levels = found.levels if found.is_enabled and forms.has_features else {}
    return FeatureNode(levels, is_enabled=forms.has_features, version=forms.feature)
