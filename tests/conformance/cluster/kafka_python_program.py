"""kafka-python as a program: writes or reads a topic until SIGTERM, and tells each step in a line.

A process of its own, since kafka-python leaves sockets open with which it tried to reach a dead
broker. The lines have the form of Kafka's `VerifiableProducer` and `VerifiableConsumer`.
"""

import json
import signal
import sys
import threading

import kafka

_IN_FLIGHT = 20
_GIVE_UP_S = 120


def tell(name: str, partition: int, offset: int, value: int) -> None:
    event = {"name": name, "partition": partition, "offset": offset, "value": value}
    print(json.dumps(event), flush=True)


def write(bootstrap: list[str], topic: str, partitions: int, told: threading.Event) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, acks="all", enable_idempotence=True)
    number = 0
    while not told.is_set():
        sent = {
            value: producer.send(topic, b"%d" % value, partition=value % partitions)
            for value in range(number, number + _IN_FLIGHT)
        }
        number += _IN_FLIGHT
        for value, future in sent.items():
            found = future.get(_GIVE_UP_S)
            tell("producer_send_success", found.partition, found.offset, value)
    producer.close()


def read(bootstrap: list[str], topic: str, told: threading.Event) -> None:
    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=f"group-of-{topic}",
        auto_offset_reset="earliest",
    )
    while not told.is_set():
        for records in consumer.poll(timeout_ms=200).values():
            for one in records:
                tell("record_data", one.partition, one.offset, int(one.value))
    consumer.close()


def main() -> None:
    what, servers, topic, partitions = sys.argv[1:]
    told = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: told.set())
    if what == "writes":
        write(servers.split(","), topic, int(partitions), told)
    else:
        read(servers.split(","), topic, told)


if __name__ == "__main__":
    main()
