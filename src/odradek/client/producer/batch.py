"""A batch of records, and the queue of a partition: its numbers, and which batch is sent next.

With idempotence a partition numbers its records. Rules:

1. A batch gets its number when it is first sent, and keeps it byte for byte when it is sent again.
2. A batch that was not acknowledged goes to the front, in order of the numbers; it is sent again
   only when every batch before it has an answer. New ones may be sent up to four behind the first
   unanswered one, whatever became of those between: brokers know the last five again. More may
   have been answered meanwhile, by another leader, while the former one keeps the first request.
3. A batch that is given up after it may have been written leaves a hole in the numbers. So does a
   broker that forgot the producer. Then the partition restarts from 0 with a higher epoch, but not
   before the outcome of every batch that was sent is known: each is answered, or refused as out of
   order, which proves that it is not in the log.
4. As long as nothing was acknowledged under the producer's id and epoch, at most one batch is
   unanswered. A broker that does not know a producer takes any first number: if it refused the
   first batch for the moment and took the second, the first could only come behind it.

Example of rule 3: 0-9, 10-19 and 20-29 are in flight and 0-9 is given up. If the log has it,
10-19 is accepted; if not, it is refused as out of order, like 20-29. Only then is it safe to send
both again as 0-9 and 10-19 of the next epoch: earlier, and the log could hold them twice.
"""

from collections import deque
from typing import Final

from crc32c import crc32c

from odradek.client.producer.delivery import Outcome, OutcomeOwner
from odradek.client.producer.encoded_records import EncodedRecords, encode_gathering
from odradek.errors import ApiError
from odradek.model import NO_LEADER
from odradek.records.batch import (
    ATTRIBUTES_POSITION,
    CRC_POSITION,
    HEADER_SIZE,
    PRODUCER_EPOCH_POSITION,
    PRODUCER_ID_POSITION,
    increment_sequence,
)
from odradek.records.codec_pure import NewRecord
from odradek.records.compression import Codec
from odradek.records.gathering import Gathering

__all__ = ["MAX_UNANSWERED", "NO_SEQUENCE", "Batch", "PartitionQueue"]

NO_SEQUENCE: Final = -1
_NO_LIMIT: Final = 2**31 - 1
_NOTHING: Final = Gathering(0, 0)
_NOTHING.close()
# Brokers remember the last five batches of a producer.
MAX_UNANSWERED: Final = 5


class Batch(Outcome):
    """Records of one partition that are sent together."""

    __slots__ = (
        "attempts",
        "created_s",
        "deadline_s",
        "encoded",
        "gathered",
        "is_in_flight",
        "is_maybe_stored",
        "is_ready",
        "last_failure",
        "memory_bytes",
        "ordinal",
        "packed",
        "producer_epoch",
        "producer_id",
        "queue",
        "record_count",
        "sequence",
    )

    def __init__(
        self,
        owner: OutcomeOwner,
        queue: "PartitionQueue",
        *,
        created_s: float,
        deadline_s: float,
        memory_bytes: int,
        records: Gathering | EncodedRecords,
    ) -> None:
        super().__init__(owner, queue.topic, queue.partition)
        self.queue = queue
        self.gathered: Gathering = _NOTHING  # The records, until the batch is sent.
        self.packed: EncodedRecords | None = None  # After that, or from the beginning.
        self.record_count = 0  # Set when the batch is closed.
        if isinstance(records, EncodedRecords):
            self.packed = records
            self.record_count = records.record_count
        else:
            self.gathered = records
        self.is_ready = False  # Whether it may be sent although more records would fit.
        self.created_s = created_s  # In the loop's time, as is the deadline.
        self.deadline_s = deadline_s
        self.memory_bytes = memory_bytes  # Its part of buffer.memory.
        self.encoded: bytearray | None = None
        self.attempts = 0
        # Why the last attempt failed; None: there was none, or it has no answer.
        self.last_failure: ApiError | None = None
        self.is_in_flight = False
        # Whether an attempt ended without an answer that says otherwise.
        self.is_maybe_stored = False
        self.sequence = NO_SEQUENCE
        # Batches of its partition that were numbered before it, under the same id and epoch.
        self.ordinal = 0
        self.producer_id = -1
        self.producer_epoch = -1

    @property
    def size(self) -> int:
        """Bytes of its records, before compression, with the header."""
        return self.gathered.size if self.packed is None else self.packed.size

    def encode(
        self, codec: Codec, level: int | None, *, is_transactional: bool = False
    ) -> bytearray:
        """Its bytes, made once; it has to be closed."""
        if self.encoded is None:
            if self.packed is None:
                self.packed = encode_gathering(self.gathered, codec=codec, level=level)
            self.encoded = self.packed.seal(
                self.producer_id,
                self.producer_epoch,
                self.sequence,
                is_transactional=is_transactional,
            )
        return self.encoded

    def records(self) -> list[NewRecord]:
        """Its records one by one, for errors and interceptors; it has to be closed."""
        if self.packed is None:
            self.packed = encode_gathering(self.gathered)
        return self.packed.records

    def forget_records(self) -> None:
        """Frees the memory of its records, even if the batch itself is still referenced."""
        self.gathered = _NOTHING
        self.packed = None
        self.encoded = None

    def halves(self) -> "tuple[Batch, Batch]":
        """Two batches with the same records, numbers, deadline and memory, in the place of it."""
        middle = (self.record_count + 1) // 2
        whole = self.records()
        sequence = self.sequence
        halves = []
        for part, memory_bytes in (
            (whole[:middle], self.memory_bytes // 2),
            (whole[middle:], (self.memory_bytes + 1) // 2),
        ):
            records = Gathering(HEADER_SIZE, _NO_LIMIT)
            for timestamp, key, value, headers in part:
                index = records.add(timestamp, key, value, headers)
                assert index >= 0, "there is no limit"
            half = Batch(
                self.owner,
                self.queue,
                created_s=self.created_s,
                deadline_s=self.deadline_s,
                memory_bytes=memory_bytes,
                records=records,
            )
            half.record_count = records.close()
            half.attempts = self.attempts
            half.last_failure = self.last_failure
            if sequence != NO_SEQUENCE:
                half.number(self.producer_id, self.producer_epoch, sequence)
                half.ordinal = self.ordinal
                sequence = increment_sequence(sequence, half.record_count)
            halves.append(half)
        first, second = halves
        self.split(first, second, middle)
        return first, second

    def number(self, producer_id: int, producer_epoch: int, sequence: int) -> None:
        """Gives it an identity, in its bytes too if there are any."""
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.sequence = sequence
        if self.encoded is None:
            return
        # A copy: the old bytes may still be in the send queue of a connection.
        encoded = bytearray(self.encoded)
        encoded[PRODUCER_ID_POSITION:PRODUCER_EPOCH_POSITION] = producer_id.to_bytes(8, "big")
        end = PRODUCER_EPOCH_POSITION + 6
        encoded[PRODUCER_EPOCH_POSITION:end] = producer_epoch.to_bytes(
            2, "big"
        ) + sequence.to_bytes(4, "big")
        crc = crc32c(memoryview(encoded)[ATTRIBUTES_POSITION:])
        encoded[CRC_POSITION:ATTRIBUTES_POSITION] = crc.to_bytes(4, "big")
        self.encoded = encoded


class PartitionQueue:
    """Batches of one partition: one open, some closed, some sent. See the module's docstring.

    `open` and `closed` are guarded by the producer's lock; the rest belongs to the loop.
    """

    __slots__ = (
        "closed",
        "in_flight_count",
        "is_broken",
        "is_known",
        "leader",
        "max_batch_bytes",
        "next_sequence",
        "numbered_count",
        "open",
        "partition",
        "producer_epoch",
        "producer_id",
        "retry_at_s",
        "taken_bytes",
        "topic",
        "unanswered",
    )

    def __init__(self, topic: str, partition: int, max_batch_bytes: int = 0) -> None:
        self.topic = topic
        self.partition = partition
        # The size up to which a waiting batch may grow; if it is less than batch.size, none does.
        self.max_batch_bytes = max_batch_bytes
        self.open: Batch | None = None
        # To be sent, in order; those that were not acknowledged are at the front.
        self.closed: deque[Batch] = deque()
        # Numbered and without an outcome, in order of the numbers: in flight, or to be sent again.
        self.unanswered: list[Batch] = []
        self.taken_bytes = 0  # Of all batches that were closed.
        self.in_flight_count = 0
        self.leader = NO_LEADER  # The broker to send to, as far as is known.
        self.retry_at_s = 0.0
        self.producer_id = -1
        self.producer_epoch = -1
        self.next_sequence = 0
        self.numbered_count = 0  # Batches under this id and epoch; the next one's ordinal.
        # Its numbers have a hole: rule 3.
        self.is_broken = False
        # Whether the broker has acknowledged something under these numbers: rule 4.
        self.is_known = False

    @property
    def next_batch(self) -> Batch | None:
        """The batch to send next. A caller that changes it holds the lock."""
        if self.closed:
            return self.closed[0]
        batch = self.open
        return batch if batch is not None and batch.is_ready else None

    @property
    def is_idle(self) -> bool:
        return self.open is None and not self.closed and not self.in_flight_count

    def may_leave(self, batch: Batch, *, max_unanswered: int) -> bool:
        """Whether the numbers allow to send the next batch now."""
        if batch.sequence != NO_SEQUENCE:
            if self.is_broken and (self.in_flight_count or not batch.is_maybe_stored):
                return False
            return self.unanswered[0] is batch
        if self.is_broken:
            return False
        if not self.unanswered:
            return True
        distance = self.numbered_count - self.unanswered[0].ordinal
        return self.is_known and distance < max_unanswered

    def needs_new_epoch(self) -> bool:
        """Whether the numbers are broken and no batch can be in the log under the old ones.

        If the first is not there, none behind it is: brokers take them in order only.
        """
        return (
            self.is_broken
            and not self.in_flight_count
            and not (self.unanswered and self.unanswered[0].is_maybe_stored)
        )

    def begin_anew(self, producer_id: int, producer_epoch: int) -> None:
        """Restarts the numbers from 0 as another producer; refused batches get new ones."""
        self.is_broken = False
        self.is_known = False
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.next_sequence = 0
        self.numbered_count = 0
        for batch in self.unanswered:
            batch.is_maybe_stored = False
            self._give_next_number(batch)

    def number(self, batch: Batch) -> None:
        """Numbers a batch that is sent for the first time."""
        self._give_next_number(batch)
        self.unanswered.append(batch)

    def _give_next_number(self, batch: Batch) -> None:
        batch.number(self.producer_id, self.producer_epoch, self.next_sequence)
        batch.ordinal = self.numbered_count
        self.numbered_count += 1
        self.next_sequence = increment_sequence(self.next_sequence, batch.record_count)

    def come_back(self, batch: Batch) -> None:
        """Puts a batch to the front again; the caller holds the lock."""
        if batch.sequence == NO_SEQUENCE:
            self.closed.appendleft(batch)
            return
        place = self.unanswered.index(batch)
        position = 0
        for waiting in self.closed:
            if waiting.sequence == NO_SEQUENCE or self.unanswered.index(waiting) > place:
                break
            position += 1
        self.closed.insert(position, batch)

    def replace(self, batch: Batch, halves: tuple[Batch, Batch]) -> None:
        """Puts the halves of a batch to the front in its place; the caller holds the lock."""
        if batch.sequence != NO_SEQUENCE:
            place = self.unanswered.index(batch)
            self.unanswered[place : place + 1] = halves
        first, second = halves
        self.come_back(second)
        self.come_back(first)

    def forget(self, batch: Batch) -> None:
        """Takes out a batch that has its outcome."""
        if batch.sequence != NO_SEQUENCE and batch in self.unanswered:
            self.unanswered.remove(batch)
