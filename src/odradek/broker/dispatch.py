"""The table of handlers, and the gate that holds requests until metadata is published.

`HANDLERS` has exactly the APIs that are advertised. A request without a row in it ends its
connection. A handler that fails is a bug of the broker: it is logged, and the client gets an error
in the form of its API (`error_answers`).

Before this broker has published metadata for the first time, it would answer "unknown topic" to
every client, and create topics that exist. So a `StartGate` holds all requests except ApiVersions
and those of the controller, which bring the metadata: they are parked, without a slot, one per
connection at most, and submitted again when it opens.
"""

import logging
import sys
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, TypeAlias

from odradek.broker.context import BrokerContext, is_from_peer_listener
from odradek.broker.error_answers import failure_answer
from odradek.broker.handlers._many_commits import handle_many_commits
from odradek.broker.handlers._many_fetches import handle_long_fetch
from odradek.broker.handlers.add_offsets_to_txn import handle_add_offsets_to_txn
from odradek.broker.handlers.add_partitions_to_txn import handle_add_partitions_to_txn
from odradek.broker.handlers.allocate_producer_ids import handle_allocate_producer_ids
from odradek.broker.handlers.alter_client_quotas import handle_alter_client_quotas
from odradek.broker.handlers.alter_configs import handle_alter_configs
from odradek.broker.handlers.alter_partition import handle_alter_partition
from odradek.broker.handlers.alter_partition_reassignments import (
    handle_alter_partition_reassignments,
)
from odradek.broker.handlers.alter_replica_log_dirs import handle_alter_replica_log_dirs
from odradek.broker.handlers.alter_user_scram_credentials import handle_alter_user_scram_credentials
from odradek.broker.handlers.api_versions import api_versions_handler
from odradek.broker.handlers.controlled_shutdown import handle_controlled_shutdown
from odradek.broker.handlers.create_acls import handle_create_acls
from odradek.broker.handlers.create_partitions import handle_create_partitions
from odradek.broker.handlers.create_topics import handle_create_topics
from odradek.broker.handlers.delete_acls import handle_delete_acls
from odradek.broker.handlers.delete_groups import handle_delete_groups
from odradek.broker.handlers.delete_records import handle_delete_records
from odradek.broker.handlers.delete_topics import handle_delete_topics
from odradek.broker.handlers.describe_acls import handle_describe_acls
from odradek.broker.handlers.describe_client_quotas import handle_describe_client_quotas
from odradek.broker.handlers.describe_cluster import handle_describe_cluster
from odradek.broker.handlers.describe_configs import handle_describe_configs
from odradek.broker.handlers.describe_groups import handle_describe_groups
from odradek.broker.handlers.describe_log_dirs import handle_describe_log_dirs
from odradek.broker.handlers.describe_producers import handle_describe_producers
from odradek.broker.handlers.describe_topic_partitions import handle_describe_topic_partitions
from odradek.broker.handlers.describe_transactions import handle_describe_transactions
from odradek.broker.handlers.describe_user_scram_credentials import (
    handle_describe_user_scram_credentials,
)
from odradek.broker.handlers.elect_leaders import handle_elect_leaders
from odradek.broker.handlers.end_txn import handle_end_txn
from odradek.broker.handlers.fetch import handle_fetch
from odradek.broker.handlers.find_coordinator import handle_find_coordinator
from odradek.broker.handlers.heartbeat import handle_heartbeat
from odradek.broker.handlers.incremental_alter_configs import handle_incremental_alter_configs
from odradek.broker.handlers.init_producer_id import handle_init_producer_id
from odradek.broker.handlers.join_group import handle_join_group
from odradek.broker.handlers.leader_and_isr import handle_leader_and_isr
from odradek.broker.handlers.leave_group import handle_leave_group
from odradek.broker.handlers.list_config_resources import handle_list_config_resources
from odradek.broker.handlers.list_groups import handle_list_groups
from odradek.broker.handlers.list_offsets import handle_list_offsets
from odradek.broker.handlers.list_partition_reassignments import (
    handle_list_partition_reassignments,
)
from odradek.broker.handlers.list_transactions import handle_list_transactions
from odradek.broker.handlers.metadata import handle_metadata
from odradek.broker.handlers.offset_commit import handle_offset_commit
from odradek.broker.handlers.offset_delete import handle_offset_delete
from odradek.broker.handlers.offset_fetch import handle_offset_fetch
from odradek.broker.handlers.offset_for_leader_epoch import handle_offset_for_leader_epoch
from odradek.broker.handlers.produce import handle_produce
from odradek.broker.handlers.sasl_authenticate import handle_sasl_authenticate
from odradek.broker.handlers.sasl_handshake import handle_sasl_handshake
from odradek.broker.handlers.stop_replica import handle_stop_replica
from odradek.broker.handlers.sync_group import handle_sync_group
from odradek.broker.handlers.txn_offset_commit import handle_txn_offset_commit
from odradek.broker.handlers.update_features import handle_update_features
from odradek.broker.handlers.update_metadata import handle_update_metadata
from odradek.broker.handlers.write_txn_markers import handle_write_txn_markers
from odradek.broker.slices import LONG_REQUEST_BYTES, parse_in_slices
from odradek.errors import DecodeError
from odradek.network.request import CloseConnectionResponse, Request, Response, SendResponse
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.primitives import MAX_ELEMENTS

__all__ = [
    "HANDLERS",
    "MAX_REQUEST_BYTES",
    "ApiHandler",
    "HandlerResult",
    "StartGate",
    "dispatch",
]

logger = logging.getLogger(__name__)
_TRACE: Final = 5  # Below DEBUG: one line per request.

# An answer, None if it is sent later, or a coroutine that returns one of the two.
HandlerResult: TypeAlias = Response | Coroutine[Any, Any, Response | None] | None
ApiHandler: TypeAlias = Callable[[Request, BrokerContext], HandlerResult]

_TABLE: Final[dict[ApiKey, ApiHandler]] = {
    ApiKey.PRODUCE: handle_produce,
    ApiKey.FETCH: handle_fetch,
    ApiKey.LIST_OFFSETS: handle_list_offsets,
    ApiKey.METADATA: handle_metadata,
    ApiKey.LEADER_AND_ISR: handle_leader_and_isr,
    ApiKey.STOP_REPLICA: handle_stop_replica,
    ApiKey.UPDATE_METADATA: handle_update_metadata,
    ApiKey.CONTROLLED_SHUTDOWN: handle_controlled_shutdown,
    ApiKey.ALTER_PARTITION: handle_alter_partition,
    ApiKey.ALLOCATE_PRODUCER_IDS: handle_allocate_producer_ids,
    # Both are served or none: librdkafka 2.16 crashes if only the second is advertised.
    ApiKey.OFFSET_FETCH: handle_offset_fetch,
    ApiKey.FIND_COORDINATOR: handle_find_coordinator,
    ApiKey.OFFSET_COMMIT: handle_offset_commit,
    ApiKey.JOIN_GROUP: handle_join_group,
    ApiKey.SYNC_GROUP: handle_sync_group,
    ApiKey.HEARTBEAT: handle_heartbeat,
    ApiKey.LEAVE_GROUP: handle_leave_group,
    ApiKey.DESCRIBE_GROUPS: handle_describe_groups,
    ApiKey.LIST_GROUPS: handle_list_groups,
    ApiKey.DELETE_GROUPS: handle_delete_groups,
    ApiKey.OFFSET_DELETE: handle_offset_delete,
    ApiKey.CREATE_TOPICS: handle_create_topics,
    ApiKey.DELETE_TOPICS: handle_delete_topics,
    ApiKey.DELETE_RECORDS: handle_delete_records,
    ApiKey.INIT_PRODUCER_ID: handle_init_producer_id,
    ApiKey.ADD_PARTITIONS_TO_TXN: handle_add_partitions_to_txn,
    ApiKey.ADD_OFFSETS_TO_TXN: handle_add_offsets_to_txn,
    ApiKey.END_TXN: handle_end_txn,
    ApiKey.WRITE_TXN_MARKERS: handle_write_txn_markers,
    ApiKey.TXN_OFFSET_COMMIT: handle_txn_offset_commit,
    ApiKey.DESCRIBE_TRANSACTIONS: handle_describe_transactions,
    ApiKey.LIST_TRANSACTIONS: handle_list_transactions,
    ApiKey.UPDATE_FEATURES: handle_update_features,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: handle_offset_for_leader_epoch,
    ApiKey.DESCRIBE_CONFIGS: handle_describe_configs,
    ApiKey.ALTER_CONFIGS: handle_alter_configs,
    ApiKey.ALTER_REPLICA_LOG_DIRS: handle_alter_replica_log_dirs,
    ApiKey.DESCRIBE_LOG_DIRS: handle_describe_log_dirs,
    ApiKey.CREATE_PARTITIONS: handle_create_partitions,
    ApiKey.ELECT_LEADERS: handle_elect_leaders,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: handle_incremental_alter_configs,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: handle_alter_partition_reassignments,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: handle_list_partition_reassignments,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: handle_describe_client_quotas,
    ApiKey.ALTER_CLIENT_QUOTAS: handle_alter_client_quotas,
    ApiKey.DESCRIBE_CLUSTER: handle_describe_cluster,
    ApiKey.DESCRIBE_PRODUCERS: handle_describe_producers,
    ApiKey.LIST_CONFIG_RESOURCES: handle_list_config_resources,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: handle_describe_topic_partitions,
    # Protection that is not served: the answers tell clients and tools so.
    ApiKey.SASL_HANDSHAKE: handle_sasl_handshake,
    ApiKey.SASL_AUTHENTICATE: handle_sasl_authenticate,
    ApiKey.DESCRIBE_ACLS: handle_describe_acls,
    ApiKey.CREATE_ACLS: handle_create_acls,
    ApiKey.DELETE_ACLS: handle_delete_acls,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: handle_describe_user_scram_credentials,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: handle_alter_user_scram_credentials,
}
HANDLERS: Final[Mapping[ApiKey, ApiHandler]] = {
    **_TABLE,
    ApiKey.API_VERSIONS: api_versions_handler([*_TABLE, ApiKey.API_VERSIONS]),
}

# Have all partitions of the cluster after an election; refused unread on a listener of clients.
_OF_CONTROLLER: Final = frozenset(
    {ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA}
)
# The longest request of an API, in bytes. To parse and answer the elements of a longer one would
# keep the loop for many seconds: `socket.request.max.bytes` allows 100 MB. Members of a group send
# the data of their assignor.
MAX_REQUEST_BYTES: Final = 1 << 20
_MAX_MEMBER_BYTES: Final = 8 << 20
_LONGER: Final = {
    ApiKey.JOIN_GROUP: _MAX_MEMBER_BYTES,
    ApiKey.SYNC_GROUP: _MAX_MEMBER_BYTES,
    **dict.fromkeys(_OF_CONTROLLER, sys.maxsize),
}

# Serve long requests, which were parsed before, in place of handlers that parse them themselves.
_LONG_HANDLERS: Final[Mapping[ApiKey, ApiHandler]] = {
    ApiKey.FETCH: handle_long_fetch,
    ApiKey.OFFSET_COMMIT: handle_many_commits,
}

# The elements of those that may have more than others.
_MORE_ELEMENTS: Final[Mapping[ApiKey, int]] = {
    **dict.fromkeys(_OF_CONTROLLER, sys.maxsize),
    # A client learns which partitions do not exist, of however many it adds.
    ApiKey.ADD_PARTITIONS_TO_TXN: 1 << 17,
}

# The APIs that are answered without metadata.
_SERVED_AT_ONCE: Final = _OF_CONTROLLER | {ApiKey.API_VERSIONS}


class StartGate:
    """Holds requests until there is metadata to answer them from. Opens once, never closes."""

    __slots__ = ("_parked", "is_open")

    def __init__(self) -> None:
        self.is_open = False
        # Bounded by the connections: each has at most one request in process.
        self._parked: list[Request] = []

    @property
    def parked_count(self) -> int:
        return len(self._parked)

    def park(self, request: Request) -> None:
        """Parks a request; its connection is not read until it is answered."""
        assert not self.is_open, "an open gate would never release a parked request"
        self._parked.append(request)

    def open(self) -> None:
        """Submits the parked requests in their order, and lets later ones pass; idempotent."""
        self.is_open = True
        parked, self._parked = self._parked, []
        for request in parked:
            if not request.connection.is_closed:
                request.submit_again()


def dispatch(
    context: BrokerContext, gate: StartGate, handlers: Mapping[ApiKey, ApiHandler] = HANDLERS
) -> Callable[[Request], HandlerResult]:
    """The function to which a request channel passes its requests."""

    def handle(request: Request) -> HandlerResult:
        key = request.header.api_key
        if not gate.is_open and key not in _SERVED_AT_ONCE:
            gate.park(request)
            return None
        if logger.isEnabledFor(_TRACE):
            logger.log(_TRACE, "Handling %s of %s", request, request.context.principal)
        size = len(request.payload)
        handler = handlers.get(key)
        if size > LONG_REQUEST_BYTES and not _is_parsed_by_handler(request, context):
            if size > (most := _LONGER.get(key, MAX_REQUEST_BYTES)):
                raise DecodeError(f"a {key.name} of {size} bytes, expected {most} at most")
            elements = _MORE_ELEMENTS.get(key, MAX_ELEMENTS)
            if request.parsed is None and not parse_in_slices(request, context, elements):
                return None
            handler = _LONG_HANDLERS.get(key, handler)
        if handler is None:
            return CloseConnectionResponse(request, f"{request}: not served by this broker")
        try:
            result = handler(request, context)
        except DecodeError:  # A malformed request: the channel ends its connection.
            raise
        except Exception as error:  # noqa: BLE001 - one request must not end others
            return failure_answer(request, error)
        if result is None or type(result) is SendResponse or isinstance(result, Response):
            return result  # Most are of that one class.
        return _awaited(request, result)

    return handle


def _is_parsed_by_handler(request: Request, context: BrokerContext) -> bool:
    """Whether a long request is left to its handler: a Produce, or one that is refused unread."""
    key = request.header.api_key
    if key is ApiKey.PRODUCE:
        return True
    return key in _OF_CONTROLLER and not is_from_peer_listener(request, context)


async def _awaited(
    request: Request, handling: Coroutine[Any, Any, Response | None]
) -> Response | None:
    try:
        return await handling
    except DecodeError:
        raise
    except Exception as error:  # noqa: BLE001 - as above
        return failure_answer(request, error)
