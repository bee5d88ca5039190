"""A bounded part of `make torture`: the same seeds each time, spread over the workers."""

from pathlib import Path
from typing import Final

import pytest

from tests.torture.runs import torture

_SEEDS: Final = 300
_CHUNK: Final = 50


@pytest.mark.parametrize("first", range(0, _SEEDS, _CHUNK))
def test_damaged_directories_keep_the_rules(first: int, tmp_path: Path) -> None:
    """The rules are in `tests.torture.judge`; one seed again: `make torture` with `--first`."""
    verdicts = torture(range(first, first + _CHUNK), tmp_path)
    assert len(verdicts) == _CHUNK
    broken = {f"seed {v.seed}: {v.damage}": v.faults for v in verdicts if v.faults}
    assert not broken
