"""`odradek log-dirs`: the data directories of brokers, and the sizes of replicas in them."""

import argparse
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from odradek.cli.connecting import (
    add_connection_arguments,
    add_json_argument,
    report_errors,
    run_with_admin,
)
from odradek.cli.output import Marked, bad, print_json, print_table, sized, warn

if TYPE_CHECKING:
    from odradek.client.admin import LogDir
    from odradek.client.admin.admin import Admin

__all__ = ["add_arguments", "run"]

_DESCRIPTION = """\
Shows each data directory with its replicas, their size and the space that is left. With topics or
--replicas, shows each replica: LAG is the number of messages it is behind, FUTURE one that is being
moved into the directory.
"""
# A directory that is fuller is worth a look.
_FULL = 0.85


class _Directory(NamedTuple):
    broker: int
    path: str
    content: "LogDir"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.description = _DESCRIPTION
    parser.epilog = (
        "examples:\n"
        "  odradek log-dirs\n"
        "  odradek log-dirs orders --broker 0\n"
        "  odradek log-dirs --replicas --json"
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="only replicas of these topics")
    parser.add_argument(
        "--broker", type=int, action="append", metavar="ID", help="only of this broker; repeatable"
    )
    parser.add_argument("--replicas", action="store_true", help="show each replica")
    add_json_argument(parser)
    add_connection_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Shows the directories; returns 1 if one is offline or a broker did not answer."""
    return run_with_admin("log-dirs", arguments, lambda admin: _show(admin, arguments))


async def _show(admin: "Admin", arguments: argparse.Namespace) -> int:
    from odradek.cli.connecting import find_topic
    from odradek.errors import ApiError

    for topic in arguments.topics:
        await find_topic(admin, topic)
    directories, errors = [], []
    told = await admin.describe_log_dirs(arguments.broker)
    for broker, paths in sorted(told.items()):
        if isinstance(paths, ApiError):
            errors.append(paths)
            continue
        for path, content in sorted(paths.items()):
            if isinstance(content, ApiError):
                errors.append(ApiError(content.code, f"broker {broker}, {path}: {content}"))
            else:
                directories.append(_Directory(broker, path, content))
    if arguments.replicas or arguments.topics:
        _show_replicas(directories, arguments)
    else:
        _show_directories(directories, arguments)
    return report_errors("log-dirs", errors)


def _show_directories(directories: "Iterable[_Directory]", arguments: argparse.Namespace) -> None:
    names = ("broker", "directory", "replicas", "size", "total", "usable")
    rows = [
        (
            one.broker,
            one.path,
            len(one.content.replicas),
            sum(replica.size for replica in one.content.replicas.values()),
            _known(one.content.total_bytes),
            _known(one.content.usable_bytes),
        )
        for one in directories
    ]
    if arguments.json:
        print_json([dict(zip(names, row, strict=True)) for row in rows])
        return
    print_table(
        [name.upper() for name in names],
        [
            (broker, path, replicas, sized(size), sized(total), _usable(total, usable))
            for broker, path, replicas, size, total, usable in rows
        ],
        nothing="no data directories",
    )


def _known(count: int) -> int | None:
    """None from brokers that do not report the space of their disks."""
    return count if count >= 0 else None


def _usable(total: int | None, usable: int | None) -> Marked:
    shown = sized(usable)
    if total and usable is not None and usable < total * (1 - _FULL):
        shown.style = (warn if usable else bad)("").style
    return shown


def _show_replicas(directories: "Iterable[_Directory]", arguments: argparse.Namespace) -> None:
    names = ("broker", "directory", "topic", "partition", "size", "lag", "future")
    rows = list(_replicas(directories, arguments.topics))
    if arguments.json:
        print_json([dict(zip(names, row, strict=True)) for row in rows])
        return
    print_table(
        [name.upper() for name in names],
        [
            (*row[:4], sized(row[4]), warn(row[5]) if row[5] else row[5], "yes" if row[6] else "")
            for row in rows
        ],
        nothing="no replicas",
    )


def _replicas(
    directories: "Iterable[_Directory]", topics: list[str]
) -> Iterator[tuple[int, str, str, int, int, int, bool]]:
    for one in directories:
        for tp, replica in sorted(one.content.replicas.items()):
            if not topics or tp.topic in topics:
                place = (one.broker, one.path, tp.topic, tp.partition)
                yield (*place, replica.size, replica.offset_lag, replica.is_future)
