"""Checks of our clients on three brokers, one of which dies, comes back and leads again.

Records are written all the time, and read by two consumers: one by hand, which may miss nothing
and see nothing twice, one in a group whose coordinator dies with the broker.

On a busy machine a broker that lives may miss its heartbeats and lose what it leads, any time, and
brokers learn of an election one after the other. So nothing is taken as given because it held
before: who has to lead is elected again, and what was decided is waited for.
"""

import threading
import time
from collections.abc import Callable
from typing import Any, TypeGuard

from odradek import Admin, Consumer, Producer, SimpleConsumer
from odradek.client.admin import ElectionType, NewTopic
from odradek.client.cluster import TopicView
from odradek.client.consumer import CommitFailedError, RebalanceInProgressError
from odradek.errors import ApiError, ErrorCode
from odradek.model import TopicPartition
from tests.support.group_readers import DEADLINE_S, SESSION_MS, new_name
from tests.support.odradek_cluster import ProcessCluster

__all__ = [
    "check_a_broker_dies_and_comes_back_and_leads_again",
    "check_readers_are_served_by_the_replica_in_their_rack",
]

# The first of each is the preferred leader. Nothing is written to the last: a reader that waits for
# records there hears of its leader's end at once, however much is buffered of the others.
REPLICAS = {0: [1, 2, 0], 1: [2, 0, 1], 2: [0, 1, 2], 3: [1, 0, 2]}
VICTIM = 1
WAIT_S = 60
# No reader polls for so long, and they meet the change with full buffers. Whether they have met it
# by then decides how much is tested, not whether the test passes.
PAUSE_S = 0.5


def until(condition: Callable[[], bool], what: str, *work: Callable[[], object]) -> None:
    """Work on until something holds."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"in vain: {what}"
        for step in work:
            step()
        if not work:
            time.sleep(0.1)


def new_topic(admin: Admin) -> str:
    """Four partitions, led by all brokers, with all replicas in sync."""
    topic = new_name("t")

    def is_there() -> bool:
        created = admin.create_topics([NewTopic(name=topic, assignments=REPLICAS)])[topic]
        if not isinstance(created, ApiError) or created.code is ErrorCode.TOPIC_ALREADY_EXISTS:
            return True
        # A broker is not known, or no longer: the only thing that may be wrong.
        assert created.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT or created.code.retriable, (
            created
        )
        return False

    until(lambda: len(admin.describe_cluster().nodes) == 3, "all brokers are known")
    until(is_there, "the topic is there")
    until(lambda: are_leaders_preferred(admin, topic), "each leads one")
    return topic


def leaders_of(admin: Admin, topic: str) -> dict[int, int]:
    told = admin.describe_topics([topic], timeout=WAIT_S)[topic]
    return {one.partition: one.leader for one in told.partitions} if is_told(told) else {}


def is_told(told: TopicView | ApiError) -> TypeGuard[TopicView]:
    return isinstance(told, TopicView)


def are_all_in_sync(admin: Admin, topic: str) -> bool:
    told = admin.describe_topics([topic], timeout=WAIT_S)[topic]
    return is_told(told) and all(
        len(one.isr) == len(REPLICAS[one.partition]) for one in told.partitions
    )


def are_leaders_preferred(admin: Admin, topic: str) -> bool:
    """Whether they are; if not, elect them."""
    preferred = {number: replicas[0] for number, replicas in REPLICAS.items()}
    if leaders_of(admin, topic) == preferred:
        return True
    partitions = [TopicPartition(topic, number) for number in REPLICAS]
    admin.elect_leaders(ElectionType.PREFERRED, partitions, timeout=WAIT_S)
    return False


def group_of(admin: Admin, bootstrap: str, node_id: int) -> str:
    """A group that this broker looks after."""
    found: list[str] = []
    with SimpleConsumer(bootstrap_servers=bootstrap) as simple:

        def is_found() -> bool:
            for _ in range(20):
                group = new_name("g")
                if simple.coordinator(group, WAIT_S) == node_id:
                    found.append(group)
                    return True
            return False

        # Each broker is the preferred leader of one partition of the offsets.
        until(
            is_found,
            f"broker {node_id} looks after a group",
            lambda: admin.elect_leaders(ElectionType.PREFERRED, timeout=WAIT_S),
        )
    return found[0]


class Sender:
    """Writes numbers in turn to the partitions until it is told to stop."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._producer = Producer(bootstrap_servers=bootstrap, batch_size=500)
        self.deliveries: list[Any] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._send)
        self._thread.start()

    def _send(self) -> None:
        while not self._stopping.wait(0.002):
            number = len(self.deliveries)
            self.deliveries.append(
                self._producer.send(self._topic, b"%d" % number, partition=number % 3)
            )

    def finish(self) -> None:
        """Stop, and wait until everything has arrived."""
        self._stopping.set()
        self._thread.join(DEADLINE_S)
        self._producer.flush(DEADLINE_S)

    def close(self) -> None:
        self._stopping.set()
        self._thread.join(DEADLINE_S)
        self._producer.close(10)


class Reader:
    """Notes the numbers it reads, by partition."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.numbers: dict[int, list[int]] = {0: [], 1: [], 2: []}

    def poll(self) -> None:
        for record in self.consumer.poll(0.1):
            self.numbers[record.partition].append(int(record.value or b"-1"))

    def commit(self) -> None:
        """Commit; if a rebalance is under way, poll until it is over, as the errors say."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                self.consumer.commit_sync(timeout=WAIT_S)
            except (RebalanceInProgressError, CommitFailedError):
                assert time.monotonic() < deadline
                self.poll()
            else:
                return

    def has_all_up_to(self, number: int) -> bool:
        return all(max(numbers, default=-1) >= number for numbers in self.numbers.values())


def fall_behind(readers: list[Reader]) -> None:
    """Have more fetched than is handed out: a leader that moves must not make it come twice."""
    for _ in range(3):
        time.sleep(PAUSE_S)
        for reader in readers:
            reader.poll()


def replica_of(consumer: Consumer, topic: str, partition: int) -> int:
    """The broker that a partition is read from, -1 for its leader."""
    return int(consumer.metrics()[f"{topic}-{partition}.preferred-read-replica"])


def check_a_broker_dies_and_comes_back_and_leads_again(cluster: ProcessCluster) -> None:
    """09:CL-4, 09:CL-14, 09:CL-24, 09:CL-26: nothing is lost, doubled or reordered."""
    bootstrap = cluster.bootstrap
    with Admin(bootstrap_servers=bootstrap) as admin:
        topic = new_topic(admin)
        settings: dict[str, Any] = {
            "auto_offset_reset": "earliest",
            "client_rack": f"rack-{VICTIM}",  # Reads everything from the broker that will die.
            "max_poll_records": 50,  # So that more is buffered than is handed out at once.
        }
        group = group_of(admin, bootstrap, VICTIM)
        with (
            Consumer(bootstrap_servers=bootstrap, **settings) as by_hand,
            Consumer(
                bootstrap_servers=bootstrap,
                group_id=group,
                session_timeout_ms=SESSION_MS,
                **settings,
            ) as in_group,
        ):
            by_hand.assign([(topic, number) for number in REPLICAS])
            in_group.subscribe([topic])
            readers = [Reader(by_hand), Reader(in_group)]
            polls = [reader.poll for reader in readers]
            sender = Sender(bootstrap, topic)

            def read_on(what: str) -> None:
                """Read what is sent from now on, in every partition."""
                number = len(sender.deliveries) + 30
                until(lambda: all(reader.has_all_up_to(number) for reader in readers), what, *polls)

            try:
                read_on("reading with all brokers")
                until(lambda: replica_of(by_hand, topic, 1) == VICTIM, "it reads there", *polls)
                readers[1].commit()
                fall_behind(readers)
                cluster.brokers[VICTIM].kill()
                until(lambda: leaders_of(admin, topic).get(0, VICTIM) != VICTIM, "another leads")
                time.sleep(PAUSE_S)
                read_on("reading with a dead broker")
                readers[1].commit()
                cluster.brokers[VICTIM].start()
                until(lambda: are_all_in_sync(admin, topic), "it is back in sync", *polls)
                fall_behind(readers)
                until(lambda: are_leaders_preferred(admin, topic), "it leads again")
                time.sleep(PAUSE_S)
                read_on("reading when it leads again")
                sender.finish()
                count = len(sender.deliveries)
                until(
                    lambda: all(reader.has_all_up_to(count - 3) for reader in readers),
                    "the rest",
                    *polls,
                )
            finally:
                sender.close()
    assert [one.exception(WAIT_S) for one in sender.deliveries] == [None] * count
    wanted = {number: list(range(number, count, 3)) for number in range(3)}
    exactly, at_least = readers
    assert exactly.numbers == wanted
    for number, numbers in at_least.numbers.items():
        assert list(dict.fromkeys(numbers)) == wanted[number]


def check_readers_are_served_by_the_replica_in_their_rack(cluster: ProcessCluster) -> None:
    """09:CL-19, 09:CL-26."""
    bootstrap = cluster.bootstrap
    with (
        Producer(bootstrap_servers=bootstrap) as producer,
        Admin(bootstrap_servers=bootstrap) as admin,
    ):
        topic = new_topic(admin)
        for number in range(30):
            producer.send(topic, b"%d" % number, partition=0)  # Broker 1 leads it.
        producer.flush(DEADLINE_S)
        check_racks(admin, bootstrap, topic)


def check_racks(admin: Admin, bootstrap: str, topic: str) -> None:
    for rack, replica in (("rack-2", 2), ("rack-1", -1), ("", -1), ("nowhere", -1)):
        settings: dict[str, Any] = {"client_rack": rack, "auto_offset_reset": "earliest"}
        with Consumer(bootstrap_servers=bootstrap, **settings) as consumer:
            consumer.assign([(topic, 0)])
            reader = Reader(consumer)
            until(lambda: len(reader.numbers[0]) >= 30, "all is read", reader.poll)  # noqa: B023 - this one's
            assert reader.numbers[0] == list(range(30))
            until(
                lambda: replica_of(consumer, topic, 0) == replica,  # noqa: B023 - this one's
                f"{rack or 'no rack'} reads from {replica}",
                reader.poll,
                lambda: are_leaders_preferred(admin, topic),
            )
