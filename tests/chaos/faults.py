"""The faults of a campaign: what each does, how long it lasts, and how it ends.

A fault chooses its targets when it begins, because leaders, controllers and coordinators move. The
cases of 08 A6 carry their names, K-16 to K-19.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from tests.chaos.admin import Admin
from tests.chaos.clusters import Cluster
from tests.chaos.network import Link
from tests.chaos.nodes import wait_until

__all__ = ["FAULTS", "Begun", "FaultKind", "World", "deal"]

WHOLE_LIMIT_S = 60
# Longer than the session timeout, so that the cluster takes it for dead.
BEYOND_SESSION_S = (8.0, 11.0)
SHORT_S = (2.0, 7.0)


@dataclass(slots=True)
class World:
    """What faults act upon."""

    cluster: Cluster
    admin: Admin
    topic: str
    group: str
    random: Random
    # Makes the topic for this anew and writes to it: deletes one life, begins another.
    renew_topic: Callable[[], str]

    def any_broker(self) -> int:
        return self.random.choice(sorted(self.cluster.brokers))

    def leader(self) -> int:
        """The leader of some partition; any broker if that cannot be told."""
        partition = self.random.choice(sorted(self.admin.partitions(self.topic)) or [0])
        return self.admin.leader(self.topic, partition) or self.any_broker()

    def follower(self) -> int:
        """A broker that follows in some partition."""
        leader = self.admin.leader(self.topic, 0)
        return self.random.choice([one for one in sorted(self.cluster.brokers) if one != leader])

    def controller(self) -> int:
        return self.cluster.controller() or self.any_broker()

    def coordinator(self) -> int:
        return self.admin.coordinator(self.group) or self.any_broker()


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A fault that is on."""

    targets: tuple[str, ...]
    end: Callable[[], None]
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultKind:
    """One kind of fault.

    Attributes:
        needs: ``stores``, ``links`` that can be cut, Kafka's ``tools``.
        serves: Producers must be acknowledged while it lasts.
    """

    name: str
    begin: Callable[[World], Begun]
    hold_s: tuple[float, float]
    needs: frozenset[str] = field(default_factory=frozenset)
    serves: bool = False


def deal(random: Random, count: int, available: Sequence[str]) -> list[str]:
    """Names of faults to come: each one once in random order, then all again."""
    dealt: list[str] = []
    while len(dealt) < count:
        deck = sorted(available)
        random.shuffle(deck)
        dealt += deck
    return dealt[:count]


def _kill(choose: Callable[[World], int]) -> Callable[[World], Begun]:
    def begin(world: World) -> Begun:
        target = choose(world)
        node = world.cluster.brokers[target]
        node.kill()
        return Begun(targets=(node.name,), end=lambda: world.cluster.start_brokers(target))

    return begin


def _kill_all(world: World) -> Begun:
    nodes = world.cluster.brokers
    for node in nodes.values():
        node.pause()  # None of them sees another one die.
    for node in nodes.values():
        node.kill()
    return Begun(
        targets=tuple(node.name for node in nodes.values()),
        end=lambda: world.cluster.start_brokers(*nodes),
    )


def _pause(choose: Callable[[World], int]) -> Callable[[World], Begun]:
    def begin(world: World) -> Begun:
        node = world.cluster.brokers[choose(world)]
        node.pause()
        return Begun(targets=(node.name,), end=node.resume)

    return begin


def _kill_store_leader(world: World) -> Begun:
    cluster = world.cluster
    target = cluster.store_leader() or world.random.choice(sorted(cluster.stores))
    cluster.stores[target].kill()
    return Begun(targets=(cluster.stores[target].name,), end=lambda: cluster.start_stores(target))


def _store_gone(world: World) -> Begun:
    stores = world.cluster.stores
    # A partition without a leader stays without one as long as the store is gone.
    wait_until(lambda: world.admin.is_whole(world.topic), WHOLE_LIMIT_S)
    for node in stores.values():
        node.kill()
    return Begun(
        targets=tuple(node.name for node in stores.values()),
        end=lambda: world.cluster.start_stores(*stores),
    )


def _cut(world: World, links: Sequence[Link], what: str, port: int | None = None) -> Begun:
    """Cuts links in both directions or in one of them, as the seed has it."""
    network = world.cluster.network
    way = world.random.choice(["both", "out", "in"])
    back = [(target, source) for source, target in links]
    chosen = {"both": [*links, *back], "out": list(links), "in": back}[way]
    if port is not None:
        # The answers come from the port, and pass: a cut of requests is a cut of the connection.
        way, chosen = "to the controllers' port", list(links)
    network.cut(chosen, port)
    hosts = tuple(sorted({host for link in links for host in link}))
    return Begun(targets=hosts, detail=f"{what}: {way}", end=lambda: network.join(chosen, port))


def _others(world: World, host: str) -> list[str]:
    """All hosts of the cluster but one."""
    nodes = (*world.cluster.brokers.values(), *world.cluster.stores.values())
    return [node.name for node in nodes if node.name != host]


def _isolate(world: World) -> Begun:
    """K-16: one broker has no link to the cluster; to clients it may have one."""
    host = f"broker-{world.leader()}"
    others = _others(world, host)
    with_clients = world.random.random() < 0.5
    links = [(host, other) for other in (*others, *(["clients"] if with_clients else []))]
    return _cut(world, links, f"{host} isolated")


def _cut_brokers(world: World) -> Begun:
    """K-17: brokers do not reach each other: all of them, or two."""
    names = sorted(node.name for node in world.cluster.brokers.values())
    pairs = [(one, other) for one in names for other in names if one < other]
    if world.random.random() < 0.5:
        pairs = [world.random.choice(pairs)]
    return _cut(world, pairs, "brokers from each other")


def _cut_store(world: World) -> Begun:
    """K-18: a broker does not reach the store."""
    cluster = world.cluster
    host = f"broker-{world.random.choice([world.leader(), world.controller()])}"
    if cluster.stores:
        links = [(host, node.name) for node in cluster.stores.values()]
        return _cut(world, links, f"{host} from the store")
    links = [(host, other) for other in _others(world, host)]
    return _cut(world, links, f"{host} from the controllers", cluster.control_port)


def _cut_controller(world: World) -> Begun:
    """K-19: a broker does not reach the controller."""
    cluster = world.cluster
    controller = world.controller()
    others = [one for one in sorted(cluster.brokers) if one != controller]
    host = f"broker-{world.random.choice(others)}"
    links = [(host, f"broker-{controller}")]
    return _cut(world, links, f"{host} from the controller", cluster.control_port)


def _empty(world: World) -> Begun:
    """A broker that is not among the last in sync loses its data."""
    cluster, admin = world.cluster, world.admin
    target = world.follower()
    node = cluster.brokers[target]
    if not wait_until(lambda: admin.is_whole(world.topic), WHOLE_LIMIT_S):
        return Begun(targets=(), detail="left out: not all replicas are in sync", end=lambda: None)
    node.kill()

    def is_out() -> bool:
        views = admin.partitions(world.topic).values()
        return bool(views) and all(target not in one.isr and len(one.isr) >= 2 for one in views)

    # Its own group partitions are out of sync by then, too: it is the same death.
    if not wait_until(is_out, WHOLE_LIMIT_S):
        return Begun(
            targets=(node.name,),
            detail="killed, not emptied: it is still in sync",
            end=lambda: cluster.start_brokers(target),
        )
    cluster.empty(target)
    return Begun(targets=(node.name,), detail="emptied", end=lambda: cluster.start_brokers(target))


def _rolling_restart(world: World) -> Begun:
    """Each broker is stopped in order and started again, the next when all is whole."""
    cluster = world.cluster
    told = []
    for target, node in cluster.brokers.items():
        node.stop()
        cluster.start_brokers(target)
        whole = wait_until(lambda: world.admin.is_whole(world.topic), WHOLE_LIMIT_S)
        told.append(f"{node.name} {'whole' if whole else 'not whole'}")
    return Begun(
        targets=tuple(node.name for node in cluster.brokers.values()),
        detail=", ".join(told),
        end=lambda: None,
    )


def _reassign(world: World) -> Begun:
    """A partition goes from three replicas to one, and back to three."""
    admin = world.admin
    if not wait_until(lambda: admin.is_whole(world.topic), WHOLE_LIMIT_S):
        return Begun(targets=(), detail="left out: not all replicas are in sync", end=lambda: None)
    partition = world.random.choice(sorted(admin.partitions(world.topic)))
    brokers = sorted(world.cluster.brokers)
    world.random.shuffle(brokers)
    is_one = admin.reassign(world.topic, {partition: brokers[:1]})

    def end() -> None:
        admin.reassign(world.topic, {partition: brokers})

    return Begun(
        targets=(f"{world.topic}-{partition}",),
        detail=f"to {brokers[:1]}: {'done' if is_one else 'NOT DONE'}; then to {brokers}",
        end=end,
    )


def _move_directories(world: World) -> Begun:
    """The replicas of a partition move to other data directories; a broker may die meanwhile."""
    cluster, random = world.cluster, world.random
    views = world.admin.partitions(world.topic)
    if not views:
        return Begun(targets=(), detail="left out: no broker answers", end=lambda: None)
    partition = random.choice(sorted(views))
    name = f"{world.topic}-{partition}"
    folders = {
        broker: next(one for one in cluster.log_folders(broker) if not (one / name).exists())
        for broker in views[partition].replicas
    }
    begun = world.admin.move_directories(world.topic, partition, folders)
    victim = random.choice([None, *sorted(folders)])
    if victim is None:
        return Begun(targets=(name,), detail="begun" if begun else "NOT BEGUN", end=lambda: None)
    cluster.brokers[victim].kill()
    return Begun(
        targets=(name, cluster.brokers[victim].name),
        detail=f"{'begun' if begun else 'NOT BEGUN'}; broker {victim} is killed",
        end=lambda: cluster.start_brokers(victim),
    )


def _recreate(world: World) -> Begun:
    """A topic is deleted and made anew while the others are written."""
    return Begun(targets=(), detail=world.renew_topic(), end=lambda: None)


_LINKS = frozenset({"links"})
_STORES = frozenset({"stores"})

FAULTS = {
    kind.name: kind
    for kind in (
        FaultKind(name="kill-leader", begin=_kill(World.leader), hold_s=SHORT_S),
        FaultKind(name="kill-follower", begin=_kill(World.follower), hold_s=SHORT_S),
        FaultKind(name="kill-controller", begin=_kill(World.controller), hold_s=SHORT_S),
        FaultKind(name="kill-coordinator", begin=_kill(World.coordinator), hold_s=SHORT_S),
        FaultKind(name="kill-all", begin=_kill_all, hold_s=SHORT_S),
        FaultKind(
            name="kill-store-leader", begin=_kill_store_leader, hold_s=SHORT_S, needs=_STORES
        ),
        FaultKind(
            name="store-gone", begin=_store_gone, hold_s=(60, 60), needs=_STORES, serves=True
        ),
        FaultKind(name="pause-leader", begin=_pause(World.leader), hold_s=BEYOND_SESSION_S),
        FaultKind(name="pause-follower", begin=_pause(World.follower), hold_s=BEYOND_SESSION_S),
        FaultKind(name="pause-controller", begin=_pause(World.controller), hold_s=BEYOND_SESSION_S),
        FaultKind(
            name="pause-coordinator", begin=_pause(World.coordinator), hold_s=BEYOND_SESSION_S
        ),
        FaultKind(name="K-16", begin=_isolate, hold_s=BEYOND_SESSION_S, needs=_LINKS),
        FaultKind(name="K-17", begin=_cut_brokers, hold_s=BEYOND_SESSION_S, needs=_LINKS),
        FaultKind(name="K-18", begin=_cut_store, hold_s=BEYOND_SESSION_S, needs=_LINKS),
        FaultKind(name="K-19", begin=_cut_controller, hold_s=BEYOND_SESSION_S, needs=_LINKS),
        FaultKind(name="empty-broker", begin=_empty, hold_s=SHORT_S),
        FaultKind(name="rolling-restart", begin=_rolling_restart, hold_s=(0, 0)),
        FaultKind(
            name="reassign-3-1-3", begin=_reassign, hold_s=(1, 3), needs=frozenset({"tools"})
        ),
        FaultKind(
            name="move-directories",
            begin=_move_directories,
            hold_s=SHORT_S,
            needs=frozenset({"tools"}),
        ),
        FaultKind(name="recreate-topic", begin=_recreate, hold_s=(0, 0)),
    )
}
