"""``python -m benchmarks [--only NAME …] [--json FILE]``: runs the benchmarks, prints a table.

The raw figures go to `benchmarks/results`. The exit code is 1 if a bar was not reached.
"""

import argparse
import sys
from pathlib import Path

import benchmarks.opening
import benchmarks.storage  # noqa: F401 - importing a module registers its benchmarks
from benchmarks.table import BENCHMARKS, Row, print_row, save


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--only", action="append", choices=sorted(BENCHMARKS), metavar="NAME",
        help=f"run this one, may be repeated: {', '.join(BENCHMARKS)}",
    )  # fmt: skip
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the raw figures go")
    options = parser.parse_args()
    rows: list[Row] = []
    print_row(None)
    for name, run in BENCHMARKS.items():
        if options.only and name not in options.only:
            continue
        for row in run():
            print_row(row)
            rows.append(row)
    failed = [row for row in rows if row.is_passed is False]
    print(
        f"{len(failed)} of {len(rows)} rows miss their bar; figures in {save(rows, options.json)}"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
