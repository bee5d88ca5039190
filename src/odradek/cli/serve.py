"""`odradek serve`: runs a broker until a signal stops it."""

import argparse
import os
import signal
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from odradek.cli.connecting import CommandError, parse_pairs
from odradek.cli.output import print_error

if TYPE_CHECKING:
    from odradek.broker.config import BrokerSettings

__all__ = ["add_arguments", "run"]

_DESCRIPTION = """\
Runs one broker, which is the only one of its cluster unless it is set to use ZooKeeper, and prints
a line when it serves clients. Ctrl-C, SIGTERM and SIGHUP stop it gracefully; a second one at once.

Settings have Kafka's names. Sources from weak to strong: defaults, the file, variables such as
ODRADEK_LOG_RETENTION_MS, the command line.
"""

# Of a broker that is started without a file, to be tried: a first consumer need not wait for others
# that may join its group. The default of Kafka, 3 s, counts with a file.
_WITHOUT_FILE: Final = MappingProxyType({"group.initial.rebalance.delay.ms": "0"})

_STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_EXAMPLES = """\
examples:
  odradek serve --data /var/lib/odradek
  odradek serve --listen 127.0.0.1:0                       # any free port; the line names it
  odradek serve --config server.properties --set num.partitions=6
  odradek serve --config server.properties --check         # what becomes of each key
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
        "--check",
        action="store_true",
        help="start nothing: show for each key that is set whether it is used, ignored or refused,"
        " and why; exit code 1 if the broker would not start",
    )
    parser.add_argument("--json", action="store_true", help="of --check: print JSON")
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
    """Runs the broker; returns 0 when told to stop, 130 by Ctrl-C, 1 if it could not start."""
    if arguments.check:
        return _check(arguments)
    if arguments.json:
        print_error("serve", "--json belongs to --check; the log is JSON with --log-format json")
        return 2
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
        settings = load_broker_settings(
            arguments.config,
            _overrides(arguments),
            os.environ,
            instead_of_file=_WITHOUT_FILE,
        )
        set_up_logging(arguments.log_level, arguments.log_format)
        if arguments.log_level == "info":
            # It repeats, for every change of the metadata, the line of the controller.
            logging.getLogger("state.change.logger").setLevel(logging.WARNING)
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


def _check(arguments: argparse.Namespace) -> int:
    from odradek.cli.serving.check import print_check
    from odradek.errors import ConfigError

    try:
        return print_check(
            arguments.config, _overrides(arguments), os.environ, as_json=arguments.json
        )
    except (CommandError, ConfigError) as error:
        print_error("serve", str(error))
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
    import logging

    from odradek.broker.broker import Broker
    from odradek.cli.serving.service_manager import ServiceManager
    from odradek.garbage import PacedCollector
    from odradek.network.loop_turns import turns_of
    from odradek.tasks import OwnedTasks

    logger = logging.getLogger("odradek.serve")
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None, "a coroutine runs in a task"
    told: asyncio.Future[signal.Signals] = loop.create_future()
    is_starting = True
    manager = ServiceManager(os.environ)

    def on_signal(number: signal.Signals) -> None:
        for one in _STOP_SIGNALS:
            loop.remove_signal_handler(one)  # The next one ends the process.
        manager.tell("STOPPING=1")
        logger.info("stopping: %s", number.name)
        told.set_result(number)
        if is_starting:
            task.cancel()

    for number in _STOP_SIGNALS:
        # Ignored in what `nohup` starts.
        if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, on_signal, number)
    _log_start(settings)
    manager.show_life(loop)
    broker = Broker(settings)
    try:
        await broker.start()
    except asyncio.CancelledError:
        if not told.done():
            raise
        logger.info("stopped before it had started")
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
                manager.tell(f"READY=1\nSTATUS=broker {broker.broker_id} serves {addresses}")
                await asyncio.wait((told, broker.failed), return_when=asyncio.FIRST_COMPLETED)
    finally:
        manager.tell("STOPPING=1")
        await broker.stop()
        manager.close()
    if broker.failed.done():
        raise CommandError(f"broker {broker.broker_id} cannot continue: {broker.failed.result()}")
    logger.info("broker %d stopped", broker.broker_id)
    return _exit_code(told.result())


def _log_start(settings: "BrokerSettings") -> None:
    import logging
    import platform

    from odradek import __version__
    from odradek.builds import name_build

    logging.getLogger("odradek.serve").info(
        "odradek %s (%s) on Python %s, process %d, data in %s",
        __version__, name_build(), platform.python_version(), os.getpid(),
        ", ".join(settings.log.log_dirs),
    )  # fmt: skip
    for warning in settings.warnings:
        logging.getLogger("odradek.config").warning("%s", warning)


def _exit_code(number: signal.Signals) -> int:
    """130 for Ctrl-C, as shells expect; 0 for the others, a service stopped as intended."""
    return 130 if number is signal.SIGINT else 0


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
