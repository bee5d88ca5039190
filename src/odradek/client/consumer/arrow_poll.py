"""Takes the buffered records of a fetcher as Arrow record batches."""

from typing import Any

from odradek.client.arrow import batch_of_columns, batch_of_records
from odradek.client.consumer.fetcher import Fetcher
from odradek.errors import ApiError
from odradek.records.columns import ColumnBuilder

__all__ = ["take_arrow"]


def take_arrow(fetcher: Fetcher, *, max_bytes: int, headers: bool) -> list[Any]:
    """Batches of one partition each, until they have so many encoded bytes.

    Raises:
        ApiError: Bad bytes, if nothing comes before them; the partition is fetched again.
    """
    batches: list[Any] = []
    left = max_bytes
    while left > 0 and (data := fetcher.begin_columns()) is not None:
        tp = data.state.tp
        if data.rest_count:
            # `poll` has returned the beginning of a batch: the rest is decoded already.
            records = data.take(data.rest_count)
            batches.append(batch_of_records(records, headers=headers))
            left -= sum(len(record.value or b"") for record in records)
            continue
        builder = ColumnBuilder()
        try:
            left -= data.take_columns(builder, left)
        except ApiError:
            if not builder.count:
                if batches:
                    break
                fetcher.drop(data)
                raise
        if builder.count:
            batches.append(
                batch_of_columns(tp.topic, tp.partition, builder.finish(), headers=headers)
            )
        if data.is_drained:
            fetcher.finish_columns()
    return batches
