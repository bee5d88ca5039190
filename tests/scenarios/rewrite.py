"""`make rewrite`: writes the traces of all scenarios anew."""

from pathlib import Path
from typing import Final

from tests.scenarios import controllers, groups
from tests.scenarios.scripts import DIRECTORY, Run, rewritten

__all__ = ["FILES", "trace_anew"]

# By the first word of a file's name.
_RUNS: Final[dict[str, Run]] = {"controller": controllers.run, "group": groups.run}

FILES: Final = sorted(DIRECTORY.glob("*.txt"))


def trace_anew(path: Path) -> str:
    """The file with the traces that its commands lead to now."""
    return rewritten(path.read_text(), _RUNS[path.name.partition("_")[0]])


if __name__ == "__main__":
    for path in FILES:
        text = trace_anew(path)
        if text != path.read_text():
            path.write_text(text)
            print(f"rewrite: {path.relative_to(Path.cwd())}")
