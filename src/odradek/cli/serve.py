"""`odradek serve`: runs a broker until a signal stops it."""

import argparse
import os
import signal
from collections.abc import Mapping
from typing import TYPE_CHECKING

from odradek.cli.connecting import CommandError, parse_pairs
from odradek.cli.output import print_error

if TYPE_CHECKING:
    from odradek.broker.config import BrokerSettings

__all__ = ["add_arguments", "run"]

_DESCRIPTION = """\
Runs one broker, which is a cluster of its own, and prints a line when it serves clients. Ctrl-C or
SIGTERM stop it gracefully; a second one at once.

Settings have Kafka's names. Sources from weak to strong: defaults, the file, variables such as
ODRADEK_LOG_RETENTION_MS, the command line.
"""

_EXAMPLES = """\
examples:
  odradek serve --data /var/lib/odradek
  odradek serve --listen 127.0.0.1:0                       # any free port; the line names it
  odradek serve --config server.properties --set num.partitions=6
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.description = _DESCRIPTION
    parser.epilog = _EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--config", metavar="FILE", help="a server.properties file")
    parser.add_argument(
        "--data", metavar="DIR", help="where data is kept: log.dirs (default: odradek-data)"
    )
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help="where clients connect: listeners, in plain text; `:9092` listens on every interface "
        "(default: 127.0.0.1:9092)",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="any setting; may be repeated",
    )
    parser.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default="info",
        help="default: info",
    )
    parser.add_argument(
        "--log-format",
        choices=("text", "json"),
        default="text",
        help="of the log on standard error (default: text)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Runs the broker; returns 0 after SIGTERM, 130 after Ctrl-C, 1 if it could not start."""
    import asyncio
    import gc
    import logging

    # Nearly all objects made at the start stay; collecting garbage among them only takes time.
    gc.disable()
    from odradek.broker.config import load_broker_settings
    from odradek.cli.logging_setup import set_up_logging
    from odradek.errors import OdradekError
    from odradek.network.loop_turns import MeasuredLoop

    try:
        settings = load_broker_settings(arguments.config, _overrides(arguments), os.environ)
        set_up_logging(arguments.log_level, arguments.log_format)
        with asyncio.Runner(loop_factory=MeasuredLoop) as runner:
            return runner.run(_serve(settings))
    except BaseExceptionGroup as errors:
        logging.getLogger("odradek").critical("the broker failed", exc_info=errors)
        print_error("serve", f"the broker failed: {_first(errors)!r}; its log has the details")
    except (CommandError, OdradekError) as error:
        print_error("serve", str(error))
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print_error("serve", f"{where}{error.strerror or error}")
    finally:
        gc.enable()
    return 1


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first failure inside of nested groups."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _overrides(arguments: argparse.Namespace) -> Mapping[str, str]:
    overrides = parse_pairs("--set", arguments.set)
    for option, key, value in (
        ("--data", "log.dirs", arguments.data),
        ("--listen", "listeners", arguments.listen and f"PLAINTEXT://{arguments.listen}"),
    ):
        if value is None:
            continue
        if key in overrides:
            raise CommandError(f"{option} and --set {key}=… are the same; give one of them")
        overrides[key] = value
    return overrides


async def _serve(settings: "BrokerSettings") -> int:
    import asyncio

    from odradek.broker.broker import Broker
    from odradek.garbage import PacedCollector
    from odradek.network.loop_turns import turns_of
    from odradek.tasks import OwnedTasks

    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None, "a coroutine runs in a task"
    told: asyncio.Future[signal.Signals] = loop.create_future()
    is_starting = True

    def on_signal(number: signal.Signals) -> None:
        for one in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(one)  # The next one ends the process.
        told.set_result(number)
        if is_starting:
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal, number)
    _log_warnings(settings)
    broker = Broker(settings)
    try:
        await broker.start()
    except asyncio.CancelledError:
        if not told.done():
            raise
        return _exit_code(told.result())
    is_starting = False
    turns = turns_of(loop)
    collector = PacedCollector(lambda: turns.buckets.total_ns, turns.note)
    collector.register(broker.metrics)
    assert broker.failed is not None, "a started broker can fail"
    try:
        with collector.paced():
            async with OwnedTasks() as tasks:
                tasks.spawn(collector.run())
                addresses = ", ".join(_address(one.host, one.port) for one in broker.endpoints)
                print(f"odradek: broker {broker.broker_id} ready on {addresses}", flush=True)
                await asyncio.wait((told, broker.failed), return_when=asyncio.FIRST_COMPLETED)
    finally:
        await broker.stop()
    if broker.failed.done():
        raise CommandError(f"broker {broker.broker_id} cannot continue: {broker.failed.result()}")
    return _exit_code(told.result())


def _log_warnings(settings: "BrokerSettings") -> None:
    import logging

    for warning in settings.warnings:
        logging.getLogger("odradek.config").warning("%s", warning)


def _exit_code(number: signal.Signals) -> int:
    """130 for Ctrl-C, as shells expect; 0 for SIGTERM, a service stopped as intended."""
    return 130 if number is signal.SIGINT else 0


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
