"""``python -m tests.restarts [--runs N] [--seed S] [--client NAME] [--jobs N]``.

Runs producers of several projects whose broker goes away with five answers, one client and one end
of the broker after the other, and prints what is wrong with the log. Exit code 1 if anything is.
"""

import argparse
import itertools
import shutil
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

from tests.restarts.runs import CLIENTS, ENDS, Plan, Verdict, run
from tests.support.java_programs import why_no_java_programs


def main() -> int:
    """Runs the command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="make restarts", description=__doc__.split("\n")[2])
    parser.add_argument("--runs", type=int, default=1, help="how many (1)")
    parser.add_argument("--seed", type=int, default=1, help="draws all runs (1)")
    parser.add_argument("--client", action="append", choices=CLIENTS, help="all of them")
    parser.add_argument("--jobs", type=int, default=1, help="runs that go on at once (1)")
    options = parser.parse_args()
    clients = options.client or list(CLIENTS)
    if "java" in clients and (missing := why_no_java_programs()):
        print(f"restarts: without Java's client: {missing}")
        clients.remove("java")
    random = Random(options.seed)
    turns = itertools.cycle((end, client) for end in ENDS for client in clients)
    base = Path(tempfile.mkdtemp(prefix="restarts-"))
    plans = [
        Plan(client=client, end=end, seed=random.randrange(2**31), folder=base / f"run-{number}")
        for number, (end, client) in zip(range(1, options.runs + 1), turns, strict=False)
    ]
    sums: Counter[str] = Counter()
    with ThreadPoolExecutor(options.jobs) as pool:
        for number, (plan, verdict) in enumerate(zip(plans, pool.map(_run, plans), strict=True), 1):
            print(
                f"restarts: run {number} of {options.runs}: {plan.end} with {plan.client}, seed"
                f" {plan.seed}: {verdict.sent} sent, {verdict.swallowed} answers swallowed,"
                f" {verdict.most_in_flight} in flight",
                *verdict.faults[:20],
                sep="\n    ",
                flush=True,
            )
            sums["sent"] += verdict.sent
            sums["swallowed"] += verdict.swallowed
            sums["failed"] += bool(verdict.faults)
            if not verdict.faults:
                shutil.rmtree(plan.folder)
    print(
        f"restarts: {options.runs} runs, {sums['sent']} records, {sums['swallowed']} answers"
        f" swallowed, {sums['failed']} runs found something; files in {base}"
    )
    return int(sums["failed"] > 0)


def _run(plan: Plan) -> Verdict:
    try:
        return run(plan)
    except Exception as error:
        return Verdict(faults=[f"{type(error).__name__}: {error}, see {plan.folder}"])


if __name__ == "__main__":
    sys.exit(main())
