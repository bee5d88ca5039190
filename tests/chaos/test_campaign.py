"""A bounded campaign against the real thing, and the deal of faults."""

import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from tests.chaos.campaign import available_faults
from tests.chaos.clusters import Cluster, KraftCluster, OdradekBroker, OdradekCluster
from tests.chaos.faults import FAULTS, deal
from tests.chaos.network import why_no_namespaces

ROOT = Path(__file__).parents[2]


def test_a_deal_has_each_fault_as_often_as_any_other() -> None:
    dealt = deal(Random(1), 3 * len(FAULTS), list(FAULTS))

    assert set(Counter(dealt).values()) == {3}
    assert dealt == deal(Random(1), 3 * len(FAULTS), list(FAULTS))
    assert dealt != deal(Random(2), 3 * len(FAULTS), list(FAULTS))


def test_faults_that_cannot_be_had_are_left_out() -> None:
    with_links = available_faults(KraftCluster, can_cut=True)
    without = available_faults(KraftCluster, can_cut=False)

    assert {"K-16", "K-17", "K-18", "K-19"} == set(with_links) - set(without)
    assert {"store-gone", "kill-store-leader"} <= set(
        available_faults(OdradekCluster, can_cut=True)
    )
    assert "store-gone" not in with_links


def check_campaign(
    cluster: type[Cluster], folder: Path, *faults: str, options: tuple[str, ...] = ()
) -> None:
    """Runs these faults; skips with the reason where the cluster cannot be had."""
    reason = cluster.why_missing() or why_no_namespaces()
    if reason:
        pytest.skip(reason)
    command = [
        sys.executable, "-m", "tests.chaos", "--one", "--cluster", cluster.kind, "--seed", "1",
        "--folder", str(folder), "--rate", "20", *options,
        *(word for name in faults for word in ("--fault", name)),
    ]  # fmt: skip

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"faults: {len(faults)}" in done.stdout


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.timeout(900)
def test_a_campaign_against_apache_kafka_is_clean(tmp_path: Path) -> None:
    """08:K-16, 15:3: the same clients, faults and checker find nothing wrong with Kafka."""
    check_campaign(KraftCluster, tmp_path, "K-16")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_campaign_against_odradek_is_clean(tmp_path: Path) -> None:
    """08:K-16, 08:K-20, 15:3: a leader dies, another is cut off; nothing acknowledged is lost."""
    check_campaign(OdradekCluster, tmp_path, "kill-leader", "K-16")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_pipelines_with_transactions_on_one_broker_are_clean(tmp_path: Path) -> None:
    """15:3, 10:TX-6: a producer is replaced while it sleeps, and the broker dies with another."""
    options = ("--transactions", "--client", "mixed")
    check_campaign(OdradekBroker, tmp_path, "replace-producer", "kill-both", options=options)
