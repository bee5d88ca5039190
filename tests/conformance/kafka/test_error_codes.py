"""The error codes are Kafka's: what people search for finds what others wrote about it."""

import re

import pytest

from odradek.errors import ErrorCode
from tests.support.apache_kafka import KafkaInstall

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

_ROW = re.compile(r"<tr><td>(\w+)</td><td>(-?\d+)</td><td>(True|False)</td>")


def test_names_and_numbers_are_kafkas(kafka: KafkaInstall) -> None:
    """08:P-4: also whether a client may try again. An older Kafka knows fewer."""
    told = kafka.run_tool("org.apache.kafka.common.protocol.Errors").stdout
    theirs = {
        int(code): (name, retriable == "True") for name, code, retriable in _ROW.findall(told)
    }
    ours = {int(code): (code.name, code.retriable) for code in ErrorCode}
    assert len(theirs) > 100
    assert {code: ours.get(code) for code in theirs} == theirs
    if kafka.version.startswith("4."):
        assert set(ours) == set(theirs)
