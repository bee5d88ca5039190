from odradek.records.batch import Buffer

class ProducerTails:
    def __len__(self) -> int: ...
    def note(self, producer_id: int, header: bytes) -> None: ...
    def drain(self) -> list[bytes]: ...

def step_over_headers(data: Buffer, position: int, next_offset: int) -> tuple[int, int]: ...
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
    tails: ProducerTails,
) -> tuple[int, int, int, int, int, list[tuple[int, int, int, int]]]: ...
