"""What a session is told."""

import pytest

from odradek.errors import ConfigError
from odradek.spark.runtime.session_conf import effective_master, is_connect, is_local, session_conf

MANAGER = "spark.sql.streaming.checkpointFileManagerClass"


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ("local", "local[1,4]"),
        ("local[2]", "local[2,4]"),
        ("local[*]", "local[*,4]"),
        ("local[2,1]", "local[2,1]"),
        ("local[*, 7]", "local[*,7]"),
        ("local-cluster[2,1,1024]", "local-cluster[2,1,1024]"),
        ("spark://host:7077", "spark://host:7077"),
        ("spark://a:7077,b:7077", "spark://a:7077,b:7077"),
        ("yarn", "yarn"),
        ("k8s://https://host:6443", "k8s://https://host:6443"),
        ("sc://host:15002", "sc://host:15002"),
    ],
)
def test_a_local_master_tries_a_failed_task_again(given: str, taken: str) -> None:
    """12:SP-41."""
    assert effective_master(given) == taken


@pytest.mark.parametrize("master", ["", "local[]", "local[x]", "mesos://host", "host:7077"])
def test_refuses_what_is_no_master(master: str) -> None:
    with pytest.raises(ConfigError, match=r"spark\.master.*expected local\[N\]"):
        effective_master(master)


def test_knows_where_things_run() -> None:
    assert is_local("local[2,4]")
    assert not is_local("local-cluster[2,1,1024]")
    assert is_connect("sc://host")
    assert not is_connect("spark://host:7077")


def test_a_local_session_is_small() -> None:
    conf = session_conf("local[2,4]", {})
    assert conf["spark.ui.enabled"] == "false"
    assert conf["spark.sql.session.timeZone"] == "UTC"
    assert conf["spark.sql.shuffle.partitions"] == "2"
    assert conf["spark.sql.python.filterPushdown.enabled"] == "true"
    assert "RocksDB" in conf["spark.sql.streaming.stateStore.providerClass"]
    assert MANAGER not in conf


def test_as_many_shuffle_partitions_as_processors() -> None:
    assert session_conf("local[*,4]", {}, cpu_count=7)["spark.sql.shuffle.partitions"] == "7"


def test_a_cluster_keeps_what_it_decides() -> None:
    conf = session_conf("spark://host:7077", {}, checkpoint="/data")
    assert conf["spark.sql.session.timeZone"] == "UTC"
    assert conf.keys().isdisjoint(
        {"spark.ui.enabled", "spark.driver.host", "spark.sql.shuffle.partitions", MANAGER}
    )


def test_a_server_that_runs_is_told_what_a_session_may_choose() -> None:
    assert all(key.startswith("spark.sql.") for key in session_conf("sc://host", {}))


def test_what_the_user_sets_wins() -> None:
    given = {"spark.ui.enabled": "true", "spark.sql.shuffle.partitions": "5", "spark.x": "y"}
    assert given.items() <= session_conf("local[2,4]", given).items()


@pytest.mark.parametrize(
    ("checkpoint", "is_chosen"),
    [
        ("/data/checkpoints", True),
        ("relative/path", True),
        ("file:///data", True),
        ("s3a://bucket/path", False),
        ("hdfs://host/path", False),
        (None, False),
    ],
)
def test_the_cheap_checkpoints_are_for_local_disks(checkpoint: str | None, is_chosen: bool) -> None:
    assert (MANAGER in session_conf("local[2,4]", {}, checkpoint=checkpoint)) == is_chosen


def test_joins_the_options_of_java() -> None:
    key = "spark.driver.extraJavaOptions"
    assert session_conf("local[1,4]", {key: "-Da=1"}, java_options=("-X", "-Y"))[key] == (
        "-X -Y -Da=1"
    )
    assert session_conf("local[1,4]", {key: "-Da=1"})[key] == "-Da=1"


def test_refuses_a_key_that_is_not_sparks() -> None:
    with pytest.raises(ConfigError, match=r"begins with spark\."):
        session_conf("local[1,4]", {"driver.memory": "1g"})
