"""The Spark session that pipelines run in.

::

    spark = build_session(master="local[2]", conf={"spark.driver.memory": "2g"})
    spark.read.format("odradek").option("kafka.bootstrap.servers", "localhost:9092")…

Beyond Spark's own builder, `build_session` finds a Java, makes the next start faster, retries
failed tasks also on one machine, makes the workers use this interpreter, registers the data source,
ships the package to the executors of a cluster, and ends Java before this process.
"""

import atexit
import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from odradek.errors import ConfigError
from odradek.spark.progress.listener import progress_of
from odradek.spark.registering import register
from odradek.spark.runtime.java import find_java
from odradek.spark.runtime.java_archive import archive_options
from odradek.spark.runtime.java_output import JavaOutput
from odradek.spark.runtime.package_archive import package_archive
from odradek.spark.runtime.session_conf import effective_master, is_connect, session_conf
from odradek.spark.runtime.shipping import check_executors, needs_shipping, shipping_conf

try:
    import pyspark
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession
except ImportError as error:
    raise ImportError(
        "pipelines on Spark need pyspark: pip install 'odradek[spark]'", name="pyspark"
    ) from error

__all__ = ["build_session"]

# Java compiles less and collects garbage on one thread: it starts sooner and runs slower.
_QUICK: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
# The first Java takes some seconds to end, in which it writes the class-data archive.
_JAVA_END_S: Final = 60


def build_session(
    *,
    master: str = "local[*]",
    conf: Mapping[str, str] | None = None,
    app_name: str = "odradek",
    checkpoint: str | None = None,
    quick_start: bool = False,
    keep_class_data: bool = True,
    ship: bool = True,
    task_libraries: Sequence[str] = (),
    log_level: str | None = None,
) -> SparkSession:
    """A session with the source ``odradek`` registered.

    Args:
        master: ``local[N]``, ``local[*]``, ``spark://host:port``, ``yarn``, ``k8s://…``, or
            ``sc://host:port`` for Spark Connect.
        conf: Settings of Spark; they override the defaults of this function.
        app_name: Shown by Spark.
        checkpoint: Folder of the queries' checkpoints: on a local disk they are written in a
            cheaper way.
        quick_start: For short jobs: the driver's Java starts sooner and runs slower.
        keep_class_data: Whether the first session writes the class-data archive for the next.
        ship: Whether to ship this package to the executors of a cluster; not needed where it is
            installed.
        task_libraries: Modules that tasks will import, beyond those of this package and pyarrow:
            the executors of a cluster are checked for them.
        log_level: Of Spark's log: `off`, `error`, `warn`, `info`. With `off`, the lines that Java
            prints while it starts are shown only if it does not start. None changes nothing.

    Raises:
        VersionsDifferError: Executors of a cluster have other versions than the driver.
        ConfigError: The master or a setting cannot be used, there is no Java, or this process has
            a session with another master.
    """
    master = effective_master(master)
    given = dict(conf or {})
    _refuse_other_master(master)
    builder: SparkSession.Builder
    if is_connect(master):
        builder = SparkSession.builder.remote(master)
        settings = session_conf(master, given, checkpoint=checkpoint)
    else:
        options = _java_options(given, keep_class_data=keep_class_data)
        if quick_start:
            options = (*_QUICK, *options)
        if ship and needs_shipping(master):
            given |= shipping_conf(package_archive(os.environ), given)
        builder = SparkSession.builder.master(master)
        settings = session_conf(master, given, java_options=options, checkpoint=checkpoint)
    for key, value in settings.items():
        builder = builder.config(key, value)
    with _quiet_start(master, settings, log_level):
        session = builder.appName(app_name).getOrCreate()
        if log_level is not None and not is_connect(master):
            session.sparkContext.setLogLevel(log_level.upper())
    atexit.unregister(_await_java)
    atexit.register(_await_java)
    if needs_shipping(master):
        _check(session, is_shipped=ship, libraries=task_libraries)
    register(session)
    progress_of(session)
    return session


def _check(session: SparkSession, *, is_shipped: bool, libraries: Sequence[str]) -> None:
    try:
        check_executors(session, is_shipped=is_shipped, libraries=libraries)
    except BaseException:
        session.stop()
        raise


def _java_options(given: Mapping[str, str], *, keep_class_data: bool) -> tuple[str, ...]:
    """Finds the Java, and the Python, that Spark is to run on; returns options for the Java."""
    java = find_java(os.environ)
    os.environ["JAVA_HOME"] = java.home
    if "spark.pyspark.python" not in given:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return archive_options(
        java,
        spark_home=os.path.dirname(pyspark.__file__),
        spark_version=pyspark.__version__,
        environ=os.environ,
        may_create=keep_class_data,
    )


@contextlib.contextmanager
def _quiet_start(master: str, settings: Mapping[str, str], log_level: str | None) -> Iterator[None]:
    """Starts Java, unless it runs already, so that its first lines are not shown."""
    if log_level != "off" or is_connect(master) or SparkContext._gateway is not None:  # noqa: SLF001 - Spark names its Java nowhere else
        yield
        return
    output = JavaOutput()
    conf = SparkConf().setMaster(master).setAll(list(settings.items()))
    try:
        try:
            gateway = launch_gateway(  # type: ignore[no-untyped-call]  # It has no types.
                conf, {"stderr": output.fileno}
            )
        finally:
            output.begin()
        SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001 - likewise
        yield
    except Exception:
        output.show()
        raise
    else:  # After Ctrl-C the lines stay held, and are never shown.
        output.forget()


def _await_java() -> None:
    """Ends the Java of this process and waits for it, so that it does not outlive the process.

    Java ends when its standard input is closed, which else happens at the end of this process.
    """
    gateway = SparkContext._gateway  # noqa: SLF001 - Spark names its Java nowhere else
    java = getattr(gateway, "proc", None)
    if isinstance(java, subprocess.Popen) and java.stdin is not None:
        # Ctrl-C ends the wait.
        with contextlib.suppress(OSError, subprocess.TimeoutExpired, KeyboardInterrupt):
            java.stdin.close()
            java.wait(_JAVA_END_S)


def _refuse_other_master(master: str) -> None:
    active = SparkSession.getActiveSession()
    if active is None or is_connect(master):
        return
    running = active.conf.get("spark.master", None)
    if running != master:
        raise ConfigError(
            "spark.master",
            master,
            f"this process has a Spark session on {running} already; stop it first",
        )
