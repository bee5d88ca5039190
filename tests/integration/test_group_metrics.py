"""What monitors are told of groups, on a running broker."""

import time
from pathlib import Path

import pytest

from odradek import Admin, Producer
from odradek.client.consumer import OffsetAndMetadata
from odradek.model import TopicPartition
from tests.support.commands import Commands, run_command
from tests.support.odradek_broker import OdradekBroker, running_odradek

pytestmark = pytest.mark.slow

LAG = "kafka_consumergroup_lag"


def lags(broker: OdradekBroker) -> dict[str, int]:
    """By `group topic-partition`, as the command prints them."""
    address = f"127.0.0.1:{broker.metrics_port}"
    outcome = run_command("metrics", address, LAG, "--json")
    if outcome.code:
        assert LAG in outcome.err  # There is none.
        return {}
    found = {}
    for sample in outcome.json:
        labels = dict(one.split("=") for one in sample["labels"].replace('"', "").split(","))
        assert labels.keys() == {"consumergroup", "topic", "partition"}
        name = f"{labels['consumergroup']} {labels['topic']}-{labels['partition']}"
        found[name] = sample["value"]
    return found


def test_the_lag_of_groups_is_told_as_long_as_they_have_one(tmp_path: Path) -> None:
    with running_odradek(tmp_path, {"offsets.topic.num.partitions": "1"}) as broker:
        odradek = Commands(broker.bootstrap)
        for topic in ("orders", "other"):
            odradek.ok("topics", "create", topic, "--partitions", 2)
        with (
            Producer(bootstrap_servers=broker.bootstrap) as producer,
            Admin(bootstrap_servers=broker.bootstrap) as admin,
        ):
            orders_0, orders_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
            for number in range(7):
                producer.send("orders", b"%d" % number, partition=number % 2)
            producer.flush()
            assert lags(broker) == {}

            admin.alter_group_offsets(
                "g", {orders_0: OffsetAndMetadata(1), orders_1: OffsetAndMetadata(3)}
            )
            admin.alter_group_offsets("h", {TopicPartition("other", 1): OffsetAndMetadata(0)})
            assert lags(broker) == {"g orders-0": 3, "g orders-1": 0, "h other-1": 0}
            states = broker.metrics()
            assert "kafka_coordinator_group_groupmetadatamanager_numgroupsempty 2\n" in states
            assert "kafka_coordinator_group_groupmetadatamanager_numoffsets 3\n" in states

            producer.send("orders", b"more", partition=1)
            producer.send("other", b"more", partition=1)
            producer.flush()
            admin.alter_group_offsets("g", {orders_0: OffsetAndMetadata(4)})
            assert lags(broker) == {"g orders-0": 0, "g orders-1": 1, "h other-1": 1}

        odradek.ok("groups", "delete-offsets", "g", "--topic", "orders:0")
        assert lags(broker) == {"g orders-1": 1, "h other-1": 1}
        odradek.ok("groups", "delete", "g")
        assert lags(broker) == {"h other-1": 1}
        odradek.ok("topics", "delete", "other")
        deadline = time.monotonic() + 60
        while found := lags(broker):
            assert time.monotonic() < deadline, found
            time.sleep(0.05)
