"""`odradek log`: prints the files of a log."""

import argparse
import sys

from odradek.cli.internal_records import decoder_of, offsets_text, transactions_text
from odradek.files import Disk
from odradek.storage.dump import dump_file

__all__ = ["add_arguments", "run"]

_DUMP_HELP = """\
Prints the batches of .log files, the entries of .index, .timeindex and .txnindex files, the
producers of .snapshot files and the entries of checkpoints. Files are only read. An index is
compared with the .log file beside it. Problems go to standard error; the exit code is then 1.

With --records, those of __consumer_offsets and __transaction_state are printed as JSON, as Kafka's
tool does. The name of the partition's directory selects the decoder, or else an option.
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
    decoders = dump.add_mutually_exclusive_group()
    decoders.add_argument(
        "--offsets-decoder",
        action="store_true",
        help="print records, as those of __consumer_offsets",
    )
    decoders.add_argument(
        "--transaction-log-decoder",
        action="store_true",
        help="print records, as those of __transaction_state",
    )


def run(arguments: argparse.Namespace) -> int:
    """Prints the files; returns 1 if anything in them is wrong."""
    disk = Disk()
    has_problem = False
    chosen = None
    if arguments.offsets_decoder:
        chosen = offsets_text
    elif arguments.transaction_log_decoder:
        chosen = transactions_text
    shows_records = arguments.records or chosen is not None
    for path in arguments.files:
        decoder = chosen or decoder_of(path)
        for line in dump_file(path, disk=disk, records=shows_records, decoder=decoder):
            if line.is_problem:
                has_problem = True
                sys.stdout.flush()
                print(f"odradek log dump: {line.text}", file=sys.stderr)
            else:
                print(line.text)
    return 1 if has_problem else 0
