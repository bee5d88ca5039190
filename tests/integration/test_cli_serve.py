"""`odradek serve` and Ctrl-C, as processes."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.testing import EmbeddedBroker
from tests.conformance.clients.raw import RawConnection
from tests.support.commands import Commands
from tests.support.network import make_certificate
from tests.support.run_held_broker import HELD

pytestmark = pytest.mark.slow

COMMAND = [sys.executable, "-m", "odradek.cli.main"]
READY = re.compile(r"odradek: broker (\d+) ready on (127\.0\.0\.1:\d+)\n")


@contextlib.contextmanager
def process(
    *words: object, module: str = "odradek.cli.main", **options: object
) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-m", module, *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,  # type: ignore[call-overload]  # passed through
    ) as running:
        try:
            yield running
        finally:
            if running.poll() is None:
                running.kill()


def wait_until_ready(broker: subprocess.Popen[str]) -> str:
    assert broker.stdout is not None
    line = broker.stdout.readline()
    match = READY.fullmatch(line)
    assert match is not None, (line, broker.stderr and broker.stderr.read())
    return match[2]


def end(running: subprocess.Popen[str], number: signal.Signals) -> tuple[int, str, str]:
    running.send_signal(number)
    out, err = running.communicate(timeout=120)
    return running.returncode, out, err


def serve(data: Path, *words: object) -> list[object]:
    return ["serve", "--data", data, "--listen", "127.0.0.1:0", *words]


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)], ids=["SIGTERM", "Ctrl-C"]
)
def test_serve_until_told_to_stop(tmp_path: Path, number: signal.Signals, code: int) -> None:
    with process(*serve(tmp_path / "data", "--set", "num.partitions=2")) as broker:
        odradek = Commands(wait_until_ready(broker))
        assert odradek.ok("topics", "create", "t").out == "created t with 2 partitions\n"
        got, out, err = end(broker, number)

    assert (got, out) == (code, "")
    assert "Traceback" not in err
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize(
    ("number", "code"),
    # Nothing of ours runs after the second SIGTERM.
    [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGINT, 130)],
    ids=["SIGTERM", "Ctrl-C"],
)
def test_a_second_signal_ends_a_stop_at_once(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    with process(*serve(tmp_path / "data")) as broker:
        address = wait_until_ready(broker)
        Commands(address).ok("topics", "create", "t")
        port = int(address.rpartition(":")[2])
        with RawConnection(port) as reader:
            # The stop waits for an answer that is under way.
            reader.send_request(ApiKey.FETCH, 11, 1, patient_fetch("t"))
            Commands(address).ok("topics", "list")  # Who came before was taken up before.
            broker.send_signal(number)
            wait_until_refused(port)
            got, out, err = end(broker, number)

    assert (got, out) == (code, "")
    assert "Traceback" not in err
    with process(*serve(tmp_path / "data")) as again:
        assert Commands(wait_until_ready(again)).ok("topics", "list").rows[0][0] == "t"
        assert end(again, signal.SIGTERM)[0] == 0


def patient_fetch(topic: str) -> FetchRequest:
    row = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
    wanted = FetchTopic(topic=topic, partitions=[row])
    return FetchRequest(max_wait_ms=600_000, min_bytes=1, topics=[wanted])


def wait_until_refused(port: int) -> None:
    """Until nobody is let in any more: the broker has begun to stop."""
    deadline = time.monotonic() + 120
    with contextlib.suppress(ConnectionRefusedError):
        while time.monotonic() < deadline:
            socket.create_connection(("127.0.0.1", port), timeout=60).close()
            time.sleep(0.01)
        raise AssertionError("the broker did not begin to stop")


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)], ids=["SIGTERM", "Ctrl-C"]
)
def test_a_signal_during_the_start(tmp_path: Path, number: signal.Signals, code: int) -> None:
    """It waits for the logs that are being loaded, and for nothing else."""
    module = "tests.support.run_held_broker"
    with process(*serve(tmp_path / "data"), module=module, stdin=subprocess.PIPE) as broker:
        assert broker.stdout is not None
        assert broker.stdout.readline() == HELD
        broker.send_signal(number)
        out, err = broker.communicate("\n", timeout=120)

    assert broker.returncode == code
    assert "Traceback" not in err
    # On a slow machine the signal may be seen when the logs are loaded.
    assert out == "" or READY.fullmatch(out)
    with process(*serve(tmp_path / "data")) as again:
        wait_until_ready(again)
        assert end(again, signal.SIGTERM)[0] == 0


def test_ctrl_c_while_settings_are_read(tmp_path: Path) -> None:
    pipe = tmp_path / "server.properties"
    os.mkfifo(pipe)
    with process(*serve(tmp_path / "data", "--config", pipe)) as broker, pipe.open("w"):
        assert end(broker, signal.SIGINT) == (130, "", "")


def test_settings_come_from_file_environment_and_command_line(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("broker.id=3\nnum.partitions=2\ndefault.replication.factor=1\nno.such.key=1\n")
    environment = {**os.environ, "ODRADEK_NUM_PARTITIONS": "4"}
    words = serve(tmp_path / "data", "--config", file, "--set", "log.retention.ms=12345")
    with process(*words, "--log-format", "json", env=environment) as broker:
        odradek = Commands(wait_until_ready(broker))
        odradek.ok("topics", "create", "t")
        (topic,) = odradek.ok("topics", "describe", "t", "--json").json
        rows = odradek.ok("configs", "describe", "broker", 3).rows
        code, _, err = end(broker, signal.SIGTERM)

    assert code == 0
    assert [one["leader"] for one in topic["partitions"]] == [3, 3, 3, 3]
    assert ["log.retention.ms", "12345", "static broker"] in rows
    assert '"level": "warning"' in err
    assert "no.such.key" in err


def test_lines_for_programs_have_fields(tmp_path: Path) -> None:
    """What a line is about need not be read out of its text."""
    with process(*serve(tmp_path / "data", "--log-format", "json")) as broker:
        address = wait_until_ready(broker)
        odradek = Commands(address)
        odradek.ok("topics", "create", "t", "--partitions", 2)
        odradek.ok("topics", "delete", "t")
        while odradek("topics", "create", "t", "--partitions", 2).code:
            pass  # Deletion goes on behind the answer; the name is free when it is done.
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=60) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
            with contextlib.suppress(ConnectionResetError):
                assert stranger.recv(1) == b""
        _, _, err = end(broker, signal.SIGTERM)

    lines = [json.loads(line) for line in err.splitlines()]

    def fields_of(beginning: str) -> list[dict[str, object]]:
        found = [line for line in lines if line["message"].startswith(beginning)]
        everywhere = {"time", "level", "logger", "message"}
        return [{key: line[key] for key in line.keys() - everywhere} for line in found]

    assert fields_of("broker 0 is controller") == [{"broker": 0, "epoch": 1}]
    assert fields_of("topic t is created") == [{"topic": "t", "partitions": 2}] * 2
    assert fields_of("topic t is deleted") == [{"topic": "t"}]
    closed = {"client_address": host, "listener": "PLAINTEXT", "reason": "invalid"}
    assert fields_of("Closed connection") == [closed]


def test_the_reader_of_consume_presses_ctrl_c(tmp_path: Path) -> None:
    with process(*serve(tmp_path)) as broker:
        address = wait_until_ready(broker)
        Commands(address).ok("produce", "t", stdin=b"one\n")
        words = ["consume", "t", "--from-beginning", "--bootstrap-server", address]
        with process(*words) as reader:
            assert reader.stdout is not None
            assert reader.stdout.readline() == "one\n"
            assert end(reader, signal.SIGINT) == (130, "", "")
        end(broker, signal.SIGTERM)


def test_the_writer_of_produce_presses_ctrl_c(tmp_path: Path) -> None:
    with process(*serve(tmp_path)) as broker:
        address = wait_until_ready(broker)
        words = ["produce", "t", "--bootstrap-server", address]
        with process(*words, stdin=subprocess.PIPE) as writer:
            assert writer.stdin is not None
            writer.stdin.write("one\ntwo, unfinished")
            writer.stdin.flush()
            # A line is sent as soon as it is there.
            read = Commands(address)
            topics = read.ok("topics", "create", "t", "--if-not-exists")
            assert topics.code == 0
            seen = read.ok("consume", "t", "--from-beginning", "--max-messages", 1)
            assert seen.lines == ["one"]
            writer.send_signal(signal.SIGINT)
            assert writer.wait(120) == 130
            assert writer.stderr is not None
            assert writer.stderr.read() == ""
            with contextlib.suppress(BrokenPipeError):
                writer.stdin.close()
        end(broker, signal.SIGTERM)


def test_a_data_directory_in_use_and_a_port_in_use(tmp_path: Path) -> None:
    with process(*serve(tmp_path / "one")) as broker:
        address = wait_until_ready(broker)
        for words, expected in (
            (serve(tmp_path / "one"), str(tmp_path / "one")),
            (["serve", "--data", tmp_path / "two", "--listen", address], address.split(":")[1]),
        ):
            result = run(*words)
            assert result.returncode == 1
            last = result.stderr.splitlines()[-1]
            assert last.startswith("odradek serve: ")
            assert expected in last
            assert "Traceback" not in result.stderr
        assert end(broker, signal.SIGTERM)[0] == 0


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--set", "num.partitions=many"], "num.partitions='many'"),
        (["--set", "num.partitions"], "--set num.partitions: expected KEY=VALUE"),
        (["--listen", "somewhere"], "listeners="),
        (["--listen", ":0", "--set", "listeners=PLAINTEXT://:0"], "give one of them"),
        (["--config", "/nowhere/server.properties"], "/nowhere/server.properties"),
    ],
    ids=["value", "no value", "address", "twice", "no file"],
)
def test_settings_that_cannot_be_used(tmp_path: Path, words: list[str], expected: str) -> None:
    result = run("serve", "--data", tmp_path / "data", *words)

    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("odradek serve: ")
    assert len(result.stderr.splitlines()) == 1
    assert expected in result.stderr
    assert not (tmp_path / "data").exists()


def test_commands_over_tls(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    pem = tmp_path / "keystore.pem"
    pem.write_bytes(key.read_bytes() + certificate.read_bytes())
    settings = {
        "listeners": "SSL://localhost:0",
        "security.inter.broker.protocol": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(pem),
    }
    with EmbeddedBroker(settings) as broker:
        odradek = Commands(broker.bootstrap_servers)
        odradek.ok("produce", "t", "--tls-ca", certificate, stdin=b"secret\n")
        read = ("consume", "t", "--from-beginning", "--max-messages", 1)
        assert odradek.ok(*read, "--tls-ca", certificate).lines == ["secret"]
        stranger = odradek(*read, "--tls")
        assert stranger.code == 1
        assert "certificate verify failed" in stranger.err
        plain = odradek(*read, "--request-timeout", 2)
        assert plain.code == 1
        assert plain.err.startswith("odradek consume: no broker answers at localhost:")


def test_nobody_answers() -> None:
    result = run("topics", "list", "--bootstrap-server", "127.0.0.1:1")

    assert result.returncode == 1
    assert result.stderr.startswith("odradek topics list: no broker answers at 127.0.0.1:1 (from ")
    assert result.stderr.endswith(
        "start one with `odradek serve`, or name another with --bootstrap-server\n"
    )


def run(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
    )
