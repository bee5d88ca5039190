"""The embedded tree against a naive one, and its files against both."""

from dataclasses import dataclass
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.coordination.codec import (
    JOURNAL_HEAD,
    encode_record,
    encode_snapshot,
    parse_snapshot,
    replay,
)
from odradek.coordination.store import Check, Create, Delete, Operation, Set
from odradek.coordination.transactions import decide
from odradek.coordination.tree import NodeTree, Transaction, TreeDraft
from odradek.errors import StoreError

PATHS = st.sampled_from(["/a", "/b", "/a/x", "/a/y", "/a/x/z", "/a/s0000000000"])
VERSIONS = st.integers(-1, 2)
DATA = st.none() | st.binary(max_size=4)
OPERATIONS: st.SearchStrategy[Operation] = st.one_of(
    st.builds(Create, PATHS, DATA, st.booleans()),
    st.builds(lambda data: Create("/a/s", data, sequential=True), DATA),
    st.builds(Set, PATHS, DATA, VERSIONS),
    st.builds(Delete, PATHS, VERSIONS),
    st.builds(Check, PATHS, VERSIONS),
)
TRANSACTIONS = st.lists(OPERATIONS, min_size=1, max_size=4)


@dataclass
class Plain:
    """One node of the naive model."""

    data: bytes | None
    version: int
    owner: int
    changes: int = 0
    creates: int = 0


def run_plainly(nodes: dict[str, Plain], operations: list[Operation], session: int) -> bool:
    """Runs a transaction on the model; False and half done if it is refused."""
    for operation in operations:
        path = operation.path
        parent = nodes.get(path[: path.rfind("/")])
        if isinstance(operation, Create):
            if operation.sequential:
                path += f"{parent.creates if parent else 0:010d}"
            if path in nodes or parent is None or parent.owner:
                return False
            nodes[path] = Plain(operation.data, 0, session if operation.ephemeral else 0)
            parent.changes += 1
            parent.creates += 1
            continue
        node = nodes.get(path)
        if node is None or operation.version not in (-1, node.version):
            return False
        if isinstance(operation, Set):
            node.data, node.version = operation.data, node.version + 1
        elif isinstance(operation, Delete):
            if any(other.startswith(path + "/") for other in nodes) or parent is None:
                return False
            del nodes[path]
            parent.changes += 1
    return True


def visible(tree: NodeTree) -> dict[str, tuple[bytes | None, int, int, int]]:
    return {
        "" if path == "/" else path: (
            node.data,
            node.version,
            node.ephemeral_owner,
            node.stat.cversion,
        )
        for path, node in tree.items()
    }


@settings(deadline=None, max_examples=120)
@given(transactions=st.lists(TRANSACTIONS, max_size=20), seed=st.integers(0, 1000))
def test_the_tree_does_what_the_naive_one_does(
    transactions: list[list[Operation]], seed: int
) -> None:
    random = Random(seed)
    tree = NodeTree()
    model = {"": Plain(None, 0, 0)}
    journal = JOURNAL_HEAD
    draft, pending = TreeDraft(tree), list[Transaction]()
    for operations in transactions:
        session = random.randint(1, 2)
        zxid = tree.zxid + len(pending) + 1
        tried = {path: Plain(**vars(node)) for path, node in model.items()}
        is_done = run_plainly(tried, operations, session)
        try:
            decision, top = decide(draft, operations, zxid=zxid, session_id=session, fence=None)
        except StoreError:
            assert not is_done
            continue
        assert is_done
        model = tried
        if decision.changes:
            top.merge_into_base()
            pending.append(Transaction(zxid, decision.changes))
        if random.random() < 0.4:  # The batch becomes durable.
            for transaction in pending:
                journal += encode_record(transaction, tree.zxid)
                tree.apply(transaction)
            draft, pending = TreeDraft(tree), []
            expected = {p: (n.data, n.version, n.owner, n.changes) for p, n in model.items()}
            assert visible(tree) == expected
            for path, node in tree.items():
                assert node.child_count == len(tree.children(path))
                assert (path in tree.ephemerals(node.ephemeral_owner)) == bool(node.ephemeral_owner)
    replayed = NodeTree()
    replay(journal, replayed, "journal")
    assert encode_snapshot(replayed) == encode_snapshot(tree)
    loaded = parse_snapshot(encode_snapshot(tree), "snapshot")
    assert encode_snapshot(loaded) == encode_snapshot(tree)
    assert visible(loaded) == visible(tree)
    assert loaded.ephemerals() == tree.ephemerals()
