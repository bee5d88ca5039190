"""``python -m tests.restarts.senders CLIENT BOOTSTRAP TOPIC PARTITIONS TRANSACTIONAL_ID``."""

import os
import sys
import threading
import time
from collections.abc import Callable
from functools import partial

IN_FLIGHT = 5
PAUSE_S = 0.001
# Longer than all restarts of a run take together.
DELIVERY_MS = 600_000
# More than what is sent while a broker is away would have to wait in the client.
AHEAD = 200

_lock = threading.Lock()


def _tell(line: str) -> None:
    with _lock:
        print(line, flush=True)


def _is_over() -> Callable[[], bool]:
    """Tells whether the input has ended."""
    ended = threading.Event()

    def wait() -> None:
        while os.read(0, 64):
            pass
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    return ended.is_set


def send_by_librdkafka(bootstrap: str, topic: str, partitions: int, transactional_id: str) -> int:
    """Sends until the input ends; returns how many records it sent."""
    from confluent_kafka import Producer

    settings: dict[str, object] = {
        "bootstrap.servers": bootstrap,
        "enable.idempotence": True,
        "max.in.flight.requests.per.connection": IN_FLIGHT,
        # It has no more messages of a partition in flight than this allows requests.
        "batch.num.messages": 1,
        "linger.ms": 0,
        "message.timeout.ms": DELIVERY_MS,
        "reconnect.backoff.max.ms": 500,
        "log_level": 0,
    }
    if transactional_id:
        settings |= {"transactional.id": transactional_id, "transaction.timeout.ms": DELIVERY_MS}
    producer = Producer(settings)
    if transactional_id:
        producer.init_transactions()
        producer.begin_transaction()

    def note(number: int, error: object, message: object) -> None:
        offset: int = message.offset()  # type: ignore[attr-defined]  # its class has no public name
        _tell(f"failed {number} {error}" if error else f"acked {number} {offset}")

    is_over = _is_over()
    count = 0
    while not is_over():
        if len(producer) < AHEAD:
            producer.produce(
                topic, b"%d" % count, partition=count % partitions, on_delivery=partial(note, count)
            )
            count += 1
        producer.poll(PAUSE_S)
    producer.flush(DELIVERY_MS / 1000)
    if transactional_id:
        producer.commit_transaction()
    return count


def send_by_ours(bootstrap: str, topic: str, partitions: int, transactional_id: str) -> int:
    """Sends until the input ends; returns how many records it sent."""
    from odradek import Producer
    from odradek.client.producer.delivery import Delivery

    settings: dict[str, object] = {
        "bootstrap.servers": bootstrap,
        "max.in.flight.requests.per.connection": IN_FLIGHT,
        "batch.size": 100,
        "linger.ms": 0,
        "delivery.timeout.ms": DELIVERY_MS,
    }
    if transactional_id:
        settings |= {"transactional.id": transactional_id, "transaction.timeout.ms": DELIVERY_MS}
    waiting: set[int] = set()

    def note(number: int, delivery: Delivery) -> None:
        error = delivery.exception()
        offset = -1 if error else delivery.result(0).offset
        waiting.discard(number)
        _tell(f"failed {number} {error!r}" if error else f"acked {number} {offset}")

    is_over = _is_over()
    count = 0
    with Producer(settings) as producer:
        if transactional_id:
            producer.init_transactions()
            producer.begin_transaction()
        while not is_over():
            if len(waiting) < AHEAD:
                waiting.add(count)
                sent = producer.send(topic, b"%d" % count, partition=count % partitions)
                sent.add_done_callback(partial(note, count))
                count += 1
            time.sleep(PAUSE_S)
        producer.flush(DELIVERY_MS / 1000)
        if transactional_id:
            producer.commit_transaction()
    return count


SENDERS = {"librdkafka": send_by_librdkafka, "ours": send_by_ours}


def main() -> None:
    """Runs a sender."""
    client, bootstrap, topic, partitions, transactional_id = sys.argv[1:]
    count = SENDERS[client](bootstrap, topic, int(partitions), transactional_id)
    _tell(f"sent {count}")


if __name__ == "__main__":
    main()
