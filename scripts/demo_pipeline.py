"""The second half of `make demo`: `examples/shop/shop.yaml` turns a stream of orders into tables.

1. A broker starts. Orders of a shop are written to a topic, some of them malformed, some with a
   negative amount, some without a customer.
2. `odradek pipeline run` cleans them, joins them with the customers and sums them up by country:
   into a Delta table, a topic, and a topic for unusable orders. Its live table shows the progress.
3. When all orders are processed, it is stopped as by Ctrl-C, and the results are checked.
"""

import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from odradek import Admin, Consumer, Producer
from odradek.client.admin import NewTopic
from odradek.model import TopicPartition
from scripts.demo_broker import serve

FILE = Path(__file__).parent.parent / "examples" / "shop" / "shop.yaml"
CUSTOMERS = ["ada", "bela", "chidi", "dora", "emil", "fumiko", "greta", "hana", "ivan", "juna"]
ORDERS, LETTERS, TOTALS = "orders", "orders.dlq", "totals-by-country"
PARTITIONS = 4
SECONDS = 25  # At least: on a slow machine until the first sums are out.
PER_SECOND = 4_000
FASTER = 4  # The shop's clock: ten seconds of orders come in two and a half.
QUERIES = ("totals", "lake", "dlq")
PATIENCE = 300


def main() -> int:
    """Shows all steps; returns 0 if every order is in the table once."""
    directory = tempfile.mkdtemp(prefix="odradek-demo-")
    try:
        return show(directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def show(directory: str) -> int:
    """Runs the steps in a directory of their own."""
    with serve(os.path.join(directory, "broker")) as (process, address, _):
        with Admin(bootstrap_servers=address) as admin:
            made = [NewTopic(name=name, partition_count=PARTITIONS) for name in (ORDERS, TOTALS)]
            admin.create_topics([*made, NewTopic(name=LETTERS, partition_count=1)])
        print(f"shop     opens: {PER_SECOND:,} orders a second, one in a hundred of no use")
        shop = Shop(address)
        shop.start()
        code = run_pipeline(address, directory, shop)
        shop.join()
        is_right = look(address, directory, shop)
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=30)
    if code != 0 or not is_right:
        print(f"demo: FAILED, the pipeline ended with {code}, the results are as above")
        return 1
    return 0


class Shop(threading.Thread):
    """Writes orders at an even pace until it is closed."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self._address = address
        self._chance = random.Random(1)
        self._opened = datetime.now(UTC)
        self.closed = threading.Event()
        self.good = self.negative = self.nobody = self.broken = 0

    def run(self) -> None:
        began = time.monotonic()
        with Producer(bootstrap_servers=self._address, linger_ms=20) as producer:
            for number in itertools.count():
                due = number / PER_SECOND
                early = began + due - time.monotonic()
                if number % 100 == 0 and self.closed.wait(max(0.0, early)):
                    return
                producer.send(ORDERS, self._order(number, due))

    def _order(self, number: int, due: float) -> bytes:
        at = (self._opened + timedelta(seconds=due * FASTER)).isoformat(timespec="milliseconds")
        amount = round(self._chance.lognormvariate(3, 1), 2) + 0.01
        customer = self._chance.choice(CUSTOMERS)
        order = {"id": number, "customer": customer, "amount": amount, "at": at}
        match self._chance.randrange(300):
            case 0:
                self.broken += 1
                return json.dumps(order).encode()[:-9]
            case 1:
                self.negative += 1
                return json.dumps(order | {"amount": -amount}).encode()
            case 2:
                self.nobody += 1
                return json.dumps(order | {"customer": None}).encode()
        self.good += 1
        return json.dumps(order).encode()


def run_pipeline(address: str, directory: str, shop: Shop) -> int:
    """Runs the file until the first sums are written and all orders read; returns its exit code."""
    environment = os.environ | {"KAFKA": address, "SHOP": directory}
    # For a run of a minute: Java is ready sooner, and would be slower in the long run.
    environment.setdefault("JDK_JAVA_OPTIONS", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
    command = [sys.executable, "-m", "odradek.cli.main", "pipeline", "run", str(FILE)]
    # On a terminal it shows its table itself; else its lines of JSON are made readable here.
    is_shown = sys.stdout.isatty()
    process = subprocess.Popen(
        command, env=environment, text=True, stdout=None if is_shown else subprocess.PIPE
    )
    if process.stdout is not None:
        threading.Thread(target=tell, args=(process.stdout,), daemon=True).start()
    began = time.monotonic()
    try:
        while process.poll() is None and time.monotonic() < began + PATIENCE:
            time.sleep(0.5)
            if shop.closed.is_set() and lag(address) == 0:
                break
            if time.monotonic() > began + SECONDS and end_of(address, TOTALS) > 0:
                shop.closed.set()
        shop.closed.set()
        process.send_signal(signal.SIGINT)
        return process.wait(timeout=PATIENCE)
    finally:
        shop.closed.set()
        if process.poll() is None:
            process.kill()
            process.wait()


def tell(lines: Iterable[str]) -> None:
    """Prints the pipeline's reports of its batches."""
    for line in lines:
        batch = json.loads(line)
        print(
            f"batch    {batch['sink']:6} {batch['batch']:>2}: {batch['input_rows']:>7,} orders in,"
            f" {batch['sink_rows']:>7,} rows out, {batch['duration_ms'] / 1000:.1f} s",
            flush=True,
        )


def end_of(address: str, topic: str) -> int:
    """Records that were written to a topic."""
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    with Consumer(bootstrap_servers=address) as consumer:
        return sum(consumer.end_offsets(partitions).values())


def lag(address: str) -> int:
    """Orders that a query has not read yet: the lag of its group, as any Kafka tool shows it."""
    orders = [TopicPartition(ORDERS, number) for number in range(PARTITIONS)]
    left = 0
    for query in QUERIES:
        group = f"odradek-pipeline-shop-{query}"
        with Consumer(bootstrap_servers=address, group_id=group) as consumer:
            last = consumer.end_offsets(orders)
            committed = consumer.committed(orders)
        left += sum(last[tp] - (one.offset if one else 0) for tp, one in committed.items())
    return left


def look(address: str, directory: str, shop: Shop) -> bool:
    """Checks the results; returns whether each good order is in the table once."""
    table = DeltaTable(os.path.join(directory, "lake", "orders"))
    asked = QueryBuilder().register("orders", table)
    found = asked.execute(
        "select country, count(*) as orders, count(distinct id) as different,"
        " round(sum(amount), 2) as total from orders group by country order by total desc"
    ).read_all()
    rows = pa.table(found).to_pylist()
    print("lake     country   orders        total")
    for row in rows:
        print(f"         {row['country']:<7} {row['orders']:>8,} {row['total']:>12,.2f}")
    in_table = sum(row["orders"] for row in rows)
    different = sum(row["different"] for row in rows)
    windows = read(address, TOTALS, PARTITIONS)
    letters = read(address, LETTERS, 1)
    example = windows[-1][1] if windows else "none"
    print(f"totals   {len(windows):,} sums by country and ten seconds, the last: {example}")
    reasons: dict[str, int] = {}
    for headers, _ in letters:
        reason = headers["odradek.dlq.reason"].decode()
        reasons[reason] = reasons.get(reason, 0) + 1
    told = ", ".join(f"{count} for {reason}" for reason, count in sorted(reasons.items()))
    print(f"letters  {len(letters):,} dead letters: {told}")
    print(
        f"check    {shop.good:,} good orders were written, {in_table:,} are in the table,"
        f" {different:,} different ones"
    )
    return in_table == different == shop.good and len(letters) >= (shop.broken + shop.negative)


def read(address: str, topic: str, count: int) -> list[tuple[dict[str, bytes], str]]:
    """All records of a topic: headers and value."""
    found: list[tuple[dict[str, bytes], str]] = []
    with Consumer(bootstrap_servers=address, auto_offset_reset="earliest") as consumer:
        partitions = [TopicPartition(topic, number) for number in range(count)]
        consumer.assign(partitions)
        end = sum(consumer.end_offsets(partitions).values())
        while len(found) < end:
            for record in consumer.poll(timeout=1.0):
                headers = {name: value or b"" for name, value in record.headers}
                found.append((headers, (record.value or b"").decode()))
    return found
