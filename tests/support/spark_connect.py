"""A server of Spark Connect in a process of its own, with this package installed."""

import contextlib
import importlib.util
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark

from odradek.spark.runtime.java import find_java
from tests.support.spark_python import quick_python

__all__ = ["missing_connect", "running_connect"]

_START_TIMEOUT_S = 300
_UP = re.compile(r"Spark Connect server started at: \S+:(?P<port>\d+)")
_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
_CONF = {
    "spark.master": "local[2,4]",
    "spark.connect.grpc.binding.port": "0",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}


def missing_connect() -> str | None:
    """Why there can be no server, or None."""
    if importlib.util.find_spec("grpc_status") is None:
        return "Spark Connect needs grpcio and grpcio-status, which the extra `dev` brings"
    return None


@contextlib.contextmanager
def running_connect(folder: Path) -> Iterator[str]:
    """Runs a server until the block ends; its address, `sc://…`."""
    folder.mkdir(parents=True, exist_ok=True)
    home = Path(pyspark.__file__).parent
    settings = {**_CONF, "spark.local.dir": str(folder), "spark.sql.warehouse.dir": str(folder)}
    words = [word for pair in settings.items() for word in ("--conf", "=".join(pair))]
    log_path = folder / "connect.log"
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            [str(home / "bin" / "spark-submit"), "--class", _SERVER, *words, "spark-internal"],
            env={
                **os.environ,
                "JAVA_HOME": find_java(os.environ).home,
                "PYSPARK_PYTHON": quick_python(folder),
                "SPARK_HOME": str(home),
            },
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield f"sc://127.0.0.1:{_port(process, log_path)}"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _port(process: subprocess.Popen[bytes], log_path: Path) -> str:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline:
        if found := _UP.search(log_path.read_text(errors="replace")):
            return found["port"]
        time.sleep(0.1)
    raise AssertionError(f"no server:\n{log_path.read_text(errors='replace')[-4000:]}")
