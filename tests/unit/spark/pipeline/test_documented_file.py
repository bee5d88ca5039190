"""docs/streaming/pipeline-file.md: its examples are valid, its tables complete."""

import re
from pathlib import Path

import pytest

from odradek.spark.pipeline.file import problems, sinks, sources, transforms
from odradek.spark.pipeline.file.codecs import FORMATS, RESERVED_COLUMNS
from tests.unit.spark.pipeline.files import HEAD, valid

TEXT = (Path(__file__).parents[4] / "docs/streaming/pipeline-file.md").read_text(encoding="utf-8")


def example(language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def test_the_python_example_is_valid(tmp_path: Path) -> None:
    """12:SP-66."""
    pipeline = valid(tmp_path, example("python"), name="orders.py")

    assert list(pipeline.transforms) == ["known", "ids"]


def test_the_sql_example_is_valid(tmp_path: Path) -> None:
    """12:SP-65."""
    (tmp_path / "steps.sql").write_text(example("sql"))
    text = HEAD + """\
include: [steps.sql]
sources:
  raw:
    topic: t
    value: {format: json, schema: "country string, amount double, ts timestamp"}
sinks: {out: {from: per_country, console: {}}}
"""  # fmt: skip

    assert list(valid(tmp_path, text).transforms) == ["known", "per_country"]


@pytest.mark.parametrize(
    "name",
    [
        *sources.KINDS,
        *sources.STREAM_KEYS,
        *sources.TABLE_FORMATS,
        *transforms.KINDS,
        *sinks.KINDS,
        *sinks.TOPIC_KEYS,
        *FORMATS,
        *RESERVED_COLUMNS,
    ],
)
def test_every_key_is_documented(name: str) -> None:
    assert re.search(rf"`[^`\n]*\b{name}\b[^`\n]*`", TEXT)


def test_every_code_is_documented() -> None:
    """12:SP-59."""
    for number in range(1, 21):
        assert f"| P{number:02} |" in TEXT
        assert f"| P{number:02} |" in (problems.__doc__ or "")
