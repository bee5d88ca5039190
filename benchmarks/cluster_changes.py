"""Clusters whose brokers die or get topics: how soon everything is served again.

Beside Apache Kafka 3.9.1, which keeps its metadata in ZooKeeper as well, with the same length of
session. The clusters run one after the other, so that neither disturbs an election of the other.
"""

import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import cast

from benchmarks import load_clients
from benchmarks.clusters import ClusterServer, start_kafka_on_zookeeper
from benchmarks.load_clients import Figures
from benchmarks.servers import KAFKA, ODRADEK, Run
from benchmarks.table import Row, at_most, cluster_benchmark
from tests.chaos.clusters.base import SESSION_MS

_TOPIC = "measured"
_OTHER_TOPIC = "other"
_MANY_PARTITIONS = 2_000
_NEW_PARTITIONS = 1_000
_PER_SECOND = 200
_SIZE = 100
_IDLE_S = 20.0
_SETTLE_S = 15.0
_LIMIT_S = 120.0

_Measure = Callable[[ClusterServer], Iterator[Figures]]


@cluster_benchmark("cluster-failover")
def failover(run: Run) -> Iterator[Row]:
    """A leader is killed that is not the controller; the longest time that a message waits.

    A message is sent every five milliseconds: the one that waits longest is the first one that the
    dead leader did not answer. Most of the time is the rest of the session: a server of the store
    counts it from the last sign of life, which both send every third of a session, so the kills are
    spread over that third.
    """

    def measure(cluster: ClusterServer) -> Iterator[Figures]:
        for number in range(run.repeats):
            topic = f"{_TOPIC}-{number}"
            controller = cluster.controller_id()
            victim, *others = sorted(cluster.cluster.brokers, key=lambda one: one == controller)
            cluster.create_led_by(topic, (victim, *others))
            session = cluster.session_of(f"brokers/ids/{victim}")
            assert session is not None, f"broker {victim} is not registered"
            with load_clients.latency_beside(
                cluster.bootstrap, topic, size=_SIZE, per_second=_PER_SECOND
            ) as load:
                load.wait_until_delivering()
                load.begin()
                cluster.wait_until_heard(session)
                time.sleep((number + 0.5) / run.repeats * SESSION_MS / 3000)
                killed = time.monotonic()
                cluster.cluster.brokers[victim].kill()
                cluster.wait_for(
                    lambda victim=victim, session=session: (  # type: ignore[misc]  # mypy wants no default here
                        cluster.session_of(f"brokers/ids/{victim}") != session
                    ),
                    "the session ends", _LIMIT_S,
                )  # fmt: skip
                ended = time.monotonic()
                view = cluster.view_of(others[0])
                cluster.wait_for(
                    lambda view=view, topic=topic, victim=victim: view.is_led(topic, 1, victim),  # type: ignore[misc]  # mypy wants no default here
                    f"{topic} is led", _LIMIT_S,
                )  # fmt: skip
                view.close()
                figures = load.end()
            seconds = figures["max_ns"] / 1e9
            yield {"seconds": seconds, "since_session": seconds - (ended - killed)}
            cluster.restart(victim)
            cluster.wait_until_whole(topic)

    samples = _one_after_the_other(run, measure)
    yield _beside("cluster: leader killed to next acknowledged produce", samples, "seconds", "s", 1)
    yield _beside("  since the end of its session", samples, "since_session", "s")


@cluster_benchmark("cluster-controller")
def controller(run: Run) -> Iterator[Row]:
    """The controller is killed, which led partitions, too.

    The time runs from the end of its session, when its node in the store is gone or another's, to
    the moment when both other brokers name a living leader of each partition.
    """
    partitions = run.scaled(_MANY_PARTITIONS)

    def measure(cluster: ClusterServer) -> Iterator[Figures]:
        cluster.create(_TOPIC, partitions)
        for _ in range(run.repeats):
            session = cluster.session_of("controller")
            victim = cluster.controller_id()
            views = [cluster.view_of(one) for one in cluster.cluster.brokers if one != victim]
            killed = time.monotonic()
            cluster.cluster.brokers[victim].kill()
            cluster.wait_for(
                lambda session=session: cluster.session_of("controller") != session,  # type: ignore[misc]  # mypy wants no default here
                "the session ends", _LIMIT_S,
            )  # fmt: skip
            ended = time.monotonic()
            for view in views:
                cluster.wait_for(
                    lambda view=view, victim=victim: view.is_led(_TOPIC, partitions, victim),  # type: ignore[misc]  # mypy wants no default here
                    "each partition has a living leader", _LIMIT_S,
                )  # fmt: skip
                view.close()
            led = time.monotonic()
            yield {"seconds": led - ended, "since_kill": led - killed}
            cluster.restart(victim)
            cluster.wait_until_whole(_TOPIC)

    samples = _one_after_the_other(run, measure)
    name = f"cluster: new controller, {partitions:,} partitions, until all are led"
    yield at_most(name, [one["seconds"] for one in samples[ODRADEK]], "s", 3)
    yield _beside("  the same beside it", samples, "seconds", "s", 1)
    yield _beside("  since the kill", samples, "since_kill", "s")


@cluster_benchmark("cluster-create")
def create(run: Run) -> Iterator[Row]:
    """A topic of many partitions, until each broker names all leaders; and messages meanwhile."""
    partitions = run.scaled(_NEW_PARTITIONS)

    def measure(cluster: ClusterServer) -> Iterator[Figures]:
        cluster.create(_OTHER_TOPIC, 4)
        views = [cluster.view_of(one) for one in cluster.cluster.brokers]
        for number in range(run.repeats):
            topic = f"{_TOPIC}-{number}"
            with load_clients.latency_beside(
                cluster.bootstrap, _OTHER_TOPIC, size=_SIZE, per_second=_PER_SECOND
            ) as load:
                load.wait_until_delivering()
                load.begin()
                begun = time.monotonic()
                cluster.ask_to_create(topic, partitions, limit_s=_LIMIT_S)
                for view in views:
                    cluster.wait_for(
                        lambda view=view, topic=topic: view.is_led(topic, partitions),  # type: ignore[misc]  # mypy wants no default here
                        f"{topic} has all its leaders", _LIMIT_S,
                    )  # fmt: skip
                seconds = time.monotonic() - begun
                figures = load.end()
            yield {
                "seconds": seconds,
                "p99_ms": figures["p99_ns"] / 1e6,
                "max_ms": figures["max_ns"] / 1e6,
            }
        for view in views:
            view.close()

    samples = _one_after_the_other(run, measure)
    yield _beside(f"cluster: create {partitions:,} partitions", samples, "seconds", "s", 1)
    ours = [one["p99_ms"] for one in samples[ODRADEK]]
    yield at_most("  p99 of other produce meanwhile", ours, "ms", 100)
    yield _beside("  the same beside it", samples, "p99_ms", "ms")
    yield _beside("  the slowest of them", samples, "max_ms", "ms")


@cluster_benchmark("cluster-idle")
def idle(run: Run) -> Iterator[Row]:
    """The CPU time of the busiest broker while no client asks for anything."""
    partitions = run.scaled(_MANY_PARTITIONS)

    def measure(cluster: ClusterServer) -> Iterator[Figures]:
        cluster.create(_TOPIC, partitions)
        time.sleep(1 if run.is_quick else _SETTLE_S)  # Until the work of creating them is done.
        for _ in range(run.repeats):
            before, begun = cluster.cpu_seconds_of_each(), time.monotonic()
            time.sleep(2 if run.is_quick else _IDLE_S)
            seconds = time.monotonic() - begun
            used = zip(cluster.cpu_seconds_of_each(), before, strict=True)
            yield {"share": max((after - was) / seconds for after, was in used) * 100}

    samples = _one_after_the_other(run, measure)
    name = f"cluster: idle, {partitions:,} partitions, CPU per broker"
    yield at_most(name, [one["share"] for one in samples[ODRADEK]], "%", 5)
    yield _beside("  the same beside it", samples, "share", "%")


def _one_after_the_other(run: Run, measure: _Measure) -> dict[str, list[Figures]]:
    """The samples of each cluster, which has the machine for itself."""
    starts = dict(run.servers)
    if KAFKA in starts:
        starts[KAFKA] = start_kafka_on_zookeeper
    samples = {}
    for name, start in starts.items():
        with start() as server:
            samples[name] = list(measure(cast("ClusterServer", server)))
    return samples


def _beside(
    name: str,
    samples: dict[str, list[Figures]],
    figure: str,
    unit: str,
    bar: float | None = None,
) -> Row:
    """The median of ours beside that of Apache Kafka 3.9.1; the bar is of the ratio, the most."""
    values = {server: [one[figure] for one in all_] for server, all_ in samples.items()}
    other = values.get(KAFKA)
    return Row(
        name=name,
        measured=median(values[ODRADEK]),
        unit=unit,
        beside=None if other is None else median(other),
        beside_name="kafka 3.9.1" if other else "",
        bar=bar if other else None,
        note="beside 3.9.1" if other else "",
        raw=dict(values),
    )
