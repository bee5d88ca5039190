from collections.abc import Sequence

from odradek.records.batch import BatchHeader, Buffer
from odradek.records.codec_pure import ConsumerRecord as ConsumerRecord
from odradek.records.codec_pure import NewRecord
from odradek.records.record import Headers

def encode_records(
    records: Sequence[NewRecord],
    base_timestamp: int | None = None,
    offset_deltas: Sequence[int] | None = None,
    prefix_size: int = 0,
) -> tuple[bytearray, int]: ...
def estimate_record_size(key: bytes | None, value: bytes | None, headers: Headers = ()) -> int: ...
def count_fitting(records: Sequence[NewRecord], start: int, max_bytes: int) -> int: ...
def decode_records(
    region: Buffer,
    header: BatchHeader,
    from_offset: int,
    topic: str,
    partition: int,
    timestamp_type: int,
) -> list[ConsumerRecord]: ...
