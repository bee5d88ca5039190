"""`odradek metrics`: prints the metrics of a running broker, once or at an interval."""

import argparse
import re
import time
from collections.abc import Iterator
from typing import NamedTuple

from odradek.cli.output import print_error, print_json, print_table

__all__ = ["Sample", "add_arguments", "parse_samples", "run"]

_DESCRIPTION = """\
Prints the metrics that a broker serves on its metrics port (odradek.metrics.port). Names are
patterns as in a shell: 'kafka_server_brokertopicmetrics_*'; without one, all are printed.
With --interval it repeats until Ctrl-C and also shows the growth of counters per second.
"""

_SAMPLE = re.compile(r"(?P<name>[A-Za-z_:][\w:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)(?: \d+)?")
_TIMEOUT_S = 10


class Sample(NamedTuple):
    """One line of the exposition: a series and its value."""

    name: str
    labels: str
    value: float

    @property
    def is_counter(self) -> bool:
        """Whether the value only grows, so that its growth is worth showing."""
        return self.name.endswith(("_total", "_count", "_sum"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.description = _DESCRIPTION
    parser.epilog = (
        "examples:\n"
        "  odradek metrics localhost:9404 'kafka_server_brokertopicmetrics_*'\n"
        "  odradek metrics localhost:9404 --interval 5 --count 3"
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("address", metavar="HOST:PORT", help="the metrics port of a broker")
    parser.add_argument("names", metavar="NAME", nargs="*", help="patterns of names to print")
    parser.add_argument(
        "--interval", type=_seconds, metavar="SECONDS", help="print again every SECONDS seconds"
    )
    parser.add_argument(
        "--count",
        type=_at_least_one,
        metavar="N",
        help="with --interval: stop after printing N times",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, a document each time")


def run(arguments: argparse.Namespace) -> int:
    """Reads and prints the metrics once, or at every interval."""
    import http.client

    if arguments.count is not None and arguments.interval is None:
        print_error("metrics", "--count needs --interval")
        return 2
    rounds = 1 if arguments.interval is None else arguments.count
    before: dict[tuple[str, str], float] | None = None
    done = 0
    while True:
        try:
            samples = [
                one for one in parse_samples(_get(arguments.address)) if _wanted(one, arguments)
            ]
        except (OSError, http.client.HTTPException, ValueError) as error:
            print_error("metrics", f"cannot read metrics from {arguments.address}: {error}")
            return 1
        if not samples:
            print_error("metrics", f"no metric of {arguments.address} matches {arguments.names}")
            return 1
        _print(samples, before, arguments)
        done += 1
        if done == rounds:
            return 0
        before = {(one.name, one.labels): one.value for one in samples}
        time.sleep(arguments.interval)


def parse_samples(text: str) -> Iterator[Sample]:
    """The samples of a Prometheus text exposition.

    Raises:
        ValueError: A line is neither a comment nor a sample.
    """
    for number, line in enumerate(text.splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        match = _SAMPLE.fullmatch(line)
        if match is None:
            raise ValueError(f"line {number} is not a metric: {line[:80]!r}")
        yield Sample(match["name"], match["labels"] or "", float(match["value"]))


def _get(address: str) -> str:
    import http.client

    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        raise ValueError(f"expected HOST:PORT, not {address!r}")
    connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=_TIMEOUT_S)
    try:
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        body = answer.read()
    finally:
        connection.close()
    if answer.status != 200:
        raise ValueError(f"expected status 200, not {answer.status}; is it a metrics port?")
    return body.decode("utf-8")


def _wanted(sample: Sample, arguments: argparse.Namespace) -> bool:
    from fnmatch import fnmatchcase

    names: list[str] = arguments.names
    return not names or any(fnmatchcase(sample.name, name) for name in names)


def _print(
    samples: list[Sample],
    before: dict[tuple[str, str], float] | None,
    arguments: argparse.Namespace,
) -> None:
    rates = [_rate(one, before, arguments.interval) for one in samples]
    if arguments.json:
        print_json(
            [
                {"name": one.name, "labels": one.labels, "value": one.value}
                | ({} if rate is None else {"per_second": rate})
                for one, rate in zip(samples, rates, strict=True)
            ]
        )
        return
    print_table(
        ("NAME", "LABELS", "VALUE", "PER SECOND"),
        [
            (one.name, one.labels, f"{one.value:g}", None if rate is None else f"{rate:g}")
            for one, rate in zip(samples, rates, strict=True)
        ],
    )


def _rate(
    sample: Sample, before: dict[tuple[str, str], float] | None, interval: float | None
) -> float | None:
    if before is None or interval is None or not sample.is_counter:
        return None
    past = before.get((sample.name, sample.labels))
    return None if past is None else (sample.value - past) / interval


def _seconds(text: str) -> float:
    value = float(text)
    if not value > 0:
        raise argparse.ArgumentTypeError(f"expected seconds above 0, not {text}")
    return value


def _at_least_one(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected a number from 1 on, not {text}")
    return value
