"""Pipeline files of the tests: written with `§` where a problem is expected."""

import re
from collections.abc import Mapping
from pathlib import Path

from odradek.spark.pipeline.file import Loaded, load
from odradek.spark.pipeline.graph.model import Pipeline

MARK = "§"

_SPEC = Path(__file__).parents[4] / "docs/spec/12-spark-pipeline.md"
# The complete example of the specification, SP-61.
EXAMPLE = re.findall(
    r"^### 9\.3 .*?^```yaml\n(.*?)^```", _SPEC.read_text("utf-8"), re.MULTILINE | re.DOTALL
)[0]

# What most tests begin with; each adds what it is about.
HEAD = """\
name: shop
bootstrap: localhost:9092
"""
SOURCE = """\
sources:
  raw:
    topic: orders
    value: {format: json, schema: "id bigint, user string, amount double, ts timestamp"}
"""
SINK = """\
sinks:
  out: {from: raw, console: {rows: 5}}
"""


def read(
    folder: Path,
    text: str,
    *,
    name: str = "shop.yaml",
    settings: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Loaded:
    """Writes a file, without marks, and loads it."""
    path = folder / name
    path.write_text(text.replace(MARK, ""), encoding="utf-8")
    return load(str(path), settings=settings, environment=environment or {})


def valid(folder: Path, text: str, **options: object) -> Pipeline:
    """The pipeline of a file that has no problems."""
    loaded = read(folder, text, **options)  # type: ignore[arg-type]  # Handed on as they are.
    assert [str(problem) for problem in loaded.problems] == []
    assert loaded.pipeline is not None
    return loaded.pipeline


def found(loaded: Loaded) -> list[tuple[str, int, int]]:
    """Codes and places of all problems."""
    return [(one.code, one.place.line, one.place.column) for one in loaded.problems]


def place_of_mark(text: str) -> tuple[int, int]:
    """Line and column of the mark."""
    before, mark, _ = text.partition(MARK)
    assert mark, "the text has no mark"
    return before.count("\n") + 1, len(before) - before.rfind("\n")
