"""What an operator asks about transactions, whoever made the broker."""

import asyncio
import time
from typing import Any

import pytest

from odradek import Admin
from odradek.client import LATEST, Client, ClientOptions
from odradek.client.admin import (
    ConfigOperation,
    ConfigResource,
    ConfigResourceType,
    FeatureUpgrade,
    OpenTransaction,
    ProducerState,
    TransactionDescription,
    TransactionListing,
)
from odradek.errors import ApiError, ErrorCode
from odradek.model import TopicPartition
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.enums import IsolationLevel
from odradek.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.protocol.versions import VersionRange
from odradek.records.builder import build_batch
from tests.conformance.interop.admin_checks import eventually
from tests.conformance.interop.suite import Check
from tests.conformance.interop.transaction_checks import Writer
from tests.support.commands import Commands
from tests.support.group_readers import create_topic, new_name

__all__ = ["TRANSACTION_TOOL_CHECKS"]

HOUR_MS = 3_600_000
# Ids that no coordinator will hand out while a test runs.
STRANGE_PRODUCER_ID = 4_711_000


def listing(admin: Admin, transactional_id: str, **filters: Any) -> TransactionListing | None:
    listed = admin.list_transactions(**filters)
    found = [one for one in listed if one.transactional_id == transactional_id]
    return found[0] if found else None


def state_of(admin: Admin, transactional_id: str) -> str:
    told = admin.describe_transactions([transactional_id])[transactional_id]
    return told.state if isinstance(told, TransactionDescription) else str(told)


def check_transactions_are_listed_and_described(bootstrap: str) -> None:
    """11:66, 11:65: all filters; what a coordinator does not know is an error by its name."""
    topic = create_topic(bootstrap, 2)
    writer, other = Writer(bootstrap, topic), Writer(bootstrap, topic)
    writer.write(b"a")
    other.write(b"b")
    other.commit(end=3)
    name, done = writer.transactional_id, other.transactional_id
    nobody = new_name("nobody")
    with Admin(bootstrap_servers=bootstrap) as admin:
        eventually(lambda: state_of(admin, done) == "CompleteCommit", "the marker is noted")
        told = admin.describe_transactions([name, done, nobody])
        running = told[name]
        assert isinstance(running, TransactionDescription)
        assert running.state == "Ongoing"
        assert running.partitions == (TopicPartition(topic, 0),)
        assert running.timeout_ms == 600_000
        assert running.start_time_ms is not None
        assert abs(running.start_time_ms - time.time() * 1000) < HOUR_MS
        ended = told[done]
        assert isinstance(ended, TransactionDescription)
        assert (ended.partitions, ended.start_time_ms is None or ended.start_time_ms > 0) == (
            (), True,
        )  # fmt: skip
        missing = told[nobody]
        assert isinstance(missing, ApiError)
        assert missing.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        row = listing(admin, name)
        assert row == (name, running.coordinator, running.producer_id, "Ongoing")
        assert listing(admin, name, states=["Ongoing"]) == row
        assert listing(admin, done, states=["Ongoing"]) is None
        assert listing(admin, name, producer_ids=[running.producer_id]) == row
        assert listing(admin, done, producer_ids=[running.producer_id]) is None
        assert listing(admin, name, min_duration_ms=0) == row
        assert listing(admin, name, min_duration_ms=HOUR_MS) is None
        with pytest.raises(ApiError, match="NoSuchState"):
            admin.list_transactions(states=["NoSuchState"])
        if versions_of(admin, "LIST_TRANSACTIONS") < 2:
            with pytest.raises(ApiError) as caught:
                admin.list_transactions(id_pattern="tx.*")
            assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
        else:
            assert listing(admin, name, id_pattern=f"{name[:-1]}.") == row
            assert listing(admin, name, id_pattern="nobody.*") is None
            with pytest.raises(ApiError) as caught:
                admin.list_transactions(id_pattern="(")
            assert caught.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
        producers = admin.describe_producers([TopicPartition(topic, 0)], broker=row.coordinator)
    (both,) = producers.values()
    assert not isinstance(both, ApiError)
    (first,) = OpenTransaction.among(TopicPartition(topic, 0), both)
    assert (first.producer_id, first.start_offset) == (running.producer_id, 0)
    assert len(both) == 2
    check_commands(Commands(bootstrap), topic, running)
    writer.abort(end=4)


def versions_of(admin: Admin, name: str) -> int:
    (broker,) = admin.describe_api_versions()
    return next(row.versions.last for row in broker.apis if row.name == name)


def check_commands(odradek: Commands, topic: str, running: TransactionDescription) -> None:
    """The same by the command line."""
    name, producer_id = running.transactional_id, running.producer_id
    list_ = odradek.ok("transactions", "list", "--state", "ongoing", "--producer-id", producer_id)
    assert list_.rows == [[name, str(running.coordinator), str(producer_id), "Ongoing"]]
    (listed,) = odradek.ok("transactions", "list", "--producer-id", producer_id, "--json").json
    assert listed == {
        "transactional_id": name,
        "coordinator": running.coordinator,
        "producer_id": producer_id,
        "state": "Ongoing",
    }
    (shown,) = odradek.ok("transactions", "describe", name, "--json").json
    assert shown["partitions"] == [{"topic": topic, "partition": 0}]
    assert shown["duration_ms"] >= 0
    assert shown["start_time_ms"] == running.start_time_ms
    assert odradek.ok("transactions", "describe", name).rows[0][-1] == f"{topic}-0"
    failed = odradek("transactions", "describe", "no-such-id")
    assert (failed.code, failed.out) == (1, "")
    assert "TRANSACTIONAL_ID_NOT_FOUND" in failed.err
    (row,) = odradek.ok("transactions", "producers", f"{topic}:0", "--open", "--json").json
    assert (row["producer_id"], row["transaction_start_offset"]) == (producer_id, 0)
    assert len(odradek.ok("transactions", "producers", topic).rows) == 2
    # It is open, and its coordinator knows.
    late = ("transactions", "find-hanging", topic, "--max-transaction-timeout", 0)
    assert odradek.ok(*late).out == ""
    wrong = odradek("transactions", "abort", topic, "--partition", 0, "--start-offset", 99)
    assert (wrong.code, wrong.out) == (1, "")
    assert "no open transaction starts at offset 99" in wrong.err


def leave_open(bootstrap: str, tp: TopicPartition, *producer_ids: int) -> None:
    """Batches of transactions that no coordinator was told of, an hour old."""

    async def send() -> None:
        host, _, port = bootstrap.rpartition(":")
        async with Client(ClientOptions(bootstrap=((host, int(port)),))) as client:
            deadline = client.deadline()
            for producer_id in producer_ids:
                batch = build_batch(
                    [(int(time.time() * 1000) - HOUR_MS, b"k", b"hangs", ())],
                    producer_id=producer_id,
                    producer_epoch=0,
                    base_sequence=0,
                    is_transactional=True,
                )
                request = ProduceRequest(
                    transactional_id="hangs",
                    acks=-1,
                    timeout_ms=30_000,
                    topic_data=[
                        TopicProduceData(
                            name=tp.topic,
                            partition_data=[
                                PartitionProduceData(index=tp.partition, records=bytes(batch))
                            ],
                        )
                    ],
                )
                connection = await client.any_connection(deadline)
                response = await client.ask(
                    connection,
                    ApiKey.PRODUCE,
                    request,
                    ProduceResponse,
                    deadline,
                    # From 12 on the broker tells the coordinator.
                    within=VersionRange(3, 10),
                )
                (answer,) = response.responses[0].partition_responses
                assert answer.error_code == ErrorCode.NONE, answer

    asyncio.run(send())


def check_hanging_transactions_are_found_and_aborted(bootstrap: str) -> None:
    """10:9.8: Kafka's rule; readers of committed records go on behind the abort markers."""
    tp = TopicPartition(create_topic(bootstrap, 1), 0)
    brokers = ConfigResource(ConfigResourceType.BROKER, "")
    verification = "transaction.partition.verification.enable"
    odradek = Commands(bootstrap)
    with Admin(bootstrap_servers=bootstrap) as admin:

        def verifies() -> str | None:
            (node,) = admin.describe_cluster().nodes
            broker = ConfigResource(ConfigResourceType.BROKER, str(node.id))
            (entry,) = admin.describe_configs([broker], names=[verification])[broker]  # type: ignore[misc]  # it may be asked
            return str(entry.value)

        is_on = verifies() == "true"  # Where a running broker can change it.
        if is_on:
            off = [ConfigOperation.set(verification, "false")]
            assert admin.incremental_alter_configs({brokers: off}) == {brokers: None}
            eventually(lambda: verifies() == "false", "it is off")
        leave_open(bootstrap, tp, STRANGE_PRODUCER_ID, STRANGE_PRODUCER_ID + 1)
        if is_on:
            on = [ConfigOperation.delete(verification)]
            assert admin.incremental_alter_configs({brokers: on}) == {brokers: None}

        def stable_end() -> int:
            found = admin.list_offsets({tp: LATEST}, isolation_level=IsolationLevel.READ_COMMITTED)
            told = found[tp]
            assert not isinstance(told, ApiError)
            return told.offset

        assert stable_end() == 0
        found = admin.find_hanging_transactions(topics=[tp.topic])
        assert [(one.partition, one.producer_id, one.start_offset) for one in found] == [
            (tp, STRANGE_PRODUCER_ID, 0), (tp, STRANGE_PRODUCER_ID + 1, 1),
        ]  # fmt: skip
        assert admin.find_hanging_transactions(partitions=[tp], max_timeout_ms=2 * HOUR_MS) == []
        shown = odradek.ok("transactions", "find-hanging").rows
        assert [tp.topic, "0", str(STRANGE_PRODUCER_ID), "0", "-1", "0"] in [
            row[:6] for row in shown
        ]
        first, second = found
        stale = first._replace(producer_epoch=-1)
        refused = admin.abort_transactions([stale])[stale]
        assert refused is not None
        assert admin.abort_transactions([first]) == {first: None}
        eventually(lambda: stable_end() == 1, "the second one is waited for")
        place = (tp.topic, "--partition", 0)
        start = second.start_offset
        (ended,) = odradek.ok(
            "transactions", "abort", *place, "--start-offset", start, "--json"
        ).json
        assert [ended[name] for name in ("topic", "partition", "producer_id", "start_offset")] == [
            *tp, second.producer_id, start,
        ]  # fmt: skip
        eventually(lambda: stable_end() == 4, "all are ended, and so are their markers")
        assert odradek.ok("transactions", "find-hanging", tp.topic, "--json").json == []
        states = admin.describe_producers([tp])[tp]
        assert isinstance(states, list)
        assert not any(one.is_in_transaction for one in states)
        assert all(isinstance(one, ProducerState) for one in states)


def check_features_are_told_and_moved(bootstrap: str) -> None:
    """11:57: up, down and not beyond what the brokers know."""
    name = "transaction.version"
    odradek = Commands(bootstrap)
    with Admin(bootstrap_servers=bootstrap) as admin:

        def level() -> int:
            return next(one.level for one in admin.describe_features() if one.name == name)

        features = {one.name: one for one in admin.describe_features()}
        if name not in features:  # A broker before 4.0.
            refused = admin.update_features({name: 1})[name]
            assert refused is not None
            return
        feature = features[name]
        assert (feature.min_supported, feature.max_supported) == (0, 2)
        before = feature.level
        too_high = admin.update_features({name: 7})[name]
        assert too_high is not None
        rows = odradek.ok("features", "list").rows
        assert [name, "0", "2", str(before)] in rows
        assert odradek.ok("features", "update", f"{name}={before}", "--validate-only").out
        down = admin.update_features({name: 0}, upgrade=FeatureUpgrade.UNSAFE_DOWNGRADE)
        assert down == {name: None}
        eventually(lambda: level() == 0, "it is taken back")
        assert odradek.ok("features", "update", f"{name}=2").out == f"{name} has level 2\n"
        eventually(lambda: level() == 2, "it is in force")


TRANSACTION_TOOL_CHECKS: tuple[Check, ...] = (
    check_transactions_are_listed_and_described,
    check_hanging_transactions_are_found_and_aborted,
    check_features_are_told_and_moved,
)
