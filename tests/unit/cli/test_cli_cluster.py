"""What `odradek cluster` gives its brokers, and what it refuses."""

import pytest

from odradek.cli.cluster import cluster_settings
from odradek.cli.connecting import CommandError
from odradek.cli.main import main


@pytest.mark.parametrize(
    ("brokers", "factor", "in_sync"), [(1, "1", "1"), (2, "2", "1"), (3, "3", "2"), (7, "3", "2")]
)
def test_topics_have_up_to_three_replicas_and_survive_the_loss_of_one(
    brokers: int, factor: str, in_sync: str
) -> None:
    settings = cluster_settings(brokers, {})
    assert settings["default.replication.factor"] == factor
    assert settings["offsets.topic.replication.factor"] == factor
    assert settings["min.insync.replicas"] == in_sync


def test_an_override_is_stronger() -> None:
    settings = cluster_settings(3, {"min.insync.replicas": "1", "num.partitions": "6"})
    assert settings["min.insync.replicas"] == "1"
    assert settings["num.partitions"] == "6"
    assert settings["default.replication.factor"] == "3"


@pytest.mark.parametrize("key", ["broker.id", "node.id", "listeners", "log.dirs", "log.dir"])
def test_settings_that_differ_between_brokers_are_refused(key: str) -> None:
    with pytest.raises(CommandError, match=f"--set {key}: each broker has its own; use --brokers"):
        cluster_settings(3, {key: "1"})


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--brokers", "0"], "expected 1 to 100, found '0'"),
        (["--brokers", "three"], "expected 1 to 100, found 'three'"),
        (["--base-port", "65536"], "expected 0 to 65535, found '65536'"),
    ],
)
def test_numbers_out_of_range_are_wrong_usage(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["cluster", *words])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_ports_beyond_the_last_are_refused_before_anything_starts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["cluster", "--base-port", "65534"]) == 1
    assert "broker 2 would listen on 65536, expected 65535 at most" in capsys.readouterr().err
