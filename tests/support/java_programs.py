"""Programs in Java beside the tests that run them, compiled against Kafka's own clients."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.support.apache_kafka import KAFKA_VERSIONS, KafkaInstall, find_kafka, why_missing

__all__ = ["java_command", "why_no_java_programs"]

_BUILT = Path(__file__).parents[2] / "build" / "java"


def why_no_java_programs() -> str | None:
    """The reason why no such program can be run here; None if they can."""
    if find_kafka(KAFKA_VERSIONS[0]) is None:
        return why_missing(KAFKA_VERSIONS[0])
    return None if shutil.which("javac") else "no javac on the path, which Java programs need"


def java_command(source: Path, *arguments: str) -> list[str]:
    """The command line that runs a program: one source, whose class is called like the file.

    It is compiled the first time, and when it has changed.
    """
    install = find_kafka(KAFKA_VERSIONS[0])
    assert install is not None, "asked for by why_no_java_programs"
    classes = _compile(source, install)
    command = install.command(source.stem, *arguments)
    command[command.index("-cp") + 1] += f":{classes}"
    return command


def _compile(source: Path, install: KafkaInstall) -> Path:
    mark = hashlib.sha256(source.read_bytes() + install.version.encode()).hexdigest()[:16]
    classes = _BUILT / f"{source.stem}-{mark}"
    if not classes.exists():
        _BUILT.mkdir(parents=True, exist_ok=True)
        fresh = tempfile.mkdtemp(prefix=f".{source.stem}-", dir=_BUILT)
        subprocess.run(
            ["javac", "-nowarn", "-cp", f"{install.lib_dir}/*", "-d", fresh, str(source)],
            check=True,
        )
        try:
            os.rename(fresh, classes)  # Whole or not at all, however many compile it at once.
        except OSError:
            shutil.rmtree(fresh)
    return classes
