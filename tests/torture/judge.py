"""What must hold of a directory after damage: each broken rule becomes a sentence.

1. The directory loads, stays online and takes appends, however it was damaged; look-ups by time
   never fail.
2. A batch that the damage has not touched is served, after a clean stop always, after an unclean
   stop if it lies below the recovery point or in front of the damage.
3. Above the recovery point the log ends at the damage: no batch behind it is served. After an
   unclean stop the recovery point does not rise while the directory is loaded.
4. Nothing is served that was never written, no offset is given out twice, and the log ends where it
   did, or before.
5. If no log file was hit, everything is as before: log end, last stable offset, what a
   read_committed consumer sees, look-ups by time. A compacted log has the same latest value of each
   key.
6. What is acknowledged after the damage is still there after the next stop.
7. A batch that is missing is told of in the log, by its partition, and where it was stepped over
   the metric counts it.
8. After each start the last five batches of each producer are recognised when they come again, and
   none of them is written twice. After a clean stop, whatever has become of the batches; otherwise
   those that the log still serves. No producer is known by a batch that the log has lost.
9. The last stable offset lies at or below the first batch of every open transaction, and no record
   of an aborted one is shown to a read_committed consumer.

`expected` says where a rule is weaker, and why.
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
from odradek.storage.log.log import Log
from odradek.storage.log.reader import FetchIsolation
from odradek.storage.segments.timestamp_search import fetch_offset_by_timestamp
from tests.support.log_scenarios import records_of, visible
from tests.torture.damage import Damage, draw_damage
from tests.torture.expected import CHECKED_FROM, Expected
from tests.torture.history import KEYED, PLAIN, History, Running, batches_in

__all__ = ["judge", "lay_out"]

_CONTROL: Final = 0x20  # Among the attributes of a batch.


class _Messages(logging.Handler):
    """The lines of the log from WARNING on."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def tell_of(self, partition: TopicPartition) -> bool:
        return any(str(partition) in line for line in self.lines)


def lay_out(files: dict[str, bytes], path: Path) -> None:
    """Writes the files below an empty `path`."""
    for folder in {os.path.dirname(name) for name in files}:
        (path / folder).mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (path / name).write_bytes(data)


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
        judges = [_Judge(Expected(history, damage, tp)) for tp in (PLAIN, KEYED)]
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

    def __init__(self, expected: Expected) -> None:
        self.expected = expected
        self.truth = expected.truth
        self.partition = expected.partition
        self.faults: list[str] = []
        self.is_second_life = False
        self.appended: list[tuple[int, bytes]] = []  # Offset and value, after the damage.
        self.last_end = -1
        self.first_end = -1  # After the damage.
        self.is_rewritten = False  # By a compaction since the damage.
        self.served: dict[int, bytes] = {}  # What the log hands out in this life, by base offset.

    def fault(self, rule: int, sentence: str) -> None:
        life = "second life" if self.is_second_life else "first life"
        self.faults.append(f"rule {rule}, {self.partition}, {life}: {sentence}")

    def look(self, running: Running, messages: _Messages) -> None:
        log = running.log(self.partition)
        if log is None or not running.manager.online_directories:
            self.fault(1, "the log is gone, or its directory offline")
            return
        start = log.log_start_offset
        is_start_told = self.expected.is_start_hit or self.expected.is_hit
        if not is_start_told and not self.expected.is_displaced and start > self.truth.log_start:
            self.fault(2, f"log start {start}, it was {self.truth.log_start}")
        if start > self.truth.log_end + len(self.appended):
            self._check_nothing_unlinked(running.path)
            return
        self._check_recovery_point(log)
        self._check_end(log, messages)
        if self.faults:
            return
        self._check_served(running, log, messages)
        if self.expected.is_displaced or self.expected.is_foreign:
            self._check_nothing_unlinked(running.path)
        log.update_high_watermark(log.log_end_offset)
        self._check_transactions(log)
        is_as_before = not (
            self.expected.is_hit or self.expected.is_displaced or self.expected.is_start_hit
        )
        is_forged = self.expected.is_state_forged or self.expected.is_index_forged
        if is_as_before and not is_forged:
            self._check_unchanged(log)
        self._check_times(log, is_as_before)
        self._check_retries(log)
        if is_as_before and self.partition == KEYED:
            self._check_compacted(running, log)
        self._append(log)

    def _check_nothing_unlinked(self, path: Path) -> None:
        if not self.expected.keeps_bytes() and not self.expected.is_start_hit:
            return
        kept = b"".join(
            (Path(folder) / name).read_bytes()
            for folder, _, names in os.walk(path)
            for name in names
        )
        batches = self.expected.untouched()
        if self.expected.is_start_hit and not self.expected.keeps_bytes():
            batches = self.expected.required()
        gone = [b.base_offset for b in batches if b.data not in kept]
        if gone and not self.is_rewritten:
            self.fault(2, f"{gone[:5]} are not on the disk any more")

    def _check_recovery_point(self, log: Log) -> None:
        expected = self.expected
        if self.is_second_life or expected.is_clean or expected.is_hit or expected.is_displaced:
            return
        if not expected.is_point_hit and log.recovery_point > self.truth.recovery_point:
            self.fault(
                3, f"recovery point {log.recovery_point}, it was {self.truth.recovery_point}"
            )

    def _check_end(self, log: Log, messages: _Messages) -> None:
        end, was = log.log_end_offset, self.truth.log_end
        if not self.is_second_life:
            self.first_end = end
        else:
            if end < self.last_end and not self.expected.is_foreign:
                self.fault(6, f"log end {end}, it was {self.last_end}")
            return
        if end < self.expected.lowest_end():
            self.fault(4, f"log end {end} after a clean stop at {was}: offsets are given twice")
        if end > self.expected.highest_end():
            self.fault(4, f"log end {end}, it was {was}")
        if end > was and not self.expected.is_foreign and not messages.tell_of(self.partition):
            self.fault(7, f"not a word about a log end of {end}, it was {was}")
        if not self.expected.is_hit and not self.expected.is_displaced and end != was:
            self.fault(5, f"log end {end}, it was {was}")

    def _check_served(self, running: Running, log: Log, messages: _Messages) -> None:
        handed: dict[int, bytes] = {}
        asked_for: set[int] = set()
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            data = log.read(offset, 1, FetchIsolation.LOG_END).read()
            batch = next(batches_in(data), None)
            if batch is None or batch.last_offset < offset:
                if data:
                    asked_for.add(offset)  # The client meets the damage itself.
                offset = self._skip(log, offset, bool(data))
                continue
            handed[batch.base_offset] = batch.data
            offset = batch.last_offset + 1
        self.served = handed
        fresh = {offset for offset, _ in self.appended}
        if self.expected.is_foreign:  # A foreign batch may stand for the offset of one of ours.
            handed |= {
                batch.base_offset: batch.data
                for offset in fresh
                for batch in batches_in(log.read(offset, 1, FetchIsolation.LOG_END).read())
            }
        if any(offset not in handed for offset in fresh):
            self.fault(6, f"acknowledged and gone: {sorted(fresh - set(handed))[:5]}")
        if self.is_rewritten or self.expected.is_foreign:
            return
        batches = self.truth.all_batches()
        known = {b.base_offset: b.data for b in batches}
        checked: set[bytes] = set()
        if self.expected.is_disguised or self.expected.is_displaced:
            checked = {b.data[CHECKED_FROM:] for b in batches}
        elsewhere = {d[CHECKED_FROM:] for o, d in handed.items() if o not in known} & checked
        for base, data in handed.items():
            if base in fresh:
                continue
            if known.get(base) != data and data[CHECKED_FROM:] not in checked:
                self.fault(4, f"a batch at {base} that was never written")
        start = max(log.log_start_offset, self.truth.log_start)
        missing = [b for b in self.expected.required() if b.last_offset >= start]
        lost = [b.base_offset for b in missing if b.base_offset not in handed]
        if lost:
            self.fault(2, f"{len(lost)} of {len(missing)} sound batches not served: {lost[:8]}")
        revived = [
            b.base_offset
            for b in self.expected.forbidden()
            if b.base_offset in handed and b.base_offset not in fresh
        ]
        if revived:
            self.fault(3, f"served behind the cut: {revived[:8]}")
        silent = [
            b.base_offset
            for b in batches
            if b.base_offset >= start
            and b.base_offset not in handed
            and b.base_offset not in asked_for
            and b.data[CHECKED_FROM:] not in elsewhere
        ]
        if silent and not self.is_second_life:
            self._check_told(running, messages, silent)

    def _skip(self, log: Log, offset: int, is_damaged: bool) -> int:
        """Where to ask next; a log whose offsets jump far is not asked for each of them."""
        following = [b.base_offset for b in self.truth.all_batches() if b.base_offset > offset]
        following += [o for o, _ in self.appended if o > offset]
        if is_damaged or log.log_end_offset - offset < 10_000:
            return offset + 1
        return min([*following, log.log_end_offset])

    def _check_told(self, running: Running, messages: _Messages, silent: list[int]) -> None:
        if self.expected.is_noticeable() and not messages.tell_of(self.partition):
            self.fault(7, f"not a word about {silent[:8]}")
        counted = ("flip", "zero", "cut", "delete") if self.expected.is_told else ("flip", "zero")
        is_stepped_over = (
            self.expected.is_clean
            and not self.expected.is_disguised
            and not self.expected.is_displaced
            and bool(self.expected.log_hits)
            and all(hit.kind in counted for hit in self.expected.log_hits)
        )
        if is_stepped_over and not running.damaged_places:
            self.fault(7, f"{silent[:8]} are missing, and nothing was counted")

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

    def _check_transactions(self, log: Log) -> None:
        first = self.expected.unstable_from(self.served)
        if (
            first is not None
            and log.log_start_offset <= first < log.log_end_offset
            and log.last_stable_offset > first
        ):
            self.fault(
                9, f"last stable offset {log.last_stable_offset} above {first}, which is open"
            )
        if self.partition == PLAIN and self.expected.hides_aborted():
            fresh = {offset for offset, _ in self.appended}
            shown = {
                o for o in _committed(log) if o >= self.truth.log_start and o not in fresh
            } - self.truth.visible
            if shown:
                self.fault(9, f"read_committed sees {sorted(shown)[:8]}, which was not committed")

    def _check_times(self, log: Log, is_as_before: bool) -> None:
        times = [(t, o) for t, o in self.truth.times if o >= log.log_start_offset]
        count = 20 if self.expected.has_hit(".timeindex") else 4
        for wanted in {t + d for t, _ in times[:: max(1, len(times) // count)] for d in (-1, 0, 1)}:
            found = fetch_offset_by_timestamp(log, wanted)
            if found is not None and found.timestamp < wanted:
                self.fault(1, f"asked for {wanted}, found {found}")
            is_known = is_as_before and log.log_start_offset == self.truth.log_start
            if not is_known or self.is_second_life:
                continue
            expected = next((o for t, o in times if t >= wanted), None)
            if (None if found is None else found.offset) != expected:
                self.fault(5, f"the first record at {wanted} or later: {found}, not {expected}")
                return

    def _check_retries(self, log: Log) -> None:
        end = log.log_end_offset
        for entry in log.producer_state.producers.values():
            if not self.expected.is_foreign and any(
                batch.last_offset >= end for batch in entry.batches
            ):
                self.fault(
                    8, f"producer {entry.producer_id} is known by {entry.batches}, not {end}"
                )
                return
        for producer_id, data, offset, is_known in self.expected.recognised(
            self.served, self.first_end, is_rewritten=self.is_rewritten
        ):
            try:
                info = log.append_as_leader(bytearray(data), leader_epoch=_epoch(log))
            except OdradekError as error:
                if is_known:
                    self.fault(8, f"producer {producer_id}, its batch at {offset} again: {error}")
                    return
                continue
            if info.first_offset != offset or log.log_end_offset != end:
                self.fault(8, f"producer {producer_id}: {offset} was written again")
                return

    def _append(self, log: Log) -> None:
        value = b"after the damage, life %d" % self.is_second_life
        record = (log.services.clock.now_ms(), b"torture", value, ())
        info = log.append_as_leader(bytearray(build_batch([record])), leader_epoch=_epoch(log))
        assert info.first_offset is not None
        if info.first_offset < self.expected.lowest_end():
            self.fault(4, f"offset {info.first_offset} was given out before")
        self.appended.append((info.first_offset, value))
        self.last_end = log.log_end_offset
        log.flush()


def _epoch(log: Log) -> int:
    latest = log.leader_epochs.latest_epoch
    return 0 if latest is None else max(0, latest)


def _committed(log: Log) -> Iterator[int]:
    """Offsets that a read_committed consumer is shown, asked for batch by batch."""
    offset = log.log_start_offset
    while offset < log.last_stable_offset:
        found = log.read(offset, 1, FetchIsolation.TXN_COMMITTED)
        batch = next(batches_in(found.read()), None)
        if batch is None or batch.last_offset < offset:
            offset += 1
            continue
        is_aborted = any(
            aborted.producer_id == batch.producer_id
            and aborted.first_offset <= batch.base_offset <= aborted.last_offset
            for aborted in found.aborted_transactions or ()
        )
        if not is_aborted and not batch.attributes & _CONTROL:
            yield from range(max(offset, batch.base_offset), batch.last_offset + 1)
        offset = batch.last_offset + 1


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
