"""Our producer's transactions on Odradek: the checks that it passes on Apache Kafka, too."""

from pathlib import Path

import pytest

from odradek import Admin
from odradek.client.admin import FeatureUpgrade
from tests.conformance.interop.producer_transaction_checks import PRODUCER_TRANSACTION_CHECKS
from tests.conformance.interop.suite import run_all
from tests.support.odradek_broker import running_odradek

pytestmark = pytest.mark.slow

_SETTINGS = {
    # How often a coordinator looks for transactions whose time is over.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "group.initial.rebalance.delay.ms": "0",
}


def test_our_transactions_on_odradek(tmp_path: Path) -> None:
    """10:TX-1 to 10:TX-7, 10:TX-10, 10:TX-12: with transaction.version 2 and 0."""
    with running_odradek(tmp_path / "data", _SETTINGS) as broker:
        run_all(PRODUCER_TRANSACTION_CHECKS, broker.bootstrap)
        with Admin(bootstrap_servers=broker.bootstrap) as admin:
            done = admin.update_features(
                {"transaction.version": 0}, upgrade=FeatureUpgrade.UNSAFE_DOWNGRADE
            )
        assert done == {"transaction.version": None}
        run_all(PRODUCER_TRANSACTION_CHECKS, broker.bootstrap)
