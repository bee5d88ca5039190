"""Our producer's transactions on Apache Kafka: both protocols, restarts, lost answers."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from odradek import Admin, Producer
from odradek.client.admin import NewTopic
from odradek.client.producer import AbortableTransactionError, RetriableTransactionError
from odradek.client.producer.delivery import Delivery
from odradek.records.batch import LOG_OVERHEAD, parse_header
from tests.conformance.interop.producer_transaction_checks import (
    PRODUCER_TRANSACTION_CHECKS,
    committed_values,
    eventually_true,
    transactional,
)
from tests.conformance.interop.suite import run_all
from tests.support.apache_kafka import (
    KafkaInstall,
    RunningBroker,
    find_kafka,
    running_broker,
    why_missing,
)
from tests.support.group_readers import create_topic, produce
from tests.support.ports import free_port
from tests.support.proxy import Proxy, proxied

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.timeout(900)]

_ROOT: Final = Path(__file__).parents[3]
_WAIT_S: Final = 60
_SETTINGS: Final = {
    # How often a coordinator looks for transactions whose time is over.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}


def install_of(version: str) -> KafkaInstall:
    install = find_kafka(version)
    if install is None:
        pytest.skip(why_missing(version))
    return install


@contextmanager
def kafka_behind(proxy: Proxy, install: KafkaInstall, data_dir: Path) -> Iterator[RunningBroker]:
    """A broker whose clients come through the proxy, whatever its own port is."""
    address = f"PLAINTEXT://127.0.0.1:{proxy.port}"
    settings = {**_SETTINGS, "advertised.listeners": address}
    with running_broker(install, data_dir, settings) as broker:
        proxy.broker_port = int(broker.bootstrap.rpartition(":")[2])
        yield broker


def stored_batches(broker: RunningBroker, topic: str) -> int:
    """The batches in the log of partition 0, with markers, read from its file."""
    content = (broker.log_dir / f"{topic}-0" / f"{0:020}.log").read_bytes()
    count = position = 0
    while (header := parse_header(content, position)) is not None:
        if not header.length:
            break  # Kafka makes files larger than they are.
        count += 1
        position += LOG_OVERHEAD + header.length
    return count


def send_five(producer: Producer, topic: str) -> list[Delivery]:
    return [producer.send(topic, b"%d" % number, partition=0) for number in range(5)]


FIVE: Final = sorted([b"first", *(b"%d" % number for number in range(5))])


def five_whose_answers_are_lost(broker: RunningBroker, proxy: Proxy, **settings: Any) -> None:
    """10:PR-1: resent, each recognised."""
    bootstrap = f"127.0.0.1:{proxy.port}"
    topic = create_topic(bootstrap, 1)
    with transactional(bootstrap, batch_size=0, **settings) as producer, producer.transaction():
        producer.send(topic, b"first", partition=0).result(_WAIT_S)
        proxy.is_deaf = True
        sent = send_five(producer, topic)
        eventually_true(lambda: stored_batches(broker, topic) == 6, "five batches are not stored")
        proxy.is_deaf = False
        proxy.cut()
        assert [one.result(_WAIT_S).partition for one in sent] == [0] * 5
    assert committed_values(bootstrap, topic) == FIVE


def a_commit_whose_answer_is_lost(proxy: Proxy) -> None:
    """10:TX-7, 10:TX-10: called again until its answer comes."""
    bootstrap = f"127.0.0.1:{proxy.port}"
    topic = create_topic(bootstrap, 1)
    with transactional(bootstrap) as producer:
        producer.begin_transaction()
        producer.send(topic, b"kept").result(_WAIT_S)
        proxy.is_deaf = True
        with pytest.raises(RetriableTransactionError):
            producer.commit_transaction(timeout=1)
        proxy.is_deaf = False
        proxy.cut()
        producer.commit_transaction()
        with producer.transaction():
            producer.send(topic, b"next")
    assert committed_values(bootstrap, topic) == [b"kept", b"next"]


def documented_examples() -> list[str]:
    """The programs in the documentation of transactions."""
    text = (_ROOT / "docs" / "clients" / "producer.md").read_text()
    section = text.partition("\n## Transactions\n")[2].partition("\n## ")[0]
    return re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)


def run_documented_examples(bootstrap: str) -> None:
    """10:TX-12: as a reader would run them, one after the other."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        topics = [NewTopic(name=name) for name in ("words", "upper-case", "load")]
        created = admin.create_topics(topics)
        assert not [one for one in created.values() if isinstance(one, Exception)]
    produce(bootstrap, "words", [b"one", b"two"], partitions=1)
    for program in documented_examples():
        code = program.replace("localhost:9092", bootstrap)
        subprocess.run([sys.executable, "-c", code], check=True, timeout=_WAIT_S)
    assert committed_values(bootstrap, "upper-case") == [b"ONE", b"TWO"]
    assert committed_values(bootstrap, "load") == [b"row"]


def downgrade(install: KafkaInstall, bootstrap: str) -> None:
    done = install.run_tool(
        "org.apache.kafka.tools.FeatureCommand",
        *("--bootstrap-server", bootstrap, "downgrade", "--feature", "transaction.version=0"),
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("version", ["4.3.1", "3.9.1"])
def test_our_transactions_on_apache_kafka(version: str, tmp_path: Path) -> None:
    """10:TX-1 to 10:TX-7, 10:TX-10, 10:TX-12: with transaction.version 2 and 0."""
    install = install_of(version)
    with proxied(free_port()) as proxy:
        bootstrap = f"127.0.0.1:{proxy.port}"
        with kafka_behind(proxy, install, tmp_path / "kafka") as broker:
            run_all(PRODUCER_TRANSACTION_CHECKS, bootstrap)
            five_whose_answers_are_lost(broker, proxy)
            a_commit_whose_answer_is_lost(proxy)
            run_documented_examples(bootstrap)
            if version == "4.3.1":
                downgrade(install, bootstrap)
                run_all(PRODUCER_TRANSACTION_CHECKS, bootstrap)
                five_whose_answers_are_lost(broker, proxy)
                a_commit_whose_answer_is_lost(proxy)


@pytest.mark.parametrize("version", ["4.3.1", "3.9.1"])
def test_a_kill_of_kafka_between_produce_and_commit(version: str, tmp_path: Path) -> None:
    """10:TX-7, 10:PR-11: acknowledged records are committed; others there once or aborted."""
    install, data_dir = install_of(version), tmp_path / "kafka"
    with proxied(free_port()) as proxy:
        bootstrap = f"127.0.0.1:{proxy.port}"
        with kafka_behind(proxy, install, data_dir) as broker:
            acknowledged, unanswered = create_topic(bootstrap, 1), create_topic(bootstrap, 1)
            one, other = transactional(bootstrap), transactional(bootstrap, batch_size=0)
            one.begin_transaction()
            one.send(acknowledged, b"kept").result(_WAIT_S)
            other.begin_transaction()
            other.send(unanswered, b"first", partition=0).result(_WAIT_S)
            proxy.is_deaf = True
            sent = send_five(other, unanswered)
            eventually_true(lambda: stored_batches(broker, unanswered) == 6, "five are not stored")
            broker.kill()
            proxy.cut()
            proxy.is_deaf = False
        with kafka_behind(proxy, install, data_dir), one, other:
            one.commit_transaction()
            with one.transaction():
                one.send(acknowledged, b"next")
            assert committed_values(bootstrap, acknowledged) == [b"kept", b"next"]
            # After a restart Kafka knows the last of five batches only. Recognised or not, each
            # record is there once after the next attempt.
            try:
                other.commit_transaction()
            except AbortableTransactionError:
                assert any(delivery.exception(0) is not None for delivery in sent)
                other.abort_transaction()
                with other.transaction():
                    other.send(unanswered, b"first", partition=0)
                    send_five(other, unanswered)
            assert committed_values(bootstrap, unanswered) == FIVE
