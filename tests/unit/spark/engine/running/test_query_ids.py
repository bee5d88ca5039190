"""The id that a checkpoint has for its query."""

import pickle
from pathlib import Path

import pytest

from odradek.spark.pipeline.engine.problems import PipelineError
from odradek.spark.pipeline.engine.running.query_ids import QueryIds


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_the_id_is_the_checkpoints(tmp_path: Path, scheme: str) -> None:
    """12:SP-42, 12:SP-43: wherever batches are handled."""
    ids = pickle.loads(pickle.dumps(QueryIds(f"{scheme}{tmp_path}")))
    with pytest.raises(PipelineError, match="expected the id of the query in"):
        ids.find()
    (tmp_path / "metadata").write_text('{"id":"8f3e"}')
    assert ids.find() == "8f3e"
