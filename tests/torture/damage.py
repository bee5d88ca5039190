"""Damage to the files of a directory, drawn from a seed: one to three hits at once."""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

__all__ = ["Damage", "Hit", "draw_damage"]

_SECTOR: Final = 512
_FAR: Final = 1 << 61  # An offset that no log of these has come near to.
_LOG_START_FILE: Final = "log-start-offset-checkpoint"
_IN_PLACE: Final = ("flip", "zero", "high bit")
_NUMBERED: Final = re.compile(r"(.*/)(\d{20})(\..*)")


@dataclass(frozen=True, slots=True)
class Hit:
    """What happened to one file, or to a pair of them.

    Attributes:
        path: The file that was hit; of two, the one with the smaller name.
        kind: The word for it.
        ranges: Bytes of the file, as it was, that have changed or are gone.
        others: Further files that were hit or have appeared.
        is_lie: Whether a file that has appeared contradicts what was there.
    """

    path: str
    kind: str
    ranges: tuple[tuple[int, int], ...] = ()
    others: tuple[str, ...] = ()
    is_lie: bool = False

    @property
    def paths(self) -> tuple[str, ...]:
        return (self.path, *self.others)

    def __str__(self) -> str:
        places = ", ".join(f"{start}:{end}" for start, end in self.ranges)
        beside = f" and {', '.join(self.others)}" if self.others else ""
        return f"{self.kind} {self.path}[{places}]{beside}"


@dataclass(frozen=True, slots=True)
class Damage:
    """All files afterwards, and what happened to them."""

    files: dict[str, bytes]
    hits: tuple[Hit, ...]

    @property
    def paths(self) -> frozenset[str]:
        """Every file that was hit, or that has appeared."""
        return frozenset(path for hit in self.hits for path in hit.paths)

    def __str__(self) -> str:
        return "; ".join(map(str, self.hits))


def draw_damage(files: dict[str, bytes], random: Random) -> Damage:
    """Damages up to three files; log files are hit most often."""
    hits: list[Hit] = []
    after = dict(files)
    for _ in range(random.choices((1, 2, 3), weights=(10, 7, 3))[0]):
        touched = {path for hit in hits for path in hit.paths}
        # Once the bytes of a file have moved, places in it would not be those of the history.
        moved = {p for hit in hits if hit.kind not in _IN_PLACE for p in hit.paths}
        paths = [p for p in sorted(files) if p not in moved]
        weights = [6 if path.endswith((".log", "offset-checkpoint")) else 3 for path in paths]
        path = random.choices(paths, weights=weights)[0]
        if _LOG_START_FILE in paths and random.random() < 0.05:
            hits.append(_change_digit(after, _LOG_START_FILE, random, touched))
            continue
        kinds: list[Callable[[dict[str, bytes], str, Random, set[str]], Hit]] = [
            _flip, _flip, _flip, _zero, _zero, _zero, _cut, _cut, _swap, _swap, _delete, _delete,
            _duplicate, _duplicate, _plant, _plant, _plant, _exchange, _flip_high_bit,
        ]  # fmt: skip
        if path.endswith("offset-checkpoint"):
            kinds += [_change_digit] * 9
        if not files[path]:
            kinds = [_delete, _duplicate, _plant]
        hits.append(random.choice(kinds)(after, path, random, touched | {path}))
    return Damage(after, tuple(hits))


def _flip(files: dict[str, bytes], path: str, random: Random, touched: set[str]) -> Hit:
    data = bytearray(files[path])
    position = random.randrange(len(data))
    data[position] ^= 1 << random.randrange(8)
    files[path] = bytes(data)
    return Hit(path, "flip", ((position, position + 1),))


def _flip_high_bit(files: dict[str, bytes], path: str, random: Random, touched: set[str]) -> Hit:
    """Flips a high bit of the offset of the last batch of a log, which no checksum covers."""
    folder = os.path.dirname(path)
    logs = [p for p in sorted(files) if p.endswith(".log") and os.path.dirname(p) == folder]
    if path in touched and path not in logs:
        logs = [p for p in logs if p not in touched]
    filled = [p for p in logs if files[p] and (p == path or p not in touched)]
    if not filled:
        return _flip(files, path, random, touched)
    path = filled[-1]
    data = bytearray(files[path])
    position = _batch_positions(data)[-1]
    bit = random.choice((31, 32, 40, 48, 56, 61, 61, 62))
    byte = 7 - bit // 8
    data[position + byte] ^= 1 << bit % 8
    files[path] = bytes(data)
    return Hit(path, "high bit", ((position + byte, position + byte + 1),))


def _batch_positions(data: bytes | bytearray) -> list[int]:
    """Where batches start, as long as lengths lead to them; the first byte at least."""
    positions, at = [0], 0
    while at + 61 <= len(data):
        size = 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        if size < 61 or at + size > len(data):
            break
        positions.append(at)
        at += size
    return positions[1:] or positions


def _change_digit(files: dict[str, bytes], path: str, random: Random, touched: set[str]) -> Hit:
    """Another digit in an offset of a checkpoint, which stays well-formed."""
    data = bytearray(files[path])
    ends = [match.span(1) for match in re.finditer(rb" (\d+)\n", data)]
    if not ends:
        return _flip(files, path, random, touched)
    start, end = random.choice(ends)
    position = random.randrange(start, end)
    if random.random() < 0.5:
        data[start:start] = b"9"
    else:
        data[position] = random.choice(b"123456789".replace(data[position : position + 1], b""))
    files[path] = bytes(data)
    return Hit(path, "digit", ((position, position + 1),))


def _zero(files: dict[str, bytes], path: str, random: Random, touched: set[str]) -> Hit:
    """Zeroes a sector, a few bytes, or all of it."""
    data = bytearray(files[path])
    kind = random.randrange(3)
    if kind == 0:
        start = random.randrange(len(data)) // _SECTOR * _SECTOR
        end = min(len(data), start + _SECTOR)
    elif kind == 1:
        start = random.randrange(len(data))
        end = min(len(data), start + random.randint(1, 64))
    else:
        start, end = 0, len(data)
    data[start:end] = bytes(end - start)
    files[path] = bytes(data)
    return Hit(path, "zero", ((start, end),))


def _cut(files: dict[str, bytes], path: str, random: Random, touched: set[str]) -> Hit:
    size = len(files[path])
    start = random.randrange(size)
    if path.endswith(".log") and random.random() < 0.4:
        start = random.choice(_batch_positions(files[path]))
    files[path] = files[path][:start]
    return Hit(path, "cut", ((start, size),))


def _swap(files: dict[str, bytes], path: str, random: Random, touched: set[str]) -> Hit:
    """Exchanges two sectors of a file, or the contents of two files of one kind."""
    data = files[path]
    sectors = len(data) // _SECTOR
    if sectors >= 2 and random.random() < 0.7:
        first, second = sorted(random.sample(range(sectors), 2))
        one, two = first * _SECTOR, second * _SECTOR
        changed = bytearray(data)
        changed[one : one + _SECTOR] = data[two : two + _SECTOR]
        changed[two : two + _SECTOR] = data[one : one + _SECTOR]
        files[path] = bytes(changed)
        return Hit(path, "swap", ((one, one + _SECTOR), (two, two + _SECTOR)))
    kind = re.sub(r"\d{20}", "", path)
    alike = [p for p in sorted(files) if re.sub(r"\d{20}", "", p) == kind and p not in touched]
    if not alike:
        return _delete(files, path, random, touched)
    return _exchange_contents(files, path, random.choice(alike), "swap")


def _exchange(files: dict[str, bytes], path: str, random: Random, touched: set[str]) -> Hit:
    """Exchanges the contents of files of two partitions, or puts a copy of one into the other."""
    folder, name = os.path.split(path)
    suffix = name.rpartition(".")[2]
    others = [
        p
        for p in sorted(files)
        if os.path.dirname(p) not in ("", folder)
        and os.path.basename(p).rpartition(".")[2] == suffix
        and p not in touched
    ]
    if not folder or not others:
        return _flip(files, path, random, touched)
    other = random.choice(others)
    if random.random() < 0.6:
        return _exchange_contents(files, path, other, "exchange")
    target = f"{os.path.dirname(other)}/{name}"
    if target in touched or target in files:
        target = other
    files[target] = files[path]
    return Hit(target, "foreign copy", ((0, 1 << 62),), (), is_lie=True)


def _exchange_contents(files: dict[str, bytes], path: str, other: str, kind: str) -> Hit:
    first, second = sorted((path, other))
    whole = ((0, len(files[first])),)
    files[path], files[other] = files[other], files[path]
    return Hit(first, kind, whole, (second,))


def _delete(files: dict[str, bytes], path: str, random: Random, touched: set[str]) -> Hit:
    size = len(files.pop(path))
    return Hit(path, "delete", ((0, size),))


def _duplicate(files: dict[str, bytes], path: str, random: Random, touched: set[str]) -> Hit:
    """Repeats a part of a file within it, or the file under another name of its kind."""
    data = files[path]
    if data and random.random() < 0.6:
        start = random.randrange(len(data))
        end = min(len(data), start + random.randint(1, 2 * _SECTOR))
        files[path] = data[:end] + data[start:end] + data[end:]
        return Hit(path, "insert", ((end, end),))
    match = _NUMBERED.fullmatch(path)
    if match is None:
        files[path + ".tmp"] = data
        return Hit(path, "duplicate", (), (path + ".tmp",))
    folder, base, suffix = match.groups()
    step = random.choice((random.randint(1, 9), random.randint(1, 9), _FAR))
    other = f"{folder}{int(base) + step:020d}{suffix}"
    if other in files:
        return _delete(files, path, random, touched)
    files[other] = data
    return Hit(path, "duplicate", (), (other,))


def _plant(files: dict[str, bytes], path: str, random: Random, touched: set[str]) -> Hit:
    """Leaves a file behind as an interrupted replacement, removal or write leaves it.

    It is a copy of a file that is there; sound, damaged, or under the name of another offset.
    """
    match = _NUMBERED.fullmatch(path)
    data = files[path]
    if match is None or match[3] not in (".log", ".index", ".timeindex", ".txnindex", ".snapshot"):
        new = f"{path}.tmp"
        files[new] = random.choice((data, data[: len(data) // 2], b""))
        return Hit(new, "plant")
    folder, base, suffix = match.groups()
    is_lie = False
    if random.random() < 0.4 and data:
        changed = bytearray(data)
        position = random.randrange(len(data))
        if suffix == ".log":  # Where a checksum tells of it: otherwise it is a lie.
            position = random.choice(_batch_positions(data)) + 21 + random.randrange(40)
        changed[min(position, len(data) - 1)] ^= 1 << random.randrange(8)
        data = bytes(changed)
    offset = int(base)
    if random.random() < 0.3:
        offset, is_lie = offset + random.choice((-1, 1, 3, 7, _FAR)), True
    name = f"{folder}{max(0, offset):020d}{suffix}"
    stage = random.choice((".swap", ".swap", ".cleaned", ".deleted", ""))
    if not stage and suffix != ".snapshot":
        stage = ".swap"
    if name + stage in files:
        stage = ".deleted"
    files[name + stage] = data
    others: list[str] = []
    if stage == ".swap" and suffix == ".log" and random.random() < 0.5:
        # What it replaces, as a replacement says it.
        bases = sorted(int(m[2]) for p in files if (m := _log_of(folder, p)) is not None)
        later = [b for b in bases if b > offset]
        if later:
            others.append(f"{folder}{max(0, offset):020d}.{later[0]:020d}.replaced")
            files[others[0]] = b""
    return Hit(name + stage, "plant", (), tuple(others), is_lie)


def _log_of(folder: str, path: str) -> re.Match[str] | None:
    match = _NUMBERED.fullmatch(path)
    return match if match and match[1] == folder and match[3] == ".log" else None
