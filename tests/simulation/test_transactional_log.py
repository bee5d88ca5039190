"""Readers of committed records, repeated batches, staged offsets; and each planted mistake."""

from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.coordinator.group.replay import GroupReplay
from odradek.storage.log.watermarks import Watermarks
from odradek.storage.producers import snapshot
from tests.simulation.transactional_log import run_log, run_offsets

SEEDS = range(20)

Plant = Callable[[pytest.MonkeyPatch], None]


def test_readers_get_what_was_committed(tmp_path: Path) -> None:
    """10:TX-1, 10:TX-2, 10:TX-3, 15:G1a, and 10 section 8.4 after each restart."""
    delivered = repeated = 0
    for seed in SEEDS:
        result = run_log(seed, tmp_path / str(seed))
        assert result.failures == [], f"seed {seed}"
        delivered += len(result.delivered)
        repeated += result.repeated_count
    assert delivered > 5 * len(SEEDS), "the histories have records"
    assert repeated > 5 * len(SEEDS), "the histories have repetitions"


def test_a_group_has_the_offsets_of_committed_transactions() -> None:
    """10:TX-12, by whichever broker."""
    for seed in SEEDS:
        assert run_offsets(seed) == [], f"seed {seed}"


def _read_to_the_high_watermark(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last stable offset is the high watermark."""
    mark = property(lambda watermarks: watermarks.high_watermark.message_offset)
    monkeypatch.setattr(Watermarks, "last_stable_offset", mark)


def _remember_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a restart the newest batch of a producer is known, and none before."""
    monkeypatch.setattr(snapshot, "restore_recent", lambda *_: None)


@pytest.mark.parametrize(
    "plant",
    [_read_to_the_high_watermark, _remember_one_batch],
    ids=lambda plant: plant.__name__.strip("_"),
)
def test_a_planted_mistake_is_found(
    plant: Plant, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plant(monkeypatch)
    assert any(run_log(seed, tmp_path / str(seed)).failures for seed in SEEDS)


def test_staged_offsets_lost_on_load_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    finish = GroupReplay.finish

    def lose(replay: GroupReplay, wall_ms: int) -> object:
        replay._transactional.clear()
        return finish(replay, wall_ms)

    monkeypatch.setattr(GroupReplay, "finish", lose)
    assert any(run_offsets(seed) for seed in SEEDS)
