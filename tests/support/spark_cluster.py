"""A standalone Spark cluster of separate processes, whose workers do not have this package.

Workers run tasks with a Python environment of their own: it has pyspark, pyarrow and all else that
ours has, but not odradek, which can only reach them by being shipped, and not deltalake, which is
for the driver.
"""

import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyspark

from odradek.spark.runtime.java import find_java
from tests.support.spark_python import quick_python

__all__ = ["SparkCluster", "running_cluster"]

_START_TIMEOUT_S = 300
_WORKER_PYTHON = "ODRADEK_TEST_WORKER_PYTHON"
_MASTER_UP = re.compile(r"Starting Spark master at (?P<url>spark://\S+:\d+)")
_WORKER_UP = "Successfully registered with master"
_EXECUTOR = b"CoarseGrainedExecutorBackend"
_NOT_ON_WORKERS = ("odradek", "deltalake")
_QUICK = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkCluster:
    """A cluster that takes applications."""

    url: str
    # For PYSPARK_PYTHON: on a worker another environment than on the driver.
    python: str
    log_paths: tuple[Path, ...]
    worker_pids: tuple[int, ...]

    def kill_executor(self, chance: random.Random) -> None:
        """Ends one of the executors, which the master then replaces, as a crash would."""
        deadline = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < deadline:
            living = [pid for worker in self.worker_pids for pid in _executors_of(worker)]
            if living:
                with contextlib.suppress(ProcessLookupError):  # It has ended before: another one.
                    os.kill(chance.choice(living), signal.SIGKILL)
                    return
            time.sleep(0.02)
        raise AssertionError(f"no executor:\n{self.logs()}")

    def logs(self) -> str:
        return "\n".join(path.read_text(errors="replace")[-3000:] for path in self.log_paths)


@contextlib.contextmanager
def running_cluster(folder: Path, *, workers: int) -> Iterator[SparkCluster]:
    """Runs a master and workers of one core each until the block ends."""
    folder.mkdir(parents=True, exist_ok=True)
    python = quick_python(folder, f'"${{{_WORKER_PYTHON}:-{sys.executable}}}"')
    environ = {
        **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        "JAVA_HOME": find_java(os.environ).home,
        "SPARK_DAEMON_JAVA_OPTS": _QUICK,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        _WORKER_PYTHON: str(_environment_of_workers(folder / "environment")),
    }
    with contextlib.ExitStack() as started:
        master_log = folder / "master.log"
        _start(started, master_log, environ, "master.Master", "--host", "127.0.0.1", "--port", "0")
        url = _wait_for(_MASTER_UP, master_log)["url"]
        logs = [folder / f"worker-{number}.log" for number in range(workers)]
        pids: list[int] = []
        for number, log in enumerate(logs):
            words = ["--cores", "1", "--memory", "1g", "--host", "127.0.0.1"]
            words += ["--work-dir", str(folder / f"work-{number}"), url]
            pids.append(_start(started, log, environ, "worker.Worker", *words))
        for log in logs:
            _wait_for(re.compile(_WORKER_UP), log)
        yield SparkCluster(
            url=url, python=python, log_paths=(master_log, *logs), worker_pids=tuple(pids)
        )


def _environment_of_workers(folder: Path) -> Path:
    """The interpreter of an environment with the packages that this one has, but for some."""
    venv.create(folder, symlinks=True, with_pip=False)
    home = Path(sysconfig.get_path("purelib"))
    there = folder / home.relative_to(sys.prefix)
    for package in home.iterdir():
        is_left_out = any(name in package.name for name in _NOT_ON_WORKERS)
        if not is_left_out and package.suffix != ".pth":
            (there / package.name).symlink_to(package)
    return folder / "bin" / "python"


def _start(
    started: contextlib.ExitStack, log_path: Path, environ: dict[str, str], role: str, *words: str
) -> int:
    """Starts a part of the cluster; returns its process."""
    launcher = Path(pyspark.__file__).parent / "bin" / "spark-class"
    command = [str(launcher), f"org.apache.spark.deploy.{role}", "--webui-port", "0", *words]
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            command,
            env=environ,
            cwd=log_path.parent,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    started.callback(_kill, process)
    return process.pid


def _executors_of(worker_pid: int) -> list[int]:
    """The executors that a worker has started and that live now."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        with contextlib.suppress(OSError):  # It has just ended.
            # pid (name) state parent ...: the name may hold anything.
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            is_living_child = int(fields[1]) == worker_pid and fields[0] not in "ZX"
            if is_living_child and _EXECUTOR in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return sorted(found)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End it with its executors, which are in its group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _wait_for(pattern: re.Pattern[str], log_path: Path) -> re.Match[str]:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline:
        if found := pattern.search(log_path.read_text(errors="replace")):
            return found
        time.sleep(0.1)
    raise AssertionError(f"no {pattern.pattern!r} in\n{log_path.read_text()[-4000:]}")
