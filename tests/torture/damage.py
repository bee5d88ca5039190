"""Damage to one file of a directory, drawn from a seed."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

__all__ = ["Damage", "draw_damage"]

_SECTOR: Final = 512


@dataclass(frozen=True, slots=True)
class Damage:
    """What happened to the files.

    Attributes:
        files: All files afterwards.
        path: The file that was hit; of two, the one with the smaller name.
        kind: The word for it.
        ranges: Bytes of the file, as it was, that have changed or are gone.
        others: Further files that were hit or have appeared.
    """

    files: dict[str, bytes]
    path: str
    kind: str
    ranges: tuple[tuple[int, int], ...]
    others: tuple[str, ...] = ()

    def __str__(self) -> str:
        places = ", ".join(f"{start}:{end}" for start, end in self.ranges)
        beside = f" and {', '.join(self.others)}" if self.others else ""
        return f"{self.kind} {self.path}[{places}]{beside}"


def draw_damage(files: dict[str, bytes], random: Random) -> Damage:
    """Damages one file, or a pair of them; log files are hit most often."""
    paths = sorted(files)
    weights = [4 if path.endswith(".log") else 2 for path in paths]
    path = random.choices(paths, weights=weights)[0]
    kinds: list[Callable[[dict[str, bytes], str, Random], Damage]] = [
        _flip,
        _flip,
        _zero,
        _zero,
        _cut,
        _swap,
        _delete,
        _duplicate,
    ]
    if not files[path]:
        kinds = [_delete, _duplicate]
    return random.choice(kinds)(dict(files), path, random)


def _flip(files: dict[str, bytes], path: str, random: Random) -> Damage:
    data = bytearray(files[path])
    position = random.randrange(len(data))
    data[position] ^= 1 << random.randrange(8)
    files[path] = bytes(data)
    return Damage(files, path, "flip", ((position, position + 1),))


def _zero(files: dict[str, bytes], path: str, random: Random) -> Damage:
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
    return Damage(files, path, "zero", ((start, end),))


def _cut(files: dict[str, bytes], path: str, random: Random) -> Damage:
    size = len(files[path])
    start = random.randrange(size)
    files[path] = files[path][:start]
    return Damage(files, path, "cut", ((start, size),))


def _swap(files: dict[str, bytes], path: str, random: Random) -> Damage:
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
        return Damage(files, path, "swap", ((one, one + _SECTOR), (two, two + _SECTOR)))
    # Of one partition: a sound file of another one is beyond what anybody could notice.
    kind = re.sub(r"\d{20}", "", path)
    alike = [p for p in files if p != path and re.sub(r"\d{20}", "", p) == kind]
    if not alike:
        return _delete(files, path, random)
    other = random.choice(sorted(alike))
    first_path, second_path = sorted((path, other))
    whole = ((0, len(files[first_path])),)
    files[path], files[other] = files[other], files[path]
    return Damage(files, first_path, "swap", whole, (second_path,))


def _delete(files: dict[str, bytes], path: str, random: Random) -> Damage:
    size = len(files.pop(path))
    return Damage(files, path, "delete", ((0, size),))


def _duplicate(files: dict[str, bytes], path: str, random: Random) -> Damage:
    """Repeats a part of a file within it, or the file under another name of its kind."""
    data = files[path]
    if data and random.random() < 0.6:
        start = random.randrange(len(data))
        end = min(len(data), start + random.randint(1, 2 * _SECTOR))
        files[path] = data[:end] + data[start:end] + data[end:]
        return Damage(files, path, "insert", ((end, end),))
    match = re.fullmatch(r"(.*/)(\d{20})(\..*)", path)
    if match is None:
        files[path + ".tmp"] = data
        return Damage(files, path, "duplicate", (), (path + ".tmp",))
    folder, base, suffix = match.groups()
    other = f"{folder}{int(base) + random.randint(1, 9):020d}{suffix}"
    files[other] = data
    return Damage(files, path, "duplicate", (), (other,))
