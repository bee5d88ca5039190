"""A writer is killed with SIGKILL at random moments; every acknowledged batch survives."""

import logging
import os
import signal
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from odradek.files import Disk
from odradek.records.batch import iter_headers
from odradek.storage.directories.log_directory import LogDirectory
from odradek.storage.log.log import Log
from odradek.storage.log.reader import FetchIsolation
from tests.support.log_writer import ACKNOWLEDGEMENT_BYTES, batch_at, open_log

ROUNDS = 8
SEED = 20_240


def _write_until_killed(path: Path, acknowledgements: int) -> int:
    """Starts a writer, kills it some time behind its n-th append; returns the last offset acked."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.log_writer", str(path), str(SEED)],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    ) as writer:
        assert writer.stdout is not None
        start = writer.stdout.read(acknowledgements * ACKNOWLEDGEMENT_BYTES)
        writer.send_signal(signal.SIGKILL)
        rest = writer.stdout.read()
    assert writer.returncode == -signal.SIGKILL, "the writer ended by itself"
    assert len(rest) % ACKNOWLEDGEMENT_BYTES == 0
    return int.from_bytes((start + rest)[-ACKNOWLEDGEMENT_BYTES:], "big")


def _check_content(log: Log) -> None:
    """Every batch from 0 to the log end is the one that was appended there."""
    offset = 0
    while offset < log.log_end_offset:
        data = log.read(offset, 1 << 20, FetchIsolation.LOG_END).read()
        size = 0
        for position, header in iter_headers(data):
            assert header.base_offset == offset
            size = position + header.size
            assert data[position:size] == batch_at(offset, SEED, is_stored=True)
            offset = header.next_offset
        assert size, f"nothing to read at {offset}"


def _tear(log_file: Path, log_end_offset: int, random: Random) -> int:
    """Puts at the end what a torn write may leave there; returns how many bytes."""
    torn = batch_at(log_end_offset, SEED, is_stored=True)
    kind = random.choice(("half a batch", "a batch with a wrong byte", "junk", "zeros"))
    if kind == "half a batch":
        torn = torn[: random.randrange(1, len(torn))]
    elif kind == "a batch with a wrong byte":
        torn[random.randrange(21, len(torn))] ^= 0xFF  # From here on the checksum covers it.
    elif kind == "junk":
        torn = bytearray(random.randbytes(random.randrange(1, 5_000)))
    else:
        torn = bytearray(random.randrange(1, 5_000))
    with log_file.open("ab") as file:
        file.write(torn)
    return len(torn)


@pytest.mark.slow
def test_every_acknowledged_batch_survives_a_kill(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """01:8.4: nothing acknowledged is lost, and a torn tail is cut with one line in the log."""
    random = Random(SEED)
    directory = LogDirectory(str(tmp_path), disk=Disk())
    end = 0
    for round_number in range(ROUNDS):
        acknowledged = _write_until_killed(tmp_path, random.randrange(1, 700))
        assert acknowledged >= end, "the writer did not go on where the log ended"
        directory = LogDirectory(str(tmp_path), disk=Disk())
        log_files = sorted((tmp_path / "killed-0").glob("*.log"))
        torn_bytes = 0
        if round_number % 2:
            # The writer may have got further than it could say, even to a torn batch of its own:
            # settle that first.
            log = open_log(directory)
            torn_at = log.log_end_offset
            log.mark_offline("opened to be torn")
            torn_bytes = _tear(log_files[-1], torn_at, random)
        size = log_files[-1].stat().st_size

        caplog.clear()
        with caplog.at_level(logging.WARNING):
            log = open_log(directory)

        assert log.log_end_offset > acknowledged
        assert log.log_start_offset == 0
        _check_content(log)
        if torn_bytes:
            assert len(caplog.records) == 1, [record.getMessage() for record in caplog.records]
            message = caplog.records[0].getMessage()
            assert f"cut {torn_bytes} bytes" in message
            assert f"position {size - torn_bytes}" in message
            assert f"last valid offset is {log.log_end_offset - 1}" in message
            assert log_files[-1].stat().st_size == size - torn_bytes
        else:
            assert len(caplog.records) <= 1, [record.getMessage() for record in caplog.records]
        end = log.log_end_offset
        log.mark_offline("killed")
    assert len(os.listdir(tmp_path / "killed-0")) > ROUNDS, "no segment was rolled"
