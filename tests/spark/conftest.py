"""One Spark session and one broker for all tests of a process that need them.

A session costs 5 to 15 seconds, a first query on a Python source about as much: tests share them,
and name their topics apart (`topic`). All tests here are marked `spark` and stay in one process
when several run.
"""

import itertools
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from odradek import Admin
from odradek.client.admin import NewTopic
from odradek.spark.session import build_session
from tests.support.odradek_broker import OdradekBroker, running_odradek
from tests.support.spark_connector import connector_jars
from tests.support.spark_python import quick_python

_HERE = Path(__file__).parent
_END_TIMEOUT_S = 60
_TIMEOUT_S = 900


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "spark: runs on a Spark session")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.spark)
            # Starting Spark takes ten seconds on a quiet machine, and minutes on one that is not.
            item.add_marker(pytest.mark.timeout(_TIMEOUT_S))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on two threads of this machine, with the source registered."""
    folder = tmp_path_factory.mktemp("spark")
    jars = connector_jars()
    environment = pytest.MonkeyPatch()
    environment.setenv("PYSPARK_PYTHON", quick_python(folder))
    session = build_session(
        master="local[2]",
        app_name="odradek-tests",
        checkpoint=str(folder),
        quick_start=True,
        keep_class_data=False,
        conf={
            "spark.driver.memory": "1g",
            **({"spark.jars": jars} if jars else {}),
            "spark.local.dir": str(folder / "local"),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
        },
    )
    try:
        yield session
    finally:
        session.stop()
        _end_java()
        environment.undo()


def _end_java() -> None:
    """End the Java that a stopped session leaves running until Python ends."""
    gateway = SparkContext._gateway
    if gateway is None:
        return
    process: subprocess.Popen[bytes] = gateway.proc
    gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None
    assert process.stdin is not None
    process.stdin.close()  # What it takes as the sign to end.
    try:
        process.wait(_END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OdradekBroker]:
    """A broker for all tests that do not end it."""
    with running_odradek(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


_numbers = itertools.count(1)


@pytest.fixture
def topic(broker: OdradekBroker) -> Callable[..., str]:
    """Makes a topic of a name that no other test has: `topic()`, `topic(partitions=4)`."""

    def make(*, partitions: int = 2, configs: dict[str, str] | None = None) -> str:
        name = f"topic-{next(_numbers)}"
        with Admin(bootstrap_servers=broker.bootstrap) as admin:
            made = admin.create_topics(
                [NewTopic(name=name, partition_count=partitions, configs=configs or {})]
            )
        assert not isinstance(made[name], Exception), made
        return name

    return make
