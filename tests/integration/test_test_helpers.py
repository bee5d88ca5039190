"""What embedded brokers offer to the tests of other projects: topics, records, faults, TLS."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek import Admin, Producer
from odradek.errors import ApiError, ConfigError
from odradek.testing import EmbeddedBroker, EmbeddedCluster

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as started:
        yield started


def test_topics_are_made_filled_emptied_and_deleted(broker: EmbeddedBroker) -> None:
    topic = broker.create_topic(partitions=3, settings={"retention.ms": "1000000"})
    assert topic != broker.create_topic()
    broker.send(topic, "a", b"b", None, key="k")
    assert [(one.key, one.value) for one in broker.records(topic)] == [
        (b"k", b"a"), (b"k", b"b"), (b"k", None),
    ]  # fmt: skip
    broker.assert_records(topic, ["a", "b", None])
    broker.empty_topic(topic)
    assert broker.records(topic) == []
    broker.send(topic, "c", key="k")
    assert [one.offset for one in broker.records(topic)] == [3]
    broker.delete_topic(topic)
    with pytest.raises(ApiError):
        broker.delete_topic(topic)
    with pytest.raises(ApiError):
        broker.create_topic("not/a/name")


def test_differences_are_named(broker: EmbeddedBroker) -> None:
    topic = broker.create_topic()
    broker.send(topic, "a", "b")
    broker.assert_records(topic, ["b", "a"], in_order=False)
    for values, expected in (
        (["b", "a"], "have another order: expected [b'b', b'a'], found [b'a', b'b']"),
        (["a", "c"], "differ: missing [b'c'], unexpected [b'b']"),
        (["a"], "differ: missing [], unexpected [b'b']"),
    ):
        with pytest.raises(AssertionError, match=re.escape(expected)):
            broker.assert_records(topic, values)
    few = re.escape(f"expected 3 records in topic '{topic}' within 0.1 s, found 2: [b'a', b'b']")
    with pytest.raises(AssertionError, match=few):
        broker.wait_for_records(topic, 3, timeout=0.1)


def test_aborted_records_are_no_records(broker: EmbeddedBroker) -> None:
    topic = broker.create_topic()
    with Producer(broker.client_settings, transactional_id="t") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"aborted")
        producer.abort_transaction()
    assert broker.records(topic) == []


def test_a_killed_broker_comes_back_with_its_data_and_port() -> None:
    with EmbeddedBroker() as broker:
        topic, address = broker.create_topic(), broker.bootstrap_servers
        broker.send(topic, "before")
        for number in range(2):
            broker.kill()
            with pytest.raises(RuntimeError, match="not running"):
                broker.kill()
            broker.start()
            assert broker.bootstrap_servers == address
            broker.send(topic, f"after {number}")
        broker.assert_records(topic, ["before", "after 0", "after 1"])


def test_a_paused_broker_answers_when_it_goes_on() -> None:
    with EmbeddedBroker() as broker:
        impatient = {"request.timeout.ms": 300, "default.api.timeout.ms": 300}
        admin = Admin({**broker.client_settings, **impatient})
        with admin, broker.paused(), pytest.raises(ApiError):
            admin.list_topics()
        assert broker.records(broker.create_topic()) == []
        broker.pause()  # Leaving the block ends it.


def test_a_slow_broker_takes_more_turns_than_none() -> None:
    with EmbeddedBroker() as broker:
        topic = broker.create_topic()
        impatient = {"request.timeout.ms": 100, "default.api.timeout.ms": 100}
        admin = Admin({**broker.client_settings, **impatient})
        with admin, broker.slowed(0.5), pytest.raises(ApiError):
            admin.list_topics()
        broker.send(topic, "as before")
        broker.assert_records(topic, ["as before"])


def test_a_full_disk_ends_the_broker_and_loses_nothing() -> None:
    with EmbeddedBroker() as broker:
        topic = broker.create_topic()
        broker.send(topic, "before")
        short = {"request.timeout.ms": 500, "delivery.timeout.ms": 1000, "linger.ms": 0}
        errors: list[object] = []
        with (
            broker.disk_full(),
            Producer({**broker.client_settings, **short}, on_error=errors.append) as producer,
            pytest.raises(ApiError),
        ):
            producer.send(topic, b"too much").result()
        broker.kill()
        broker.start()
        broker.send(topic, "after")
        broker.assert_records(topic, ["before", "after"])


def test_tls_with_and_without_certificates_of_clients() -> None:
    with EmbeddedBroker(tls=True) as broker:
        anonymous = {
            key: value for key, value in broker.client_settings.items() if "keystore" not in key
        }
        with Admin(anonymous) as admin:
            assert admin.list_topics() is not None
    with pytest.raises(RuntimeError, match="not running"):
        _ = broker.client_settings
    with EmbeddedBroker() as plain, pytest.raises(RuntimeError, match="expected tls=True"):
        _ = plain.certificates


@pytest.mark.parametrize("tls", [False, True])
def test_faults_need_a_broker_that_runs(tls: bool) -> None:
    broker = EmbeddedBroker(tls=tls)
    for fault in (broker.paused(), broker.slowed(1), broker.disk_full()):
        with pytest.raises(RuntimeError, match="not running"), fault:
            pass
    broker.stop()


def test_clusters_have_the_same_helpers() -> None:
    with EmbeddedCluster(2) as cluster:
        topic = cluster.create_topic(replication_factor=2)
        cluster.send(topic, "x")
        cluster.assert_records(topic, ["x"])


@pytest.mark.parametrize(
    ("name", "expected"),
    [("log.retention.mss", "unknown setting, did you mean log.retention.ms?"),
     ("nonsense", "unknown setting")],
)  # fmt: skip
def test_a_mistyped_setting_is_an_error(name: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(expected)):
        EmbeddedBroker({name: "1"}).start()


def test_settings_of_kafkas_that_mean_nothing_here_are_accepted() -> None:
    with EmbeddedBroker({"log.cleaner.threads": "1", "auto.leader.rebalance.enable": "true"}):
        pass


def test_a_mistyped_setting_fails_the_tests_that_use_it(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "import pytest\n\n\n@pytest.fixture(scope='session')\ndef odradek_broker_settings():\n"
        "    return {'num.partition': '3'}\n"
    )
    (tmp_path / "test_one.py").write_text("def test_one(odradek_broker):\n    pass\n")
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "odradek.testing.pytest_plugin"],
        cwd=tmp_path,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 1
    assert (
        "odradek_broker_settings: num.partition: unknown setting, did you mean num.partitions?"
        in result.stdout
    )
