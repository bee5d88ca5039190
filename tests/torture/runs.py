"""One seed, one verdict: a directory from one seed, its damage from another."""

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
    kind: str  # Of damage, and the kind of file.
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
        suffix = damage.path.rpartition(".")[2] if "/" in damage.path else damage.path
        verdicts.append(
            Verdict(seed, f"{damage.kind} {suffix}, {stop}", f"{damage}, {stop}", tuple(faults))
        )
    return verdicts
