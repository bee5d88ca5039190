"""`odradek pipeline run` as its users run it, in processes of its own that a test may kill.

A run is a driver in Python, Spark's Java, and the Python processes that Java starts: daemons, which
put themselves into process groups of their own, and the workers they fork. All of them stay in the
session that the run began with, by which they are found.
"""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["PipelineRun", "PipelineService"]

_KILL_TIMEOUT_S = 120
_TIMEOUT_S = 300
_ONCE_TIMEOUT_S = 600
_MAX_ENDS = 5
_COMMAND = (sys.executable, "-m", "odradek.cli.main", "pipeline")
_PYTHON_WORKER = "pyspark.daemon"


@dataclass(frozen=True, slots=True)
class _Process:
    pid: int
    command: str


class PipelineRun:
    """A run that was started, and that has to be killed even if it has ended: with all it started.

    Args:
        file: the pipeline.
        folder: gets `NAME.out` with what it prints and `NAME.log` with what it logs.
        name: of these files.
        words: more arguments for the command.
        environment: more variables.
    """

    def __init__(
        self, file: Path, folder: Path, name: str, *words: str, environment: Mapping[str, str]
    ) -> None:
        self._out_path, self._log_path = folder / f"{name}.out", folder / f"{name}.log"
        with self._out_path.open("wb") as out, self._log_path.open("wb") as log:
            self._process = subprocess.Popen(
                [*_COMMAND, "run", str(file), *words],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log,
                cwd=folder,
                env={**os.environ, **environment},
                start_new_session=True,
            )
        self._is_gone = False

    def exit_code(self) -> int | None:
        """How it ended, None while it runs."""
        return self._process.poll()

    def batches(self) -> list[dict[str, Any]]:
        """The batches it has told of so far."""
        return [line for line in self._lines() if "batch" in line]

    def story(self) -> str:
        """The end of what it said, for a message."""
        out, log = (path.read_text(errors="replace") for path in (self._out_path, self._log_path))
        return f"{self._out_path.name}: {self.exit_code()}\n{out[-3000:]}\n{log[-6000:]}"

    def python_workers(self) -> list[int]:
        """Spark's Python processes, daemons and workers, that live now."""
        return [one.pid for one in self._processes() if _PYTHON_WORKER in one.command]

    def stop(self) -> None:
        """Asks it to end, and waits until it has: without a failure."""
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it does not end:\n{self.story()}") from None
        assert code == 0, self.story()

    def kill(self) -> None:
        """Ends all of its processes as a crash of the machine would."""
        deadline = time.monotonic() + _KILL_TIMEOUT_S
        while not self._is_gone:
            left = self._processes()
            for one in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(one.pid, signal.SIGKILL)
            self._process.poll()
            if not left:
                self._process.wait()
                self._is_gone = True
                return
            assert time.monotonic() < deadline, f"{left} cannot be killed"
            time.sleep(0.01)

    def _lines(self) -> list[dict[str, Any]]:
        text = self._out_path.read_text(errors="replace")
        whole = text[: text.rfind("\n") + 1]  # The last line may be about to be written.
        return [json.loads(line) for line in whole.splitlines()]

    def _processes(self) -> list[_Process]:
        """What lives of the run's session, without the dead whom nobody has asked for."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal():
                continue
            with contextlib.suppress(OSError):  # It has just ended.
                # pid (name) state parent group session ...: the name may hold anything.
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == self._process.pid and fields[0] not in "ZX":
                    command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    found.append(_Process(int(entry.name), command))
        return sorted(found, key=lambda one: one.pid)


class PipelineService:
    """The runs of a pipeline, one at a time, as what keeps services up would run them.

    A run that ends by itself is started again: on a busy machine Spark may not wait for the first
    Python processes of a query, which then cannot be started at all.

    Args:
        file: the pipeline; what the runs print and log goes beside it.
        environment: more variables.
    """

    def __init__(self, file: Path, environment: Mapping[str, str]) -> None:
        self._file = file
        self._environment = environment
        self._start_count = 0
        self._run: PipelineRun | None = None
        # Of runs that ended by themselves.
        self._stories: list[str] = []

    def kill(self) -> None:
        """Ends all processes of the run."""
        if self._run is not None:
            self._run.kill()
            self._run = None

    def kill_worker(self, chance: random.Random) -> None:
        """Ends one of the Python processes that Spark has started."""
        deadline = time.monotonic() + _TIMEOUT_S
        while time.monotonic() < deadline:
            if workers := self._kept().python_workers():
                with contextlib.suppress(ProcessLookupError):  # It has ended before: another one.
                    os.kill(chance.choice(workers), signal.SIGKILL)
                    return
            time.sleep(0.02)
        raise AssertionError(f"no Python worker:\n{self._kept().story()}")

    def wait_for_batches(self, count: int, sinks: Collection[str] = ()) -> None:
        """Waits until one run has done so many more batches, and one at least of each sink."""
        run = self._kept()
        wanted = len(run.batches()) + count
        deadline = time.monotonic() + _TIMEOUT_S
        while len(done := run.batches()) < wanted or not {one["sink"] for one in done} >= {*sinks}:
            assert time.monotonic() < deadline, f"no batches:\n{run.story()}"
            if self._kept() is not run:
                run, wanted = self._kept(), count
            time.sleep(0.05)

    def wait_for_the_end(self) -> None:
        """Waits until every sink has all there is, which nobody adds to any more."""
        deadline = time.monotonic() + _ONCE_TIMEOUT_S
        while set(lags := self.lags().values()) != {0}:
            run = self._kept()
            assert time.monotonic() < deadline, f"{lags} behind:\n{run.story()}"
            time.sleep(0.2)

    def stop(self) -> None:
        """Ends the run as an operator does, which it takes well."""
        if self._run is not None:
            self._run.stop()
            self.kill()

    def run_once(self) -> None:
        """Has everything done that there is to do."""
        deadline = time.monotonic() + _ONCE_TIMEOUT_S
        run = self._run = self._start("--once")
        while (code := run.exit_code()) != 0:
            assert time.monotonic() < deadline, f"no end:\n{run.story()}"
            if code is not None:
                self._note_end(run, code)
                run = self._run = self._start("--once")
            time.sleep(0.1)
        self.kill()

    def lags(self) -> dict[str, int | None]:
        """How far behind each sink is; asked again while the broker takes its time to answer."""
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            lags = {one["sink"]: one["lag"] for one in self._status()}
            if None not in lags.values() or time.monotonic() > deadline:
                return lags

    def _kept(self) -> PipelineRun:
        """The run that is up; a new one if it has ended."""
        if self._run is not None and (code := self._run.exit_code()) is not None:
            self._note_end(self._run, code)
            self._run = None
        if self._run is None:
            self._run = self._start()
        return self._run

    def _start(self, *words: str) -> PipelineRun:
        self._start_count += 1
        name = f"run-{self._start_count}"
        return PipelineRun(
            self._file, self._file.parent, name, *words, environment=self._environment
        )

    def _note_end(self, run: PipelineRun, code: int) -> None:
        run.kill()
        self._stories.append(run.story())
        # 1 is a failure, which the next start may mend; not so mistakes and refusals.
        assert code == 1, self._stories[-1]
        assert len(self._stories) <= _MAX_ENDS, "\n\n".join(self._stories)

    def _status(self) -> list[dict[str, Any]]:
        done = subprocess.run(
            [*_COMMAND, "status", str(self._file), "--json"],
            env={**os.environ, **self._environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT_S,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        queries: list[dict[str, Any]] = json.loads(done.stdout)["queries"]
        return queries
