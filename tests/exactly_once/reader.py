"""Reads committed records with librdkafka: ``python -m tests.exactly_once.reader SPEC``.

Writes a line for each record, in the order of each partition: until its process is killed, or to
the end that each partition has when it starts.
"""

import json
import sys
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

__all__: list[str] = []

_TIMEOUT_S = 60


def main() -> None:
    """Reads."""
    spec: dict[str, Any] = json.loads(sys.argv[1])
    consumer = Consumer(
        {
            "bootstrap.servers": spec["bootstrap"],
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    parts = [
        TopicPartition(spec["topic"], number, OFFSET_BEGINNING)
        for number in range(spec["partitions"])
    ]
    left = {}
    if spec["to_end"]:
        for part in parts:
            # The end for readers of committed records; it may lie behind the last one.
            left[part.partition] = consumer.get_watermark_offsets(part, timeout=_TIMEOUT_S)[1]
    consumer.assign(parts)
    with open(spec["out"], "w", buffering=1) as out:
        while not spec["to_end"] or any(
            position.offset < left[position.partition] for position in consumer.position(parts)
        ):
            record = consumer.poll(0.2)
            if record is None or record.error():
                continue
            value = record.value()
            line = {
                "topic": record.topic(),
                "partition": record.partition(),
                "offset": record.offset(),
                "value": None if value is None else value.decode(),
            }
            out.write(json.dumps(line) + "\n")
    consumer.close()


if __name__ == "__main__":
    main()
