"""``python -m benchmarks [--beside-kafka [--cluster] | --beside-commit COMMIT] [--only NAME …] …``

Runs the benchmarks and prints a table; the raw figures go to `benchmarks/results`. With
`--beside-kafka` only those of whole servers, each beside an Apache Kafka from `make kafka`; with
`--beside-commit` those of single requests, each beside a broker of that commit, which is checked
out and built in a temporary folder. With `--cluster` only those of clusters of three brokers, also
beside Apache Kafka's. The exit code is 1 if a bar was not reached. A quick run shows that
everything works, no more: its figures are of cold servers.
"""

import argparse
import contextlib
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

import benchmarks.broker
import benchmarks.cleaning
import benchmarks.client_consuming
import benchmarks.clients
import benchmarks.cluster_changes
import benchmarks.cluster_loads
import benchmarks.codec
import benchmarks.groups
import benchmarks.opening
import benchmarks.replication
import benchmarks.spark
import benchmarks.spark_writing
import benchmarks.starting
import benchmarks.storage
import benchmarks.transactions  # noqa: F401 - importing a module registers its benchmarks
from benchmarks.clusters import start_kraft, start_odradek_cluster, why_no_clusters
from benchmarks.servers import KAFKA, ODRADEK, Run, Start, start_odradek, with_commit, with_kafka
from benchmarks.table import (
    BENCHMARKS,
    CLUSTER_BENCHMARKS,
    COMMIT_BENCHMARKS,
    SERVER_BENCHMARKS,
    Row,
    print_row,
    save,
)


def main() -> int:
    names = [*BENCHMARKS, *SERVER_BENCHMARKS, *CLUSTER_BENCHMARKS]
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    beside = parser.add_mutually_exclusive_group()
    beside.add_argument(
        "--beside-kafka", action="store_true", help="whole servers only, beside an Apache Kafka"
    )
    beside.add_argument(
        "--beside-commit", metavar="COMMIT",
        help=f"beside a broker of another commit: {', '.join(COMMIT_BENCHMARKS)}",
    )  # fmt: skip
    parser.add_argument(
        "--cluster", action="store_true", help=f"clusters: {', '.join(CLUSTER_BENCHMARKS)}"
    )
    parser.add_argument(
        "--only", action="append", choices=sorted(names), metavar="NAME",
        help=f"run this one, may be repeated: {', '.join(names)}",
    )  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="each load of a server once and small")
    parser.add_argument(
        "--repeats", type=int, default=3, metavar="N", help="samples of each load of a server: 3"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the raw figures go")
    options = parser.parse_args()
    repeats = 1 if options.quick else options.repeats
    chosen = options.only or (COMMIT_BENCHMARKS if options.beside_commit else names)
    rows: list[Row] = []
    with contextlib.ExitStack() as stack:
        try:
            servers = _servers(options, stack)
        except RuntimeError as error:
            parser.error(str(error))
        run = Run(is_quick=options.quick, servers=servers, repeats=repeats)
        print_row(None, *[name for name in servers if name != ODRADEK])
        for row in _all_rows(run, chosen, is_cluster=options.cluster):
            print_row(row)
            rows.append(row)
    failed = [row for row in rows if row.is_passed is False]
    print(
        f"{len(failed)} of {len(rows)} rows miss their bar; figures in {save(rows, options.json)}"
    )
    return 1 if failed else 0


def _servers(options: argparse.Namespace, stack: contextlib.ExitStack) -> dict[str, Start]:
    """The servers of a run by name, ours first.

    Raises:
        RuntimeError: one of them cannot be had here.
    """
    if options.cluster:
        if options.beside_commit:
            raise RuntimeError("clusters are measured beside Apache Kafka alone")
        why = why_no_clusters(is_beside_kafka=options.beside_kafka)
        if why is not None:
            raise RuntimeError(why)
        beside: dict[str, Start] = {KAFKA: start_kraft} if options.beside_kafka else {}
        return {ODRADEK: start_odradek_cluster, **beside}
    if options.beside_kafka:
        return {ODRADEK: start_odradek, KAFKA: with_kafka()}
    if options.beside_commit:
        other = stack.enter_context(with_commit(options.beside_commit))
        return {ODRADEK: start_odradek, options.beside_commit: other}
    return {ODRADEK: start_odradek}


def _all_rows(run: Run, names: list[str], *, is_cluster: bool) -> Iterator[Row]:
    if is_cluster:
        return itertools.chain(
            *[do(run) for name, do in CLUSTER_BENCHMARKS.items() if name in names]
        )
    bare = (
        [] if len(run.servers) > 1 else [do() for name, do in BENCHMARKS.items() if name in names]
    )
    of_servers = [do(run) for name, do in SERVER_BENCHMARKS.items() if name in names]
    return itertools.chain(*bare, *of_servers)


if __name__ == "__main__":
    sys.exit(main())
