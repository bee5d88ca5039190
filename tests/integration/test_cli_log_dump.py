"""`odradek log dump` as a user runs it: streams, exit codes, and never a traceback."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from odradek.records.builder import build_batch
from odradek.storage.log.config import LogConfig
from tests.support.logs import T0, LogFixture, batch, flip_bit

pytestmark = pytest.mark.slow

BASE = "00000000000000000000"
COMMAND = [sys.executable, "-m", "odradek.cli.main", "log", "dump"]


def run(
    *arguments: str | Path, env: Mapping[str, str] | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    options.setdefault("stdout", subprocess.PIPE)
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **(env or {})},
        **options,
    )


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    with LogFixture(tmp_path, config=LogConfig(segment_bytes=100_000)) as fixture:
        log = fixture.open()
        for sequence in range(150):
            log.append_as_leader(
                batch(size=1000, producer_id=1, producer_epoch=0, base_sequence=sequence),
                leader_epoch=0,
            )
        fixture.close()
        return Path(fixture.directory)


def test_all_files_of_a_partition(partition: Path) -> None:
    files = sorted(partition.iterdir())
    result = run("--records", *files)
    assert (result.returncode, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert [line for line in lines if line.startswith("Dumping ")] == [
        f"Dumping {path}" for path in files
    ]
    assert sum(line.startswith("baseOffset: ") for line in lines) == 150


def test_installed_command_is_this_one(partition: Path) -> None:
    command = Path(sys.executable).with_name("odradek")
    if not command.exists():
        pytest.skip("the package is not installed here: no odradek beside python")
    result = subprocess.run(
        [command, "log", "dump", partition / f"{BASE}.index"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == run(partition / f"{BASE}.index").stdout


def test_bad_files_give_one_line_each_and_exit_code_1(partition: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "empty").mkdir()
    os.truncate(partition / f"{BASE}.log", 50_500)
    flip_bit(partition / f"{BASE}.index", 31)
    (tmp_path / f"{3:020d}.snapshot").write_bytes(b"")
    (tmp_path / "log-start-offset-checkpoint").write_bytes(b"7\n0\n")
    bad = [
        tmp_path / "missing" / f"{BASE}.txnindex",
        tmp_path / "notes.txt",
        tmp_path / "empty",
        partition / f"{BASE}.log",
        tmp_path / f"{3:020d}.snapshot",
        tmp_path / "log-start-offset-checkpoint",
    ]
    before = sorted(tmp_path.rglob("*"))
    result = run(*bad)
    assert result.returncode == 1
    errors = result.stderr.splitlines()
    assert len(errors) == len(bad)
    for path, line in zip(bad, errors, strict=True):
        assert line.startswith("odradek log dump: ")
        assert str(path) in line
    assert run(partition / f"{BASE}.index").returncode == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_reader_that_has_seen_enough(partition: Path) -> None:
    """``odradek log dump … | head -1``: no traceback, no complaint at exit."""
    files = [str(path) for path in sorted(partition.iterdir())] * 5
    process = subprocess.Popen(
        [*COMMAND, "--records", *files],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    with process:
        assert process.stdout.readline().startswith("Dumping ")
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 1


def test_output_that_cannot_be_written(partition: Path) -> None:
    with Path("/dev/full").open("w") as full:
        result = run(partition / f"{BASE}.log", stdout=full)
    assert result.returncode == 1
    assert result.stderr == "odradek: cannot write the output: No space left on device\n"


def test_closed_output(partition: Path) -> None:
    result = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", *COMMAND, str(partition / f"{BASE}.log")],
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")


def test_text_that_the_locale_has_no_letters_for(tmp_path: Path) -> None:
    path = tmp_path / f"{BASE}.log"
    path.write_bytes(build_batch([(T0, "größe".encode(), b"\xff", (("\udcff", b"1"),))]))
    result = run("--records", path, env={"PYTHONIOENCODING": "ascii"})
    assert (result.returncode, result.stderr) == (0, "")
    assert r"headers: [\udcff=1] key: gr\xf6\xdfe payload: \xff" in result.stdout


def test_interpreter_keeps_the_exit_code(tmp_path: Path) -> None:
    assert run().returncode == 2
    assert run("--help").returncode == 0
    assert run(tmp_path).returncode == 1
