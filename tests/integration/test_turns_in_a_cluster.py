"""02 section 12 in a cluster: requests between brokers about many partitions keep no loop.

LeaderAndIsr, UpdateMetadata, StopReplica, reassignments and the fetches of followers grow with the
partitions. Three brokers and their store share one loop here, so a turn has the work of all three.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.errors import ErrorCode
from odradek.garbage import PacedCollector
from odradek.network.loop_turns import MeasuredLoop
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.delete_topics import DeleteTopicsRequest
from odradek.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
)
from odradek.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponsePartition,
)
from odradek.testing.cluster import AsyncEmbeddedCluster
from tests.conformance.clients.raw import RawConnection
from tests.integration.test_turns_of_every_api import LIMIT_NS, attempts
from tests.support.group_members import wait_until

PARTITIONS = 500
PATIENCE_MS = 120_000


class MeasuredCluster:
    """Three brokers on one loop, which measures the CPU time of its turns."""

    def __init__(self, data_dir: Path) -> None:
        self.loop = MeasuredLoop(time.thread_time_ns)
        self.brokers = AsyncEmbeddedCluster(3, data_dir=data_dir)
        self._thread = threading.Thread(target=self.loop.run_forever, name="measured")

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    @contextlib.contextmanager
    def running(self) -> Iterator["MeasuredCluster"]:
        self._thread.start()
        turns = self.loop.turns
        collector = PacedCollector(lambda: turns.buckets.total_ns, turns.note)
        try:
            self.run(self.brokers.__aenter__())
            with collector.paced():
                task = asyncio.run_coroutine_threadsafe(collector.run(), self.loop)
                yield self
                task.cancel()
            self.run(self.brokers.__aexit__(None, None, None))
        finally:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()
            self.loop.close()

    def connect(self) -> RawConnection:
        """A connection to the controller."""
        ports = [
            int(server.rpartition(":")[2]) for server in self.brokers.bootstrap_servers.split(",")
        ]
        with RawConnection(ports[0]) as client:
            answer: Any = client.call(ApiKey.METADATA, 12, MetadataRequest(topics=[]))
        return RawConnection(ports[answer.controller_id])

    def longest_turn_ns(self, do: Callable[[], object]) -> int:
        self.loop.turns.longest_ns = 0
        do()
        return self.loop.turns.longest_ns


def partitions_of(client: RawConnection, topic: str) -> list[MetadataResponsePartition]:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    answer: Any = client.call(ApiKey.METADATA, 12, request)
    return list(answer.topics[0].partitions)


def create(client: RawConnection, topic: str) -> None:
    row = CreatableTopic(name=topic, num_partitions=PARTITIONS, replication_factor=2)
    request = CreateTopicsRequest(timeout_ms=PATIENCE_MS, topics=[row])
    answer: Any = client.call(ApiKey.CREATE_TOPICS, 7, request)
    assert [row.error_code for row in answer.topics] == [ErrorCode.NONE]

    def are_in_sync() -> bool:
        found = partitions_of(client, topic)
        return len(found) == PARTITIONS and all(len(one.isr_nodes) == 2 for one in found)

    wait_until(are_in_sync, "all replicas are in sync")


def reassign(client: RawConnection, topic: str) -> None:
    """Each partition gets one new replica in place of one that it has."""
    rows = [
        ReassignablePartition(
            partition_index=one.partition_index,
            replicas=[
                one.replica_nodes[0],
                *({0, 1, 2} - set(one.replica_nodes)),
            ],
        )
        for one in partitions_of(client, topic)
    ]
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=PATIENCE_MS, topics=[ReassignableTopic(name=topic, partitions=rows)]
    )
    answer: Any = client.call(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, request)
    codes = {row.error_code for topic in answer.responses for row in topic.partitions}
    assert codes == {ErrorCode.NONE}

    def are_moved() -> bool:
        left: Any = client.call(
            ApiKey.LIST_PARTITION_REASSIGNMENTS,
            0,
            ListPartitionReassignmentsRequest(timeout_ms=PATIENCE_MS, topics=None),
        )
        return not left.topics

    wait_until(are_moved, "the reassignments end")


def delete(client: RawConnection, topic: str) -> None:
    request = DeleteTopicsRequest(timeout_ms=PATIENCE_MS, topic_names=[topic])
    answer: Any = client.call(ApiKey.DELETE_TOPICS, 4, request)
    assert [row.error_code for row in answer.responses] == [ErrorCode.NONE]


@pytest.mark.slow
def test_many_partitions_of_a_cluster_are_made_moved_and_removed_in_short_turns(
    tmp_path: Path,
) -> None:
    names = iter(range(100))

    with MeasuredCluster(tmp_path).running() as cluster, cluster.connect() as client:

        def live() -> int:
            topic = f"t-{next(names)}"

            def all_of_it() -> None:
                for step in (create, reassign, delete):
                    step(client, topic)

            return cluster.longest_turn_ns(all_of_it)

        longest_ns = min(attempts(live))
    assert longest_ns <= LIMIT_NS, f"{longest_ns / 1e6:.0f} ms"
