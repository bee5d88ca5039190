"""`odradek log`: prints the files of a log."""

import argparse
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from odradek.cli.internal_records import decoder_of, offsets_text, transactions_text
from odradek.cli.output import CommandError, print_error

if TYPE_CHECKING:
    from odradek.storage.dump import DumpLine, RecordDecoder

__all__ = ["add_arguments", "dump_lines", "run"]

_DUMP_HELP = """\
Prints the batches of .log files, the entries of .index, .timeindex and .txnindex files, the
producers of .snapshot files and the entries of checkpoints. Of a directory, all of these files are
printed, those of its partitions too. Files are only read. An index is compared with the .log file
beside it. Problems go to standard error; the exit code is then 1.

With --records, those of __consumer_offsets and __transaction_state are printed as JSON, as Kafka's
tool does. The name of the partition's directory selects the decoder, or else an option.

With --json, each batch, record or entry is an object on a line of its own. Keys and values that are
not text are base64, in key_base64 and payload_base64.
"""
# What `dump_file` reads, in the order of the files of a segment.
_SUFFIXES = (
    ".log", ".index", ".timeindex", ".txnindex", ".txnproof", ".snapshot", ".recent",
)  # fmt: skip
_STAGES = (".deleted", ".cleaned", ".swap")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    dump = actions.add_parser(
        "dump",
        help="print the content of log, index, snapshot and checkpoint files",
        description=_DUMP_HELP,
        examples=(
            "odradek log dump odradek-data/orders-0/00000000000000000000.log --records",
            "odradek log dump odradek-data/orders-0",
            "odradek log dump odradek-data/__consumer_offsets-0 --records --json",
        ),
    )
    dump.add_argument("files", nargs="+", metavar="FILE", help="a file, or a directory of them")
    dump.add_argument("--records", action="store_true", help="print each record of a batch, too")
    dump.add_argument("--json", action="store_true", help="print JSON, for programs")
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
    chosen = None
    if arguments.offsets_decoder:
        chosen = offsets_text
    elif arguments.transaction_log_decoder:
        chosen = transactions_text
    shows_records = arguments.records or chosen is not None
    has_problem = False
    for place in arguments.files:
        try:
            for path in _files(place):
                decoder = chosen or decoder_of(path)
                for line in dump_lines(path, records=shows_records, decoder=decoder):
                    has_problem |= line.is_problem
                    _print(path, line, decoder, is_json=arguments.json)
        except CommandError as error:
            has_problem = True
            print_error("log dump", str(error))
    return 1 if has_problem else 0


def dump_lines(
    path: str, *, records: bool, decoder: "RecordDecoder | None"
) -> "Iterator[DumpLine]":
    """The content of one file."""
    # Imported when needed: they would triple the time of the help.
    from odradek.files import Disk
    from odradek.storage.dump import dump_file

    return dump_file(path, disk=Disk(), records=records, decoder=decoder)


def _files(place: str) -> Iterator[str]:
    """The file itself, or the files of a log in a directory and in those below it.

    Raises:
        CommandError: A directory cannot be read, or has no such file.
    """
    if not os.path.isdir(place):
        yield place
        return
    is_empty = True
    try:
        for folder, folders, names in os.walk(place, onerror=_raise):
            folders.sort()
            for name in sorted(filter(_is_of_a_log, names), key=_by_segment):
                is_empty = False
                yield os.path.join(folder, name)
    except OSError as error:
        raise CommandError(f"{error.filename}: {error.strerror}") from None
    if is_empty:
        raise CommandError(f"{place}: no file of a log is in this directory")


def _raise(error: OSError) -> None:
    raise error


def _plain(name: str) -> str:
    for stage in _STAGES:
        name = name.removesuffix(stage)
    return name


def _is_of_a_log(name: str) -> bool:
    stem, suffix = os.path.splitext(_plain(name))
    is_segment = suffix in _SUFFIXES and stem.isascii() and stem.isdecimal()
    return is_segment or name == "leader-epoch-checkpoint" or name.endswith("-offset-checkpoint")


def _by_segment(name: str) -> tuple[str, int, str]:
    stem, suffix = os.path.splitext(_plain(name))
    return stem, _SUFFIXES.index(suffix) if suffix in _SUFFIXES else -1, name


def _print(path: str, line: "DumpLine", decoder: "RecordDecoder | None", *, is_json: bool) -> None:
    if line.is_problem:
        sys.stdout.flush()
        print(f"odradek log dump: {line.text}", file=sys.stderr)
    elif not is_json:
        print(line.text)
    elif line.fields is not None:
        import json

        fields = _json_fields(dict(line.fields), is_decoded=decoder is not None)
        print(json.dumps({"file": path, **fields}, ensure_ascii=False))


def _json_fields(fields: dict[str, object], *, is_decoded: bool) -> dict[str, object]:
    """The fields with keys and values as JSON has them."""
    shown: dict[str, object] = {}
    for name, value in fields.items():
        if name == "headers" and isinstance(value, list):
            shown[name] = [_json_fields(one, is_decoded=False) for one in value]
        elif isinstance(value, bytes):
            shown |= _text_or_base64(name, value)
        elif is_decoded and name in ("key", "payload") and isinstance(value, str):
            import json

            shown[name] = json.loads(value)
        else:
            shown[name] = value
    return shown


def _text_or_base64(name: str, data: bytes) -> dict[str, str]:
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        import base64

        return {f"{name}_base64": base64.b64encode(data).decode()}
