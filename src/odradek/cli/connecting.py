"""Common parts of all commands that use a cluster: options, settings, errors as one line.

The client is imported when a command runs, so that `--help` does not wait for it.
"""

import argparse
import importlib
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

from odradek.cli.output import CommandError, print_error

if TYPE_CHECKING:
    from odradek.cli.connection.choice import Choice
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

# How long brokers may take to learn of a topic that was just created.
NEW_TOPIC_MS = 3_000
_NEW_TOPIC_PAUSE_MS = 100
_MAX_CONNECT_MS = 10_000

# Settings that options of some commands set; `-X` must not overrule them in silence.
_OPTIONS = {
    "acks": "--acks",
    "auto.offset.reset": "--from-beginning",
    "compression.type": "--compression",
    "group.id": "--group",
    "isolation.level": "--isolation-level",
}
# Module and class of the settings of a client, besides those of all clients.
_KINDS = {
    "consumer": ("odradek.client.consumer.config", "ConsumerConfig"),
    "producer": ("odradek.client.producer.config", "ProducerConfig"),
}

# What to do about an error, by its name.
_ADVICE = {
    "TOPIC_ALREADY_EXISTS": "--if-not-exists accepts that",
    "UNKNOWN_TOPIC_OR_PARTITION": "`odradek topics list` shows all topics",
    "INVALID_REPLICATION_FACTOR": "lower --replication-factor or start more brokers",
    "MESSAGE_TOO_LARGE": "raise max.message.bytes of the topic (`odradek configs alter`)",
    "OFFSET_OUT_OF_RANGE": "`odradek offsets TOPIC` shows the first and the next one",
    "NOT_ENOUGH_REPLICAS": "bring brokers back or lower min.insync.replicas",
    "UNSUPPORTED_VERSION": "`odradek api-versions` shows what the brokers serve",
    "GROUP_ID_NOT_FOUND": "`odradek groups list` shows all groups",
    "NON_EMPTY_GROUP": "stop its members first",
    "GROUP_SUBSCRIBED_TO_TOPIC": "stop the members that read it first",
    "TRANSACTIONAL_ID_NOT_FOUND": "`odradek transactions list` shows all transactional ids",
    "TOPIC_DELETION_DISABLED": "set delete.topic.enable=true on the brokers",
}


def add_connection_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares how to reach the cluster."""
    group = parser.add_argument_group("connection")
    group.add_argument(
        "-b",
        "--bootstrap-server",
        metavar="HOST[:PORT],…",
        help="brokers to connect to first; they name the others (default: "
        "$ODRADEK_BOOTSTRAP_SERVERS, the current profile, or localhost:9092)",
    )
    group.add_argument(
        "--profile",
        metavar="NAME",
        help="a cluster of `odradek profile list` (default: $ODRADEK_PROFILE, or the current one)",
    )
    group.add_argument(
        "--command-config", metavar="FILE", help="a file with settings of Kafka's clients"
    )
    group.add_argument(
        "-X",
        dest="client_settings",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of Kafka's clients; may be repeated",
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
    group.add_argument(
        "--tls-cert",
        metavar="FILE",
        help="certificate to show the brokers, as PEM, with its key or with --tls-key",
    )
    group.add_argument("--tls-key", metavar="FILE", help="private key of --tls-cert, as PEM")


def add_json_argument(parser: argparse.ArgumentParser) -> None:
    """Declares `--json`."""
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")


def run_command(
    command: str,
    work: Callable[[], Awaitable[int]],
    arguments: argparse.Namespace | None = None,
) -> int:
    """Runs a command; turns errors into one line and exit code 1.

    Args:
        arguments: Those whose connection `work` uses: errors name the option or the file.
    """
    import asyncio

    from odradek.errors import ApiError, ConfigError

    async def do() -> int:
        return await work()

    try:
        return asyncio.run(do())
    except ConfigError as error:
        choice: Choice | None = getattr(arguments, "choice", None)
        text = str(error)
        if choice is not None:
            text = choice.complaint(error.key, error.value, error.why)
        print_error(command, text)
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

    return run_command(command, administrate, arguments)


def client_settings(
    arguments: argparse.Namespace,
    kind: str = "admin",
    own: Mapping[str, object] | None = None,
    *,
    beside: Iterable[str] = (),
) -> dict[str, object]:
    """The settings of a client, by Kafka's names; their origins are kept in `arguments.choice`.

    Args:
        arguments: With the connection options.
        kind: `admin`, `consumer` or `producer`: settings of other kinds in a file are left out.
        own: Settings of the command itself; `-X` overrules those that no option has.
        beside: Kinds of the other clients of the command, whose settings `-X` may name as well.

    Raises:
        CommandError: A setting is unknown, cannot be followed, or is not for this command.
    """
    from odradek.cli.connection.choice import choose

    arguments.choice = choice = choose(arguments, os.environ)
    names = _names_of(kind)
    used = names.union(*(_names_of(one) for one in beside))
    timeout_ms = max(int(arguments.request_timeout * 1000), 1)
    settings: dict[str, object] = {
        "client.id": "odradek-cli",
        "request.timeout.ms": timeout_ms,
        "default.api.timeout.ms": timeout_ms,
        "socket.connection.setup.timeout.ms": min(timeout_ms, _MAX_CONNECT_MS),
    }
    settings |= {key: one.value for key, one in choice.settings.items() if key in names}
    for key in choice.typed:
        if key not in used:
            raise CommandError(f"-X {key}: this command uses no setting of that name")
        if own is not None and key in own and key in _OPTIONS:
            raise CommandError(f"-X {key}: give {_OPTIONS[key]} instead")
    return settings | {key: value for key, value in (own or {}).items() if key not in choice.typed}


def _names_of(kind: str) -> frozenset[str]:
    from odradek.client.config import ClientConfig
    from odradek.config.declaration import keys_of

    classes: list[type] = [ClientConfig]
    if kind in _KINDS:
        module, name = _KINDS[kind]
        classes.append(getattr(importlib.import_module(module), name))
    return frozenset(key.name for one in classes for key in keys_of(one).values())


async def reach(client: "Admin | Consumer | Producer", arguments: argparse.Namespace) -> None:
    """Connects to a broker before anything else, so that a mistyped address fails at once.

    Raises:
        CommandError: No broker answers.
    """
    from odradek.errors import ApiError

    try:
        await client.connect()
    except ApiError as error:
        choice: Choice = arguments.choice
        raise CommandError(
            f"no broker answers at {choice.where()}: {error}; {_advice(choice, str(error))}"
        ) from error


def _advice(choice: "Choice", problem: str) -> str:
    """What to try if brokers do not answer."""
    if "no connection to" in problem:
        return "start one with `odradek serve`, or name another with --bootstrap-server"
    if "CERTIFICATE_VERIFY_FAILED" in problem:
        return "--tls-ca FILE names the certificates to trust"
    protocol = choice.settings.get("security.protocol")
    if protocol is None or protocol.value != "SSL":
        return "if that listener speaks TLS, give --tls, and --tls-ca FILE"
    if {"ssl.keystore.location", "ssl.keystore.key"}.isdisjoint(choice.settings):
        return "if brokers require a certificate, give --tls-cert FILE"
    return "do brokers speak TLS there, and trust the certificate of --tls-cert?"


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
