"""The note beside a checkpoint."""

from pathlib import Path

import pytest

from odradek.spark.transactional.errors import ExactlyOnceError
from odradek.spark.transactional.notes import CheckpointNotes, Note


def test_a_note_there_and_back(tmp_path: Path) -> None:
    notes = CheckpointNotes(str(tmp_path))
    note = Note(query_id="q", target="t", transactional_id="i", first_batch=3, has_marker=False)
    assert notes.read() is None
    notes.remove()
    notes.write(note)
    assert notes.read() == note
    assert [file.name for file in tmp_path.iterdir()] == ["odradek-exactly-once.json"]
    notes.remove()
    assert notes.read() is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"v": 2}', '{"v": 1, "query_id": "q"}'])
def test_another_file_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "odradek-exactly-once.json").write_text(text)
    with pytest.raises(ExactlyOnceError, match="is not a note of this sink"):
        CheckpointNotes(str(tmp_path)).read()


def test_files_of_spark(tmp_path: Path) -> None:
    """What is missing is said, with the file."""
    notes = CheckpointNotes(str(tmp_path))
    with pytest.raises(ExactlyOnceError, match="is this the checkpointLocation of the query"):
        notes.query_id()
    with pytest.raises(ExactlyOnceError, match="offsets/4, which Spark writes before the batch"):
        notes.plan_of(4)
    (tmp_path / "metadata").write_text('{"id":"42"}')
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "4").write_text("v1\n{}")
    assert notes.query_id() == "42"
    assert notes.plan_of(4) == b"v1\n{}"
