"""Any bytes in a node or in the embedded store's files give a value or the one right error."""

import json
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.coordination.codec import (
    JOURNAL_HEAD,
    encode_record,
    encode_snapshot,
    parse_snapshot,
    replay,
    seal_record,
    seal_snapshot,
)
from odradek.coordination.nodes import (
    BrokerNode,
    ControllerNode,
    PartitionStateNode,
    ProducerIdBlock,
    TopicNode,
    parse_cluster_id,
    parse_config,
    parse_config_change,
    parse_controller_epoch,
    parse_log_dir_event,
    parse_partitions,
    parse_reassignments,
)
from odradek.coordination.tree import NodeCreated, NodeTree, Transaction
from odradek.errors import BadNodeData, StoreCorruptError

PARSERS: list[Callable[[bytes], object]] = [
    BrokerNode.parse,
    ControllerNode.parse,
    lambda data: PartitionStateNode.parse(data, 0),
    ProducerIdBlock.parse,
    TopicNode.parse,
    parse_cluster_id,
    parse_config,
    parse_config_change,
    parse_controller_epoch,
    parse_log_dir_event,
    parse_partitions,
    parse_reassignments,
]

FIELD_NAMES = st.sampled_from(
    [
        *("version", "brokerid", "timestamp", "host", "port", "endpoints", "rack", "partitions"),
        *("listener_security_protocol_map", "topic_id", "adding_replicas", "leader", "isr"),
        *("leader_epoch", "controller_epoch", "broker", "block_start", "block_end", "config"),
        *("entity_path", "id", "topic", "partition", "replicas", "0", "1", "SSL"),
    ]
)
JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["1", "SSL", "SSL://h:1", "ASNFZ4mrze8BI0VniavN7w"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELD_NAMES, inner, max_size=6),
    max_leaves=15,
)
NODE_BYTES = st.binary(max_size=60) | JSON_VALUES.map(lambda value: json.dumps(value).encode())


@pytest.mark.parametrize("parse", PARSERS)
@settings(deadline=None, max_examples=60)
@given(data=NODE_BYTES)
def test_a_node_is_read_or_refused(parse: Callable[[bytes], object], data: bytes) -> None:
    try:
        value = parse(data)
    except BadNodeData:
        return
    if isinstance(value, BrokerNode | ControllerNode):
        assert type(value).parse(value.encode()) == value


@pytest.mark.parametrize("parse", PARSERS)
@pytest.mark.parametrize("before", [b"", b'{"version":1,"config":', b'{"version":1,"partitions":'])
@pytest.mark.parametrize("bracket", [b"[", b'{"version":'])
def test_nesting_without_end_is_refused(
    parse: Callable[[bytes], object], before: bytes, bracket: bytes
) -> None:
    """Brackets deeper than any stack are a bad node, too, and no end of the process."""
    with pytest.raises(BadNodeData):
        parse(before + bracket * 200_000)


def good_journal() -> tuple[bytes, list[bytes]]:
    data, trees = JOURNAL_HEAD, [encode_snapshot(NodeTree())]
    tree = NodeTree()
    for zxid in range(1, 6):
        transaction = Transaction(zxid, (NodeCreated(f"/{zxid}", b"data", zxid % 2),))
        tree.apply(transaction)
        data += encode_record(transaction, zxid - 1)
        trees.append(encode_snapshot(tree))
    return data, trees


JOURNAL, TREES = good_journal()


@settings(deadline=None, max_examples=250)
@given(data=st.data())
def test_a_journal_with_any_bytes_changed_gives_a_prefix_or_is_refused(data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(JOURNAL)))
    end = data.draw(st.integers(start, min(len(JOURNAL), start + 40)))
    changed = JOURNAL[:start] + data.draw(st.binary(max_size=40)) + JOURNAL[end:]
    tree = NodeTree()
    try:
        good_bytes, record_count = replay(changed, tree, "journal")
    except StoreCorruptError:
        return
    assert encode_snapshot(tree) == TREES[tree.zxid]
    assert record_count == tree.zxid
    assert changed[:good_bytes] == JOURNAL[:good_bytes]


@settings(deadline=None, max_examples=200)
@given(
    payloads=st.lists(
        st.binary(max_size=80)
        | st.binary(max_size=60).map(lambda b: (1).to_bytes(8) + bytes(8) + b),
        max_size=3,
    )
)
def test_any_payload_under_a_right_crc_is_applied_or_refused(payloads: list[bytes]) -> None:
    data = JOURNAL_HEAD + b"".join(seal_record(payload) for payload in payloads)
    try:
        replay(data, NodeTree(), "journal")
    except StoreCorruptError:
        return


@settings(deadline=None, max_examples=200)
@given(
    body=st.binary(max_size=60)
    | st.binary(max_size=120).map(lambda b: TREES[3][:20] + b)
    | st.tuples(st.integers(0, 140), st.binary(min_size=1, max_size=4)).map(
        lambda change: TREES[5][: change[0]] + change[1] + TREES[5][change[0] + len(change[1]) : -4]
    ),
    is_sealed=st.booleans(),
)
def test_any_snapshot_is_a_whole_tree_or_refused(body: bytes, is_sealed: bool) -> None:
    data = seal_snapshot(body) if is_sealed else body
    try:
        tree = parse_snapshot(data, "snapshot")
    except StoreCorruptError:
        return
    for path, node in tree.items():
        assert node.child_count == len(tree.children(path)) <= node.created_count
