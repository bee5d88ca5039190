"""``python -m tests.simulation [--seeds N] [--first N] [--seed N] [--plant NAME]``: runs seeds."""

import argparse
import sys
import time

from tests.simulation.forked import run_forked, show
from tests.simulation.planted import PLANTS


def main() -> int:
    """Runs seeds; 1 if one of them found something."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="this one alone, with its whole trace")
    parser.add_argument("--plant", choices=sorted(PLANTS), help="with this bug in the broker")
    arguments = parser.parse_args()
    plant = PLANTS.get(arguments.plant)
    if arguments.seed is not None:
        outcome = run_forked(arguments.seed, plant)
        print(show(outcome, lines=10_000))
        print(f"{outcome.steps} steps, trace {outcome.digest}")
        return int(outcome.violation is not None)
    began_s = time.perf_counter()
    failed = []
    acknowledged = steps = lives = 0
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        outcome = run_forked(seed, plant)
        acknowledged += outcome.acknowledged
        steps += outcome.steps
        lives += outcome.lives
        if outcome.violation is not None:
            failed.append(seed)
            print(show(outcome), flush=True)
    took_s = time.perf_counter() - began_s
    print(
        f"{arguments.seeds} seeds, {len(failed)} found something{f': {failed}' if failed else ''}."
        f" {acknowledged} records acknowledged, {lives} lives of brokers, {steps} steps,"
        f" {took_s:.0f} s"
    )
    return int(bool(failed))


sys.exit(main())
