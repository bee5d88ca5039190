"""File names of a partition directory: twenty digits of base offset, a kind, maybe a life stage.

| suffix       | meaning                                                       |
|--------------|---------------------------------------------------------------|
| `.log`       | record batches                                                |
| `.index`     | offset index                                                  |
| `.timeindex` | time index                                                    |
| `.txnindex`  | aborted transactions; created by the first one                |
| `.txnproof`  | checksum of the `.txnindex` as it was when it was complete    |
| `.snapshot`  | producer state up to (excluding) the offset in the name       |
| `.recent`    | the older batches of those producers (`recent_batches`)       |
| `.deleted`   | appended: waits for removal; `.new.deleted` is a snapshot     |
|              | that is still being written                                   |
| `.cleaned`   | appended: compaction or split output still being written      |
| `.swap`      | appended: complete output about to replace live segments      |
| `.replaced`  | empty; behind a second offset: the base of the segment behind |
|              | those that the `.swap` of the first offset replaces           |
| `.aside`     | appended: removed from the log at a start, kept for operators |
| `.rolled`    | empty; behind a second offset: where the records before the   |
|              | segment end, until they are synced (`roll_witnesses`)         |
"""

import re

__all__ = [
    "ASIDE_SUFFIX",
    "CLEANED_SUFFIX",
    "DELETED_SUFFIX",
    "DELETE_DIR_SUFFIX",
    "FUTURE_DIR_SUFFIX",
    "INDEX_SUFFIX",
    "INDEX_SUFFIXES",
    "LEADER_EPOCH_CHECKPOINT",
    "LOG_SUFFIX",
    "RECENT_SUFFIX",
    "REPLACED_SUFFIX",
    "REPLACEMENT_FILE",
    "ROLLED_SUFFIX",
    "SNAPSHOT_SUFFIX",
    "STRAY_DIR_SUFFIX",
    "SWAP_SUFFIX",
    "TIME_INDEX_SUFFIX",
    "TRANSACTION_INDEX_SUFFIX",
    "TRANSACTION_PROOF_SUFFIX",
    "offset_from_name",
    "parse_replaced",
    "replaced_path",
    "segment_path",
]

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
TRANSACTION_PROOF_SUFFIX = ".txnproof"
SNAPSHOT_SUFFIX = ".snapshot"
RECENT_SUFFIX = ".recent"
ROLLED_SUFFIX = ".rolled"
REPLACED_SUFFIX = ".replaced"
INDEX_SUFFIXES = (
    INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    TRANSACTION_PROOF_SUFFIX,
)
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
ASIDE_SUFFIX = ".aside"
DELETE_DIR_SUFFIX = "-delete"
FUTURE_DIR_SUFFIX = "-future"
STRAY_DIR_SUFFIX = "-stray"
LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
# In a future log that may have records which the current one of its partition lacks.
REPLACEMENT_FILE = "replaces-current"

_OFFSET_PREFIX = re.compile(r"([0-9]{20})\.")
_REPLACED = re.compile(rf"([0-9]{{20}})\.([0-9]{{20}}){re.escape(REPLACED_SUFFIX)}")


def segment_path(directory: str, base_offset: int, kind: str, stage: str = "") -> str:
    """Path of one file of a segment, e.g. ``…/00000000000000012345.log``."""
    return f"{directory}/{base_offset:020d}{kind}{stage}"


def offset_from_name(name: str) -> int | None:
    """The offset that a file name starts with; None for the file of another program."""
    match = _OFFSET_PREFIX.match(name)
    if match is None:
        return None
    offset = int(match[1])
    return offset if offset < 2**63 else None


def replaced_path(directory: str, base_offset: int, end: int) -> str:
    """Path of the file whose name says which segments the `.swap` of a base replaces."""
    return f"{directory}/{base_offset:020d}.{end:020d}{REPLACED_SUFFIX}"


def parse_replaced(name: str) -> tuple[int, int] | None:
    """Base and end in the name of a `.replaced` file; None for any other file."""
    match = _REPLACED.fullmatch(name)
    return None if match is None else (int(match[1]), int(match[2]))
