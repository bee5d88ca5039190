"""What a user installs: wheels, built with and without a compiler, in an environment of their own.

The package is copied and built there, so that nothing of this checkout changes. What `make
compiled` left behind goes with it: the build then finds that it has little to do.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
PACKAGES = Path(sysconfig.get_path("purelib"))

# A broker and both ends of a topic; prints which of two files of a module Python has loaded.
SMOKE_TEST = """
import subprocess, sys
from odradek.network import connection
from odradek.testing import EmbeddedBroker

odradek = sys.argv[1]
with EmbeddedBroker() as broker:
    server = ["--bootstrap-server", broker.bootstrap_servers]
    lines = "".join(f"line {number}\\n" for number in range(1_000))
    subprocess.run([odradek, "produce", "t", *server], input=lines, text=True, check=True)
    read = subprocess.run(
        [odradek, "consume", "t", "--from-beginning", "--max-messages", "1000", *server],
        stdout=subprocess.PIPE, text=True, check=True,
    )
    assert sorted(read.stdout.splitlines()) == sorted(lines.splitlines()), read.stdout
print(connection.__file__)
"""


class Installed(NamedTuple):
    """A wheel in an environment that holds nothing else; its dependencies are borrowed."""

    place: Path

    @property
    def packages(self) -> Path:
        [packages] = self.place.glob("lib/python*/site-packages")
        return packages

    def run(self, program: str, *words: str) -> "subprocess.CompletedProcess[str]":
        command = [str(self.place / "bin" / program), *words]
        return subprocess.run(
            command, env=_environment(), cwd=self.place, capture_output=True, text=True, check=False
        )

    def smoke_test(self) -> Path:
        """Writes and reads a topic; which file the broker's connections came from."""
        done = self.run("python", "-c", SMOKE_TEST, str(self.place / "bin" / "odradek"))
        assert done.returncode == 0, done.stderr
        return Path(done.stdout.strip())


def _environment(**settings: str) -> dict[str, str]:
    """This process's, without what would bring in the checkout or choose a build."""
    chosen = ("PYTHONPATH", "ODRADEK_PURE", "ODRADEK_COMPILED")
    kept = {name: value for name, value in os.environ.items() if name not in chosen}
    return {**kept, **settings}


def _copy_sources(to: Path) -> Path:
    to.mkdir()
    for name in (
        "pyproject.toml",
        "setup.py",
        "MANIFEST.in",
        "README.md",
        "CHANGELOG.md",
        "LICENSE",
    ):
        shutil.copy2(ROOT / name, to)
    shutil.copytree(ROOT / "examples", to / "examples")
    ignored = shutil.ignore_patterns("*.so", "*.egg-info", "__pycache__", "compiled.json")
    shutil.copytree(ROOT / "src", to / "src", ignore=ignored)
    return to


def _install_wheel(sources: Path, place: Path, **settings: str) -> Installed:
    """Builds a wheel of the sources as an installer does, and installs it."""
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    wheels = place / "wheels"
    # The tools of the build are those of this environment: nothing is fetched.
    build = [*pip, "wheel", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir"]
    _check_run([*build, str(wheels), str(sources)], cwd=sources, **settings)
    [wheel] = wheels.glob("odradek-*.whl")
    venv.create(place / "venv", with_pip=False, symlinks=True)
    installed = Installed(place / "venv")
    python = str(installed.place / "bin" / "python")
    _check_run([*pip, "--python", python, "install", "--no-deps", "--no-index", str(wheel)])
    # Searched behind the environment's own, and without the link to the checkout that it holds.
    (installed.packages / "dependencies.pth").write_text(f"{PACKAGES}\n")
    return installed


def _check_run(command: list[str], cwd: Path = ROOT, **settings: str) -> None:
    done = subprocess.run(
        command, cwd=cwd, env=_environment(**settings), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _is_compiled() -> bool:
    """Whether `make compiled` was the last that happened to this checkout."""
    mark = ROOT / "build" / "compiled" / ".ready"
    if not mark.exists():
        return False
    sources = [ROOT / "pyproject.toml", ROOT / "setup.py", *(ROOT / "src").rglob("*.py")]
    return max(path.stat().st_mtime for path in sources) <= mark.stat().st_mtime


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    place = tmp_path_factory.mktemp("compiled")
    sources = _copy_sources(place / "sources")
    built = sources / "build"
    if _is_compiled():
        for name in ("cython", "mypyc"):
            shutil.copytree(ROOT / "build" / name, built / name)
        library = built / f"lib.{sysconfig.get_platform()}-{sys.implementation.cache_tag}"
        ignored = shutil.ignore_patterns("__pycache__", ".ready")
        shutil.copytree(ROOT / "build" / "compiled", library, ignore=ignored)
    return _install_wheel(sources, place)


@pytest.fixture(scope="module")
def uncompiled(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    place = tmp_path_factory.mktemp("uncompiled")
    return _install_wheel(_copy_sources(place / "sources"), place, CC="/bin/false")


def test_a_wheel_is_compiled_and_says_so(compiled: Installed) -> None:
    shown = compiled.run("odradek", "--version")
    assert shown.stdout.rstrip().endswith("(compiled)"), shown
    loaded = compiled.smoke_test()
    assert loaded.suffix == ".so"
    assert loaded.is_relative_to(compiled.packages)


def test_a_wheel_built_without_a_compiler_is_python_alone(uncompiled: Installed) -> None:
    shown = uncompiled.run("odradek", "--version")
    assert shown.stdout.rstrip().endswith("(pure)"), shown
    assert not list(uncompiled.packages.joinpath("odradek").rglob("*.so"))
    loaded = uncompiled.smoke_test()
    assert loaded.suffix == ".py"
    assert loaded.is_relative_to(uncompiled.packages)


def test_a_wheel_whose_source_was_changed_refuses_to_start(compiled: Installed) -> None:
    source = compiled.packages / "odradek" / "network" / "connection.py"
    before = source.read_text()
    source.write_text(before + "\n# Mended on the spot.\n")
    try:
        refused = compiled.run("odradek", "serve")
    finally:
        source.write_text(before)
    assert refused.returncode == 1
    assert "has changed since the compiled odradek.network.connection was built" in refused.stderr


def test_a_wheel_brings_the_templates_of_pipelines(uncompiled: Installed) -> None:
    written = uncompiled.run("odradek", "pipeline", "init", "shop.yaml", "--template", "shop")
    assert written.returncode == 0, written.stderr
    valid = uncompiled.run("odradek", "pipeline", "validate", "shop.yaml")
    assert valid.stdout == "shop.yaml: pipeline 'shop' is valid\n", valid.stderr
    assert (uncompiled.place / "customers.csv").exists()


def test_a_source_distribution_has_sources_and_examples_alone(tmp_path: Path) -> None:
    sources = _copy_sources(tmp_path / "sources")
    (sources / "src" / "odradek" / "records" / "_stale.so").touch()
    code = "import setuptools.build_meta as backend; backend.build_sdist('..')"
    _check_run([sys.executable, "-c", code], cwd=sources, ODRADEK_PURE="1")
    [archive] = tmp_path.glob("odradek-*.tar.gz")
    with tarfile.open(archive) as tar:
        names = {name.partition("/")[2] for name in tar.getnames() if tar.getmember(name).isfile()}
        description = tar.extractfile(next(n for n in tar.getnames() if n.endswith("PKG-INFO")))
        assert description is not None
        text = description.read().decode()
    examples = {
        str(path.relative_to(ROOT)) for path in (ROOT / "examples").rglob("*") if path.is_file()
    }
    assert examples <= names
    assert {"CHANGELOG.md", "LICENSE", "pyproject.toml", "setup.py"} <= names
    assert "src/odradek/records/_codec.pyx" in names
    assert not [name for name in names if name.endswith((".so", ".pyc", "compiled.json"))]
    # A package index shows it, where relative links lead nowhere.
    assert "# Odradek" in text
    assert not re.search(r"\]\((?!https?://)", text)


def test_an_isolated_build_has_the_types_of_what_compiled_modules_import() -> None:
    """Without them mypyc refuses the modules, and an installation from sources would end."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)
    assert set(project["project"]["dependencies"]) <= set(project["build-system"]["requires"])
