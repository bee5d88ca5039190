"""The session that the next life ends: kept whole, kept secret, and never in the way of a start."""

from pathlib import Path

import pytest

from odradek.coordination.zookeeper.link import Credentials
from odradek.coordination.zookeeper.saved_session import SESSION_FILE, SavedSession
from odradek.files import Disk

CREDENTIALS = Credentials(-0x7FFF_0000_0000_0001, bytes(range(16)))


def test_a_session_is_kept_for_its_user_alone(tmp_path: Path) -> None:
    file = tmp_path / SESSION_FILE
    file.write_bytes(b"")
    file.chmod(0o644)
    saved = SavedSession(str(tmp_path), Disk())
    saved.save(CREDENTIALS)

    assert saved.load() == CREDENTIALS
    assert file.stat().st_mode & 0o777 == 0o600
    assert CREDENTIALS.password.hex() not in repr(CREDENTIALS)
    saved.remove()
    saved.remove()
    assert saved.load() is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"null",
        b"[]",
        b"\xff",
        b'{"version": 2, "session_id": "0x1", "password": "00"}',
        b'{"version": 1, "session_id": "x", "password": "00"}',
        b'{"version": 1, "session_id": 7, "password": "00"}',
        b'{"version": 1, "session_id": "0x1", "password": "0"}',
        b'{"version": 1, "session_id": "0x1"}',
    ],
)
def test_a_damaged_file_is_no_session(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    (tmp_path / SESSION_FILE).write_bytes(content)
    assert SavedSession(str(tmp_path), Disk()).load() is None
    assert "cannot be read" in caplog.text


def test_a_disk_that_refuses_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    SavedSession(str(tmp_path / "none"), Disk()).save(CREDENTIALS)
    assert "cannot be written" in caplog.text
