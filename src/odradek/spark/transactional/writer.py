"""Writes the batches of one query, each in one transaction: the driver's part.

The steps of a batch, in this order:

1. *start*, if the last batch was not written by this object: InitProducerId without a producer id,
   which fences every other driver of the query and ends what it has left open; only then the
   marker is read, and says whether the batch was committed already.
2. *pack*: the compute job.
3. *send*: the send job, under a ticket of the transaction. If it fails, the transaction is aborted,
   and the same rows are sent in another one, under another epoch; rows that are lost, or mixed from
   two attempts, are packed again.
4. *mark*: the marker, as the last record of the transaction.
5. *commit*: EndTxn, until its answer is definite.

Any error leaves the batch to the next start, which decides by the marker. A producer that wrote
nothing for `IDLE_S` is closed, for Spark does not say that a query has ended.
"""

import logging
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NoReturn

from odradek.client.producer.blocking import Producer
from odradek.client.producer.errors import (
    FatalTransactionError,
    ProducerFencedError,
    RetriableTransactionError,
)
from odradek.clock import Clock, SystemClock
from odradek.errors import ApiError, ErrorCode
from odradek.spark.datasource.writer_columns import SinkColumns
from odradek.spark.datasource.writer_options import SinkOptions
from odradek.spark.transactional.attempts import MixedAttemptsError
from odradek.spark.transactional.commits import COMMITS, prepare_commits_topic, read_markers
from odradek.spark.transactional.errors import (
    ExactlyOnceError,
    FencedQueryError,
    UnknownOutcomeError,
)
from odradek.spark.transactional.jobs import PackedBatch, is_cancelled, pack
from odradek.spark.transactional.marker import (
    COMMITS_TOPIC,
    Marker,
    QueryIdentity,
    is_to_be_written,
)
from odradek.spark.transactional.notes import CheckpointNotes, Note

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

__all__ = ["IDLE_S", "TransactionalWriter", "producer_settings"]

logger = logging.getLogger(__name__)

IDLE_S: Final = 20
# A failed send job is tried again so often; then the query fails.
_MOST_SENDS: Final = 3
# How long a commit or an abort without an answer is repeated.
_LONGEST_END_MS: Final = 600_000
_CLOSE_TIMEOUT_S: Final = 10
# Readers of committed records wait so long for a driver that died and is not started again.
_TRANSACTION_TIMEOUT_MS: Final = "300000"
_TIMEOUT: Final = "transaction.timeout.ms"


def producer_settings(options: SinkOptions) -> dict[str, str]:
    """The settings of the producers, without the transactional id."""
    return {_TIMEOUT: _TRANSACTION_TIMEOUT_MS, **dict(options.producer)}


class TransactionalWriter:
    """See the module's docstring. One batch at a time.

    Args:
        identity: The query.
        columns: Those of the frames to write.
        notes: Of the checkpoint; None for a query without one, which has a single batch.
    """

    def __init__(
        self,
        identity: QueryIdentity,
        options: SinkOptions,
        columns: SinkColumns,
        notes: CheckpointNotes | None,
        clock: Clock | None = None,
    ) -> None:
        self.identity = identity
        self._topic = options.topic
        self._settings = producer_settings(options)
        self._columns = columns
        self._notes = notes
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._producer: Producer | None = None
        self._transactional_id = ""
        self._last: Marker | None = None
        self._note: Note | None = None
        self._alarm: threading.Timer | None = None

    def write(self, frame: "DataFrame", batch: int, digest: str) -> int | None:
        """Writes a batch; returns the number of its rows, or None if it was committed before.

        Raises:
            ExactlyOnceError: It is refused, or cannot be written.
            ApiError: Brokers do not answer, or refuse.
        """
        with self._lock:
            self._cancel_alarm()
            try:
                rows = self._write(frame, batch, digest)
            except BaseException:
                self._close_producer()
                raise
            self._set_alarm()
            return rows

    def close(self) -> None:
        """Ends the connections; the next batch begins anew."""
        with self._lock:
            self._cancel_alarm()
            self._close_producer()

    def _write(self, frame: "DataFrame", batch: int, digest: str) -> int | None:
        if self._producer is None or self._last is None or self._last.batch != batch - 1:
            self._start()
            self._last = self._read_marker()
            if not self._judge(batch, digest):
                logger.info("batch %d of %s was committed before", batch, self._transactional_id)
                return None
        packed = self._pack(frame, batch)
        try:
            for count in range(1, _MOST_SENDS + 1):
                try:
                    rows = self._send_and_commit(packed, batch, digest)
                    break
                except Exception as error:
                    self._abort(error)
                    if is_cancelled(error) or isinstance(error, ExactlyOnceError):
                        raise
                    if count == _MOST_SENDS:
                        raise ExactlyOnceError(
                            f"batch {batch} could not be sent in {count} transactions, all of "
                            f"which were aborted; nothing of it is visible. The last one: {error}"
                        ) from error
                    logger.warning("batch %d is sent again: %s", batch, error)
                    if isinstance(error, MixedAttemptsError) or not packed.is_whole():
                        packed.free()
                        packed = self._pack(frame, batch)
        finally:
            packed.free()
        self._note_marker()
        return rows

    # The steps

    def _start(self) -> None:
        self._close_producer()
        prepare_commits_topic(self._settings)
        self._note = None if self._notes is None else self._own_note(self._notes)
        if self._note is not None:
            self._transactional_id = self._note.transactional_id
        else:
            # Another name may have been the first; only the same id fences the driver of before.
            found = read_markers(self._settings, self.identity.key)
            earlier = found.undecided or found.committed
            self._transactional_id = (
                self.identity.transactional_id if earlier is None else earlier.transactional_id
            )
        self._init_producer()

    def _init_producer(self) -> None:
        self._producer = producer = Producer(
            self._settings, transactional_id=self._transactional_id
        )
        try:
            producer.init_transactions()
        except FatalTransactionError as error:
            self._refuse(error)

    def _refuse(self, error: ApiError) -> NoReturn:
        if error.code is ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            raise ExactlyOnceError(
                f"{_TIMEOUT}={self._settings[_TIMEOUT]} is above the brokers' limit: set "
                f"kafka.{_TIMEOUT} of the sink to less, or raise transaction.max.timeout.ms of the "
                "brokers"
            ) from error
        if error.code is ErrorCode.UNSUPPORTED_VERSION:
            raise ExactlyOnceError(
                f"the brokers at {self._settings['bootstrap.servers']} have no transactions, which "
                f"an exactly-once sink needs: write at least once, or to other brokers ({error})"
            ) from error
        if isinstance(error, ProducerFencedError):
            raise FencedQueryError(
                f"this driver of the query {self.identity.name} is fenced: another one was started "
                "on the same checkpoint or a copy of it, or the transaction was open for longer "
                f"than {_TIMEOUT}={self._settings[_TIMEOUT]}. Nothing of the batch in hand is "
                "visible unless it was committed; the next start reads the marker and knows. Run "
                "one driver for a checkpoint"
            ) from error
        raise ExactlyOnceError(f"the query {self.identity.name} cannot write: {error}") from error

    def _read_marker(self) -> Marker | None:
        found = read_markers(self._settings, self.identity.key)
        if found.undecided is not None:
            raise ExactlyOnceError(
                f"a transaction of {found.undecided.transactional_id} has a marker of this query "
                f"and is still open: it was not begun as {self._transactional_id}. Wait for its "
                "end, see `odradek transactions list`"
            )
        return found.committed

    def _judge(self, batch: int, digest: str) -> bool:
        note, marker = self._note, self._last
        is_written = is_to_be_written(
            batch,
            digest,
            marker,
            first_batch=None if note is None else note.first_batch,
            has_marker=note is not None and note.has_marker,
        )
        if note is None and self._notes is not None:
            self._note = Note(
                query_id=self.identity.query_id,
                target=self.identity.target,
                transactional_id=self._transactional_id,
                first_batch=batch,
                has_marker=marker is not None,
            )
            self._notes.write(self._note)
        return is_written

    def _own_note(self, notes: CheckpointNotes) -> Note | None:
        note = notes.read()
        if note is None:
            return None
        for what, expected, found in (
            ("query", self.identity.query_id, note.query_id),
            ("target", self.identity.target, note.target),
        ):
            if expected != found:
                raise ExactlyOnceError(
                    f"the checkpoint {notes.checkpoint} belongs to the {what} {found}, this one is "
                    f"{expected}: files of another checkpoint were copied there, or the sink was "
                    "changed. Nothing was written; use a checkpoint of its own"
                )
        return note

    def _pack(self, frame: "DataFrame", batch: int) -> PackedBatch:
        counts = {}
        if self._topic is not None:
            assert self._producer is not None, "it was started"
            counts[self._topic] = len(self._producer.partitions_for(self._topic).partitions)
        # The settings of tasks, which lease an idempotent producer for what they look up.
        settings = tuple(sorted(self._settings.items()))
        return pack(frame, self._topic, self._columns, settings, counts, turn=batch)

    def _send_and_commit(self, packed: PackedBatch, batch: int, digest: str) -> int:
        producer = self._producer
        assert producer is not None, "it was started"
        producer.begin_transaction()
        rows = self._send(packed)
        marker = Marker(
            batch=batch, digest=digest, rows=rows, transactional_id=self._transactional_id
        )
        self._mark(marker)
        self._commit()
        self._last = marker
        return rows

    def _note_marker(self) -> None:
        if self._note is not None and self._notes is not None and not self._note.has_marker:
            self._note = replace(self._note, has_marker=True)
            self._notes.write(self._note)

    def _send(self, packed: PackedBatch) -> int:
        assert self._producer is not None, "it was started"
        return packed.send(self._producer.ticket())

    def _mark(self, marker: Marker) -> None:
        assert self._producer is not None, "it was started"
        self._producer.send(
            COMMITS_TOPIC,
            key=self.identity.key,
            value=marker.encode(),
            partition=COMMITS.partition,
        )

    def _commit(self) -> None:
        assert self._producer is not None, "it was started"
        self._until_definite(self._producer.commit_transaction)

    def _abort(self, reason: Exception) -> None:
        """Ends the transaction so that nothing of it is ever visible.

        Raises:
            ExactlyOnceError: The driver is fenced, or the cluster does not answer.
        """
        assert self._producer is not None, "it was started"
        if isinstance(reason, ExactlyOnceError):
            return  # Nothing is possible any more, or the outcome is not known.
        self._until_definite(self._producer.abort_transaction)

    def _until_definite(self, end: "Callable[[], object]") -> None:
        deadline_ms = self._clock.monotonic_ms() + _LONGEST_END_MS
        while True:
            try:
                end()
            except RetriableTransactionError as error:
                if self._clock.monotonic_ms() >= deadline_ms:
                    raise UnknownOutcomeError(
                        f"no answer to the end of a transaction of {self._transactional_id} in "
                        f"{_LONGEST_END_MS // 1000} s ({error}): the next start reads the marker, "
                        "which says whether the batch was committed"
                    ) from error
                logger.warning("%s: asked again for the end: %s", self._transactional_id, error)
            except FatalTransactionError as error:
                self._refuse(error)
            else:
                return

    # The producer

    def _close_producer(self) -> None:
        producer, self._producer = self._producer, None
        self._last = None
        if producer is not None:
            producer.close(timeout=_CLOSE_TIMEOUT_S)

    def _set_alarm(self) -> None:
        self._alarm = threading.Timer(IDLE_S, self.close)
        self._alarm.daemon = True
        self._alarm.start()

    def _cancel_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
