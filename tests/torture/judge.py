"""What must hold of a directory after damage: each broken rule becomes a sentence.

1. The directory loads, stays online and takes appends, however it was damaged; look-ups by time
   never fail.
2. A batch that the damage has not touched is served, after a clean stop always, after an unclean
   stop if it lies below the recovery point or in front of the damage.
3. Above the recovery point the log ends at the damage: no batch behind it is served.
4. Nothing is served that was never written, and no offset is given out twice.
5. If no log file was hit, everything is as before: log end, last stable offset, what a
   read_committed consumer sees, look-ups by time, and the last five batches of each producer are
   recognised when they come again. A compacted log has the same latest value of each key.
6. What is acknowledged after the damage is still there after the next stop.
7. A batch that is missing is told of in the log.

Where a rule is weaker, and why:

- No checksum covers a batch's base offset and leader epoch, nor says in which file it belongs. A
  batch whose offset alone was hit, and whatever comes from the first of two exchanged or repeated
  log files on, may be missing (2) or be served under the offset that it names (4).
- A copy of an empty log file under a higher name may move the log end up to it (4): a follower
  whose leader's offsets jump leaves the same files.
- Without its first segment a log begins later. It has no hole, so the rest stays (3).
- Where a file is gone or ends between two batches, only a `.rolled` file tells. It is removed once
  its records are synced, and what was synced stays, with all that follows (3).
- Bytes that were inserted between two batches are damage, too: they end what was not synced (2).
- Five batches of a producer need `.recent`; where that is hit, the newest one must be recognised.
  Where the only snapshot of a clean stop is hit, what lies below the first segment is unknown (5).
"""

import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Final

from odradek.errors import OdradekError
from odradek.model import TopicPartition
from odradek.records.builder import build_batch
from odradek.records.record import Record
from odradek.storage.log.log import FetchIsolation, Log
from odradek.storage.segments.timestamp_search import fetch_offset_by_timestamp
from tests.support.log_scenarios import records_of, visible
from tests.torture.damage import Damage, draw_damage
from tests.torture.history import KEYED, PLAIN, Batch, History, Running, Truth, batches_in

__all__ = ["judge", "lay_out"]

_LOG_START_FILE: Final = "log-start-offset-checkpoint"
_CHECKED_FROM: Final = 21  # Of a batch's bytes: what its checksum covers.


class _Messages(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += 1


def lay_out(files: dict[str, bytes], path: Path) -> None:
    """Writes the files below an empty `path`."""
    for name, data in files.items():
        target = path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)


def judge(history: History, seed: int, path: Path) -> tuple[Damage, list[str]]:
    """Damages a copy of the directory at `path`, loads it, and says which rules are broken."""
    random = Random(seed)
    damage = draw_damage(history.files, random)
    shutil.rmtree(path, ignore_errors=True)
    lay_out(damage.files, path)
    messages = _Messages()
    logger = logging.getLogger("odradek")
    logger.addHandler(messages)
    faults: list[str] = []
    try:
        judges = [_Judge(history, damage, partition) for partition in (PLAIN, KEYED)]
        for is_second_life in (False, True):
            running = Running(path)
            try:
                for one in judges:
                    one.look(running, messages)
                if random.random() < 0.6:
                    running.stop()
                else:
                    running.kill()
            except BaseException:
                running.kill()
                raise
            if any(one.faults for one in judges):
                break
            for one in judges:
                one.is_second_life = not is_second_life
        faults = [fault for one in judges for fault in one.faults]
    except (OdradekError, OSError, AssertionError, ValueError, LookupError) as error:
        faults.append(f"rule 1: {type(error).__name__}: {error}")
    finally:
        logger.removeHandler(messages)
    return damage, faults


class _Judge:
    """Holds one partition to the rules, life after life."""

    def __init__(self, history: History, damage: Damage, partition: TopicPartition) -> None:
        self.truth: Truth = history.truths[partition]
        self.history = history
        self.damage = damage
        self.partition = partition
        self.faults: list[str] = []
        self.is_second_life = False
        self.appended: list[tuple[int, bytes]] = []  # Offset and value, after the damage.
        self.last_end = -1
        self.is_rewritten = False  # By a compaction since the damage.
        folder = f"{partition}{os.sep}"
        hit_files = [p for p in (damage.path, *damage.others) if p.startswith(folder)]
        self.hit_logs = [p for p in hit_files if p.endswith(".log")]
        self.is_hit = bool(self.hit_logs)
        self.hit = list(self._hit_batches())
        self.is_disguised = any(self._still_looks_sound(batch) for batch in self.hit)

    def fault(self, rule: int, sentence: str) -> None:
        life = "second life" if self.is_second_life else "first life"
        self.faults.append(f"rule {rule}, {self.partition}, {life}: {sentence}")

    def _hit_batches(self) -> Iterator[Batch]:
        for path in self.hit_logs:
            for batch in self.truth.batches.get(path, ()):
                ranges = self.damage.ranges if path == self.damage.path else ((0, 1 << 62),)
                for start, end in ranges:
                    is_within = batch.position < start < batch.end if start == end else False
                    if is_within or (start < batch.end and batch.position < end):
                        yield batch
                        break

    def _first_behind_insertion(self) -> Batch | None:
        """The first batch behind bytes that were inserted, between two batches or within one."""
        if self.damage.kind != "insert":
            return None
        position = self.damage.ranges[0][1]
        behind = [b for b in self.truth.batches.get(self.damage.path, ()) if b.position >= position]
        path = self.damage.path
        later = [b for p in sorted(self.truth.batches) if p > path for b in self.truth.batches[p]]
        return next(iter([*behind, *later]), None)

    def _still_looks_sound(self, batch: Batch) -> bool:
        """Whether only bytes changed that no checksum covers: base offset and leader epoch."""
        data = self.damage.files.get(self.damage.path, b"")
        return any(True for _ in batches_in(data[batch.position : batch.end]))

    def required(self) -> list[Batch]:
        """The batches that rule 2 speaks of."""
        everything = self.truth.all_batches()
        if not self.is_hit:
            return everything
        first = min((b.base_offset for b in self.hit), default=self.truth.log_end)
        if self.damage.others or self.is_disguised or self.damage.kind == "swap":
            # Which of two files is right, or where a batch without a sound offset or in another's
            # place belongs, cannot be told by the code, either.
            for path in (self.damage.path, *self.damage.others):
                first = min(first, int(os.path.basename(path).split(".")[0]))
            return [b for b in everything if b.last_offset < first]
        behind = self._first_behind_insertion()
        if (
            behind is not None
            and not self.history.is_clean
            and behind.base_offset >= self.truth.recovery_point
        ):
            first = min(first, behind.base_offset)
            return [b for b in everything if b.last_offset < first]
        if self._is_above():
            return [b for b in everything if b.last_offset < first]
        return [b for b in everything if b not in self.hit]

    def _is_above(self) -> bool:
        """Whether the damage reaches into what was not known to be synced."""
        return not self.history.is_clean and any(
            b.last_offset >= self.truth.recovery_point for b in self.hit
        )

    def forbidden(self) -> list[Batch]:
        """The batches that rule 3 speaks of."""
        if not self.hit or not self._is_above() or self.damage.others or self.is_disguised:
            return []
        if self.damage.kind in ("insert", "swap"):
            return []
        if self._leaves_whole_batches() and not self._has_witness():
            return []
        first = min(b.base_offset for b in self.hit)
        cut = max(first, self.truth.recovery_point)
        return [b for b in self.truth.all_batches() if b.base_offset > cut and b not in self.hit]

    def _leaves_whole_batches(self) -> bool:
        """Whether a log file is gone, or was cut between two batches."""
        if self.damage.kind == "delete":
            return True
        start = self.damage.ranges[0][0]
        whole = any(b.position == start for b in self.hit)
        return self.damage.kind == "cut" and whole

    def _has_witness(self) -> bool:
        """Whether there is a file that says where the records before the next segment end."""
        following = next((p for p in sorted(self.truth.batches) if p > self.damage.path), None)
        is_first = self.damage.kind == "delete" and self.damage.path == min(self.truth.batches)
        if following is None or is_first:
            return following is None
        base = following.removesuffix("log")
        return any(p.startswith(base) and p.endswith(".rolled") for p in self.history.files)

    # Looking

    def look(self, running: Running, messages: _Messages) -> None:
        log = running.log(self.partition)
        if log is None or not running.manager.online_directories:
            self.fault(1, "the log is gone, or its directory offline")
            return
        start = log.log_start_offset
        if not self._is_start_told() and start > self.truth.log_start:
            self.fault(2, f"log start {start}, it was {self.truth.log_start}")
        if start > self.truth.log_end + len(self.appended):
            self._check_nothing_unlinked(running.path)
            return
        self._check_end(log)
        if self.faults:
            return
        self._check_served(log, messages)
        log.update_high_watermark(log.log_end_offset)
        is_as_before = not self.is_hit and self.damage.path != _LOG_START_FILE
        if is_as_before:
            self._check_unchanged(log)
        elif self.is_hit:
            self._check_stable(log)
        self._check_times(log)
        if is_as_before and self.partition == KEYED:
            self._check_compacted(running, log)
        if self.partition == PLAIN and not self.is_hit and not self.is_second_life:
            self._check_retries(log)
        self._append(log)

    def _is_start_told(self) -> bool:
        """Whether the log start may have moved: its checkpoint was hit, or the segment there."""
        return self.damage.path == _LOG_START_FILE or self.is_hit

    def _check_nothing_unlinked(self, path: Path) -> None:
        kept = b"".join(
            (Path(folder) / name).read_bytes()
            for folder, _, names in os.walk(path)
            for name in names
        )
        gone = [b.base_offset for b in self.required() if b.data not in kept]
        if gone:
            self.fault(2, f"the log start moved behind the end, and {gone[:5]} were unlinked")

    def _check_end(self, log: Log) -> None:
        end, was = log.log_end_offset, self.truth.log_end
        if self.is_second_life:
            if end < self.last_end:
                self.fault(6, f"log end {end}, it was {self.last_end}")
            return
        if self.history.is_clean and end < was:
            self.fault(4, f"log end {end} after a clean stop at {was}: offsets are given twice")
        if not self.is_disguised and end > max(was, self._copied_to()):
            self.fault(4, f"log end {end}, it was {was}")
        if not self.is_hit and end != was:
            self.fault(5, f"log end {end}, it was {was}")

    def _copied_to(self) -> int:
        """The number in the name of a copy of an empty log file; -1 if there is none."""
        if not self.is_hit or self.damage.kind != "duplicate":
            return -1
        if self.history.files[self.damage.path].strip(b"\0"):
            return -1
        return int(os.path.basename(self.damage.others[0]).split(".")[0])

    def _check_served(self, log: Log, messages: _Messages) -> None:
        handed: dict[int, bytes] = {}
        asked_for: set[int] = set()
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            data = log.read(offset, 1, FetchIsolation.LOG_END).read()
            batch = next(batches_in(data), None)
            if batch is None or batch.last_offset < offset:
                if data:
                    asked_for.add(offset)  # The client meets the damage itself.
                offset += 1
                continue
            handed[batch.base_offset] = batch.data
            offset = batch.last_offset + 1
        if self.is_rewritten:
            return
        known = {b.base_offset: b.data for b in self.truth.all_batches()}
        checked = {b.data[_CHECKED_FROM:] for b in self.hit} if self.is_disguised else set()
        elsewhere = {d[_CHECKED_FROM:] for o, d in handed.items() if o not in known} & checked
        fresh = {offset for offset, _ in self.appended}
        for base, data in handed.items():
            if base in fresh:
                continue
            if known.get(base) != data and data[_CHECKED_FROM:] not in checked:
                self.fault(4, f"a batch at {base} that was never written")
        start = max(log.log_start_offset, self.truth.log_start)
        missing = [b for b in self.required() if b.last_offset >= start]
        lost = [b.base_offset for b in missing if b.base_offset not in handed]
        if lost:
            self.fault(2, f"{len(lost)} of {len(missing)} sound batches not served: {lost[:8]}")
        revived = [
            b.base_offset
            for b in self.forbidden()
            if b.base_offset in handed and b.base_offset not in fresh
        ]
        if revived:
            self.fault(3, f"served behind the cut: {revived[:8]}")
        if any(offset not in handed for offset in fresh):
            self.fault(6, f"acknowledged and gone: {sorted(fresh - set(handed))[:5]}")
        silent = [
            b.base_offset
            for b in self.truth.all_batches()
            if b.base_offset >= start
            and b.base_offset not in handed
            and b.base_offset not in asked_for
            and b.data[_CHECKED_FROM:] not in elsewhere
        ]
        if silent and not messages.count and not self.is_second_life:
            self.fault(7, f"not a word about {silent[:8]}")

    def _check_unchanged(self, log: Log) -> None:
        if self.is_second_life:
            return
        truth = self.truth
        stable = truth.last_stable_offset
        if truth.open_from is not None:  # The log start may be an older one after an unclean stop.
            stable = max(truth.open_from, log.log_start_offset)
        if log.last_stable_offset != stable:
            self.fault(5, f"last stable offset {log.last_stable_offset}, it was {stable}")
        seen = {o for o in visible(log, log.log_start_offset) if o >= truth.log_start}
        if self.partition == PLAIN and seen != truth.visible:
            self.fault(
                5,
                f"read_committed sees {sorted(seen - truth.visible)[:8]} too many,"
                f" {sorted(truth.visible - seen)[:8]} too few",
            )

    def _check_compacted(self, running: Running, log: Log) -> None:
        running.clean()
        self.is_rewritten = True
        latest = {r.key: r.value for r in _records(log) if r.offset >= self.truth.log_start}
        wanted = {k: v for k, v in self.truth.latest.items() if v is not None}
        found = {k: v for k, v in latest.items() if v is not None and k != b"torture"}
        if found != wanted:
            self.fault(5, "the latest values of keys differ after compaction")

    def _check_stable(self, log: Log) -> None:
        first = self.truth.open_from
        required = {b.base_offset for b in self.required()}
        if first in required and first >= log.log_start_offset and log.last_stable_offset > first:
            self.fault(
                5, f"last stable offset {log.last_stable_offset} above {first}, which is open"
            )

    def _check_times(self, log: Log) -> None:
        times = [(t, o) for t, o in self.truth.times if o >= log.log_start_offset]
        for wanted in {t + d for t, _ in times[:: max(1, len(times) // 12)] for d in (-1, 0, 1)}:
            found = fetch_offset_by_timestamp(log, wanted)
            if found is not None and found.timestamp < wanted:
                self.fault(1, f"asked for {wanted}, found {found}")
            if self.is_hit or self.is_second_life or log.log_start_offset != self.truth.log_start:
                continue
            expected = next((o for t, o in times if t >= wanted), None)
            if (None if found is None else found.offset) != expected:
                self.fault(5, f"the first record at {wanted} or later: {found}, not {expected}")
                return

    def _check_retries(self, log: Log) -> None:
        snapshots = [p for p in self.damage.files if p.endswith(".snapshot")]
        is_forgetful = self.history.is_clean and self.damage.path.endswith(".snapshot")
        if is_forgetful and not [p for p in snapshots if p not in self.damage.path]:
            return
        end = log.log_end_offset
        count = 1 if self.damage.path.endswith(".recent") else 5
        for producer_id, sent in self.truth.sent.items():
            for data, offset in sent[-count:]:
                if offset < self.truth.log_start:
                    continue
                try:
                    info = log.append_as_leader(bytearray(data), leader_epoch=_epoch(log))
                except OdradekError as error:
                    self.fault(5, f"producer {producer_id}, its batch at {offset} again: {error}")
                    return
                if info.first_offset != offset or log.log_end_offset != end:
                    self.fault(5, f"producer {producer_id}: {offset} was written again")
                    return

    def _append(self, log: Log) -> None:
        value = b"after the damage, life %d" % self.is_second_life
        record = (log.services.clock.now_ms(), b"torture", value, ())
        info = log.append_as_leader(bytearray(build_batch([record])), leader_epoch=_epoch(log))
        assert info.first_offset is not None
        if self.history.is_clean and info.first_offset < self.truth.log_end:
            self.fault(4, f"offset {info.first_offset} was given out before")
        self.appended.append((info.first_offset, value))
        self.last_end = log.log_end_offset
        log.flush()


def _epoch(log: Log) -> int:
    latest = log.leader_epochs.latest_epoch
    return 0 if latest is None else max(0, latest)


def _records(log: Log) -> Iterator[Record]:
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, 1 << 20, FetchIsolation.LOG_END).read()
        batches = list(batches_in(data))
        if not batches:
            return
        for batch in batches:
            yield from records_of(batch.data)
        offset = batches[-1].last_offset + 1
