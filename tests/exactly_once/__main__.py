"""``python -m tests.exactly_once [--broker …] [--fault …] [--mistake …]``: runs a campaign.

Kills, stops and disturbs drivers of the exactly-once sink. Each run has a broker, a topic and a
checkpoint of its own, and several lives of drivers, one fault in each; the last one is left alone.
A run that finds something keeps its folder. With ``--mistake`` the sink is made wrong, and the
command succeeds if the checker finds it.
"""

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path
from random import Random

from tests.exactly_once.campaign import BROKERS, FAULTS, Plan, faults_of_mistake, run
from tests.exactly_once.driver import MISTAKES


def main() -> int:
    """Runs the command: 0 as expected, 1 if not."""
    parser = argparse.ArgumentParser(prog="python -m tests.exactly_once", description=__doc__)
    parser.add_argument("--broker", choices=BROKERS, default="odradek")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=int, default=3, help="lives with a fault in each run")
    parser.add_argument("--fault", action="append", choices=FAULTS, help="in this order")
    parser.add_argument("--mistake", choices=MISTAKES)
    parser.add_argument("--cluster", action="store_true", help="a standalone cluster, two workers")
    parser.add_argument("--no-adaptive", action="store_true", help="adaptive execution off")
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    base = options.folder or Path(tempfile.mkdtemp(prefix="exactly-once-"))
    random = Random(options.seed)
    names = [name for name in FAULTS if name != "executor" or options.cluster]
    is_good = True
    for number in range(options.runs):
        faults = tuple(options.fault or random.choices(names, k=options.faults))
        if options.mistake:
            faults = faults_of_mistake(options.mistake)
        plan = Plan(
            seed=options.seed * 1000 + number,
            broker=options.broker,
            faults=faults,
            folder=(base / f"run-{number}").absolute(),
            is_cluster=options.cluster,
            is_adaptive=not options.no_adaptive,
            mistake=options.mistake,
        )
        began = time.monotonic()
        found = run(plan)
        print(
            f"{options.broker} run {number} {', '.join(faults)}: "
            f"{'; '.join(found) or 'clean'} ({time.monotonic() - began:.0f} s)",
            flush=True,
        )
        is_as_expected = bool(found) == bool(options.mistake)
        is_good = is_good and is_as_expected
        if is_as_expected:
            shutil.rmtree(plan.folder)
        else:
            print(f"see {plan.folder}")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
