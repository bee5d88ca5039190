"""What executors get, and what is refused when they have something else."""

import subprocess
import sys

import pytest

from odradek.spark.runtime.shipping import (
    Installation,
    _hint,
    _question,
    differences,
    needs_shipping,
    shipping_conf,
)


def installed(where: str, **versions: str) -> Installation:
    return Installation(where=where, versions=versions)


@pytest.mark.parametrize("master", ["spark://host:7077", "yarn", "k8s://https://host:6443"])
def test_clusters_need_the_package(master: str) -> None:
    """12:SP-41."""
    assert needs_shipping(master)


@pytest.mark.parametrize("master", ["local[2,4]", "local-cluster[2,1,1024]", "sc://host"])
def test_others_do_not(master: str) -> None:
    assert not needs_shipping(master)


def test_the_archive_goes_beside_what_the_user_sends() -> None:
    """12:SP-41."""
    assert shipping_conf("/a.tar.gz", {}) == {
        "spark.archives": "/a.tar.gz#odradek_pkg",
        "spark.executorEnv.PYTHONPATH": "./odradek_pkg",
    }
    theirs = {"spark.archives": "/b.zip#b", "spark.executorEnv.PYTHONPATH": "./b"}
    assert shipping_conf("/a.tar.gz", theirs) == {
        "spark.archives": "/b.zip#b,/a.tar.gz#odradek_pkg",
        "spark.executorEnv.PYTHONPATH": "./odradek_pkg:./b",
    }


def test_equal_versions_are_no_difference() -> None:
    here = installed("driver", python="3.11", odradek="1")
    assert differences(here, [installed("e1", python="3.11", odradek="1")]) == ""
    assert differences(here, []) == ""


def test_shows_a_table_of_what_differs() -> None:
    """12:SP-41: only the columns and executors that do."""
    here = installed("driver on a", python="3.11", odradek="1.0", pyarrow="26.0.1")
    table = differences(
        here,
        [
            installed("executor 0 on b", python="3.12", odradek="1.0", pyarrow="26.0.1"),
            installed("executor 1 on b", python="3.11", odradek="1.0", pyarrow="26.0.1"),
            installed("executor 2 on c", python="3.11", odradek="1.0", pyarrow="none: no module"),
        ],
    )
    assert table.splitlines() == [
        "                 python  pyarrow",
        "driver on a      3.11    26.0.1",
        "executor 0 on b  3.12    26.0.1",
        "executor 2 on c  3.11    none: no module",
    ]


def test_a_library_of_a_pipeline_may_have_any_version_but_must_be_there() -> None:
    """12:SP-41: what its tasks import."""
    here = installed("driver on a", python="3.11", psycopg="3.3", fastavro="1.13")
    older = installed("executor 0 on b", python="3.11", psycopg="3.2", fastavro="1.12")
    needed = ["psycopg", "fastavro"]
    assert differences(here, [older], any_version=needed) == ""
    lacking = installed("executor 1 on c", python="3.11", psycopg="none: no module", fastavro="1")
    assert differences(here, [older, lacking], any_version=needed).splitlines() == [
        "                 psycopg",
        "driver on a      3.3",
        "executor 1 on c  none: no module",
    ]
    told = _hint(here, [older, lacking], needed, is_shipped=True)
    assert told.startswith("the tasks of this pipeline import psycopg: install it on every machine")
    other = installed("executor 2 on d", python="3.12", psycopg="none: no module", fastavro="1")
    told = _hint(here, [other], needed, is_shipped=True)
    assert told.startswith(
        "use the same Python on the cluster, and install the missing modules there;"
    )
    assert "import psycopg" in told


def test_asks_for_what_a_pipeline_needs_besides() -> None:
    """12:SP-41."""
    versions = dict(_question(("odradek", "fastavro", "no_such_library"))()[1])
    assert list(versions) == ["python", "odradek", "fastavro", "no_such_library"]
    assert not versions["fastavro"].startswith("none")
    assert versions["no_such_library"].startswith("none: No module named")


def test_asks_what_is_here() -> None:
    where, told = _question()()
    versions = dict(told)
    assert where.startswith("executor")
    assert versions["python"] == f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert versions["odradek"] == "0.1.0"
    assert list(versions) == ["python", "odradek", "pyarrow", "crc32c", "cramjam"]
    assert not [version for version in versions.values() if version.startswith("none")]


def test_the_question_needs_nothing_of_this_package() -> None:
    """12:SP-41: an executor that lacks it can say so."""
    from pyspark import cloudpickle

    program = (
        "import pickle, sys; sys.modules['odradek'] = sys.modules['pyarrow'] = None; "
        "print(dict(pickle.loads(bytes.fromhex(sys.stdin.read()))()[1]))"
    )
    told = subprocess.run(
        [sys.executable, "-c", program],
        input=cloudpickle.dumps(_question()).hex(),  # type: ignore[no-untyped-call]
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    assert "'odradek': 'none: " in told.stdout
    assert "'pyarrow': 'none: " in told.stdout
