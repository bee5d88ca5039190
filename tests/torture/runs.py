"""One seed, one verdict: a directory from one seed, its damage from another."""

import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.torture.history import History, make_history
from tests.torture.judge import judge

__all__ = ["HISTORIES_SHARE", "Verdict", "torture"]

# Seeds that damage the same directory: making one costs as much as loading it a few times.
HISTORIES_SHARE: Final = 10


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one seed."""

    seed: int
    kinds: tuple[str, ...]  # Of damage, and the kinds of file.
    damage: str
    faults: tuple[str, ...]


def torture(seeds: Iterable[int], folder: Path) -> list[Verdict]:
    """Damages a directory for each seed; `folder` is for scratch."""
    verdicts = []
    history: History | None = None
    for seed in seeds:
        history_seed = seed // HISTORIES_SHARE
        if history is None or history.seed != history_seed:
            shutil.rmtree(folder / "history", ignore_errors=True)
            history = make_history(history_seed, folder / "history")
        damage, faults = judge(history, seed, folder / "damaged")
        stop = "clean stop" if history.is_clean else "unclean stop"
        kinds = tuple(f"{hit.kind} {_kind_of(hit.path)}, {stop}" for hit in damage.hits)
        verdicts.append(Verdict(seed, kinds, f"{damage}, {stop}", tuple(faults)))
    return verdicts


def _kind_of(path: str) -> str:
    """What follows the digits of a name, or all of it."""
    name = path.rpartition("/")[2]
    return re.sub(r"^(\d{20}\.)+", "", name)
