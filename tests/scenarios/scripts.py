"""The files of scenarios: commands, and below a line of dashes what they lead to.

::

    # A comment.
    given brokers 1 2
    elect 1
    ----
    sent to 1, 2:
      UpdateMetadata brokers [1, 2]

Steps are divided by empty lines. The commands of one step run one after another, and what stands
below the dashes is the trace of all of them but those that are `given`. `make rewrite` writes the
traces anew.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["DIRECTORY", "GIVEN", "Run", "Step", "parse", "render", "rewritten"]

DIRECTORY: Final = Path(__file__).parent
GIVEN: Final = "given "
_DASHES: Final = "----"

# Runs the commands of all steps; returns the trace of each step.
Run = Callable[[Sequence[Sequence[str]]], list[list[str]]]


@dataclass(frozen=True, slots=True)
class Step:
    """Comments and commands as they stand in the file, and the trace below the dashes."""

    lines: tuple[str, ...]
    trace: tuple[str, ...] = ()

    @property
    def commands(self) -> list[str]:
        return [line for line in self.lines if not line.startswith("#")]

    @property
    def is_traced(self) -> bool:
        return not all(command.startswith(GIVEN) for command in self.commands)


def parse(text: str) -> list[Step]:
    """The steps of a file; some only prepare, or say what follows."""
    steps = []
    for block in text.strip().split("\n\n"):
        lines = block.strip("\n").split("\n")
        end = lines.index(_DASHES) if _DASHES in lines else len(lines)
        steps.append(Step(tuple(lines[:end]), tuple(lines[end + 1 :])))
    return steps


def render(steps: Sequence[Step]) -> str:
    """The file of these steps."""
    blocks = (
        [*step.lines, _DASHES, *step.trace] if step.is_traced else list(step.lines)
        for step in steps
    )
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def rewritten(text: str, run: Run) -> str:
    """The file with the traces that its commands lead to now."""
    steps = parse(text)
    traces = run([step.commands for step in steps])
    return render(
        [
            Step(step.lines, tuple(trace or ["nothing happens"]))
            for step, trace in zip(steps, traces, strict=True)
        ]
    )
