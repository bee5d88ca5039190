"""``python -m tests.chaos [--transactions] [--runs N] [--seed S] [--cluster …]``: runs a campaign.

Each run is a process of its own with a cluster of its own, on a network of its own where links can
be cut: there, several runs may go on at once. The seed deals the faults over all runs, so that a
campaign has each kind about as often as any other, and the clients of pipelines as well. A run
that finds something keeps its folder, with the histories of all clients and the logs of all
servers.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.chaos.campaign import CLUSTERS, Plan, available_faults, run
from tests.chaos.faults import FAULTS, deal
from tests.chaos.network import why_no_namespaces
from tests.chaos.outcome import Outcome
from tests.chaos.transactions import (
    TRANSACTION_CLIENTS,
    TRANSACTION_CLUSTERS,
    TRANSACTION_FAULTS,
    TransactionPlan,
    run_transactions,
)

RUN_LIMIT_S = 1800


def main() -> int:
    """Runs the command: 0 clean, 1 if a run found something, 2 if it could not be run."""
    parser = _parser()
    options = parser.parse_args()
    clusters = TRANSACTION_CLUSTERS if options.transactions else CLUSTERS
    if options.cluster not in clusters:
        parser.error(f"--cluster {options.cluster} is for --transactions")
    if options.one:
        return _run_one(options)
    cluster = clusters[options.cluster]
    if missing := cluster.why_missing():
        print(f"chaos: {missing}")
        return 2
    no_links = why_no_namespaces()
    if no_links:
        print(f"chaos: no link will be cut: {no_links}")
    if options.transactions:
        names = options.fault or list(TRANSACTION_FAULTS)
    else:
        names = options.fault or available_faults(cluster, can_cut=not no_links)
    if options.weak and not options.fault:
        names = [name for name in ("K-16", "pause-leader") if name in names]
    if options.jobs > 1 and no_links:
        parser.error("--jobs: without network namespaces runs would share addresses")
    runs = _deal_runs(options, names)
    with ThreadPoolExecutor(options.jobs) as pool:
        codes = list(pool.map(lambda one: _start_run(options, one), runs))
    failed = [one.number for one, code in zip(runs, codes, strict=True) if code]
    _print_sums(runs)
    base = runs[0].folder.parent
    print(f"chaos: {options.runs} runs, {len(failed)} failed {failed or ''}; files in {base}")
    return int(bool(failed))


@dataclass(frozen=True, slots=True, kw_only=True)
class _DealtRun:
    """What the seed of a campaign gives one of its runs."""

    number: int
    seed: int
    faults: Sequence[str]
    clients: Sequence[str]
    folder: Path

    @property
    def summary(self) -> Path:
        """Left behind when the folder of a clean run is removed."""
        return self.folder.with_name(f"{self.folder.name}.json")


def _deal_runs(options: argparse.Namespace, names: list[str]) -> list[_DealtRun]:
    random = Random(options.seed)
    dealt = deal(random, options.runs * options.faults, names)
    clients: list[Sequence[str]] = [options.client] * options.runs
    if options.transactions:
        kinds = options.client or sorted(TRANSACTION_CLIENTS)
        clients = [(kind,) for kind in deal(random, options.runs, kinds)]
    base = Path(options.folder or tempfile.mkdtemp(prefix="chaos-"))
    return [
        _DealtRun(
            number=number,
            seed=random.randrange(2**31),
            faults=dealt[(number - 1) * options.faults : number * options.faults],
            clients=clients[number - 1],
            folder=base / f"run-{number}",
        )
        for number in range(1, options.runs + 1)
    ]


def _start_run(options: argparse.Namespace, dealt: _DealtRun) -> int:
    """One run in a process; its output comes in one piece where others go on beside it."""
    number = dealt.number
    print(
        f"chaos: run {number} of {options.runs}: seed {dealt.seed}: {' '.join(dealt.faults)}",
        flush=True,
    )
    command = [
        sys.executable, "-m", "tests.chaos", "--one", "--cluster", options.cluster,
        "--seed", str(dealt.seed), "--folder", str(dealt.folder), "--rate", str(options.rate),
        *(["--weak"] if options.weak else []),
        *(["--transactions"] if options.transactions else []),
        *(word for name in dealt.faults for word in ("--fault", name)),
        *(word for name in dealt.clients for word in ("--client", name)),
    ]  # fmt: skip
    began = time.monotonic()
    output = subprocess.PIPE if options.jobs > 1 else None
    done = subprocess.run(
        command, check=False, timeout=RUN_LIMIT_S, text=True, stdout=output, stderr=output
    )
    took = time.monotonic() - began
    told = f"{done.stdout or ''}{done.stderr or ''}"
    print(f"{told}chaos: run {number}: exit {done.returncode} after {took:.0f} s", flush=True)
    if (summary := dealt.folder / "summary.json").exists():
        shutil.copy(summary, dealt.summary)
    if done.returncode == 0 and not options.keep:
        shutil.rmtree(dealt.folder)
    return done.returncode


def _print_sums(runs: Sequence[_DealtRun]) -> None:
    """What the runs came to together."""
    sums: Counter[str] = Counter()
    for summary in (json.loads(one.summary.read_text()) for one in runs if one.summary.exists()):
        if clients := summary.get("clients"):
            sums[f"runs of {clients}"] += 1
        for what, counts in (("records", "outcomes"), ("transactions", "transactions")):
            for name, count in summary.get(counts, {}).items():
                sums[f"{what} {name}"] += count
    print("chaos: in all: " + ", ".join(f"{count} {name}" for name, count in sums.items()))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--runs", type=int, default=1, help="how many (1)")
    parser.add_argument("--seed", type=int, default=1, help="deals the faults (1)")
    parser.add_argument(
        "--cluster", choices=sorted({*CLUSTERS, *TRANSACTION_CLUSTERS}), default="odradek"
    )
    parser.add_argument("--faults", type=int, default=6, help="in each run (6)")
    parser.add_argument(
        "--fault", action="append", default=[], choices=sorted({*FAULTS, *TRANSACTION_FAULTS})
    )
    parser.add_argument(
        "--client", action="append", default=[], choices=sorted(TRANSACTION_CLIENTS)
    )
    parser.add_argument("--jobs", type=int, default=1, help="runs that go on at once (1)")
    parser.add_argument("--rate", type=float, default=50, help="records per second and producer")
    parser.add_argument("--folder", help="where files go (a new one in the temporary folder)")
    parser.add_argument("--keep", action="store_true", help="the files of clean runs, too")
    parser.add_argument(
        "--weak", action="store_true", help="acks=1, unclean elections: a run must lose a record"
    )
    parser.add_argument(
        "--transactions",
        action="store_true",
        help="pipelines with transactions, faults of their processes; also on one broker",
    )
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    return parser


def _run_one(options: argparse.Namespace) -> int:
    """One run in this process, with exactly the faults that are named."""
    outcome = _run_transactions(options) if options.transactions else _run_plain(options)
    folder = Path(options.folder)
    print(outcome.report.show())
    summary = {
        "anomalies": sorted(outcome.report.names),
        "outcomes": outcome.report.outcomes,
        "transactions": outcome.report.transactions,
        "clients": options.client[0] if options.transactions else None,
    }
    (folder / "summary.json").write_text(json.dumps(summary))
    if options.weak:
        return int("lost-write" not in outcome.report.names)
    return int(bool(outcome.report.illegal))


def _run_transactions(options: argparse.Namespace) -> Outcome:
    if not options.client:
        options.client = [Random(options.seed).choice(sorted(TRANSACTION_CLIENTS))]
    plan = TransactionPlan(
        cluster=options.cluster,
        seed=options.seed,
        faults=tuple(options.fault),
        folder=Path(options.folder).absolute(),
        clients=options.client[0],
        rate=options.rate,
    )
    print(f"chaos: clients: {plan.clients}")
    return run_transactions(plan)


def _run_plain(options: argparse.Namespace) -> Outcome:
    plan = Plan(
        cluster=options.cluster,
        seed=options.seed,
        faults=tuple(options.fault),
        folder=Path(options.folder).absolute(),
        weak=options.weak,
        rate=options.rate,
        clients=tuple(options.client) or ("librdkafka", "ours"),
    )
    return run(plan)


if __name__ == "__main__":
    sys.exit(main())
