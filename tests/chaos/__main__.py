"""``python -m tests.chaos [--runs N] [--seed S] [--cluster kafka|odradek]``: runs a campaign.

Each run is a process of its own with a cluster of its own. The seed deals the faults over all runs,
so that a campaign has each kind about as often as any other. A run that finds something keeps its
folder, with the histories of all clients and the logs of all servers.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random

from tests.chaos.campaign import CLUSTERS, Plan, available_faults, run
from tests.chaos.faults import FAULTS, deal
from tests.chaos.network import why_no_namespaces

RUN_LIMIT_S = 1800


def main() -> int:
    """Runs the command: 0 clean, 1 if a run found something, 2 if it could not be run."""
    options = _parser().parse_args()
    if options.one:
        return _run_one(options)
    cluster = CLUSTERS[options.cluster]
    if missing := cluster.why_missing():
        print(f"chaos: {missing}")
        return 2
    no_links = why_no_namespaces()
    if no_links:
        print(f"chaos: no link will be cut: {no_links}")
    names = options.fault or available_faults(cluster, can_cut=not no_links)
    if options.weak and not options.fault:
        names = [name for name in ("K-16", "pause-leader") if name in names]
    random = Random(options.seed)
    dealt = deal(random, options.runs * options.faults, names)
    base = Path(options.folder or tempfile.mkdtemp(prefix="chaos-"))
    failed = []
    for number in range(options.runs):
        mine = dealt[number * options.faults : (number + 1) * options.faults]
        seed = random.randrange(2**31)
        folder = base / f"run-{number + 1}"
        print(f"chaos: run {number + 1} of {options.runs}: seed {seed}: {' '.join(mine)}")
        command = [
            sys.executable, "-m", "tests.chaos", "--one", "--cluster", options.cluster,
            "--seed", str(seed), "--folder", str(folder), "--rate", str(options.rate),
            *(["--weak"] if options.weak else []),
            *(word for name in mine for word in ("--fault", name)),
            *(word for name in options.client for word in ("--client", name)),
        ]  # fmt: skip
        began = time.monotonic()
        code = subprocess.run(command, check=False, timeout=RUN_LIMIT_S).returncode
        print(f"chaos: run {number + 1}: exit {code} after {time.monotonic() - began:.0f} s")
        if code:
            failed.append(number + 1)
        elif not options.keep:
            shutil.rmtree(folder)
    print(f"chaos: {options.runs} runs, {len(failed)} failed {failed or ''}; files in {base}")
    return int(bool(failed))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--runs", type=int, default=1, help="how many (1)")
    parser.add_argument("--seed", type=int, default=1, help="deals the faults (1)")
    parser.add_argument("--cluster", choices=sorted(CLUSTERS), default="odradek")
    parser.add_argument("--faults", type=int, default=6, help="in each run (6)")
    parser.add_argument("--fault", action="append", default=[], choices=sorted(FAULTS))
    parser.add_argument("--client", action="append", default=[], choices=("librdkafka", "ours"))
    parser.add_argument("--rate", type=float, default=50, help="records per second and producer")
    parser.add_argument("--folder", help="where files go (a new one in the temporary folder)")
    parser.add_argument("--keep", action="store_true", help="the files of clean runs, too")
    parser.add_argument(
        "--weak", action="store_true", help="acks=1, unclean elections: a run must lose a record"
    )
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    return parser


def _run_one(options: argparse.Namespace) -> int:
    """One run in this process, with exactly the faults that are named."""
    plan = Plan(
        cluster=options.cluster,
        seed=options.seed,
        faults=tuple(options.fault),
        folder=Path(options.folder).absolute(),
        weak=options.weak,
        rate=options.rate,
        clients=tuple(options.client) or ("librdkafka", "ours"),
    )
    outcome = run(plan)
    print(outcome.report.show())
    summary = {"anomalies": sorted(outcome.report.names), "outcomes": outcome.report.outcomes}
    (plan.folder / "summary.json").write_text(json.dumps(summary))
    if options.weak:
        return int("lost-write" not in outcome.report.names)
    return int(bool(outcome.report.illegal))


if __name__ == "__main__":
    sys.exit(main())
