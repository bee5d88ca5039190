from collections.abc import Sequence

from odradek.records.batch import Buffer

def hash_key(key: Buffer, secret: bytes) -> bytes: ...
def shift_timestamps(region: Buffer, record_count: int, shift: int) -> bytes: ...

class KeyTable:
    def __init__(self, slot_count: int, load_factor: float, secret: bytes) -> None: ...
    def __len__(self) -> int: ...
    @property
    def capacity(self) -> int: ...
    def get(self, key: Buffer) -> int: ...
    def put(
        self, region: Buffer, record_count: int, base_offset: int, first_offset: int
    ) -> bool: ...
    def filter(
        self,
        region: Buffer,
        record_count: int,
        base_offset: int,
        base_timestamp: int,
        latest_offset: int,
        drop_tombstones: bool,
    ) -> tuple[int, bytes | None, int, bool, int]: ...
    def put_run(self, data: Buffer, position: int, first_offset: int) -> tuple[int, int]: ...
    def filter_run(
        self,
        data: Buffer,
        position: int,
        latest_offset: int,
        now_ms: int,
        spared: Sequence[int],
    ) -> tuple[int, bytes, list[tuple[int, int, int]], int, int, int]: ...
