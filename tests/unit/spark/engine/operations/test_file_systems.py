"""Checkpoints behind URIs, and what is said where one cannot be reached."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from odradek.cli.main import main
from odradek.spark.pipeline.engine.operations.checkpoint import CheckpointFolder, Notes
from odradek.spark.pipeline.engine.operations.file_systems import FileSystemError, open_folder
from tests.support.s3_store import s3_store

NOTES = Notes(pipeline="shop", sink="lake", fingerprint={})


@pytest.mark.parametrize("form", ["file://{}", "file:{}", "FILE://{}", "{}"])
def test_a_folder_is_the_same_by_path_and_by_uri(form: str, tmp_path: Path) -> None:
    """12:SP-48: and nothing in it is decoded, as Spark decodes nothing."""
    path = tmp_path / "a b%20c" / "lake"
    CheckpointFolder(form.format(path)).take(NOTES)

    assert (path / "odradek.json").exists()
    assert CheckpointFolder(str(path)).holder() is not None


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n", "S3A"])
def test_the_names_that_hadoop_has_for_s3_are_one_store(scheme: str) -> None:
    """12:SP-48. In a process of its own: Arrow starts threads for it."""
    program = (
        "from odradek.spark.pipeline.engine.operations.file_systems import open_folder\n"
        f"files, folder = open_folder('{scheme}://bucket/orders/lake', 'the checkpoint')\n"
        "print(files.type_name, folder)\n"
    )
    # With an endpoint nobody is asked for the bucket's region, and nothing is sent.
    environment = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_EC2_METADATA_DISABLED": "true"}

    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )

    assert done.stdout == "s3 bucket/orders/lake\n"


_LIFE = """
from odradek.spark.pipeline.engine.operations.checkpoint import (
    CheckpointFolder, CheckpointHeldError, Notes
)

notes = Notes(pipeline="shop", sink="lake", fingerprint={})
first, second = (CheckpointFolder("s3a://bucket/shop/lake") for _ in range(2))
assert (first.read(), first.newest("offsets"), first.query_id()) == (None, None, None)
first.take(notes)
first.beat()
try:
    second.take(notes)
except CheckpointHeldError:
    first.release()
second.take(notes)
second.release()
second.forget()
assert second.read() is None
second.take(notes)
"""


@pytest.mark.slow
def test_a_checkpoint_lives_in_an_object_store() -> None:
    """12:SP-62: it is taken, kept, refused to others, given back and forgotten."""
    with s3_store() as (address, objects):
        environment = {
            "AWS_ENDPOINT_URL": address,
            "AWS_ACCESS_KEY_ID": "me",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        done = subprocess.run(
            [sys.executable, "-c", _LIFE],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(objects["shop/lake/odradek.json"])["lock"]["pid"]


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("hdfs://name/c", "the checkpoint hdfs://name/c cannot be reached: .*; .*HADOOP_HOME"),
        ("s4://bucket/c", r"cannot be reached: Unrecognized .*; name it by one of abfs, .*, s3a"),
        (
            "file://host/c",
            "the checkpoint file://host/c cannot be reached: .*; see that the folder",
        ),
    ],
)
def test_what_cannot_be_opened_says_what_to_do(
    path: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """12:SP-62."""
    for name in ("JAVA_HOME", "HADOOP_HOME", "CLASSPATH"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(FileSystemError, match=told):
        open_folder(path, "the checkpoint")


def test_what_cannot_be_written_says_which_folder(tmp_path: Path) -> None:
    """12:SP-62."""
    (tmp_path / "file").write_text("")
    folder = CheckpointFolder(str(tmp_path / "file" / "lake"))
    with pytest.raises(FileSystemError, match=f"the checkpoint {tmp_path}/file/lake cannot be"):
        folder.take(NOTES)


@pytest.mark.parametrize("action", [["run", "--once"], ["status"], ["reset", "--yes"]])
def test_commands_say_it_in_one_line(
    action: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """12:SP-61: exit code 1, and no trace of a program."""
    file = tmp_path / "shop.yaml"
    file.write_text(
        "name: shop\nbootstrap: localhost:9\ncheckpoint: file://host/c\n"
        "sources: {raw: {topic: t}}\nsinks: {lake: {from: raw, console: {}}}\n"
    )

    assert main(["pipeline", action[0], str(file), *action[1:]]) == 1

    told = capsys.readouterr().err
    assert "odradek pipeline: the checkpoint file://host/c/lake cannot be reached" in told
