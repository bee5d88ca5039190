"""The names of the builds, and sources that are newer than what was compiled from them."""

import importlib
import json
import zlib
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from odradek.builds import (
    COMPILED,
    MANIFEST,
    PURE,
    RECORD_LOOPS,
    StaleBuildError,
    check_sources,
    compiled_modules,
    name_build,
)
from odradek.cli.main import main
from odradek.records import walk


def _package(path: Path, source: bytes = b"x = 1\n") -> Path:
    package = path / "odradek"
    (package / "storage").mkdir(parents=True)
    (package / "storage" / "paths.py").write_bytes(source)
    return package


def _compile(package: Path) -> None:
    source = package / "storage" / "paths.py"
    manifest = {"odradek.storage.paths": zlib.crc32(source.read_bytes())}
    (package / MANIFEST).write_text(json.dumps(manifest))


def test_sources_alone_are_a_pure_build(tmp_path: Path) -> None:
    assert name_build(str(_package(tmp_path))) == PURE


def test_a_compiled_walk_makes_the_build_of_record_loops(tmp_path: Path) -> None:
    package = _package(tmp_path)
    (package / "records").mkdir()
    (package / "records" / f"_walk{EXTENSION_SUFFIXES[0]}").touch()
    assert name_build(str(package)) == RECORD_LOOPS


def test_a_list_of_compiled_modules_makes_the_compiled_build(tmp_path: Path) -> None:
    package = _package(tmp_path)
    _compile(package)
    assert name_build(str(package)) == COMPILED


def test_this_build_is_what_its_modules_are() -> None:
    if name_build() != COMPILED:
        assert (name_build() == RECORD_LOOPS) == walk.IS_COMPILED
    for name in compiled_modules():
        path = importlib.import_module(name).__file__
        assert path is not None
        assert path.endswith(tuple(EXTENSION_SUFFIXES)), f"{name} is loaded from {path}"


def test_the_sources_of_this_build_are_those_it_was_made_from() -> None:
    check_sources()


def test_a_source_that_did_not_change_is_accepted_whatever_its_age(tmp_path: Path) -> None:
    package = _package(tmp_path)
    _compile(package)
    # An installer writes files in any order: the source may well be the younger one.
    (package / "storage" / "paths.py").touch()
    check_sources(str(package))


def test_a_module_without_its_source_is_accepted(tmp_path: Path) -> None:
    package = _package(tmp_path)
    _compile(package)
    (package / "storage" / "paths.py").unlink()
    check_sources(str(package))


def test_a_source_that_changed_is_refused(tmp_path: Path) -> None:
    package = _package(tmp_path)
    _compile(package)
    (package / "storage" / "paths.py").write_bytes(b"x = 2\n")
    with pytest.raises(StaleBuildError, match=r"paths\.py has changed .* build again"):
        check_sources(str(package))


def test_the_command_refuses_to_start_with_a_source_that_changed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    package = _package(tmp_path)
    _compile(package)
    (package / "storage" / "paths.py").write_bytes(b"x = 2\n")
    monkeypatch.setattr("odradek.cli.main.check_sources", lambda: check_sources(str(package)))
    assert main(["topics", "list"]) == 1
    assert (
        "has changed since the compiled odradek.storage.paths was built" in capsys.readouterr().err
    )


def test_the_version_names_the_build(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out.rstrip().endswith(f"({name_build()})")
