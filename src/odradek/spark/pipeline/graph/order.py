"""The order of steps: each after its inputs; cycles, and the steps upstream of a step."""

from collections.abc import Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

__all__ = ["find_cycle", "in_order", "upstream_of"]


def find_cycle(inputs: Mapping[str, Sequence[str]]) -> tuple[str, ...] | None:
    """Steps that wait for each other, the first one again at the end; None if there are none."""
    try:
        TopologicalSorter(inputs).prepare()
    except CycleError as error:
        cycle = list(error.args[1])[:-1]
        cycle.reverse()  # From a step to the one it reads.
        first = min(range(len(cycle)), key=lambda index: cycle[index])
        turned = cycle[first:] + cycle[:first]
        return (*turned, turned[0])
    return None


def in_order(inputs: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """The keys of `inputs`, each after those it reads, else in the given order.

    In a cycle, one step comes before a step that it reads.
    """
    done: dict[str, None] = {}
    begun: set[str] = set()

    def visit(name: str) -> None:
        if name in begun or name not in inputs:
            return
        begun.add(name)
        for other in inputs[name]:
            visit(other)
        done[name] = None

    for name in inputs:
        visit(name)
    return tuple(done)


def upstream_of(start: Iterable[str], inputs: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """`start` and all steps it reads, directly or not, in the order of discovery."""
    found: dict[str, None] = {}

    def visit(name: str) -> None:
        if name in found:
            return
        found[name] = None
        for other in inputs.get(name, ()):
            visit(other)

    for name in start:
        visit(name)
    return tuple(found)
