"""`odradek groups`: lists, describes and deletes consumer groups, moves and deletes offsets."""

import argparse
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from odradek.cli.connecting import (
    CommandError,
    add_connection_arguments,
    add_json_argument,
    report_errors,
    run_with_admin,
)
from odradek.cli.group_offsets import TargetOptions, move_offsets, parse_places
from odradek.cli.output import (
    Marked,
    counted,
    good,
    print_error,
    print_json,
    print_table,
    warn,
)

if TYPE_CHECKING:
    from odradek.cli.usage.parser import Actions
    from odradek.client.admin import GroupDescription, GroupMember
    from odradek.client.admin.admin import Admin
    from odradek.errors import ApiError
    from odradek.model import TopicPartition

__all__ = ["add_arguments", "run"]

# More members than these are only counted in an error.
_SHOWN_MEMBERS = 5

_RESET_DESCRIPTION = """\
Moves the offsets of a group that has no members. Only shows the new offsets; --execute sets them.
Without --topic, the offsets of all topics of the group are moved.
"""

_RESET_EXAMPLES = """\
examples:
  odradek groups reset-offsets billing --to-earliest
  odradek groups reset-offsets billing --topic orders:0,1 --shift-by -100 --execute
  odradek groups reset-offsets billing --topic orders --to-datetime 2026-01-31T12:00:00Z --execute
"""

_DESCRIBE_DESCRIPTION = """\
Shows for each partition the group's offset, the end of the log and the number of messages between.
LAG-SECONDS is how long the first message that the group has not read has waited for it.
"""

_REMOVE_DESCRIPTION = """\
Removes members, so that the others get their partitions at once: static members that will not come
back, or all, so that offsets can be reset. A member that still runs joins again.
"""

# States of classic groups, and of the other kinds of groups that Kafka clusters may have.
_STATES = (
    "PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty", "Assigning",
    "Reconciling", "NotReady",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    shown = (_add_list(actions), _add_describe(actions))
    for action in (*shown, *_add_changing(actions)):
        add_json_argument(action)
        add_connection_arguments(action)


def _add_list(actions: "Actions") -> argparse.ArgumentParser:
    list_ = actions.add_parser(
        "list",
        help="list groups",
        examples=("odradek groups list", "odradek groups list --state Empty"),
    )
    list_.add_argument(
        "--state",
        action="append",
        default=[],
        type=_state,
        metavar="STATE",
        help=f"only in this state: {', '.join(_STATES)}; may be repeated",
    )
    return list_


def _add_describe(actions: "Actions") -> argparse.ArgumentParser:
    describe = actions.add_parser(
        "describe",
        help="show offsets and lag, members, or state",
        description=_DESCRIBE_DESCRIPTION,
        examples=("odradek groups describe billing", "odradek groups describe billing --members"),
    )
    describe.add_argument("groups", nargs="*", metavar="GROUP", help="default: all groups")
    what = describe.add_mutually_exclusive_group()
    what.add_argument("--offsets", action="store_true", help="offsets and lag (the default)")
    what.add_argument("--members", action="store_true", help="members and what they read")
    what.add_argument("--state", action="store_true", help="state, strategy and coordinator")
    return describe


def _add_changing(actions: "Actions") -> tuple[argparse.ArgumentParser, ...]:
    reset = actions.add_parser(
        "reset-offsets",
        help="move the offsets of a group",
        description=_RESET_DESCRIPTION,
        epilog=_RESET_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    reset.add_argument("group", metavar="GROUP")
    _add_topic_argument(reset)
    TargetOptions.add_arguments(reset)
    reset.add_argument("--execute", action="store_true", help="do it, instead of showing it")

    delete = actions.add_parser(
        "delete",
        help="delete groups that have no members",
        examples=("odradek groups delete billing",),
    )
    delete.add_argument("groups", nargs="+", metavar="GROUP")

    forget = actions.add_parser(
        "delete-offsets",
        help="delete offsets of topics that no member reads",
        examples=("odradek groups delete-offsets billing --topic orders",),
    )
    forget.add_argument("group", metavar="GROUP")
    _add_topic_argument(forget, required=True)

    remove = actions.add_parser(
        "remove-members",
        help="remove members from a group",
        description=_REMOVE_DESCRIPTION,
        examples=(
            "odradek groups remove-members billing --instance billing-3",
            "odradek groups remove-members billing --all",
        ),
    )
    remove.add_argument("group", metavar="GROUP")
    which = remove.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "--instance",
        action="append",
        metavar="ID",
        help="the static member with this group.instance.id; may be repeated",
    )
    which.add_argument("--all", action="store_true", help="every member")
    return reset, delete, forget, remove


def _add_topic_argument(parser: argparse.ArgumentParser, *, required: bool = False) -> None:
    parser.add_argument(
        "--topic",
        action="append",
        required=required,
        metavar="TOPIC[:N,N…]",
        help="a topic, or some partitions of it; may be repeated",
    )


def run(arguments: argparse.Namespace) -> int:
    """Runs the action; returns 1 if any group failed."""
    work = {
        "list": _list,
        "describe": _describe,
        "reset-offsets": _reset,
        "delete": _delete,
        "delete-offsets": _delete_offsets,
        "remove-members": _remove_members,
    }[arguments.action]
    command = f"groups {arguments.action}"
    return run_with_admin(command, arguments, lambda admin: work(admin, arguments))


def _state(text: str) -> str:
    for state in _STATES:
        if state.lower() == text.lower():
            return state
    raise argparse.ArgumentTypeError(f"{text} is not a state: expected one of {', '.join(_STATES)}")


async def _list(admin: "Admin", arguments: argparse.Namespace) -> int:
    groups = await admin.list_groups(states=arguments.state)
    if arguments.json:
        print_json([group._asdict() for group in groups])
    else:
        print_table(
            ("GROUP", "STATE", "PROTOCOL"),
            [(group.group_id, _marked(group.state), group.protocol_type) for group in groups],
            nothing="no groups",
        )
    return 0


async def _describe(admin: "Admin", arguments: argparse.Namespace) -> int:
    from odradek.errors import ApiError

    names = arguments.groups or [group.group_id for group in await admin.list_groups()]
    described = await admin.describe_groups(names)
    groups = [group for group in described.values() if not isinstance(group, ApiError)]
    if arguments.members:
        _show_members(groups, is_json=arguments.json)
    elif arguments.state:
        _show_states(groups, is_json=arguments.json)
    else:
        await _show_offsets(admin, groups, arguments)
    return report_errors(
        "groups describe", [error for error in described.values() if isinstance(error, ApiError)]
    )


def _show_states(groups: "Iterable[GroupDescription]", *, is_json: bool) -> None:
    headings = ("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS")
    if not is_json:
        rows = [
            (
                one.group_id,
                f"{one.coordinator_address} ({one.coordinator})",
                one.protocol,
                _marked(one.state),
                len(one.members),
            )
            for one in groups
        ]
        print_table(headings, rows, nothing="no groups")
        return
    print_json(
        [
            {
                "group": one.group_id,
                "coordinator": one.coordinator,
                "coordinator_address": one.coordinator_address,
                "assignment_strategy": one.protocol,
                "state": one.state,
                "members": len(one.members),
            }
            for one in groups
        ]
    )


def _show_members(groups: "Iterable[GroupDescription]", *, is_json: bool) -> None:
    rows = []
    for group in groups:
        for member in group.members:
            read = assigned_partitions(member.assignment)
            rows.append(
                (
                    group.group_id,
                    member.member_id,
                    member.group_instance_id,
                    member.client_host,
                    member.client_id,
                    len(read),
                    _partitions_text(read),
                )
            )
    headings = (
        "GROUP", "CONSUMER-ID", "INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "ASSIGNMENT",
    )  # fmt: skip
    _show(headings, rows, is_json=is_json)


async def _show_offsets(
    admin: "Admin", groups: "Iterable[GroupDescription]", arguments: argparse.Namespace
) -> None:
    from odradek.cli.inspection.lag import waiting_since
    from odradek.clock import SystemClock

    rows: list[tuple[object, ...]] = []
    for group in groups:
        found = await _positions(admin, group)
        if not group.members and found:
            print_error("groups describe", f"group {group.group_id!r} has no active members")
        since = await waiting_since(
            admin,
            arguments,
            {tp: one.at for tp, one in found.items() if one.at is not None and one.lag},
        )
        now_ms = SystemClock().now_ms()
        for tp, one in found.items():
            seconds = 0 if one.lag == 0 else None
            if tp in since:
                seconds = max(now_ms - since[tp], 0) // 1000
            reader = (
                (None, None, None)
                if one.reader is None
                else (one.reader.member_id, one.reader.client_host, one.reader.client_id)
            )
            place = (group.group_id, tp.topic, tp.partition)
            rows.append((*place, one.at, one.end, one.lag, *reader, seconds))
    headings = (
        "GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID",
        "HOST", "CLIENT-ID", "LAG-SECONDS",
    )  # fmt: skip
    if arguments.json:
        _show(headings, rows, is_json=True)
        return
    dashed = [tuple("-" if value is None else value for value in row) for row in rows]
    shown = [
        (*row[:5], warn(row[5]) if row[5] not in (0, "-") else row[5], *row[6:]) for row in dashed
    ]
    print_table(headings, shown, nothing="no offsets")
    if rows and sys.stdout.isatty():
        print(_total(rows))


class _Position(NamedTuple):
    """A group in a partition; None is unknown."""

    at: int | None
    end: int | None
    reader: "GroupMember | None"

    @property
    def lag(self) -> int | None:
        return None if self.at is None or self.end is None else max(self.end - self.at, 0)


async def _positions(
    admin: "Admin", group: "GroupDescription"
) -> "dict[TopicPartition, _Position]":
    from odradek.client import LATEST
    from odradek.errors import ApiError

    readers = {
        tp: member for member in group.members for tp in assigned_partitions(member.assignment)
    }
    found = (await admin.list_group_offsets([group.group_id]))[group.group_id]
    if isinstance(found, ApiError):
        raise found
    partitions = sorted({*found, *readers})
    ends = await admin.list_offsets(dict.fromkeys(partitions, LATEST)) if partitions else {}
    return {
        tp: _Position(
            found[tp].offset if tp in found else None,
            None if isinstance(end := ends[tp], ApiError) else end.offset,
            readers.get(tp),
        )
        for tp in partitions
    }


def _total(rows: Sequence[tuple[Any, ...]]) -> str:
    from odradek.cli.inspection.times import duration_text

    lags = [row[5] for row in rows if row[5] is not None]
    behind = sum(1 for lag in lags if lag)
    if not behind:
        return "total lag: none"
    text = f"total lag: {counted(sum(lags), 'message')} in {counted(behind, 'partition')}"
    seconds = [row[-1] for row in rows if row[-1]]
    return f"{text}, the oldest waits for {duration_text(max(seconds))}" if seconds else text


def _marked(state: str) -> Marked | str:
    if state == "Stable":
        return good(state)
    return warn(state) if state in ("Empty", "Dead") else state


def _show(headings: tuple[str, ...], rows: Sequence[tuple[object, ...]], *, is_json: bool) -> None:
    if is_json:
        names = [heading.lower().lstrip("#").replace("-", "_") for heading in headings]
        print_json([dict(zip(names, row, strict=True)) for row in rows])
    else:
        print_table(headings, rows)


async def _reset(admin: "Admin", arguments: argparse.Namespace) -> int:
    from odradek.client.consumer import OffsetAndMetadata
    from odradek.errors import ApiError, ErrorCode

    described = await admin.describe_groups([arguments.group])
    group = described[arguments.group]
    if isinstance(group, ApiError):
        # A group that does not exist yet may be given offsets of named topics.
        if group.code is not ErrorCode.GROUP_ID_NOT_FOUND or not arguments.topic:
            raise group
    elif group.members:
        raise CommandError(
            f"group {arguments.group!r} has {counted(len(group.members), 'active member')}: "
            f"{_readers_text(group)}; stop them first: their next commit would overwrite the change"
        )
    moves = await move_offsets(admin, arguments)
    if arguments.execute:
        await admin.alter_group_offsets(
            arguments.group, {move.tp: OffsetAndMetadata(move.after) for move in moves}
        )
    rows: list[tuple[object, ...]] = [
        (arguments.group, move.tp.topic, move.tp.partition, move.before, move.after)
        for move in moves
    ]
    _show(
        ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "NEW-OFFSET"),
        rows,
        is_json=arguments.json,
    )
    if not arguments.execute:
        print_error("groups reset-offsets", "nothing was changed; --execute does it")
    return 0


def _readers_text(group: "GroupDescription") -> str:
    """The first members, with their host and what they read."""
    texts = [
        f"{one.client_id} on {one.client_host} reads "
        f"{_partitions_text(assigned_partitions(one.assignment)) or 'nothing'}"
        for one in group.members[:_SHOWN_MEMBERS]
    ]
    more = len(group.members) - len(texts)
    return ", ".join([*texts, f"and {more} more"] if more else texts)


async def _remove_members(admin: "Admin", arguments: argparse.Namespace) -> int:
    results = await admin.remove_group_members(arguments.group, arguments.instance)
    removed = [name for name, error in results.items() if error is None]
    if arguments.json:
        print_json(removed)
    elif not results:
        print(f"group {arguments.group} has no members")
    else:
        for name in removed:
            print(f"removed {name}")
    return report_errors(
        "groups remove-members", [error for error in results.values() if error is not None]
    )


async def _delete(admin: "Admin", arguments: argparse.Namespace) -> int:
    results = await admin.delete_groups(arguments.groups)
    _report_done(results, is_json=arguments.json)
    return report_errors(
        "groups delete", [error for error in results.values() if error is not None]
    )


async def _delete_offsets(admin: "Admin", arguments: argparse.Namespace) -> int:
    partitions = await parse_places(admin, arguments.topic)
    results = await admin.delete_group_offsets(arguments.group, partitions)
    _report_done({str(tp): error for tp, error in results.items()}, is_json=arguments.json)
    return report_errors(
        "groups delete-offsets", [error for error in results.values() if error is not None]
    )


def _report_done(results: "dict[str, ApiError | None]", *, is_json: bool) -> None:
    done = [name for name, error in results.items() if error is None]
    if is_json:
        print_json(done)
    else:
        print_table(("DELETED",), [(name,) for name in done])


def assigned_partitions(assignment: bytes) -> "tuple[TopicPartition, ...]":
    """The partitions of a member; none if its assignment is not of the consumer protocol."""
    from odradek.client.assignors import parse_assignment
    from odradek.errors import DecodeError

    try:
        return parse_assignment(assignment)
    except DecodeError:
        return ()


def _partitions_text(partitions: "Iterable[TopicPartition]") -> str:
    by_topic: dict[str, list[int]] = {}
    for tp in sorted(partitions):
        by_topic.setdefault(tp.topic, []).append(tp.partition)
    return ", ".join(
        f"{topic}({','.join(map(str, numbers))})" for topic, numbers in by_topic.items()
    )
