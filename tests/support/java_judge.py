"""Kafka's clients and tools in one Java process, which a test sends commands to."""

import contextlib
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support.apache_kafka import KAFKA_VERSIONS, KafkaInstall, find_kafka, why_missing

__all__ = ["JavaJudge", "running_judge"]

_SOURCE: Final = Path(__file__).with_name("JavaJudge.java")
_END: Final = re.compile(r"\0(\d+)\n")


class JavaJudge:
    """The process; `tests/support/JavaJudge.java` is its program."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, *words: object) -> list[str]:
        """Runs a command; returns what it has printed.

        Raises:
            AssertionError: It failed.
        """
        code, lines = self.try_asking(*words)
        assert code == 0, f"{words}: code {code}\n" + "\n".join(lines)
        return lines

    def try_asking(self, *words: object) -> tuple[int, list[str]]:
        """As `ask`; returns the exit code, too."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(*words, sep="\t", file=self._process.stdin, flush=True)
        lines: list[str] = []
        for line in self._process.stdout:
            if (end := _END.fullmatch(line)) is not None:
                return int(end[1]), [one for one in lines if one]
            lines.append(line.rstrip("\n"))
        raise AssertionError(f"the judge has ended in {words}:\n" + "\n".join(lines))

    def tool(self, name: str, bootstrap: str, *words: object) -> list[str]:
        """Runs one of Kafka's tools."""
        name = f"org.apache.kafka.tools.{name}"
        return self.ask("tool", name, "--bootstrap-server", bootstrap, *words)


def _install() -> tuple[KafkaInstall, Path]:
    version = KAFKA_VERSIONS[0]
    install = find_kafka(version)
    if install is None:
        pytest.skip(why_missing(version))
    streams = install.lib_dir.parents[1] / f"kafka-streams-{version}"
    if not streams.is_dir():
        pytest.skip(f"Kafka Streams is not in {streams}; `make kafka` fetches it")
    if shutil.which("javac") is None:
        pytest.skip("no Java compiler on the path, which programs of Kafka's clients need")
    return install, streams


@contextlib.contextmanager
def running_judge(log_path: Path) -> Iterator[JavaJudge]:
    """Runs it until the block ends; skips with the reason if that is not possible here.

    Args:
        log_path: Gets what its clients log.
    """
    install, streams = _install()
    command = install.command(str(_SOURCE))
    command[command.index("-cp") + 1] += f":{streams}/*"
    with log_path.open("w") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        )
    with process:
        try:
            yield JavaJudge(process)
        except BaseException:
            process.kill()
            raise
        assert process.stdin is not None
        process.stdin.close()  # It ends then.
