"""A ticket: the right to write in the transaction of another producer, as a value. Pure."""

import json
from dataclasses import asdict, dataclass
from typing import Self

__all__ = ["TransactionTicket"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionTicket:
    """Made by `Producer.ticket`, used by ``Producer(ticket=…)``, maybe in other processes.

    It can be pickled, and has a form as text. It is good for the transaction in which it was made.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    # The level of the feature transaction.version that the transaction was begun with.
    transaction_version: int

    def to_json(self) -> str:
        """The ticket as text."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Reads `to_json`.

        Raises:
            ValueError: The text is something else.
        """
        try:
            ticket = cls(**json.loads(text))
        except TypeError as error:
            raise ValueError(f"not a ticket: {text[:200]!r}: {error}") from None
        numbers = (ticket.producer_id, ticket.producer_epoch, ticket.transaction_version)
        if not isinstance(ticket.transactional_id, str) or any(type(n) is not int for n in numbers):
            raise ValueError(f"not a ticket: {text[:200]!r}")
        return ticket
