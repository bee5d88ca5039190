"""The file `partition.metadata` (11 section 2, topic ids)."""

import uuid
from pathlib import Path

import pytest

from odradek.errors import CorruptCheckpointError
from odradek.files import Disk
from odradek.storage.directories.partition_directories import (
    PARTITION_METADATA_FILE,
    read_topic_id,
    write_topic_id,
)

TOPIC_ID = uuid.UUID("7f1bd8ce-9b5c-4f3a-8d2e-1a2b3c4d5e6f")
TEXT = "fxvYzptcTzqNLhorPE1ebw"


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write_topic_id(Disk(), str(tmp_path), TOPIC_ID)
    content = (tmp_path / PARTITION_METADATA_FILE).read_text()
    assert content == f"version: 0\ntopic_id: {TEXT}"
    assert read_topic_id(Disk(), str(tmp_path)) == TOPIC_ID


def test_no_file(tmp_path: Path) -> None:
    assert read_topic_id(Disk(), str(tmp_path)) is None


def test_a_line_feed_at_the_end_is_no_harm(tmp_path: Path) -> None:
    (tmp_path / PARTITION_METADATA_FILE).write_text(f"version: 0\ntopic_id: {TEXT}\n")
    assert read_topic_id(Disk(), str(tmp_path)) == TOPIC_ID


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"version: 0",
        b"version: 1\ntopic_id: " + TEXT.encode(),
        b"version: 0\ntopic_id: short",
        b"version: 0\ntopic_id: " + TEXT.encode() + b"x",
        b"version: 0\ntopic_id: fxvYzptcTzqNLhorPE1ebx",  # Bits beyond the 16 bytes.
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",  # Zero is nobody's id.
        b"version: 0\x0btopic_id: " + TEXT.encode(),
        b"version: 0\ntopic_id: " + TEXT.encode() + b"\nmore: 1",
        b"\xff\xfe" * 20,
    ],
)
def test_a_damaged_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / PARTITION_METADATA_FILE).write_bytes(content)
    with pytest.raises(CorruptCheckpointError, match=r"partition\.metadata: line \d: expected"):
        read_topic_id(Disk(), str(tmp_path))
