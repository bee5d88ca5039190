"""Mutants of comparisons: each is a comparison changed by one, and some test must notice it.

`make mutants` makes them for the modules below, whose comparisons decide what is committed, who
leads, and which batch is a duplicate. A mutant exists in the memory of one process only: the
module's syntax tree is changed while it is imported, no file is written.

===========  ================================================================
Comparison   Mutants
===========  ================================================================
a < b        a <= b and a < b - 1     (likewise <=, >, >=: one looser, one stricter)
a == b       a != b                   (likewise is, in, and their negations)
===========  ================================================================

A mutant that no test can notice, because the program then does the same, stands in
`scripts/equivalent_mutants.toml` with the reason. An entry there that matches no mutant is an
error: the code has changed, and the reason with it.

Each mutant runs in a fork of this process: first the tests nearest to the module, then the wider
ones if it survived those. Exit code 1 if a mutant survived.
"""

import argparse
import ast
import importlib.abc
import importlib.machinery
import os
import signal
import sys
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Final

__all__ = ["Judged", "Mutant", "equivalents", "find_mutants", "main"]

ROOT: Final = Path(__file__).resolve().parent.parent
EQUIVALENTS: Final = ROOT / "scripts" / "equivalent_mutants.toml"

# A mutant may turn a loop into an endless one. The slowest group of tests takes a tenth of this.
_TIME_LIMIT_SECONDS: Final = 300


@dataclass(frozen=True, slots=True)
class Judged:
    """A module, and the tests that judge its mutants: the nearest first, then wider ones."""

    module: str
    nearest: tuple[str, ...]
    wider: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        return ROOT / "src" / Path(*self.module.split(".")).with_suffix(".py")


_REPLICATION: Final = ("tests/unit/replication", "tests/unit/broker/handlers")
_STORAGE: Final = ("tests/unit/storage", "tests/property/test_log_model.py")

JUDGED: Final = (
    Judged("odradek.replication.isr", ("tests/unit/replication/test_isr.py",), _REPLICATION),
    Judged("odradek.controller.election", ("tests/unit/controller/test_election.py",), ()),
    Judged("odradek.replication.roles", ("tests/unit/replication/test_roles.py",), _REPLICATION),
    Judged("odradek.replication.partition", ("tests/unit/replication",), _REPLICATION),
    Judged(
        "odradek.storage.log.watermarks",
        ("tests/unit/storage/log/test_log_watermarks.py",),
        _STORAGE,
    ),
    Judged(
        "odradek.storage.producers.state",
        (
            "tests/unit/storage/producers/test_producer_state.py",
            "tests/unit/storage/producers/test_producer_state_reload.py",
        ),
        _STORAGE,
    ),
)

_NEGATED: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_FLIPPED: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}
# The flip moves the border by one in one direction; adding this to the right side, in the other.
_SHIFT: Final[dict[type[ast.cmpop], int]] = {ast.Lt: -1, ast.LtE: 1, ast.Gt: 1, ast.GtE: -1}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One changed comparison; named by text, so that it keeps its name when lines move."""

    module: str
    function: str  # Qualified within the module; empty outside of functions.
    before: str  # The comparison as it stands in the module.
    after: str
    line: int
    # Which Compare node of the module in the order of ast.walk, and which operator of it.
    node_index: int
    operator_index: int
    is_shift: bool

    @property
    def name(self) -> str:
        return f"{self.module} {self.function}: `{self.before}` as `{self.after}`"


def find_mutants(module: str, source: str) -> list[Mutant]:
    """All mutants of a module's comparisons, in the order of its text."""
    tree = ast.parse(source)
    names = _qualified_names(tree)
    found: list[Mutant] = []
    for node_index, node in enumerate(_comparisons(tree)):
        for operator_index, operator in enumerate(node.ops):
            found.extend(
                Mutant(
                    module=module,
                    function=names[node],
                    before=ast.unparse(node),
                    after=ast.unparse(_changed(node, operator_index, is_shift=is_shift)),
                    line=node.lineno,
                    node_index=node_index,
                    operator_index=operator_index,
                    is_shift=is_shift,
                )
                for is_shift in ((False, True) if type(operator) in _FLIPPED else (False,))
            )
    return sorted(found, key=lambda mutant: (mutant.line, mutant.node_index, mutant.is_shift))


def _comparisons(tree: ast.AST) -> list[ast.Compare]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.Compare)]


def _qualified_names(tree: ast.Module) -> dict[ast.Compare, str]:
    names: dict[ast.Compare, str] = {}

    def visit(node: ast.AST, path: tuple[str, ...]) -> None:
        if isinstance(node, ast.Compare):
            names[node] = ".".join(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            path = (*path, node.name)
        for child in ast.iter_child_nodes(node):
            visit(child, path)

    visit(tree, ())
    return names


def _changed(node: ast.Compare, operator_index: int, *, is_shift: bool) -> ast.Compare:
    operators = list(node.ops)
    comparators = list(node.comparators)
    kind = type(operators[operator_index])
    if is_shift:
        shift = _SHIFT[kind]
        comparators[operator_index] = ast.BinOp(
            left=comparators[operator_index],
            op=ast.Add() if shift > 0 else ast.Sub(),
            right=ast.Constant(1),
        )
    else:
        operators[operator_index] = (_FLIPPED.get(kind) or _NEGATED[kind])()
    changed = ast.Compare(left=node.left, ops=operators, comparators=comparators)
    return ast.fix_missing_locations(ast.copy_location(changed, node))


def mutated_tree(source: str, mutant: Mutant) -> ast.Module:
    """The module's syntax tree with the one comparison changed."""
    tree = ast.parse(source)
    target = _comparisons(tree)[mutant.node_index]

    class Change(ast.NodeTransformer):
        def visit_Compare(self, node: ast.Compare) -> ast.AST:
            changed = self.generic_visit(node)
            if node is not target:
                return changed
            return _changed(node, mutant.operator_index, is_shift=mutant.is_shift)

    changed: ast.Module = ast.fix_missing_locations(Change().visit(tree))
    return changed


class _MutantLoader(importlib.machinery.SourceFileLoader):
    def __init__(self, mutant: Mutant, path: str) -> None:
        super().__init__(mutant.module, path)
        self._mutant = mutant

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002 - of the one module there is
        source = Path(self.path).read_text()
        return compile(mutated_tree(source, self._mutant), self.path, "exec")


class _MutantFinder(importlib.abc.MetaPathFinder):
    def __init__(self, mutant: Mutant, path: str) -> None:
        self._mutant = mutant
        self._path = path

    def find_spec(
        self,
        fullname: str,
        path: object,  # noqa: ARG002 - it is known
        target: object = None,  # noqa: ARG002 - only a reload has one
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._mutant.module:
            return None
        loader = _MutantLoader(self._mutant, self._path)
        return importlib.machinery.ModuleSpec(fullname, loader, origin=self._path)


def equivalents() -> dict[tuple[str, str, str], str]:
    """Mutants that do what the program does, as (function, before, after), with the reason."""
    entries = tomllib.loads(EQUIVALENTS.read_text())["mutant"]
    return {
        (f"{entry['module']} {entry['function']}", entry["before"], entry["after"]): entry["reason"]
        for entry in entries
    }


def _key(mutant: Mutant) -> tuple[str, str, str]:
    return f"{mutant.module} {mutant.function}", mutant.before, mutant.after


def _tests_pass(mutant: Mutant | None, path: Path, tests: Sequence[str]) -> bool:
    """Whether the tests pass in a fork of this process; one that hangs has not passed."""
    child = os.fork()
    if child == 0:
        code = 70
        try:
            code = _run_tests(mutant, path, tests)
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code not in {0, 1, 2, -signal.SIGALRM}:  # 2: a module could not even be imported.
        raise SystemExit(f"mutants: pytest ended with {code} on {mutant and mutant.name}, {tests}")
    return code == 0


def _run_tests(mutant: Mutant | None, path: Path, tests: Sequence[str]) -> int:
    import pytest

    signal.alarm(_TIME_LIMIT_SECONDS)
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    if mutant is not None:
        sys.meta_path.insert(0, _MutantFinder(mutant, str(path)))
    # Plain asserts: pytest would load the modules of its plugins itself, and ours are among them.
    options = ["-x", "-q", "--assert=plain", "-p", "no:cacheprovider", "-p", "no:randomly"]
    return int(pytest.main([*options, "-p", "no:xdist", *tests]))


def _judge(judged: Judged, mutant: Mutant) -> bool:
    """Whether a test noticed the mutant."""
    if not _tests_pass(mutant, judged.path, judged.nearest):
        return True
    return bool(judged.wider) and not _tests_pass(mutant, judged.path, judged.wider)


def _all_mutants(modules: Sequence[str]) -> Iterator[tuple[Judged, Mutant]]:
    for judged in JUDGED:
        if not modules or judged.module.rpartition(".")[2] in modules:
            for mutant in find_mutants(judged.module, judged.path.read_text()):
                yield judged, mutant


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__.split("\n")[0])
    parser.add_argument("modules", nargs="*", help="last parts of module names; all by default")
    options = parser.parse_args(arguments)
    os.chdir(ROOT)
    import pytest  # noqa: F401 - loaded once, for all the forks

    same = equivalents()
    judged_mutants = list(_all_mutants(options.modules))
    stale = set(same) - {_key(mutant) for _, mutant in _all_mutants(())}
    for function, before, after in sorted(stale):
        print(f"mutants: {EQUIVALENTS.name} names no mutant: {function}: `{before}` as `{after}`")
    for judged in {judged.module: judged for judged, _ in judged_mutants}.values():
        if not _tests_pass(None, judged.path, (*judged.nearest, *judged.wider)):
            print(f"mutants: the tests of {judged.module} fail without any mutant")
            return 1
    wanted = [(judged, mutant) for judged, mutant in judged_mutants if _key(mutant) not in same]
    survivors = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for (_, mutant), is_caught in zip(
            wanted, pool.map(lambda pair: _judge(*pair), wanted), strict=True
        ):
            if not is_caught:
                survivors.append(mutant)
                print(f"mutants: SURVIVED, line {mutant.line}: {mutant.name}", flush=True)
    print(
        f"mutants: {len(wanted)} mutants, {len(wanted) - len(survivors)} caught,"
        f" {len(survivors)} survived; {len(judged_mutants) - len(wanted)} are equivalent"
    )
    return 1 if survivors or stale else 0


if __name__ == "__main__":
    sys.exit(main())
