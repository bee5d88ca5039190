"""Common parts of all commands that use a cluster: options, settings, errors as one line.

The client is imported when a command runs, so that `--help` does not wait for it.
"""

import argparse
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from odradek.cli.output import print_error

if TYPE_CHECKING:
    from odradek.client import Deadline, TopicView
    from odradek.client.admin.admin import Admin
    from odradek.client.consumer.consumer import Consumer
    from odradek.client.producer import Producer
    from odradek.errors import ApiError

__all__ = [
    "NEW_TOPIC_MS",
    "CommandError",
    "add_connection_arguments",
    "add_json_argument",
    "client_settings",
    "explain",
    "find_topic",
    "is_there",
    "parse_pairs",
    "reach",
    "report_errors",
    "run_command",
    "run_with_admin",
]

T = TypeVar("T")

_DEFAULT_BOOTSTRAP = "localhost:9092"
# How long brokers may take to learn of a topic that was just created.
NEW_TOPIC_MS = 3_000
_NEW_TOPIC_PAUSE_MS = 100
_MAX_CONNECT_MS = 10_000

# Settings that options set: an error names the option, which is what the user typed.
_OPTIONS = {"bootstrap.servers": "--bootstrap-server", "ssl.truststore.location": "--tls-ca"}

# What to do about an error, by its name.
_ADVICE = {
    "TOPIC_ALREADY_EXISTS": "--if-not-exists accepts that",
    "UNKNOWN_TOPIC_OR_PARTITION": "`odradek topics list` shows all topics",
    "INVALID_REPLICATION_FACTOR": "lower --replication-factor or start more brokers",
    "MESSAGE_TOO_LARGE": "raise max.message.bytes of the topic (`odradek configs alter`)",
    "OFFSET_OUT_OF_RANGE": "`odradek consume TOPIC --partition N --offset -1 --json` shows the end",
    "NOT_ENOUGH_REPLICAS": "bring brokers back or lower min.insync.replicas",
    "UNSUPPORTED_VERSION": "`odradek api-versions` shows what the brokers serve",
    "GROUP_ID_NOT_FOUND": "`odradek groups list` shows all groups",
    "NON_EMPTY_GROUP": "stop its members first",
    "GROUP_SUBSCRIBED_TO_TOPIC": "stop the members that read it first",
    "TRANSACTIONAL_ID_NOT_FOUND": "`odradek transactions list` shows all transactional ids",
    "TOPIC_DELETION_DISABLED": "set delete.topic.enable=true on the brokers",
}


class CommandError(Exception):
    """A failure that is printed as one line."""


def add_connection_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares how to reach the cluster."""
    group = parser.add_argument_group("connection")
    group.add_argument(
        "--bootstrap-server",
        default=_DEFAULT_BOOTSTRAP,
        metavar="HOST:PORT,…",
        help="brokers to connect to first; they name the others (default: %(default)s)",
    )
    group.add_argument(
        "--request-timeout",
        type=_seconds,
        default=30.0,
        metavar="SECONDS",
        help="how long to keep trying (default: 30)",
    )
    group.add_argument("--tls", action="store_true", help="connect with TLS")
    group.add_argument(
        "--tls-ca", metavar="FILE", help="certificates to trust, as PEM; implies --tls"
    )


def add_json_argument(parser: argparse.ArgumentParser) -> None:
    """Declares `--json`."""
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")


def run_command(command: str, work: Callable[[], Awaitable[int]]) -> int:
    """Runs a command; turns errors into one line and exit code 1."""
    import asyncio

    from odradek.errors import ApiError, ConfigError

    async def do() -> int:
        return await work()

    try:
        return asyncio.run(do())
    except ConfigError as error:
        print_error(command, f"{_OPTIONS.get(error.key, error.key)} {error.value}: {error.why}")
    except ApiError as error:
        print_error(command, explain(error))
    except CommandError as error:
        print_error(command, str(error))
    return 1


def run_with_admin(
    command: str,
    arguments: argparse.Namespace,
    work: "Callable[[Admin], Awaitable[int]]",
) -> int:
    """Runs a command with an admin client; turns errors into one line and exit code 1."""

    async def administrate() -> int:
        from odradek.client.admin.admin import Admin

        async with Admin(client_settings(arguments)) as admin:
            await reach(admin, arguments)
            return await work(admin)

    return run_command(command, administrate)


def client_settings(arguments: argparse.Namespace) -> dict[str, object]:
    """The settings that the connection options give, by Kafka's names."""
    timeout_ms = max(int(arguments.request_timeout * 1000), 1)
    settings: dict[str, object] = {
        "bootstrap.servers": arguments.bootstrap_server,
        "client.id": "odradek-cli",
        "request.timeout.ms": timeout_ms,
        "default.api.timeout.ms": timeout_ms,
        "socket.connection.setup.timeout.ms": min(timeout_ms, _MAX_CONNECT_MS),
    }
    if arguments.tls or arguments.tls_ca:
        settings["security.protocol"] = "SSL"
    if arguments.tls_ca:
        settings["ssl.truststore.location"] = arguments.tls_ca
    return settings


async def reach(client: "Admin | Consumer | Producer", arguments: argparse.Namespace) -> None:
    """Connects to a broker before anything else, so that a mistyped address fails at once.

    Raises:
        CommandError: No broker answers.
    """
    from odradek.errors import ApiError

    try:
        await client.connect()
    except ApiError as error:
        raise CommandError(
            f"no broker answers at {arguments.bootstrap_server}: {error}; start one "
            "with `odradek serve`, or name another with --bootstrap-server"
        ) from error


def explain(error: "ApiError") -> str:
    """The text of an error, with its name if it lacks that, and with advice."""
    name = error.code.name
    text = str(error)
    if name not in text:
        text = f"{text} ({name})"
    advice = _ADVICE.get(name)
    return f"{text}; {advice}" if advice else text


def report_errors(command: str, errors: "Iterable[ApiError]") -> int:
    """Prints a line for each error; returns the exit code of the command."""
    code = 0
    for error in errors:
        print_error(command, explain(error))
        code = 1
    return code


async def find_topic(admin: "Admin", name: str) -> "TopicView":
    """Describes a topic; retries a missing one shortly, since brokers learn of new topics late.

    Raises:
        CommandError: It does not exist; the message gives advice.
        ApiError: The cluster refuses for another reason.
    """
    from odradek.client import Deadline
    from odradek.clock import SystemClock

    return await is_there(name, _described(admin, name, Deadline(SystemClock(), NEW_TOPIC_MS)))


async def _described(admin: "Admin", name: str, until: "Deadline") -> "TopicView":
    import asyncio

    from odradek.errors import ApiError

    while isinstance(topic := (await admin.describe_topics([name]))[name], ApiError):
        if not topic.code.retriable or not until.left_ms():
            raise topic
        await asyncio.sleep(_NEW_TOPIC_PAUSE_MS / 1000)
    return topic


async def is_there(name: str, answer: Awaitable[T]) -> T:
    """Awaits an answer about a topic; an unknown topic becomes an error with advice.

    Raises:
        CommandError: There is no such topic.
    """
    from odradek.errors import ApiError, ErrorCode

    try:
        return await answer
    except ApiError as error:
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise CommandError(
                f"topic {name!r} does not exist; create it with `odradek topics create {name}`"
            ) from error
        raise


def parse_pairs(option: str, pairs: Iterable[str]) -> dict[str, str]:
    """Reads `key=value` arguments.

    Raises:
        CommandError: One has no `=`, or no key.
    """
    parsed = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not (key and equals):
            raise CommandError(f"{option} {pair}: expected KEY=VALUE")
        parsed[key] = value
    return parsed


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < 10**6:
        raise argparse.ArgumentTypeError(f"{text} is not a time in seconds")
    return seconds
