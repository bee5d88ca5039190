"""Error codes of the wire protocol, and the exception tree. Pure.

Ask first whose fault it is; the type answers::

    OdradekError
    ├── ApiError(code)                the request or the moment: becomes a code in the reply
    │   ├── OffsetOutOfRangeError     1
    │   ├── CorruptRecordError        2   CRC, size or magic of a batch
    │   ├── RecordTooLargeError       10
    │   ├── RecordBatchTooLargeError  18
    │   ├── DisconnectedError         13  the way to a broker broke; the outcome is unknown
    │   ├── RequestTimedOutError      7   a broker did not answer in time
    │   ├── UnsupportedVersionError   35  a broker lacks an API, or all versions that we speak
    │   └── RecordsError              names each bad record
    │       ├── InvalidTimestampError 32
    │       └── InvalidRecordError    87  structure of a batch or of its records
    ├── DecodeError                   the peer's bytes: that connection closes, others live
    │   ├── FramingError              a frame length that is impossible
    │   └── UnsupportedRequestError   a request type or version that is not served
    ├── StorageError(log_dir)         the disk: that log directory goes offline
    ├── LogDataError                  a file's content: repaired by recovery, never sent to a peer
    │   ├── CorruptIndexError         an index fails its sanity check: rebuild it
    │   ├── CorruptCheckpointError    a checkpoint file is malformed: do without, or rebuild it
    │   ├── CorruptSnapshotError      a producer snapshot is damaged: use an older one
    │   ├── InvalidOffsetError        a non-increasing index append
    │   ├── OffsetOverflowError       a relative offset beyond int32: split the segment
    │   ├── TimestampRegressionError  a time index append that goes back in time
    │   ├── OffsetsOutOfOrderError    a follower's set goes backwards
    │   └── UnexpectedAppendOffsetError  a follower's set starts below the log end
    ├── LogDirLockedError             another broker owns the directory
    ├── StoreError(path)              the coordination store, or we were deposed: retry, or resign
    │   ├── NoNode, NodeExists, BadVersion, NotEmpty   the nodes in the tree forbid the operation
    │   ├── BadArguments              a path or data that no engine accepts
    │   ├── BadNodeData               a node's content does not have the form that its path demands
    │   ├── ControllerMoved           the fence failed: a newer controller exists
    │   │   └── StoreUnreachable      no answer for long: give leadership up
    │   ├── ConnectionLost            the outcome is unknown: read back and compare
    │   └── SessionExpired            the session is over, its ephemerals and watches are gone
    ├── StoreCorruptError             the embedded store's files: refuse to start, naming the place
    ├── ConfigError(key, value, why)  the operator: refuse to start, naming the key
    └── InvariantViolation            us: fail fast, never caught to carry on

Expected outcomes are values, not exceptions: an `ErrorCode` per partition.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import TypeVar

__all__ = [
    "ApiError",
    "BadArguments",
    "BadNodeData",
    "BadVersion",
    "ConfigError",
    "ConnectionLost",
    "ControllerMoved",
    "CorruptCheckpointError",
    "CorruptIndexError",
    "CorruptRecordError",
    "CorruptSnapshotError",
    "DecodeError",
    "DisconnectedError",
    "ErrorCode",
    "FramingError",
    "InvalidOffsetError",
    "InvalidRecordError",
    "InvalidTimestampError",
    "InvariantViolation",
    "LogDataError",
    "LogDirLockedError",
    "NoNode",
    "NodeExists",
    "NotEmpty",
    "OdradekError",
    "OffsetOutOfRangeError",
    "OffsetOverflowError",
    "OffsetsOutOfOrderError",
    "RecordBatchTooLargeError",
    "RecordTooLargeError",
    "RecordsError",
    "RequestTimedOutError",
    "SessionExpired",
    "StorageError",
    "StoreCorruptError",
    "StoreError",
    "StoreUnreachable",
    "TimestampRegressionError",
    "UnexpectedAppendOffsetError",
    "UnsupportedRequestError",
    "UnsupportedVersionError",
    "without_traceback",
]

_E = TypeVar("_E", bound=Exception)


class ErrorCode(IntEnum):
    """Kafka's error codes. The number is wire contract, the name is what users search for."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    STREAMS_INVALID_TOPOLOGY = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    STREAMS_TOPOLOGY_FENCED = 132
    SHARE_SESSION_LIMIT_REACHED = 133

    @property
    def retriable(self) -> bool:
        """Whether sending the same request again may succeed."""
        return self in _RETRIABLE

    @property
    def refresh_metadata(self) -> bool:
        """Whether a client should look the cluster up again before it retries."""
        return self in _REFRESH_METADATA


_REFRESH_METADATA = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)

_RETRIABLE = _REFRESH_METADATA | frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    }
)


class OdradekError(Exception):
    """Root of every exception this package raises on purpose."""


def without_traceback(error: _E) -> _E:
    """An error that is kept as a value, to be answered later.

    Its traceback, and that of the error that led to it, have the frame whose variables it is kept
    in: a cycle, with everything that the frame holds.
    """
    error.__context__ = error.__cause__ = None
    return error.with_traceback(None)


class ApiError(OdradekError):
    """A request that cannot be granted; `code` goes into the reply."""

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(message or code.name)
        self.code = code


class OffsetOutOfRangeError(ApiError):
    """A read outside [log start, log end], or a log start above the high watermark."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, message)


class CorruptRecordError(ApiError):
    """CRC, size or magic of a batch is wrong; sending it again may succeed."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, message)


class RecordTooLargeError(ApiError):
    """One batch exceeds max.message.bytes."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.MESSAGE_TOO_LARGE, message)


class RecordBatchTooLargeError(ApiError):
    """One append exceeds segment.bytes."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.RECORD_LIST_TOO_LARGE, message)


class DisconnectedError(ApiError):
    """A connection to a broker failed or ended; whether a request was executed is unknown."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.NETWORK_EXCEPTION, message)


class RequestTimedOutError(ApiError):
    """A broker did not answer in time; whether the request was executed is unknown."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, message)


class UnsupportedVersionError(ApiError):
    """A broker lacks an API, or every version of it that we speak."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNSUPPORTED_VERSION, message)


class RecordsError(ApiError):
    """Records refused one by one; the whole batch is refused with them."""

    def __init__(
        self, code: ErrorCode, message: str, record_errors: Sequence[tuple[int, str]] = ()
    ) -> None:
        super().__init__(code, message)
        # (index of the record in its batch, why), at most the first few.
        self.record_errors = tuple(record_errors)


class InvalidTimestampError(RecordsError):
    """A record's timestamp lies outside the topic's window."""

    def __init__(self, message: str, record_errors: Sequence[tuple[int, str]] = ()) -> None:
        super().__init__(ErrorCode.INVALID_TIMESTAMP, message, record_errors)


class InvalidRecordError(RecordsError):
    """A batch or one of its records breaks a rule of the format or of the topic."""

    def __init__(self, message: str, record_errors: Sequence[tuple[int, str]] = ()) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, message, record_errors)


class DecodeError(OdradekError):
    """A peer's bytes break the protocol; its connection closes."""


class FramingError(DecodeError):
    """A frame length that is zero, negative or above the limit; bytes after it are unreadable."""


class UnsupportedRequestError(DecodeError):
    """A request whose layout is unknown, so that it cannot be answered."""

    def __init__(self, api_key: int, api_version: int, client_id: str) -> None:
        super().__init__(f"client {client_id!r} sent api key {api_key} version {api_version}")
        self.api_key = api_key
        self.api_version = api_version
        self.client_id = client_id


class StorageError(OdradekError):
    """The disk failed under a log directory, or its log is closed; the directory is offline."""

    code = ErrorCode.KAFKA_STORAGE_ERROR

    def __init__(self, log_dir: str, message: str) -> None:
        super().__init__(message)
        self.log_dir = log_dir


class LogDataError(OdradekError):
    """The content of a file contradicts itself; recovery repairs it."""


class CorruptIndexError(LogDataError):
    """An index fails its sanity check and has to be rebuilt."""


class CorruptCheckpointError(LogDataError):
    """A checkpoint file is malformed; none of its entries is used."""

    def __init__(self, path: str, line_number: int, *, expected: str, found: object) -> None:
        super().__init__(f"{path}: line {line_number}: expected {expected}, found {found}")
        self.path = path
        self.line_number = line_number


class CorruptSnapshotError(LogDataError):
    """A producer snapshot is damaged or contradicts its own name."""

    def __init__(self, path: str, *, expected: str, found: object) -> None:
        super().__init__(f"{path}: expected {expected}, found {found}")
        self.path = path


class InvalidOffsetError(LogDataError):
    """An index append that does not increase."""


class OffsetOverflowError(LogDataError):
    """An offset too far from its segment's base for a 32-bit relative offset."""


class TimestampRegressionError(LogDataError):
    """A time index append below the last timestamp: it would mislead searches by time."""


class OffsetsOutOfOrderError(LogDataError):
    """A follower's set of batches goes backwards."""


class UnexpectedAppendOffsetError(LogDataError):
    """A follower's set starts below its log end offset."""

    def __init__(self, message: str, *, first_offset: int, last_offset: int) -> None:
        super().__init__(message)
        self.first_offset = first_offset
        self.last_offset = last_offset


class LogDirLockedError(OdradekError):
    """Another broker owns a data directory."""


class StoreError(OdradekError):
    """The coordination store refused an operation, or its answer is missing."""

    def __init__(self, message: str, *, path: str = "", operation_index: int | None = None) -> None:
        super().__init__(message)
        self.path = path
        # Which operation of a multi failed; None for a single operation.
        self.operation_index = operation_index


class NoNode(StoreError):  # noqa: N818 - the store's own word for the outcome
    """The node, or the parent of a node to create, does not exist."""


class NodeExists(StoreError):  # noqa: N818 - the store's own word for the outcome
    """The node to create exists already."""


class BadVersion(StoreError):  # noqa: N818 - the store's own word for the outcome
    """The node's data version is not the expected one."""


class NotEmpty(StoreError):  # noqa: N818 - the store's own word for the outcome
    """The node to delete has children."""


class BadArguments(StoreError):  # noqa: N818 - the store's own word for the outcome
    """A malformed path, oversized data, or a child of an ephemeral node."""


class BadNodeData(StoreError):  # noqa: N818 - names what was found
    """A node's content cannot be parsed: another program wrote it."""


class ControllerMoved(StoreError):  # noqa: N818 - names what happened to us
    """The version of the controller epoch is not the writer's: a newer controller exists."""


class StoreUnreachable(ControllerMoved):
    """The store has not answered for long: a controller cannot go on, and gives leadership up."""


class ConnectionLost(StoreError):  # noqa: N818 - names what happened to us
    """The connection broke before the answer came; whether the operation was applied is unknown."""


class SessionExpired(StoreError):  # noqa: N818 - names what happened to us
    """The session is over; its ephemeral nodes and watches are gone."""


class StoreCorruptError(OdradekError):
    """The embedded store's files are damaged before their end; it refuses to start."""


class ConfigError(OdradekError):
    """A setting that cannot be used."""

    def __init__(self, key: str, value: object, why: str) -> None:
        super().__init__(f"{key}={value!r}: {why}")
        self.key = key
        self.value = value
        self.why = why


class InvariantViolation(OdradekError):  # noqa: N818 - names a fact about us, not an error of others
    """Our own bookkeeping is wrong; carrying on could lose data."""
