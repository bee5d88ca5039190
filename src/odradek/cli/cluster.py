"""`odradek cluster`: runs several brokers on this machine as one cluster until a signal stops it.

`odradek cluster describe` is in `odradek.cli.inspection.cluster`.

Without ZooKeeper the brokers share one process and an embedded store: a cluster for a look, on one
core. With it, each broker is an `odradek serve` of its own, so that one can be killed alone.
"""

import argparse
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from odradek.cli.connecting import CommandError, parse_pairs
from odradek.cli.inspection.cluster import add_describe, run_describe
from odradek.cli.output import print_error

if TYPE_CHECKING:
    import asyncio
    from asyncio.subprocess import Process

__all__ = ["add_arguments", "run"]

_DESCRIPTION = """\
Runs several brokers on this machine as one cluster, and prints a line when all of them serve
clients. Ctrl-C or SIGTERM stop them gracefully, one after another.

Without --zookeeper they run in this process, with an embedded store. With it, each broker is a
process of its own, whose id the lines name: kill one, and see the others take over. On several
hosts run `odradek serve --config FILE` on each instead.

`odradek cluster describe` runs nothing: it shows a cluster that runs.
"""

_EXAMPLES = """\
examples:
  odradek cluster
  odradek cluster --brokers 5 --base-port 9192 --data /tmp/five
  odradek cluster --zookeeper 127.0.0.1:2181/odradek
  odradek cluster describe
"""

# Of a broker process that does not end when it is told to: then it is killed.
_STOP_TIMEOUT_S: Final = 60.0
_READY: Final = " ready on "


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.description = _DESCRIPTION
    parser.epilog = _EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.usage = f"{parser.prog} [option …]\n       {parser.prog} describe [option …]"
    actions = parser.add_subparsers(dest="action", metavar="ACTION", prog=parser.prog)
    describe = actions.add_parser(
        "describe",
        help="show a cluster that runs",
        examples=("odradek cluster describe", "odradek cluster describe --json"),
    )
    add_describe(describe)
    parser.add_argument(
        "--brokers", type=_count, default=3, metavar="N", help="how many (default: 3)"
    )
    parser.add_argument(
        "--zookeeper",
        metavar="HOST:PORT,…/CHROOT",
        help="ZooKeeper servers that hold the metadata (default: an embedded store)",
    )
    parser.add_argument(
        "--data",
        default="odradek-cluster",
        metavar="DIR",
        help="where data is kept, a directory for each broker (default: %(default)s)",
    )
    parser.add_argument(
        "--base-port",
        type=_port,
        default=9092,
        metavar="PORT",
        help="of broker 0 on 127.0.0.1; the others count up; 0: any free ports (default: 9092)",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="any setting, of all brokers; may be repeated",
    )
    parser.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default="warning",
        help="default: warning",
    )


def run(arguments: argparse.Namespace) -> int:
    """Runs the brokers; returns 0 after SIGTERM, 130 after Ctrl-C, 1 if one could not start."""
    if arguments.action == "describe":
        return run_describe(arguments)
    import asyncio

    from odradek.cli.logging_setup import set_up_logging
    from odradek.errors import OdradekError
    from odradek.network.loop_turns import MeasuredLoop

    try:
        settings = cluster_settings(arguments.brokers, parse_pairs("--set", arguments.set))
        _check_ports(arguments)
        set_up_logging(arguments.log_level, "text")
        serve = _serve_here if arguments.zookeeper is None else _serve_processes
        with asyncio.Runner(loop_factory=MeasuredLoop) as runner:
            return runner.run(serve(arguments, settings))
    except (CommandError, OdradekError) as error:
        print_error("cluster", str(error))
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print_error("cluster", f"{where}{error.strerror or error}")
    return 1


def cluster_settings(broker_count: int, overrides: Mapping[str, str]) -> dict[str, str]:
    """The settings of every broker: topics have three replicas, as far as there are brokers.

    Raises:
        CommandError: An override sets what the command sets for each broker.
    """
    for key in ("broker.id", "node.id", "listeners", "log.dirs", "log.dir", "zookeeper.connect"):
        if key in overrides:
            raise CommandError(
                f"--set {key}: each broker has its own; use --brokers, --base-port, --data and "
                "--zookeeper"
            )
    factor = min(3, broker_count)
    return {
        "default.replication.factor": str(factor),
        "offsets.topic.replication.factor": str(factor),
        "transaction.state.log.replication.factor": str(factor),
        "min.insync.replicas": str(max(1, factor - 1)),
        **overrides,
    }


def _check_ports(arguments: argparse.Namespace) -> None:
    last = arguments.base_port + arguments.brokers - 1
    if arguments.base_port and last > 65_535:
        raise CommandError(
            f"--base-port {arguments.base_port}: broker {arguments.brokers - 1} would listen on "
            f"{last}, expected 65535 at most"
        )


def _listener(arguments: argparse.Namespace, broker_id: int) -> str:
    port = arguments.base_port + broker_id if arguments.base_port else 0
    return f"127.0.0.1:{port}"


def _directory(arguments: argparse.Namespace, broker_id: int) -> str:
    return os.path.join(arguments.data, f"broker-{broker_id}")


def _on_signals(loop: "asyncio.AbstractEventLoop") -> "asyncio.Future[signal.Signals]":
    """The first signal to stop; a second one ends the process."""
    told: asyncio.Future[signal.Signals] = loop.create_future()

    def on_signal(number: signal.Signals) -> None:
        for one in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(one)
        told.set_result(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal, number)
    return told


def _exit_code(number: signal.Signals) -> int:
    return 130 if number is signal.SIGINT else 0


# In this process


async def _serve_here(arguments: argparse.Namespace, settings: Mapping[str, str]) -> int:
    import asyncio

    from odradek.garbage import PacedCollector
    from odradek.network.loop_turns import turns_of
    from odradek.tasks import OwnedTasks
    from odradek.testing.cluster import AsyncEmbeddedCluster

    turns = turns_of(asyncio.get_running_loop())
    collector = PacedCollector(lambda: turns.buckets.total_ns, turns.note)
    told = _on_signals(asyncio.get_running_loop())
    cluster = AsyncEmbeddedCluster(
        arguments.brokers,
        settings,
        data_dir=arguments.data,
        settings_of=lambda broker_id: {
            "listeners": f"PLAINTEXT://{_listener(arguments, broker_id)}"
        },
    )
    async with cluster:
        with collector.paced():
            async with OwnedTasks() as tasks:
                tasks.spawn(collector.run())
                _print_ready(cluster.bootstrap_servers.split(","))
                return _exit_code(await told)


def _print_ready(addresses: Sequence[str]) -> None:
    noun = "broker" if len(addresses) == 1 else "brokers"
    print(f"odradek: {len(addresses)} {noun} ready on {','.join(addresses)}", flush=True)


# As processes


async def _serve_processes(arguments: argparse.Namespace, settings: Mapping[str, str]) -> int:
    import asyncio

    from odradek.tasks import TaskSet

    told = _on_signals(asyncio.get_running_loop())
    brokers: dict[int, Process] = {}
    tasks = TaskSet()
    try:
        addresses: list[str] = []
        for broker_id in range(arguments.brokers):
            brokers[broker_id] = await _start(arguments, broker_id, settings)
            starting = tasks.start(_ready(brokers[broker_id], broker_id))
            await asyncio.wait((told, starting), return_when=asyncio.FIRST_COMPLETED)
            if not starting.done():
                return _exit_code(told.result())
            addresses.append(starting.result())
        _print_ready(addresses)
        ends = {tasks.start(each.wait()): broker_id for broker_id, each in brokers.items()}
        await _watch(ends, told)
        return _exit_code(told.result()) if told.done() else 1
    finally:
        await tasks.stop()
        # One after another, so that each can hand its partitions over to the rest.
        for broker_id in reversed(brokers):
            await _stop(brokers[broker_id])


async def _start(
    arguments: argparse.Namespace, broker_id: int, settings: Mapping[str, str]
) -> "Process":
    import asyncio
    from subprocess import PIPE

    own = {
        "broker.id": str(broker_id),
        "zookeeper.connect": arguments.zookeeper,
        **settings,
    }
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "odradek.cli.main",
        "serve",
        "--data",
        _directory(arguments, broker_id),
        "--listen",
        _listener(arguments, broker_id),
        "--log-level",
        arguments.log_level,
        *(word for key, value in own.items() for word in ("--set", f"{key}={value}")),
        stdout=PIPE,
        # Ctrl-C reaches the whole group of the terminal; the brokers wait for this process.
        start_new_session=True,
    )


async def _ready(broker: "Process", broker_id: int) -> str:
    """Waits until a broker serves; returns its address.

    Raises:
        CommandError: It ended before.
    """
    assert broker.stdout is not None, "it is a pipe"
    line = (await broker.stdout.readline()).decode(errors="backslashreplace")
    if _READY not in line:
        code = await broker.wait()
        raise CommandError(f"broker {broker_id} did not start: it ended with code {code}")
    print(f"{line.rstrip()} (process {broker.pid})", flush=True)
    return line.rstrip().partition(_READY)[2]


async def _watch(
    ends: "dict[asyncio.Task[int], int]", told: "asyncio.Future[signal.Signals]"
) -> None:
    """Waits for a signal, or until the last broker has ended; names each one that ends."""
    import asyncio

    while ends and not told.done():
        waited: set[asyncio.Future[Any]] = {told, *ends}
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        for end in [each for each in ends if each.done()]:
            broker_id = ends.pop(end)
            print_error("cluster", f"broker {broker_id} ended with code {end.result()}")


async def _stop(broker: "Process") -> None:
    import asyncio

    if broker.returncode is None:
        broker.terminate()
        try:
            async with asyncio.timeout(_STOP_TIMEOUT_S):
                await broker.wait()
        except TimeoutError:
            broker.kill()
            await broker.wait()


def _count(text: str) -> int:
    return _number(text, 1, 100)


def _port(text: str) -> int:
    return _number(text, 0, 65_535)


def _number(text: str, least: int, most: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if not least <= value <= most:
        raise argparse.ArgumentTypeError(f"expected {least} to {most}, found {text!r}")
    return value
