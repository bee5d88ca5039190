"""`odradek.SimpleConsumer`: the low-level reader, for plain scripts."""

import ssl
from collections.abc import Iterator, Mapping

from odradek.client import simple_consumer as awaited
from odradek.client.blocking import Blocking, blocking

__all__ = ["SimpleConsumer"]


class SimpleConsumer(Blocking[awaited.SimpleConsumer]):
    """Asks one broker directly, or reads one partition as raw batches. For several threads.

    ::

        with SimpleConsumer(bootstrap_servers="localhost:9092") as consumer:
            for raw in consumer.fetch_batches("orders", 0, offset=0):
                columns = raw.columns()

    Args: As `odradek.aio.SimpleConsumer`.

    Raises:
        ConfigError: A setting is unknown or cannot be used.
    """

    _what = "simple consumer"

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        *,
        ssl_context: ssl.SSLContext | None = None,
        **keywords: object,
    ) -> None:
        super().__init__(awaited.SimpleConsumer(config, ssl_context=ssl_context, **keywords))

    send = blocking(awaited.SimpleConsumer.send)
    metadata = blocking(awaited.SimpleConsumer.metadata)
    fetch = blocking(awaited.SimpleConsumer.fetch)
    earliest_or_latest_offset = blocking(awaited.SimpleConsumer.earliest_or_latest_offset)
    coordinator = blocking(awaited.SimpleConsumer.coordinator)
    commit_offsets = blocking(awaited.SimpleConsumer.commit_offsets)
    fetch_offsets = blocking(awaited.SimpleConsumer.fetch_offsets)

    def fetch_batches(
        self,
        topic: str,
        partition: int,
        offset: int,
        end: int | None = None,
        max_bytes: int = 8 << 20,
        *,
        timeout: float | None = None,
    ) -> Iterator[awaited.RawBatches]:
        """See `odradek.aio.SimpleConsumer.fetch_batches`."""
        batches = self._core.fetch_batches(
            topic, partition, offset, end, max_bytes, timeout=timeout
        )

        async def next_batch() -> awaited.RawBatches | None:
            return await anext(batches, None)

        try:
            while (raw := self._call(next_batch())) is not None:
                yield raw
        finally:
            if not self._is_closed:
                self._call(batches.aclose())
