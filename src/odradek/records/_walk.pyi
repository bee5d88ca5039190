from odradek.records.batch import Buffer

def walk_records(
    region: Buffer,
    start: int,
    end: int,
    record_count: int,
    base_timestamp: int,
    earliest_timestamp: int,
    latest_timestamp: int,
    require_key: bool,
) -> tuple[int, int, bool, list[tuple[int, int]] | None]: ...
def check_plain_batch(
    batch: Buffer, earliest_timestamp: int, latest_timestamp: int, require_key: bool
) -> tuple[int, int, int, int, int] | None: ...
