"""Who may use a checkpoint, and what is noted beside it (12:SP-62)."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from odradek.errors import OdradekError
from odradek.spark.pipeline.engine.operations.checkpoint import (
    CheckpointFolder,
    CheckpointHeldError,
    Lock,
    Notes,
)
from odradek.testing import ManualClock

NOTES = Notes(pipeline="shop", sink="lake", fingerprint={"topics": ["orders"]}, spark="4.3.0")


def test_a_new_folder_says_nothing(tmp_path: Path) -> None:
    folder = CheckpointFolder(str(tmp_path / "new"))
    assert folder.read() is None
    assert folder.holder() is None
    assert folder.newest("offsets") is None
    assert folder.query_id() is None


def test_what_is_noted_comes_back_with_the_lock_of_this_process(tmp_path: Path) -> None:
    """12:SP-62: fingerprint, pipeline, sink, versions, and a lock of host, pid and heartbeat."""
    folder = CheckpointFolder(str(tmp_path / "a" / "lake"))
    folder.take(NOTES)
    found = folder.read()
    assert found is not None
    assert found.lock is not None
    assert (found.pipeline, found.sink, found.fingerprint, found.spark) == (
        "shop", "lake", {"topics": ["orders"]}, "4.3.0",
    )  # fmt: skip
    assert found.odradek
    assert found.lock.pid == os.getpid()
    assert not list((tmp_path / "a" / "lake").glob("odradek.json.*")), "no half-written file stays"


def test_a_second_run_is_refused_until_the_first_gives_up(tmp_path: Path) -> None:
    first, second = (CheckpointFolder(str(tmp_path)) for _ in range(2))
    first.take(NOTES)
    with pytest.raises(CheckpointHeldError, match=f"process {os.getpid()} on"):
        second.take(NOTES)
    with pytest.raises(CheckpointHeldError, match="stop that run first"):
        second.forget()
    first.release()
    assert second.holder() is None
    second.take(NOTES)
    with pytest.raises(CheckpointHeldError, match="has taken the lock"):
        first.beat()
    first.release()  # Not its lock any more: it stays with the second.
    assert second.holder() is not None


def test_the_lock_of_a_dead_process_is_void(tmp_path: Path) -> None:
    program = (
        "from odradek.spark.pipeline.engine.operations.checkpoint import CheckpointFolder, Notes\n"
        f"CheckpointFolder({str(tmp_path)!r}).take(Notes('shop', 'lake', {{}}))\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
    folder = CheckpointFolder(str(tmp_path))
    notes = folder.read()
    assert notes is not None
    assert notes.lock is not None
    assert folder.holder() is None
    folder.take(NOTES)


def test_the_lock_of_another_host_is_void_after_a_minute_without_a_beat(tmp_path: Path) -> None:
    clock = ManualClock()
    folder = CheckpointFolder(str(tmp_path), clock)
    folder.take(NOTES)
    path = tmp_path / "odradek.json"
    fields = json.loads(path.read_text())
    fields["lock"] |= {"host": "elsewhere", "token": "other"}
    path.write_text(json.dumps(fields))
    assert folder.holder() == Lock(
        "elsewhere", os.getpid(), "other", fields["lock"]["heartbeat_ms"], fields["lock"]["born"]
    )
    clock.advance(60_001)
    assert folder.holder() is None


def test_forgetting_removes_all_of_it(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "3").write_text("v1\n")
    folder = CheckpointFolder(str(tmp_path))
    folder.take(NOTES)
    assert folder.newest("offsets") == (3, "v1\n")
    folder.release()
    folder.forget()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["", "[]", "{", '{"pipeline": 1}', '{"lock": 3}'])
def test_notes_that_are_no_notes_are_an_error_with_a_way_out(tmp_path: Path, text: str) -> None:
    (tmp_path / "odradek.json").write_text(text)
    with pytest.raises(OdradekError, match="odradek pipeline reset"):
        CheckpointFolder(str(tmp_path)).read()


def test_the_lock_of_a_process_whose_number_was_given_again_is_void(tmp_path: Path) -> None:
    folder = CheckpointFolder(str(tmp_path))
    folder.take(NOTES)
    path = tmp_path / "odradek.json"
    fields = json.loads(path.read_text())
    fields["lock"] |= {"token": "other", "born": "another boot/1"}
    path.write_text(json.dumps(fields))
    assert folder.holder() is None
    CheckpointFolder(str(tmp_path)).take(NOTES)


def test_notes_that_nobody_can_read_can_be_forgotten(tmp_path: Path) -> None:
    (tmp_path / "odradek.json").write_text("{")
    CheckpointFolder(str(tmp_path)).forget()
    assert list(tmp_path.iterdir()) == []
