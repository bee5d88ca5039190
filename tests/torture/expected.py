"""What must survive a damage: the model that a damaged partition is judged by.

Where an expectation is weaker than "everything", and why:

- No checksum covers a batch's base offset and leader epoch, nor says in which file or partition it
  belongs. A batch whose offset alone was hit, and whatever comes from the first of two exchanged or
  repeated log files on, may be missing or be served under the offset that it names. With a log file
  of another partition nothing is known but that no bytes of its own get lost.
- After an unclean stop a copy of an empty log file under a higher name may move the log end up to
  it, and so may a damaged offset of the last batch, within its segment's reach: a follower whose
  leader's offsets jump leaves the same files. It is told of. Where a log file of another partition
  ends is not known, either.
- Without its first segment a log begins later. It has no hole, so the rest stays.
- A clean stop writes down what it leaves (`closed-logs`, named by the marker). Where both are whole
  the checkpoints may be wrong, everything that is missing is told of, and the end is certain. After
  an unclean stop, or where one of the two is hit:
  - Where a file is gone or ends between two batches, only a `.rolled` file tells. It is removed
    once its records are synced, and what was synced stays, with all that follows. Such a file also
    looks like one that was compacted: nothing has to tell of it.
  - With a log file goes its transaction index, which told of records in the segments before it.
  - Nothing is left to tell of a `.txnindex` that is hit together with its proof.
- Bytes that were inserted between two batches are damage, too: they end what was not synced.
- A recovery point that cannot be read is 0, and damage anywhere ends what is then not synced.
- Five batches of a producer need `.recent`; where that is hit, the newest one must be recognised.
  Where a snapshot is hit, what no log file holds any more is unknown.
- Nor is there anything left to tell of an exchanged snapshot whose `.recent` is hit.
- A `.swap` that is not what it says may take the place of segments, whose bytes stay.
"""

import os
from collections.abc import Iterator
from typing import Final

from odradek.model import TopicPartition
from tests.torture.damage import Damage, Hit
from tests.torture.history import Batch, History, Truth, batches_in, read_checkpoint

__all__ = ["CHECKED_FROM", "LOG_START_FILE", "Expected"]

LOG_START_FILE: Final = "log-start-offset-checkpoint"
CHECKED_FROM: Final = 21  # Of a batch's bytes: what its checksum covers.
_RECOVERY_POINT_FILE: Final = "recovery-point-offset-checkpoint"
_MARKER_FILE: Final = ".kafka_cleanshutdown"
_CLOSED_LOGS_FILE: Final = "closed-logs"
_CACHED: Final = 5  # Batches of a producer that are remembered.


class Expected:
    """What must hold of one partition.

    Attributes:
        truth: What was true before the damage.
        is_clean: Whether the damaged directory still says that it was stopped in order.
        is_told: Whether it also says what the stop left; checkpoints do not matter then.
        is_hit: Whether a log file of this partition was hit, or one has appeared.
        is_foreign: Whether batches of another partition are among them.
        is_displaced: Whether a `.swap` has appeared that is not what it says.
        hit: The batches that were touched.
    """

    def __init__(self, history: History, damage: Damage, partition: TopicPartition) -> None:
        self.truth: Truth = history.truths[partition]
        self.partition = partition
        self._history = history
        self._damage = damage
        folder = f"{partition}/"
        self._paths = {p for p in damage.paths if p.startswith(folder)}
        self.is_clean = history.is_clean and _MARKER_FILE in damage.files
        self.is_told = self.is_clean and not damage.paths & {_MARKER_FILE, _CLOSED_LOGS_FILE}
        self.is_point_hit = _RECOVERY_POINT_FILE in damage.paths and not self.is_told
        self.is_start_hit = LOG_START_FILE in damage.paths and not self.is_told
        self._hit_logs = {p for p in self._paths if p.endswith(".log")}
        self.is_hit = bool(self._hit_logs)
        self.log_hits = [h for h in damage.hits if self._hit_logs.intersection(h.paths)]
        self.is_foreign = any(h.kind in ("exchange", "foreign copy") for h in self.log_hits)
        self.is_displaced = any(
            h.is_lie and h.kind == "plant" and h.path.startswith(folder) and ".log." in h.path
            for h in damage.hits
        )
        self.hit = [b for b in self.truth.all_batches() if b.base_offset in set(self._hit_bases())]
        self.is_disguised = any(self._still_looks_sound(batch) for batch in self.hit)
        self._lowest_point, self._highest_point = self._recovery_points()

    def has_hit(self, *suffixes: str) -> bool:
        """Whether files of this partition with one of these suffixes were hit, or have appeared."""
        return any(p.endswith(suffixes) for p in self._paths)

    def _recovery_points(self) -> tuple[int, int]:
        """The lowest and the highest that the checkpoint may be taken for."""
        point = self.truth.recovery_point
        if not self.is_point_hit:
            return point, point
        try:
            read = read_checkpoint(self._damage.files.get(_RECOVERY_POINT_FILE, b""))
        except ValueError:
            return 0, point
        return 0, max(point, read.get(self.partition, 0))

    def _hit_bases(self) -> Iterator[int]:
        for hit in self.log_hits:
            for path in self._hit_logs.intersection(hit.paths):
                for batch in self.truth.batches.get(path, ()):
                    if any(_touches(r, batch) for r in _ranges_of(hit, path)):
                        yield batch.base_offset

    def _still_looks_sound(self, batch: Batch) -> bool:
        """Whether only bytes changed that no checksum covers: base offset and leader epoch."""
        path = next(p for p, batches in self.truth.batches.items() if batch in batches)
        data = self._damage.files.get(path, b"")[batch.position : batch.end]
        return any(True for _ in batches_in(data))

    # Batches

    def required(self) -> list[Batch]:
        """The batches that must be served."""
        everything = self.truth.all_batches()
        if self.is_foreign or self.is_displaced:
            return []
        if not self.is_hit:
            return everything
        end = 1 << 62
        for hit in self.log_hits:
            end = min(end, self._end_by(hit))
        return [b for b in everything if b.last_offset < end and b not in self.hit]

    def _end_by(self, hit: Hit) -> int:
        """The offset from which on one hit may have cost everything."""
        paths = self._hit_logs.intersection(hit.paths)
        batches = [b for b in self.hit if self._is_in(b, paths)]
        first = min((b.base_offset for b in batches), default=self.truth.log_end)
        if hit.others or hit.kind == "swap" or any(map(self._still_looks_sound, batches)):
            # Which of two files is right, or where a batch without a sound offset or in another's
            # place belongs, cannot be told by the code, either.
            return min([first, *(_base_of(path) for path in paths)])
        if self.is_clean and not self.is_point_hit:
            return 1 << 62
        behind = self._first_behind_insertion(hit)
        if behind is not None and behind.base_offset >= self._lowest_point:
            return min(first, behind.base_offset)
        if any(b.last_offset >= self._lowest_point for b in batches):
            return first if self._is_single else self._first_unsynced(first)
        return 1 << 62

    @property
    def _is_single(self) -> bool:
        return len(self.log_hits) == 1

    def _first_unsynced(self, first: int) -> int:
        """Damage in several places: what lies between two of them may count as one."""
        return min([first, *(b.base_offset for b in self.hit)])

    def _is_in(self, batch: Batch, paths: set[str]) -> bool:
        return any(batch in self.truth.batches.get(path, ()) for path in paths)

    def _first_behind_insertion(self, hit: Hit) -> Batch | None:
        """The first batch behind bytes that were inserted, between two batches or within one."""
        if hit.kind != "insert":
            return None
        position, path = hit.ranges[0][1], hit.path
        behind = [b for b in self.truth.batches.get(path, ()) if b.position >= position]
        later = [b for p in sorted(self.truth.batches) if p > path for b in self.truth.batches[p]]
        return next(iter([*behind, *later]), None)

    def forbidden(self) -> list[Batch]:
        """The batches behind a cut, which must not be served."""
        if len(self.log_hits) != 1 or self.is_clean or self.is_disguised or self.is_foreign:
            return []
        (hit,) = self.log_hits
        if hit.others or hit.kind in ("insert", "swap") or self.is_displaced:
            return []
        point = self._highest_point
        if self.has_hit(".rolled", ".swap") or not any(b.last_offset >= point for b in self.hit):
            return []
        if self._leaves_whole_batches(hit) and not self._has_witness(hit):
            return []
        cut = max(min(b.base_offset for b in self.hit), point)
        return [b for b in self.truth.all_batches() if b.base_offset > cut and b not in self.hit]

    def _leaves_whole_batches(self, hit: Hit) -> bool:
        """Whether a log file is gone, or was cut between two batches."""
        if hit.kind == "delete":
            return True
        return hit.kind == "cut" and any(b.position == hit.ranges[0][0] for b in self.hit)

    def _has_witness(self, hit: Hit) -> bool:
        """Whether there is a file that says where the records before the next segment end."""
        following = next((p for p in sorted(self.truth.batches) if p > hit.path), None)
        is_first = hit.kind == "delete" and hit.path == min(self.truth.batches)
        if following is None or is_first:
            return following is None
        base = following.removesuffix("log")
        return any(p.startswith(base) and p.endswith(".rolled") for p in self._history.files)

    def keeps_bytes(self) -> bool:
        """Whether no byte of a batch that was not touched may leave the disk."""
        return self.is_clean and not self.is_point_hit

    def untouched(self) -> list[Batch]:
        """The batches that were not touched."""
        return [b for b in self.truth.all_batches() if b not in self.hit]

    def is_noticeable(self) -> bool:
        """Whether there is anything that tells of what is missing."""
        # A file that ends between two batches, or is gone, looks like one that was compacted.
        return self.is_told or not any(self._leaves_whole_batches(hit) for hit in self.log_hits)

    # Offsets

    def lowest_end(self) -> int:
        """The log must not end below: offsets would be given out twice."""
        is_point_known = not self.is_point_hit
        if self.is_told:
            pass
        elif self.is_hit or self.is_displaced:
            # The snapshot bears the recovery point out: neither alone proves where a log ended.
            is_point_known = is_point_known and not self.has_hit(".snapshot", ".recent")
        elif not self.has_hit(".snapshot", ".recent"):
            is_point_known = True
        is_known = self.is_clean and is_point_known and not self.is_start_hit
        return self.truth.log_end if is_known else 0

    def highest_end(self) -> int:
        """The log must not end above."""
        end = self.truth.log_end
        highest = end
        for hit in self.log_hits:
            bases = [_base_of(p) for p in hit.paths if p in self._hit_logs]
            if (hit.kind == "swap" and hit.others) or self.is_foreign:
                highest = max(highest, end + 1)  # Not one batch can be read; its place stays taken.
            if self.is_foreign or hit.kind == "duplicate":
                if not self.is_clean:
                    highest = max([highest, *bases])
                if self.is_foreign and not self.is_told:
                    return 1 << 63
        if self.is_disguised and not (self.is_clean and not self.is_point_hit):
            highest = max(highest, max(map(_base_of, self.truth.batches), default=0) + (1 << 31))
        if self.is_displaced or self.is_point_hit:
            highest += 1 << 32
        return highest

    # Producers

    @property
    def is_state_recorded(self) -> bool:
        """Whether a clean stop's snapshot, which is there, tells all about the producers."""
        return (
            self.is_clean
            and not self.is_point_hit
            and not self.is_start_hit
            and not self.has_hit(".snapshot", ".recent")
            and not self.is_foreign
            and not self.is_displaced
        )

    def recognised(
        self, served: dict[int, bytes], end: int, *, is_rewritten: bool
    ) -> Iterator[tuple[int, bytes, int, bool]]:
        """Producer, batch, its offset, and whether it must be known; else it may be refused.

        Args:
            served: What the log serves, by base offset.
            end: Where it ended when it was loaded.
            is_rewritten: Whether the log was compacted since the damage.
        """
        if self.is_foreign or self.is_displaced or self.is_start_hit or self.is_state_forged:
            return
        is_recorded = self.is_state_recorded
        in_files = {(b.base_offset, b.data[CHECKED_FROM:]) for b in self.truth.all_batches()}
        is_snapshot_hit = self.has_hit(".snapshot")
        is_recent_hit = self.has_hit(".recent") or (is_snapshot_hit and is_rewritten)
        if self.is_hit and not is_recorded and (self.is_disguised or self._has_others()):
            return
        for producer_id, sent in self.truth.sent.items():
            newest = last = len(sent) - 1
            if self.is_hit and not is_recorded:
                kept = [n for n, one in enumerate(sent) if _is_served(one, served)]
                if not kept or is_snapshot_hit:
                    continue
                newest = kept[-1]
                if all(offset >= end for _, offset in sent[newest + 1 :]):
                    last = newest  # Those behind it were cut, no snapshot knows them.
            for number in range(max(0, last - _CACHED + 1), newest + 1):
                data, offset = sent[number]
                is_in_files = (offset, data[CHECKED_FROM:]) in in_files
                if not is_recorded and self.is_hit and not _is_served(sent[number], served):
                    continue
                if is_snapshot_hit and not is_in_files:
                    continue
                newest_data, newest_offset = sent[newest]
                if is_snapshot_hit and (newest_offset, newest_data[CHECKED_FROM:]) not in in_files:
                    continue
                is_newest = number == newest == len(sent) - 1
                if is_rewritten and is_snapshot_hit and not is_newest:
                    continue
                yield producer_id, data, offset, is_newest or not is_recent_hit

    @property
    def is_state_forged(self) -> bool:
        """Whether nothing tells that a snapshot belongs elsewhere."""
        return self.has_hit(".recent") and any(
            any(p.endswith(".snapshot") and p in self._paths for p in hit.paths)
            and (hit.others or hit.is_lie)
            for hit in self._damage.hits
        )

    @property
    def is_index_forged(self) -> bool:
        """Whether nothing tells that a transaction index is gone, or belongs elsewhere."""
        return not self.is_told and self.has_hit(".txnindex") and self.has_hit(".txnproof")

    def _has_others(self) -> bool:
        return any(hit.others or hit.kind == "swap" for hit in self.log_hits)

    def unstable_from(self, served: dict[int, bytes]) -> int | None:
        """The last stable offset must not lie above; None if no transaction is known to be open."""
        if self.is_foreign or self.is_displaced or self.is_state_forged:
            return None
        if self.is_hit and not self.is_state_recorded:
            if self.is_disguised or self._has_others():
                return None
            firsts = [
                min((o for o in offsets if self._is_still_there(o, served)), default=None)
                for offsets in self.truth.open_batches.values()
            ]
            return min((o for o in firsts if o is not None), default=None)
        return self.truth.open_from

    def _is_still_there(self, offset: int, served: dict[int, bytes]) -> bool:
        return any(
            served.get(offset) == b.data
            for b in self.truth.all_batches()
            if b.base_offset == offset
        )

    def hides_aborted(self) -> bool:
        """Whether no record of an aborted transaction may be shown."""
        if self.is_foreign or self.is_displaced or self.is_disguised or self._has_others():
            return False
        if self.is_state_forged or self.is_index_forged:
            return False
        if not self.is_told and any(hit.kind == "delete" for hit in self.log_hits):
            return False  # With a log file goes its transaction index.
        if not self.is_told and self.is_hit and self.has_hit(".txnproof"):
            return False
        return not (self.is_hit and self.has_hit(".txnindex", ".snapshot", ".recent"))


def _is_served(sent: tuple[bytes, int], served: dict[int, bytes]) -> bool:
    data, offset = sent
    return served.get(offset, b"")[CHECKED_FROM:] == data[CHECKED_FROM:]


def _base_of(path: str) -> int:
    return int(os.path.basename(path).split(".")[0])


def _ranges_of(hit: Hit, path: str) -> tuple[tuple[int, int], ...]:
    return hit.ranges if path == hit.path else ((0, 1 << 62),)


def _touches(part: tuple[int, int], batch: Batch) -> bool:
    start, end = part
    if start == end:
        return batch.position < start < batch.end
    return start < batch.end and batch.position < end
