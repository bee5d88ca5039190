"""`odradek consume --offset -N`: a look at the last messages of a partition (08 part C)."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from odradek.testing import EmbeddedBroker
from tests.support.commands import Commands

pytestmark = pytest.mark.slow

TEN = b"\n".join(b"%d" % number for number in range(10))


@pytest.fixture(scope="module")
def odradek() -> Iterator[Commands]:
    """A cluster with topics of one partition: `ten` has offsets 0-9, `cut` 8 and 9 of them."""
    with EmbeddedBroker({"num.partitions": "1"}) as broker:
        commands = Commands(broker.bootstrap_servers)
        for topic in ("ten", "cut", "growing"):
            commands.ok("produce", topic, stdin=TEN)
        commands.ok("delete-records", "cut", "--before", 8)
        commands.ok("topics", "create", "empty", "later")
        yield commands


@pytest.mark.parametrize(
    ("topic", "offset", "expected"),
    [
        pytest.param("ten", "-3", "789", id="08:T-1-last-three"),
        pytest.param("ten", "4", "456789", id="08:T-1-number"),
        pytest.param("ten", "earliest", "0123456789", id="08:T-1-earliest"),
        pytest.param("ten", "latest", "", id="08:T-1-latest"),
        pytest.param("ten", "-1", "9", id="08:T-2-is-not-latest"),
        pytest.param("ten", "-2", "89", id="08:T-2-is-not-earliest"),
        pytest.param("ten", "-50", "0123456789", id="more-than-there-are"),
        pytest.param("cut", "-3", "89", id="more-than-are-left"),
        pytest.param("empty", "-3", "", id="none"),
    ],
)
def test_where_it_begins(odradek: Commands, topic: str, offset: str, expected: str) -> None:
    words = ("consume", topic, "--partition", 0, "--offset", offset)
    # Messages are waited for however long they take; only silence has a time.
    limit = ("--max-messages", len(expected)) if expected else ("--timeout", 0.3)
    assert "".join(odradek.ok(*words, *limit).lines) == expected


def follow(odradek: Commands, *words: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "odradek.cli.main", "consume", *words]
    return subprocess.Popen(
        [*command, "--bootstrap-server", odradek.bootstrap], stdout=subprocess.PIPE, text=True
    )


def test_it_goes_on_with_new_messages(odradek: Commands) -> None:
    """08:T-5: until --max-messages; --timeout ends the others above."""
    words = ("growing", "--partition", "0", "--offset", "-2", "--max-messages", "4")
    with follow(odradek, *words) as consumer:
        assert consumer.stdout is not None
        assert [consumer.stdout.readline() for _ in range(2)] == ["8\n", "9\n"]
        odradek.ok("produce", "growing", stdin=b"new\nnewer\nnewest\n")
        assert consumer.communicate(timeout=120)[0] == "new\nnewer\n"
    assert consumer.returncode == 0


def test_an_empty_partition_is_waited_for(odradek: Commands) -> None:
    words = ("later", "--partition", "0", "--offset", "-3", "--max-messages", "1")
    with follow(odradek, *words) as consumer:
        odradek.ok("produce", "later", stdin=b"first\n")
        assert consumer.communicate(timeout=120)[0] == "first\n"
    assert consumer.returncode == 0


def test_the_break_with_the_past_is_documented(odradek: Commands) -> None:
    """08:T-2: where a user looks."""
    shown = " ".join(odradek("consume", "--help").out.split())
    assert "-1 is the last message, not the end" in shown
