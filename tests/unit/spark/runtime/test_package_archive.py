"""The archive for executors: complete, the same for the same files, built once."""

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from odradek.spark.runtime.package_archive import package_archive

pytestmark = pytest.mark.slow


def test_holds_all_that_a_task_imports(tmp_path: Path) -> None:
    """12:SP-41: unpacked somewhere else, it is enough."""
    archive = package_archive({"ODRADEK_CACHE": str(tmp_path / "cache")})
    with tarfile.open(archive) as packed:
        names = packed.getnames()
        packed.extractall(tmp_path / "there", filter="data")
    assert "pyspark_odradek/__init__.py" in names
    assert "odradek/spark/datasource/writer.py" in names
    assert "odradek/py.typed" in names
    assert not [name for name in names if name.endswith((".pyc", ".pyx")) or ".." in name]
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); "
        "import odradek.client.producer.blocking, odradek.records.compression as found, cramjam; "
        "print(found.__file__); print(cramjam.__file__)"
    )
    told = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, str(tmp_path / "there")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    assert all(line.startswith(str(tmp_path / "there")) for line in told.stdout.splitlines())


def test_is_built_once(tmp_path: Path) -> None:
    environ = {"ODRADEK_CACHE": str(tmp_path)}
    first = Path(package_archive(environ))
    built = first.stat().st_mtime_ns
    assert Path(package_archive(environ)) == first
    assert first.stat().st_mtime_ns == built
    other = Path(package_archive({"ODRADEK_CACHE": str(tmp_path / "other")}))
    assert (other.name, other.read_bytes()) == (first.name, first.read_bytes())
