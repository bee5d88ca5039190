"""The broker's settings of compaction; those of a topic are in `LogConfig`."""

import sys
from dataclasses import dataclass

from odradek.config import Kind, key
from odradek.records.key_table import MAX_SLOTS, SLOT_SIZE

__all__ = ["CleanerConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerConfig:
    """Threads, memory and rate of the log cleaner."""

    enable: bool = key(
        "log.cleaner.enable",
        default=True,
        doc="Whether logs with the cleanup policy `compact` are compacted. Without it "
        "`__consumer_offsets` grows for ever.",
    )
    threads: int = key(
        "log.cleaner.threads",
        default=1,
        between=(1, 64),
        dynamic=True,
        doc="Logs that are compacted at once.",
    )
    backoff_ms: int = key(
        "log.cleaner.backoff.ms",
        kind=Kind.LONG,
        default=15_000,
        at_least=0,
        dynamic=True,
        doc="How long to wait before the next search when no log had to be compacted.",
    )
    dedupe_buffer_bytes: int = key(
        "log.cleaner.dedupe.buffer.size",
        kind=Kind.LONG,
        default=128 << 20,
        at_least=1 << 20,
        dynamic=True,
        doc="Most memory for the keys of the logs that are being compacted, of all threads "
        "together; a key takes 24 bytes. If its keys do not fit, a pass ends early and the next "
        "one continues.",
    )
    io_buffer_bytes: int = key(
        "log.cleaner.io.buffer.size",
        default=512 << 10,
        at_least=0,
        dynamic=True,
        doc="Bytes read or written at once, of all threads together.",
    )
    load_factor: float = key(
        "log.cleaner.io.buffer.load.factor",
        default=0.9,
        between=(0.01, 1),
        dynamic=True,
        doc="Share of the memory for keys that may fill up. More keys fit in one pass if it is "
        "higher, and finding one takes longer.",
    )
    io_max_bytes_per_second: float = key(
        "log.cleaner.io.max.bytes.per.second",
        default=sys.float_info.max,
        at_least=1,
        dynamic=True,
        doc="Most bytes that are read and written in a second, of all threads together.",
    )

    @property
    def most_keys(self) -> int:
        """The most keys of one pass, for any log."""
        slots = min(self.dedupe_buffer_bytes // self.threads // SLOT_SIZE, MAX_SLOTS)
        return int(slots * self.load_factor)
