"""One run: a producer with five requests in flight, whose broker goes away with their answers.

In each round answers to Produce requests are swallowed, some or all five that the producer has in
flight; then the broker is killed or stopped, and started again. The producer sends again what it
has no answer for, and the broker has to know it. At the end the log is read: each record that was
sent is there once, in order, and where its producer was told.
"""

import itertools
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.restarts.swallowing import SwallowingProxy, swallowing
from tests.support.java_programs import java_command
from tests.support.odradek_broker import running_odradek
from tests.support.ports import free_ports

__all__ = ["CLIENTS", "ENDS", "Plan", "Told", "Verdict", "judge", "parse_told", "run"]

CLIENTS = ("java", "librdkafka", "ours")
ENDS = ("kill", "stop")
TOPIC = "restarts"
IN_FLIGHT = 5
ROUNDS = 3
WAIT_S = 180
SWALLOW_S = 5
# What a sender prints for some hundred answers: none of them is to a request that was repeated.
ANSWERS_BYTES = 1_500
# How many answers are lost: in half of the rounds all of them.
_LOST = (1, 2, 3, 4, *[IN_FLIGHT] * 4)
ROOT = Path(__file__).parents[2]
_SENDER = Path(__file__).parent / "senders" / "Sender.java"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run is made of; the seed draws the rest."""

    client: str
    end: str  # Of the broker, in each round.
    seed: int
    folder: Path
    rounds: int = ROUNDS
    lost: int = 0  # Answers of each round; drawn if it is 0.


@dataclass(slots=True)
class Told:
    """What a producer was told of the records 0, 1, 2, … that it sent."""

    sent: int | None = None  # How many; None: it did not come to its end.
    acked: dict[int, int] = field(default_factory=dict)  # The offset of each, -1: not told.
    failed: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a run came to."""

    faults: Sequence[str]
    sent: int = 0
    swallowed: int = 0  # Answers.
    most_in_flight: int = 0


def parse_told(lines: Sequence[str]) -> Told:
    """Reads what a sender printed."""
    told = Told()
    for line in lines:
        word, _, rest = line.partition(" ")
        number, _, rest = rest.partition(" ")
        if word == "sent":
            told.sent = int(number)
        elif word == "acked":
            told.acked[int(number)] = int(rest)
        elif word == "failed":
            told.failed[int(number)] = rest
    return told


def judge(told: Told, logs: Mapping[int, Sequence[tuple[int, int]]]) -> list[str]:
    """Names what is wrong with the partitions, each (offset, number of the record) in order.

    All answers came in the end, so that every record was acknowledged, and is there once.
    """
    faults = [f"record {number} failed: {why}" for number, why in sorted(told.failed.items())]
    if told.sent is None:
        faults.append("the producer did not come to its end")
    counts = Counter(number for log in logs.values() for _, number in log)
    faults += [
        f"record {number} is there {count} times" for number, count in counts.items() if count > 1
    ]
    for partition, log in sorted(logs.items()):
        for (offset, number), (later_offset, later) in itertools.pairwise(log):
            if later <= number:
                faults.append(
                    f"partition {partition}: record {later} at {later_offset} follows record"
                    f" {number} at {offset}"
                )
        faults += [
            f"partition {partition}: record {number} is at {offset}, its producer was told"
            f" {told.acked[number]}"
            for offset, number in log
            if told.acked.get(number, -1) not in (-1, offset)
        ]
    lost = sorted(told.acked.keys() - counts.keys())
    faults += [f"record {number} was acknowledged and is not there" for number in lost]
    unanswered = set(range(told.sent or 0)) - told.acked.keys() - told.failed.keys()
    faults += [f"record {number} was never answered" for number in sorted(unanswered)]
    return faults


def run(plan: Plan) -> Verdict:
    """Runs it; the files of the broker and of the sender are left in the folder."""
    random = Random(plan.seed)
    partitions = random.choice((1, 1, 3))
    transactional_id = random.choice(("", "restarts"))
    port, broker_port = free_ports(2)
    plan.folder.mkdir(parents=True, exist_ok=True)
    output = plan.folder / "told.txt"
    settings = {
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "transaction.state.log.num.partitions": "1",
    }
    with swallowing(port, broker_port) as proxy:
        sender = None
        try:
            for number in range(plan.rounds + 1):
                with running_odradek(plan.folder, settings, port=broker_port) as broker:
                    if sender is None:
                        _create_topic(broker.bootstrap, partitions)
                        sender = _start(plan, f"127.0.0.1:{port}", partitions, transactional_id)
                    _await_answers(output)
                    if number < plan.rounds:
                        _swallow(proxy, output, plan.lost or random.choice(_LOST))
                        broker.kill() if plan.end == "kill" else broker.stop()
                        proxy.pass_on()
                        continue
                    assert sender.stdin is not None
                    sender.stdin.close()
                    is_ended = _ends(sender)
                    told = parse_told(output.read_text().splitlines())
                    faults = [] if is_ended else ["the producer ended in disorder, see told.err"]
                    faults += judge(told, _read(broker.bootstrap, partitions))
        finally:
            if sender is not None and sender.poll() is None:
                sender.kill()
                sender.wait()
    return Verdict(
        faults=faults,
        sent=told.sent or 0,
        swallowed=proxy.swallowed,
        most_in_flight=proxy.most_in_flight,
    )


def _swallow(proxy: SwallowingProxy, output: Path, count: int) -> None:
    """Has so many answers lost at once.

    A client that repeats requests may have fewer in flight than it is allowed. Their answers are
    lost in vain then, and it gets another chance.
    """
    deadline = time.monotonic() + WAIT_S
    while not proxy.swallow(count, SWALLOW_S):
        if time.monotonic() < deadline:
            proxy.pass_on()
            _await_answers(output)
            continue
        raise TimeoutError(
            f"the producer has no {count} requests in flight, but at most {proxy.most_in_flight};"
            f" {proxy.swallowed} answers were swallowed so far"
        )


def _start(
    plan: Plan, bootstrap: str, partitions: int, transactional_id: str
) -> "subprocess.Popen[bytes]":
    arguments = (bootstrap, TOPIC, str(partitions), transactional_id)
    command = [sys.executable, "-m", "tests.restarts.senders", plan.client, *arguments]
    if plan.client == "java":
        command = java_command(_SENDER, *arguments)
    with (plan.folder / "told.txt").open("wb") as out, (plan.folder / "told.err").open("wb") as err:
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, stderr=err, cwd=ROOT)


def _ends(sender: "subprocess.Popen[bytes]") -> bool:
    try:
        return sender.wait(2 * WAIT_S) == 0
    except subprocess.TimeoutExpired:
        return False


def _await_answers(output: Path) -> None:
    """Waits until the producer is told of more records than before."""
    before = output.stat().st_size
    deadline = time.monotonic() + WAIT_S
    while output.stat().st_size < before + ANSWERS_BYTES:
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"the producer is told nothing more, see {output.with_suffix('.err')}"
            )
        time.sleep(0.02)


def _create_topic(bootstrap: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    # The broker names the way through the proxy, so all that follows goes there.
    admin.create_topics([NewTopic(TOPIC, partitions, 1)])[TOPIC].result(WAIT_S)


def _read(bootstrap: str, partitions: int) -> dict[int, list[tuple[int, int]]]:
    """All committed records of each partition: offset and number."""
    logs: dict[int, list[tuple[int, int]]] = {}
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "restarts",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    try:
        deadline = time.monotonic() + WAIT_S
        for number in range(partitions):
            logs[number] = []
            consumer.assign([TopicPartition(TOPIC, number, 0)])
            is_over = False
            while not is_over:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"partition {number} is not read to its end")
                for message in consumer.consume(1000, 0.2):
                    error = message.error()
                    if error is None:
                        offset, value = message.offset(), message.value()
                        assert offset is not None
                        assert value is not None
                        logs[number].append((offset, int(value)))
                    elif error.code() == KafkaError._PARTITION_EOF:
                        is_over = True
                    elif not error.retriable():
                        raise KafkaException(error)
    finally:
        consumer.close()
    return logs
