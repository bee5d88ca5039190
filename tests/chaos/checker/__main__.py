"""``python -m tests.chaos.checker FILE...``: judges a history; 1 if it is illegal."""

import argparse
import sys
from pathlib import Path

from tests.chaos.checker import judge, parse_history


def main() -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.checker", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    lines = []
    for path in parser.parse_args().files:
        with path.open() as file:
            lines += [line for line in file if line.endswith("\n")]
    report = judge(parse_history(lines))
    print(report.show())
    return int(bool(report.illegal))


if __name__ == "__main__":
    sys.exit(main())
