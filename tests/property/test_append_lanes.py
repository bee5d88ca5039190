"""The everyday lane of an append and the general way: the same files, answers and refusals.

`Appender.append_plain_batch` does for a single, plain batch in one function what the general way,
`Appender.append_as_leader`, does in several. Any set is appended to two logs that are alike but for
one of them being without the lane. Both must then be alike again, byte for byte.
"""

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from odradek.errors import ApiError
from odradek.model import AppendOrigin
from odradek.records.batch import HEADER, LOG_OVERHEAD, BatchHeader, update_crc
from odradek.records.compression import Codec
from odradek.storage.appender import Appender
from odradek.storage.appends import LogAppendInfo
from odradek.storage.config import LogConfig
from odradek.storage.log import Log
from tests.support.logs import T0, LogFixture, batch

CONFIG = LogConfig(
    max_message_bytes=2_000,
    segment_bytes=5_000,
    index_interval_bytes=300,
    segment_index_bytes=24 * 12,
)


class LanelessAppender(Appender):
    """Sends every set the general way."""

    __slots__ = ()

    def append_plain_batch(self, records: Any, leader_epoch: int) -> LogAppendInfo | None:
        return None


class TwoLogs:
    """A log that has the lane and one that has not, given the same sets."""

    def __init__(self, path: Path, config: LogConfig, stack: ExitStack) -> None:
        self._fixtures = [
            stack.enter_context(LogFixture(path / name, config=config))
            for name in ("lane", "general")
        ]
        self.logs = [fixture.open() for fixture in self._fixtures]
        general = self.logs[1]
        general._appender = LanelessAppender(general, config)

    def append(self, records: Any, leader_epoch: int) -> LogAppendInfo | None:
        """Appends a copy to both; returns the answer, None for a refusal."""
        outcomes = [outcome(log, records, leader_epoch) for log in self.logs]
        assert outcomes[0] == outcomes[1]
        answer = outcomes[0][0]
        return answer if isinstance(answer, LogAppendInfo) else None

    def check_alike(self) -> None:
        lane, general = self.logs
        assert lane.offsets() == general.offsets()
        assert lane.log_end_offset_metadata == general.log_end_offset_metadata
        assert lane.recovery_point == general.recovery_point
        assert lane.producer_state.map_end_offset == general.producer_state.map_end_offset
        assert lane.leader_epochs.entries == general.leader_epochs.entries
        first, second = ({n: f.path(n).read_bytes() for n in f.names()} for f in self._fixtures)
        assert first == second


class _Answer(LogAppendInfo):
    """Compares by what the fields say, defaults included."""


def fields_of(info: LogAppendInfo) -> dict[str, object]:
    names = [name for name in LogAppendInfo.__annotations__]
    return {name: getattr(info, name) for name in names}


def outcome(log: Log, records: Any, leader_epoch: int) -> tuple[object, ...]:
    """What an append says, what it does to the buffer, and what it reports as too large."""
    rejected: list[int] = []
    log.on_append_rejected = rejected.append
    copy = bytearray(records) if isinstance(records, bytearray) else records
    try:
        info = log.append_as_leader(copy, leader_epoch=leader_epoch)
    except ApiError as error:
        return (type(error), error.code, str(error), rejected)
    return (fields_of(info), bytes(copy), rejected)
