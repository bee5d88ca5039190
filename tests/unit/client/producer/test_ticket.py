"""Tickets as values, for other processes."""

import json
import pickle
from typing import Any

import pytest

from odradek.client.producer.config import read_producer_settings
from odradek.client.producer.ticket import TransactionTicket
from odradek.errors import ConfigError

TICKET = TransactionTicket(
    transactional_id="tx", producer_id=2**62, producer_epoch=3, transaction_version=2
)
FIELDS = json.loads(TICKET.to_json())


def test_a_ticket_survives_its_forms() -> None:
    """12:SP-25."""
    assert TransactionTicket.from_json(TICKET.to_json()) == TICKET
    assert pickle.loads(pickle.dumps(TICKET)) == TICKET


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "[]",
        "7",
        "no json",
        json.dumps({**FIELDS, "more": 1}),
        json.dumps({**FIELDS, "producer_id": "1"}),
        json.dumps({**FIELDS, "producer_epoch": True}),
        json.dumps({**FIELDS, "transactional_id": None}),
    ],
)
def test_another_text_is_no_ticket(text: str) -> None:
    """12:SP-25."""
    with pytest.raises(ValueError, match=r"not a ticket|Expecting value"):
        TransactionTicket.from_json(text)


BOOTSTRAP = {"bootstrap.servers": "localhost:1"}


def test_a_ticket_stands_for_the_transactional_id() -> None:
    """12:SP-25."""
    _, options = read_producer_settings(BOOTSTRAP, {}, TICKET)

    assert options.transactional_id == "tx"
    with pytest.raises(ConfigError, match="a producer with a ticket has none"):
        read_producer_settings(BOOTSTRAP, {"transactional_id": "other"}, TICKET)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"transactional_id": ""}, "transactional.id"),
        ({"transactional_id": "tx", "enable_idempotence": False}, "enable.idempotence"),
        ({"transactional_id": "tx", "acks": 1}, "acks"),
        ({"transactional_id": "tx", "retries": 0}, "retries"),
        ({"transactional_id": "tx", "transaction_timeout_ms": 0}, "transaction.timeout.ms"),
        (
            {"transactional_id": "tx", "max_in_flight_requests_per_connection": 6},
            "max.in.flight.requests.per.connection",
        ),
    ],
)
def test_a_setting_that_contradicts_transactions_is_an_error(
    settings: dict[str, Any], named: str
) -> None:
    """09:CL-14: it is not switched off by the way."""
    with pytest.raises(ConfigError) as error:
        read_producer_settings(BOOTSTRAP, settings)
    assert error.value.key == named
