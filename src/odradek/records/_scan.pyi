from odradek.records.batch import Buffer

def step_over_run(
    data: Buffer,
    position: int,
    next_offset: int,
    last_allowed_offset: int,
    latest_epoch: int,
    max_timestamp: int,
    offset_of_max_timestamp: int,
    entry_position: int,
    interval_bytes: int,
) -> tuple[int, int, int, int, int, list[tuple[int, int, int, int]]]: ...
