"""Markers: the record that says which batch of a query was committed last. Pure.

A marker is the last record of a batch's transaction, so it is visible if and only if the batch is.
It lies in the compacted topic `COMMITS_TOPIC`; its key has the query's id and the target. A batch
is judged by the last marker and by the note beside the checkpoint (`notes`), which says with which
batch the query began to write exactly once:

====================  ==============================================================================
marker                a batch N
====================  ==============================================================================
none                  is written if it is the first one, or if there is no note; else refused
of N, same digest     is skipped: it was committed, and Spark did not get to know
of N, other digest    is refused: the checkpoint was copied or set back, and N planned again
of a batch after N    is refused: the checkpoint was set back, or another driver has gone on
of N - 1              is written
of a batch before it  is written if there is no note; else refused: the topic has lost markers
====================  ==============================================================================

The digest is that of Spark's own file `offsets/N` in the checkpoint, which a repeated batch keeps.
"""

import hashlib
import json
from dataclasses import dataclass
from typing import Final, Self

from odradek.spark.transactional.errors import ExactlyOnceError

__all__ = ["COMMITS_TOPIC", "Marker", "QueryIdentity", "digest_of", "is_to_be_written"]

COMMITS_TOPIC: Final = "__odradek_pipeline_commits"

_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryIdentity:
    """One query and its target; a driver that has the same one is the same query started again."""

    # Shown to users; the id of the transactions has the one that the query began with.
    name: str
    query_id: str
    # The topic, or `*` if a column names it.
    target: str

    @property
    def transactional_id(self) -> str:
        """The id that its first driver chooses."""
        return f"odradek-spark:{self.name}:{self.query_id}:{self.target}"

    @property
    def key(self) -> bytes:
        """The key of its marker."""
        return json.dumps({"query": self.query_id, "target": self.target}, sort_keys=True).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """The last batch of a query that was committed."""

    batch: int
    digest: str
    rows: int
    # As the id of the transactions: a query that was renamed keeps it.
    transactional_id: str

    def encode(self) -> bytes:
        """The value of its record."""
        told = {
            "v": _VERSION,
            "batch": self.batch,
            "offsets_sha256": self.digest,
            "rows": self.rows,
            "transactional_id": self.transactional_id,
        }
        return json.dumps(told, sort_keys=True).encode()

    @classmethod
    def parse(cls, value: bytes) -> Self:
        """Reads `encode`.

        Raises:
            ExactlyOnceError: It is something else.
        """
        try:
            told = json.loads(value)
            marker = cls(
                batch=told["batch"],
                digest=told["offsets_sha256"],
                rows=told["rows"],
                transactional_id=told["transactional_id"],
            )
        except (ValueError, KeyError, TypeError) as error:
            raise _unreadable(value) from error
        texts, numbers = (marker.digest, marker.transactional_id), (marker.batch, marker.rows)
        if told.get("v") != _VERSION or not all(isinstance(one, str) for one in texts):
            raise _unreadable(value)
        if not all(type(one) is int for one in numbers):
            raise _unreadable(value)
        return marker


def _unreadable(value: bytes) -> ExactlyOnceError:
    return ExactlyOnceError(
        f"expected a marker of version {_VERSION} in {COMMITS_TOPIC}, found {value[:200]!r}: "
        "another program, or a later version of this one, has written it"
    )


def digest_of(plan: bytes) -> str:
    """The digest of what Spark has planned for a batch."""
    return hashlib.sha256(plan).hexdigest()


def is_to_be_written(
    batch: int,
    digest: str,
    marker: Marker | None,
    *,
    first_batch: int | None,
    has_marker: bool,
) -> bool:
    """Judges a batch; see the module's docstring.

    Args:
        first_batch: The batch that the query began to write exactly once with; None: not yet.
        has_marker: Whether the note says that the query has a marker.

    Returns:
        False if it was committed already.

    Raises:
        ExactlyOnceError: It is neither to be written nor to be skipped.
    """
    if first_batch is not None and batch < first_batch:
        raise ExactlyOnceError(
            f"batch {batch} comes before batch {first_batch}, the first that this checkpoint wrote "
            f"exactly once: the checkpoint was set back. {_WAYS_OUT}"
        )
    if marker is None:
        if first_batch is not None and (has_marker or batch > first_batch):
            raise ExactlyOnceError(
                f"expected the marker of batch {batch - 1} or {batch} in {COMMITS_TOPIC}, found "
                "none: the topic was deleted, or has lost records, or this is another cluster. It "
                f"cannot be known whether batch {batch} was written. {_WAYS_OUT}"
            )
        return True
    if marker.batch == batch:
        if marker.digest == digest:
            return False
        raise ExactlyOnceError(
            f"batch {batch} was committed with other offsets than those in this checkpoint "
            f"(digest {marker.digest[:12]}, here {digest[:12]}): the checkpoint is a copy, or was "
            f"set back. {_WAYS_OUT}"
        )
    if marker.batch > batch:
        raise ExactlyOnceError(
            f"batch {marker.batch} was committed already, and this checkpoint is at batch {batch}: "
            f"it was set back, or another driver goes on from a copy of it. {_WAYS_OUT}"
        )
    if marker.batch < batch - 1 and first_batch is not None:
        raise ExactlyOnceError(
            f"expected the marker of batch {batch - 1} or {batch} in {COMMITS_TOPIC}, found that "
            f"of batch {marker.batch}: the topic has lost records, or was restored from a copy. It "
            f"cannot be known whether batch {batch} was written. {_WAYS_OUT}"
        )
    return True


_WAYS_OUT: Final = (
    "Nothing was written. Restore the checkpoint as it was, or begin with a new one from the place "
    "where the topic ends"
)
