"""`odradek log`: prints the files of a log."""

import argparse
import sys

from odradek.files import Disk
from odradek.storage.dump import dump_file

__all__ = ["add_arguments", "run"]

_DUMP_HELP = """\
Prints the batches of .log files, the entries of .index, .timeindex and .txnindex files, the
producers of .snapshot files and the entries of checkpoints. Files are only read. An index is
compared with the .log file beside it. Problems go to standard error; the exit code is then 1.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    dump = actions.add_parser(
        "dump",
        help="print the content of log, index, snapshot and checkpoint files",
        description=_DUMP_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    dump.add_argument("files", nargs="+", metavar="FILE", help="file to print")
    dump.add_argument("--records", action="store_true", help="print each record of a batch, too")


def run(arguments: argparse.Namespace) -> int:
    """Prints the files; returns 1 if anything in them is wrong."""
    disk = Disk()
    has_problem = False
    for path in arguments.files:
        for line in dump_file(path, disk=disk, records=arguments.records):
            if line.is_problem:
                has_problem = True
                sys.stdout.flush()
                print(f"odradek log dump: {line.text}", file=sys.stderr)
            else:
                print(line.text)
    return 1 if has_problem else 0
