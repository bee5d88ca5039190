"""Runs `odradek transactions`: shows transactions and producers, finds and ends those that hang."""

import argparse
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from odradek.cli.connecting import (
    CommandError,
    report_errors,
    run_with_admin,
)
from odradek.cli.group_offsets import parse_places
from odradek.cli.output import print_json, print_table
from odradek.cli.transactions.arguments import add_arguments

if TYPE_CHECKING:
    from odradek.client.admin import OpenTransaction
    from odradek.client.admin.admin import Admin

__all__ = ["add_arguments", "run"]

# The same, in the order of columns, for find-hanging and abort.
_OPEN_HEADINGS = (
    "TOPIC", "PARTITION", "PRODUCER-ID", "PRODUCER-EPOCH", "COORDINATOR-EPOCH", "START-OFFSET",
    "LAST-TIMESTAMP", "DURATION-MIN",
)  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Runs the action; returns 1 if anything failed."""
    work = {
        "list": _list,
        "describe": _describe,
        "producers": _producers,
        "find-hanging": _find_hanging,
        "abort": _abort,
    }[arguments.action]
    command = f"transactions {arguments.action}"
    return run_with_admin(command, arguments, lambda admin: work(admin, arguments))


async def _list(admin: "Admin", arguments: argparse.Namespace) -> int:
    listed = await admin.list_transactions(
        states=_states(arguments.state),
        producer_ids=arguments.producer_id,
        min_duration_ms=arguments.min_duration,
        id_pattern=arguments.pattern,
    )
    headings = ("TRANSACTIONAL-ID", "COORDINATOR", "PRODUCER-ID", "STATE")
    _show(headings, listed, is_json=arguments.json)
    return 0


def _states(texts: Iterable[str]) -> list[str]:
    """The states as brokers spell them.

    Raises:
        CommandError: There is no such state.
    """
    from odradek.client.admin import TRANSACTION_STATES

    spelled = {state.lower(): state for state in TRANSACTION_STATES}
    for text in texts:
        if text.lower() not in spelled:
            known = ", ".join(TRANSACTION_STATES)
            raise CommandError(f"--state {text}: expected one of {known}")
    return [spelled[text.lower()] for text in texts]


async def _describe(admin: "Admin", arguments: argparse.Namespace) -> int:
    from odradek.clock import SystemClock
    from odradek.errors import ApiError

    told = await admin.describe_transactions(arguments.ids)
    now_ms = SystemClock().now_ms()
    rows: list[tuple[Any, ...]] = []
    for one in told.values():
        if isinstance(one, ApiError):
            continue
        started = one.start_time_ms
        duration = None if started is None else max(now_ms - started, 0)
        if arguments.json:
            places: object = [
                {"topic": tp.topic, "partition": tp.partition} for tp in one.partitions
            ]
        else:
            places = ",".join(map(str, one.partitions))
        rows.append((*one[:-2], started, duration, places))
    headings = (
        "TRANSACTIONAL-ID", "COORDINATOR", "PRODUCER-ID", "PRODUCER-EPOCH", "STATE", "TIMEOUT-MS",
        "START-TIME-MS", "DURATION-MS", "PARTITIONS",
    )  # fmt: skip
    _show(headings, rows, is_json=arguments.json)
    failed = [one for one in told.values() if isinstance(one, ApiError)]
    return report_errors("transactions describe", failed)


async def _producers(admin: "Admin", arguments: argparse.Namespace) -> int:
    from odradek.errors import ApiError

    partitions = await parse_places(admin, arguments.places, option="")
    told = await admin.describe_producers(partitions, broker=arguments.broker)
    rows = [
        (*tp, *one[:-1], one.current_transaction_start_offset if one.is_in_transaction else None)
        for tp, producers in told.items()
        if not isinstance(producers, ApiError)
        for one in producers
        if one.is_in_transaction or not arguments.open
    ]
    headings = (
        "TOPIC", "PARTITION", "PRODUCER-ID", "PRODUCER-EPOCH", "LAST-SEQUENCE", "LAST-TIMESTAMP",
        "COORDINATOR-EPOCH", "TRANSACTION-START-OFFSET",
    )  # fmt: skip
    _show(headings, rows, is_json=arguments.json)
    failed = [one for one in told.values() if isinstance(one, ApiError)]
    return report_errors("transactions producers", failed)


async def _find_hanging(admin: "Admin", arguments: argparse.Namespace) -> int:
    from odradek.clock import SystemClock

    partitions = await parse_places(admin, arguments.places, option="")
    found = await admin.find_hanging_transactions(
        partitions=partitions,
        broker=arguments.broker,
        max_timeout_ms=arguments.max_transaction_timeout * 60_000,
    )
    now_ms = SystemClock().now_ms()
    rows = [
        (*one.partition, *one[1:], max(now_ms - one.last_timestamp_ms, 0) // 60_000)
        for one in found
    ]
    _show(_OPEN_HEADINGS, rows, is_json=arguments.json)
    return 0


async def _abort(admin: "Admin", arguments: argparse.Namespace) -> int:
    transaction = await _transaction(admin, arguments)
    error = (await admin.abort_transactions([transaction]))[transaction]
    if error is None:
        rows = [(*transaction.partition, *transaction[1:-1])]
        if arguments.json:
            _show(_OPEN_HEADINGS[:-2], rows, is_json=True)
        else:
            print(f"aborted in {transaction.partition}: producer {transaction.producer_id}")
    return report_errors("transactions abort", [error] if error is not None else [])


async def _transaction(admin: "Admin", arguments: argparse.Namespace) -> "OpenTransaction":
    """The transaction that the options name.

    Raises:
        ApiError: The leader cannot be asked.
        CommandError: No such transaction is open.
    """
    from odradek.client.admin import OpenTransaction
    from odradek.errors import ApiError

    where = f"{arguments.topic}:{arguments.partition}"
    (tp,) = await parse_places(admin, [where], option="")
    if arguments.start_offset is None:
        if arguments.producer_epoch is None or arguments.coordinator_epoch is None:
            raise CommandError("--producer-id needs --producer-epoch and --coordinator-epoch")
        return OpenTransaction(
            tp, arguments.producer_id, arguments.producer_epoch, arguments.coordinator_epoch, -1, -1
        )
    producers = (await admin.describe_producers([tp]))[tp]
    if isinstance(producers, ApiError):
        raise producers
    for one in OpenTransaction.among(tp, producers):
        if one.start_offset == arguments.start_offset:
            return one
    raise CommandError(
        f"no open transaction starts at offset {arguments.start_offset} of {tp}; "
        f"`odradek transactions producers {where} --open` shows all"
    )


def _show(headings: tuple[str, ...], rows: Sequence[tuple[Any, ...]], *, is_json: bool) -> None:
    if is_json:
        names = [heading.lower().replace("-", "_") for heading in headings]
        print_json([dict(zip(names, row, strict=True)) for row in rows])
    else:
        shown = [tuple("-" if value is None else value for value in row) for row in rows]
        print_table(headings, shown)
