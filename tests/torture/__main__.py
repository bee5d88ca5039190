"""Tortures data directories: `python -m tests.torture [--seeds N] [--first SEED] [--processes N]`.

Prints each seed whose directory broke a rule, with the damage and the rule, then how many of each
kind of damage there were. Exit code 1 if a rule was broken.
"""

import argparse
import logging
import os
import sys
import tempfile
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.torture.runs import HISTORIES_SHARE, Verdict, torture


def _chunk(seeds: range) -> list[Verdict]:
    logging.getLogger("odradek").propagate = False
    memory = "/dev/shm"  # Where there is one.
    is_there = os.access(memory, os.W_OK)
    with tempfile.TemporaryDirectory(prefix="torture-", dir=memory if is_there else None) as folder:
        return torture(seeds, Path(folder))


def main() -> int:
    """Runs the command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="make torture", description=__doc__.split(":")[0])
    parser.add_argument("--seeds", type=int, default=1_000, help="how many (1000)")
    parser.add_argument("--first", type=int, default=0, help="the first one (0)")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="one per core")
    options = parser.parse_args()
    end = options.first + options.seeds
    step = HISTORIES_SHARE * 5
    chunks = [range(at, min(end, at + step)) for at in range(options.first, end, step)]
    kinds: Counter[str] = Counter()
    broken = 0
    with ProcessPoolExecutor(options.processes) as pool:
        for verdicts in pool.map(_chunk, chunks):
            for verdict in verdicts:
                kinds.update(verdict.kinds)
                if verdict.faults:
                    broken += 1
                    print(f"torture: seed {verdict.seed}: {verdict.damage}")
                    for fault in verdict.faults:
                        print(f"    {fault}", flush=True)
    for kind, count in sorted(kinds.items()):
        print(f"torture: {count:6} x {kind}")
    print(f"torture: {options.seeds} directories damaged, {broken} broke a rule")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
