"""What all commands that talk to a cluster have in common: options, a client, errors as one line.

Nothing of the client is imported before a command runs: `--help` must not wait for it.
"""

import argparse
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

from odradek.cli.output import print_error

if TYPE_CHECKING:
    from odradek.client import Client, ClientOptions, TopicView
    from odradek.client.admin.admin import Admin
    from odradek.errors import ApiError

__all__ = [
    "CommandError",
    "add_connection_arguments",
    "add_json_argument",
    "client_settings",
    "explain",
    "find_topic",
    "parse_pairs",
    "report_errors",
    "run_with_admin",
    "run_with_client",
]

_DEFAULT_BOOTSTRAP = "localhost:9092"

# What to do about an error, by its name.
_ADVICE = {
    "TOPIC_ALREADY_EXISTS": "--if-not-exists accepts that",
    "UNKNOWN_TOPIC_OR_PARTITION": "`odradek topics list` shows what there is",
    "INVALID_REPLICATION_FACTOR": "lower --replication-factor or start more brokers",
    "MESSAGE_TOO_LARGE": "raise max.message.bytes of the topic (`odradek configs alter`)",
    "OFFSET_OUT_OF_RANGE": "`odradek consume TOPIC --partition N --offset -1 --json` shows the end",
    "NOT_ENOUGH_REPLICAS": "bring brokers back or lower min.insync.replicas",
    "UNSUPPORTED_VERSION": "`odradek api-versions` shows what the brokers serve",
    "GROUP_ID_NOT_FOUND": "`odradek groups list` shows what there is",
    "NON_EMPTY_GROUP": "stop its members first",
    "GROUP_SUBSCRIBED_TO_TOPIC": "stop the members that read it first",
    "TOPIC_DELETION_DISABLED": "set delete.topic.enable=true on the brokers",
}


class CommandError(Exception):
    """A failure that is told in one line."""


def add_connection_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares how to reach the cluster."""
    group = parser.add_argument_group("connection")
    group.add_argument(
        "--bootstrap-server",
        default=_DEFAULT_BOOTSTRAP,
        metavar="HOST:PORT,…",
        help="brokers to learn of the others from (default: %(default)s)",
    )
    group.add_argument(
        "--request-timeout",
        type=_seconds,
        default=30.0,
        metavar="SECONDS",
        help="how long to try before giving up (default: 30)",
    )
    group.add_argument("--tls", action="store_true", help="speak TLS")
    group.add_argument(
        "--tls-ca", metavar="FILE", help="certificates to trust, as PEM; implies --tls"
    )


def add_json_argument(parser: argparse.ArgumentParser) -> None:
    """Declares `--json`."""
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")


def run_with_client(
    command: str,
    arguments: argparse.Namespace,
    work: "Callable[[Client], Awaitable[int]]",
) -> int:
    """Connects, does the work, turns errors into one line and exit code 1."""
    import asyncio

    from odradek.client import Client
    from odradek.errors import ApiError, ConfigError

    async def connect_and_work() -> int:
        client = Client(_options(arguments))
        try:
            await client.__aenter__()
        except ApiError as error:
            raise CommandError(
                f"no broker answers at {arguments.bootstrap_server}: {error}; start one "
                "with `odradek serve`, or name another with --bootstrap-server"
            ) from error
        async with client:
            return await work(client)

    try:
        return asyncio.run(connect_and_work())
    except ConfigError as error:
        option = error.key.replace("bootstrap.servers", "--bootstrap-server")
        print_error(command, f"{option} {error.value}: {error.why}")
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
    """The same for commands that only administrate."""

    async def administrate(client: "Client") -> int:
        from odradek.client.admin.admin import Admin

        return await work(Admin.over(client))

    return run_with_client(command, arguments, administrate)


def explain(error: "ApiError") -> str:
    """An error with its name, if it does not tell it, and what to do about it."""
    name = error.code.name
    text = str(error)
    if name not in text:
        text = f"{text} ({name})"
    advice = _ADVICE.get(name)
    return f"{text}; {advice}" if advice else text


def report_errors(command: str, errors: "Iterable[ApiError]") -> int:
    """Prints a line for each; the exit code of the command."""
    code = 0
    for error in errors:
        print_error(command, explain(error))
        code = 1
    return code


def client_settings(client: "Client") -> dict[str, object]:
    """Settings under Kafka's names for another client of the same cluster."""
    options = client.options
    return {
        "bootstrap.servers": [
            f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            for host, port in options.bootstrap
        ],
        "client.id": options.client_id,
        "request.timeout.ms": options.request_timeout_ms,
        "default.api.timeout.ms": options.api_timeout_ms,
        "security.protocol": "PLAINTEXT" if options.tls is None else "SSL",
    }


async def find_topic(client: "Client", name: str, *, create: bool = False) -> "TopicView":
    """A topic, or an error that says what to do."""
    from odradek.errors import ApiError, ErrorCode

    try:
        return await client.topic(name, create=create)
    except ApiError as error:
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise CommandError(
                f"topic {name!r} does not exist; create it with `odradek topics create {name}`"
            ) from error
        raise


def parse_pairs(option: str, pairs: Iterable[str]) -> dict[str, str]:
    """Reads `key=value` arguments.

    Raises:
        CommandError: one has no `=`, or no key.
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


def _options(arguments: argparse.Namespace) -> "ClientOptions":
    from odradek.client import ClientOptions, parse_addresses

    timeout_ms = max(int(arguments.request_timeout * 1000), 1)
    tls = None
    if arguments.tls or arguments.tls_ca:
        import ssl

        try:
            tls = ssl.create_default_context(cafile=arguments.tls_ca)
        except (OSError, ssl.SSLError) as error:
            raise CommandError(f"--tls-ca {arguments.tls_ca}: {error}") from error
    return ClientOptions(
        bootstrap=parse_addresses(arguments.bootstrap_server),
        client_id="odradek-cli",
        request_timeout_ms=timeout_ms,
        api_timeout_ms=timeout_ms,
        connect_timeout_ms=min(timeout_ms, 10_000),
        tls=tls,
    )
