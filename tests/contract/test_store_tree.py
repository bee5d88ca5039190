"""The same requests leave the same nodes in every engine of the store.

A new engine joins by an entry in ENGINES. 14:SM-7 compares engines; as long as there is one, it is
compared with what is written down here. Ids and times are masked.
"""

import asyncio
import re
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from odradek.controller import NewPartitions, NewTopic
from odradek.errors import ErrorCode
from tests.support.controllers import Cluster, running_cluster, tree

ENGINES: dict[str, Callable[[Path], AbstractAsyncContextManager[Cluster]]] = {
    "embedded": running_cluster
}

_BROKER = (
    '{"version":5,"host":"h","port":%d,"jmx_port":-1,"timestamp":"TIME",'
    '"endpoints":["PLAINTEXT://h:%d"],"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},'
    '"features":{}}'
)
_STATE = '{"controller_epoch":1,"leader":%d,"version":1,"leader_epoch":0,"isr":%s}'
# Nodes with data; all others only hold them together.
_EXPECTED = {
    "/brokers/ids/0": _BROKER % (9092, 9092),
    "/brokers/ids/1": _BROKER % (9093, 9093),
    "/brokers/topics/kept": (
        '{"version":3,"topic_id":"ID","partitions":{"0":[0,1],"1":[1,0],"2":[0,1]},'
        '"adding_replicas":{},"removing_replicas":{}}'
    ),
    "/brokers/topics/kept/partitions/0/state": _STATE % (0, "[0,1]"),
    "/brokers/topics/kept/partitions/1/state": _STATE % (1, "[1,0]"),
    "/brokers/topics/kept/partitions/2/state": _STATE % (0, "[0,1]"),
    "/config/topics/kept": '{"version":1,"config":{"retention.ms":"1"}}',
    "/controller": '{"version":2,"brokerid":0,"timestamp":"TIME","kraftControllerEpoch":-1}',
    "/controller_epoch": "1",
    "/feature": (
        '{"version":2,"status":1,"features":{"transaction.version":{"max_version_level":2}}}'
    ),
}


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_a_script_of_requests_leaves_these_nodes(
    tmp_path: Path, engine: Callable[[Path], AbstractAsyncContextManager[Cluster]]
) -> None:
    """14:SM-7: topics made, grown and deleted."""

    async def scenario() -> dict[str, str]:
        async with engine(tmp_path) as cluster:
            member = await cluster.add(0)
            await cluster.add(1)
            await _script(cluster)
            return _masked(dict(await tree(member.store)))

    assert asyncio.run(scenario()) == _EXPECTED


async def _script(cluster: Cluster) -> None:
    controller = cluster.active.controller
    kept = NewTopic(name="kept", assignment={0: [0, 1], 1: [1, 0]}, configs={"retention.ms": "1"})
    made = await controller.create_topics([kept, NewTopic(name="gone", partition_count=2)])
    grown = await controller.create_partitions([NewPartitions(name="kept", total_count=3)])
    deleted = await controller.delete_topics(["gone"])
    errors = [
        *(topic.error for topic in made),
        *(topic.error for topic in grown),
        *(topic.error for topic in deleted),
    ]
    assert errors == [ErrorCode.NONE] * 4
    await cluster.settle()


def _masked(nodes: dict[str, bytes | None]) -> dict[str, str]:
    masked = {}
    for path, data in nodes.items():
        if data is not None:
            text = re.sub(r'"timestamp":"\d+"', '"timestamp":"TIME"', data.decode())
            masked[path] = re.sub(r'"topic_id":"[\w-]{22}"', '"topic_id":"ID"', text)
    return masked
