"""FindCoordinator (key 10): which broker coordinates a group or a transactional id."""

from collections.abc import Sequence

from odradek.protocol.primitives import INT8, INT16, INT32, STRING
from odradek.protocol.schema import Message, array, wire

__all__ = ["Coordinator", "FindCoordinatorRequest", "FindCoordinatorResponse"]


class FindCoordinatorRequest(Message, versions="0-6", flexible="3+"):
    """One key, or from 4 on several of one type."""

    # 1: key type, 0 group and 1 transaction.
    # 3: flexible.
    # 4: several keys (KIP-699). 5: may be answered TRANSACTION_ABORTABLE. 6: type 2, share groups
    # (KIP-932).

    key: str = wire(STRING, "0-3")
    # 0 group, 1 transaction, 2 share group.
    key_type: int = wire(INT8, "1+")
    coordinator_keys: Sequence[str] = wire(array(STRING), "4+")


class Coordinator(Message):
    key: str = wire(STRING, "4+")
    node_id: int = wire(INT32, "4+")
    host: str = wire(STRING, "4+")
    port: int = wire(INT32, "4+")
    error_code: int = wire(INT16, "4+")
    error_message: str | None = wire(STRING, "4+", nullable="4+", ignorable=True)


class FindCoordinatorResponse(Message, versions="0-6", flexible="3+"):
    """The broker for the key, or one entry per key from 4 on."""

    # 1: throttle time and a message.
    # 3: flexible.
    # 4: one entry per key.

    throttle_time_ms: int = wire(INT32, "1+", ignorable=True)
    error_code: int = wire(INT16, "0-3")
    error_message: str | None = wire(STRING, "1-3", nullable="1-3", ignorable=True)
    node_id: int = wire(INT32, "0-3")
    host: str = wire(STRING, "0-3")
    port: int = wire(INT32, "0-3")
    coordinators: Sequence[Coordinator] = wire(array(Coordinator), "4+")
