"""The dashboard and the alerts of `examples/monitoring/`, against brokers and a real Prometheus."""

import json
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from odradek import Producer
from odradek.testing import EmbeddedBroker
from tests.support.commands import Commands
from tests.support.ports import free_port

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
MONITORING = ROOT / "examples" / "monitoring"
RUNBOOK = ROOT / "docs" / "operations" / "alerts.md"
# Nothing to show on a sound broker: ratios and errors that did not happen.
_MAY_BE_EMPTY = {"Errors answered"}


def _rules() -> list[dict[str, Any]]:
    rules: list[dict[str, Any]] = YAML(typ="safe").load(MONITORING / "alerts.yml")["groups"][0][
        "rules"
    ]
    return rules


def _panels() -> list[dict[str, Any]]:
    panels: list[dict[str, Any]] = json.loads((MONITORING / "dashboard.json").read_text())["panels"]
    return panels


def _expressions() -> dict[str, str]:
    """Every query, with the dashboard's variables as it replaces them."""
    replaced = {"$__rate_interval": "1m", "$job": "odradek", "$instance": ".*"}
    found = {rule["alert"]: rule["expr"] for rule in _rules()}
    for panel in _panels():
        for target in panel["targets"]:
            expression = target["expr"]
            for variable, value in replaced.items():
                expression = expression.replace(variable, value)
            assert "$" not in expression
            found[panel["title"]] = expression
    return found


def _needs(program: str) -> str:
    path = shutil.which(program)
    if path is None:
        pytest.skip(f"no {program} here: scripts/debian-packages prometheus installs it")
    return path


@pytest.fixture(scope="module")
def metrics_port() -> Iterator[int]:
    port = free_port()
    with EmbeddedBroker({"odradek.metrics.port": str(port)}) as broker:
        odradek = Commands(broker.bootstrap_servers)
        odradek.ok("produce", "orders", stdin=b"one\ntwo\nthree\n")
        odradek.ok("consume", "orders", "--group", "g", "--from-beginning", "--max-messages", 1)
        # A client that stays, as clients do.
        with Producer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
            producer.send("orders", b"four").result(60)
            yield port


def test_every_query_names_families_that_a_broker_has(metrics_port: int) -> None:
    with urllib.request.urlopen(f"http://127.0.0.1:{metrics_port}/metrics", timeout=60) as answer:
        page = answer.read().decode()
    samples = set(re.findall(r"^(\w+)[{ ]", page, re.MULTILINE))
    for title, expression in _expressions().items():
        named = set(re.findall(r"\b(?:kafka|odradek|process)_\w+", expression))
        assert named <= samples | {"kafka_server_brokertopicmetrics_failedproducerequests_total"}, (
            title
        )
        assert named or expression.startswith(("up", "sum(up"))


def test_each_alert_has_a_paragraph_and_a_test() -> None:
    rules = _rules()
    headings = re.findall(r"^## (Odradek\w+)$", RUNBOOK.read_text(), re.MULTILINE)
    assert headings == [rule["alert"] for rule in rules]
    tests = (MONITORING / "alerts-test.yml").read_text()
    for rule in rules:
        anchor = f"docs/operations/alerts.md#{rule['alert'].lower()}"
        assert rule["annotations"]["runbook"] == anchor
        assert f'alertname="{rule["alert"]}", alertstate="firing"' in tests


def test_the_alerts_fire_on_their_troubles_and_on_nothing_else() -> None:
    promtool = _needs("promtool")
    for words in (
        ["check", "config", "prometheus.yml"],
        ["check", "rules", "alerts.yml"],
        ["test", "rules", "alerts-test.yml"],
    ):
        done = subprocess.run(
            [promtool, *words], cwd=MONITORING, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_answers_every_query(tmp_path: Path, metrics_port: int) -> None:
    """Scraped as the example says, though more often; every panel has something to show."""
    prometheus, port = _needs("prometheus"), free_port()
    for file in ("prometheus.yml", "alerts.yml"):
        text = (MONITORING / file).read_text().replace("9464", str(metrics_port))
        (tmp_path / file).write_text(text.replace("15s", "200ms"))
    command = [
        prometheus,
        f"--config.file={tmp_path / 'prometheus.yml'}",
        f"--storage.tsdb.path={tmp_path / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as running:
        try:
            waiting = {
                title: expression
                for title, expression in _expressions().items()
                if title not in _MAY_BE_EMPTY and not title.startswith("Odradek")
            }
            deadline = time.monotonic() + 120
            while waiting and time.monotonic() < deadline:
                for title, expression in list(waiting.items()):
                    if _ask(port, expression):
                        del waiting[title]
            assert waiting == {}
            assert _ask(port, _expressions()["Errors answered"]) is not None
            assert _ask(port, 'ALERTS{alertname="OdradekBrokerDown"}') == []
        finally:
            running.terminate()


def _ask(port: int, expression: str) -> list[Any] | None:
    """The series that answer a query; None if Prometheus does not serve yet."""
    query = urllib.parse.urlencode({"query": expression})
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/query?{query}") as answer:
            found: list[Any] = json.load(answer)["data"]["result"]
    except urllib.error.HTTPError as error:
        if error.code == 503:
            return None
        raise AssertionError(f"{expression}: {error.read().decode()}") from error
    except urllib.error.URLError:
        return None
    return found
