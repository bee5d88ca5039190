"""Settings of the transaction coordinator, under Kafka's names.

Those of the topic `__transaction_state` are the broker's, which creates the topic.
"""

from dataclasses import dataclass

from odradek.config import key

__all__ = ["TransactionCoordinatorConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionCoordinatorConfig:
    """Transactions and transactional ids."""

    max_timeout_ms: int = key(
        "transaction.max.timeout.ms",
        default=900_000,
        at_least=1,
        agreed=True,
        doc="The longest time-out a producer may ask for; its transactions are aborted after it.",
    )
    id_expiration_ms: int = key(
        "transactional.id.expiration.ms",
        default=604_800_000,
        at_least=1,
        agreed=True,
        doc="How long a transactional id is remembered after its last transaction.",
    )
    abort_interval_ms: int = key(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        default=10_000,
        at_least=1,
        doc="How often transactions are searched for those that have timed out.",
    )
    expiry_interval_ms: int = key(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        default=3_600_000,
        at_least=1,
        doc="How often transactional ids are searched for those that have expired.",
    )
    load_buffer_bytes: int = key(
        "transaction.state.log.load.buffer.size",
        default=5 << 20,
        at_least=1,
        doc="How much of a partition of `__transaction_state` is read at a time, when this broker "
        "begins to lead it; a larger batch is read whole nevertheless, and more than 1 MB is never "
        "read at once.",
    )
