"""Mutants: each is a module with one border moved by one, and some test must notice it.

`make mutants` makes them for the modules below, whose comparisons decide what is committed, which
replica leads, and which batch is a duplicate. A mutant exists in the memory of one process only: no
file is written.

===========  ================================================================
Expression   Mutants
===========  ================================================================
a < b        a <= b and a < b - 1     (likewise <=, >, >=: one looser, one stricter)
a == b       a != b                   (likewise is, in, and their negations)
a + 1        a and a + 2              (likewise a - 1)
===========  ================================================================

A mutant that no test can notice, because the program then does the same, stands in
`scripts/equivalent_mutants.toml` with the reason. An entry there that matches no mutant is an
error: the code has changed, and the reason with it.

How it works: pytest collects the tests once. One fork of that process runs them all, and takes note
of which test reaches which expression. Then each mutant has a fork of its own: the functions of the
module get the changed code, and those tests run that reach the expression, the quick ones first,
until one fails. Exit code 1 if a mutant survived.
"""

import argparse
import ast
import gc
import importlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Final, TypeAlias

import pytest
from _pytest.runner import runtestprotocol

__all__ = ["Judged", "Mutant", "equivalents", "find_mutants", "main"]

ROOT: Final = Path(__file__).resolve().parent.parent
EQUIVALENTS: Final = ROOT / "scripts" / "equivalent_mutants.toml"

# A mutant may turn a loop into an endless one: so long, and so many times the time the tests took.
_TIME_LIMIT_SECONDS: Final = 20
_TIME_LIMIT_FACTOR: Final = 10

Site: TypeAlias = ast.Compare | ast.BinOp


@dataclass(frozen=True, slots=True)
class Judged:
    """A module, and the files of tests that judge its mutants, as patterns."""

    module: str
    patterns: tuple[str, ...]

    @property
    def path(self) -> Path:
        return ROOT / "src" / Path(*self.module.split(".")).with_suffix(".py")

    @property
    def tests(self) -> list[str]:
        return sorted(
            str(path.relative_to(ROOT)) for pattern in self.patterns for path in ROOT.glob(pattern)
        )


_REPLICATION: Final = ("tests/unit/replication/**/test_*.py",)
_LOG: Final = ("tests/unit/storage/log/test_*.py",)
_PRODUCERS: Final = ("tests/unit/storage/producers/test_*.py",)

JUDGED: Final = (
    Judged("odradek.replication.isr", _REPLICATION),
    Judged("odradek.controller.election", ("tests/unit/controller/**/test_*.py",)),
    Judged("odradek.replication.roles", _REPLICATION),
    Judged("odradek.replication.partition", _REPLICATION),
    Judged("odradek.storage.log.watermarks", _LOG),
    Judged("odradek.storage.producers.state", _LOG + _PRODUCERS),
    Judged("odradek.storage.producers.snapshot_files", _LOG + _PRODUCERS),
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
    """One changed expression; named by text, so that it keeps its name when lines move."""

    module: str
    function: str  # Qualified within the module; empty outside of functions.
    before: str  # The expression as it stands in the module.
    after: str
    line: int
    site: int  # Which expression of the module, in the order of `_sites`.
    change: int  # Which change of it, in the order of `_changes`.

    @property
    def name(self) -> str:
        return f"{self.module} {self.function}: `{self.before}` as `{self.after}`"


def find_mutants(module: str, source: str) -> list[Mutant]:
    """All mutants of a module, in the order of its text."""
    tree = ast.parse(source)
    names = _qualified_names(tree)
    found = [
        Mutant(
            module=module,
            function=names[node],
            before=ast.unparse(node),
            after=ast.unparse(changed),
            line=node.lineno,
            site=site,
            change=change,
        )
        for site, node in enumerate(_sites(tree))
        for change, changed in enumerate(_changes(node))
    ]
    return sorted(found, key=lambda mutant: (mutant.line, mutant.site, mutant.change))


def _sites(tree: ast.AST) -> list[Site]:
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare)
        or (
            isinstance(node, ast.BinOp)
            and isinstance(node.op, ast.Add | ast.Sub)
            and isinstance(node.right, ast.Constant)
            and node.right.value == 1
        )
    ]


def _qualified_names(tree: ast.Module) -> dict[ast.AST, str]:
    names: dict[ast.AST, str] = {}

    def visit(node: ast.AST, path: tuple[str, ...]) -> None:
        names[node] = ".".join(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            path = (*path, node.name)
        for child in ast.iter_child_nodes(node):
            visit(child, path)

    visit(tree, ())
    return names


def _changes(node: Site) -> list[ast.expr]:
    """The expression in each of its changed forms."""
    if isinstance(node, ast.BinOp):
        return [node.left, ast.BinOp(left=node.left, op=node.op, right=ast.Constant(2))]
    flips: list[ast.expr] = []
    shifts: list[ast.expr] = []
    for index, operator in enumerate(node.ops):
        kind = type(operator)
        operators = list(node.ops)
        operators[index] = (_FLIPPED.get(kind) or _NEGATED[kind])()
        flips.append(ast.Compare(left=node.left, ops=operators, comparators=node.comparators))
        if kind in _SHIFT:
            comparators = list(node.comparators)
            comparators[index] = ast.BinOp(
                left=comparators[index],
                op=ast.Add() if _SHIFT[kind] > 0 else ast.Sub(),
                right=ast.Constant(1),
            )
            shifts.append(ast.Compare(left=node.left, ops=node.ops, comparators=comparators))
    return flips + shifts


def mutated_tree(source: str, mutant: Mutant) -> ast.Module:
    """The module's syntax tree with the one expression changed."""
    tree = ast.parse(source)
    target = _sites(tree)[mutant.site]
    return _replaced(tree, {target: _changes(target)[mutant.change]})


def _replaced(tree: ast.Module, replacements: dict[Site, ast.expr]) -> ast.Module:
    class Replace(ast.NodeTransformer):
        def generic_visit(self, node: ast.AST) -> ast.AST:
            visited = super().generic_visit(node)
            if isinstance(node, Site) and (changed := replacements.get(node)) is not None:
                return ast.copy_location(changed, node)
            return visited

    changed: ast.Module = ast.fix_missing_locations(Replace().visit(tree))
    return changed


def equivalents() -> dict[tuple[str, str, str], str]:
    """Mutants with unchanged behaviour, as (function, before, after), with the reason."""
    entries = tomllib.loads(EQUIVALENTS.read_text())["mutant"]
    return {
        (f"{entry['module']} {entry['function']}", entry["before"], entry["after"]): entry["reason"]
        for entry in entries
    }


def _key(mutant: Mutant) -> tuple[str, str, str]:
    return f"{mutant.module} {mutant.function}", mutant.before, mutant.after


# Code in place of a module's code


class _LiveModule:
    """An imported module whose functions can get other code."""

    def __init__(self, judged: Judged) -> None:
        self.source = judged.path.read_text()
        self.path = str(judged.path)
        self.namespace = vars(importlib.import_module(judged.module))
        if self.namespace["__file__"] != self.path:
            raise SystemExit(f"mutants: {judged.module} is not the one of {self.path}")
        gc.unfreeze()  # What `tests/conftest.py` has frozen is not listed.
        self._functions = [
            function
            for function in gc.get_objects()
            if isinstance(function, FunctionType) and function.__code__.co_filename == self.path
        ]

    def run_as(self, tree: ast.Module) -> None:
        """Gives the functions the code of `tree`, also for existing references to them.

        Raises:
            SystemExit: What was changed lies outside of functions.
        """
        codes = {_place(code): code for code in _codes(compile(tree, self.path, "exec"))}
        changed = 0
        for function in self._functions:
            code = codes[_place(function.__code__)]
            if code != function.__code__:
                function.__code__ = code
                changed += 1
        if not changed:
            raise SystemExit(f"mutants: nothing of {self.path} runs the changed code")

    def record_hits(self, module: str, hits: set[str]) -> None:
        """Lets each expression that is reached add `module`:site to `hits`."""

        def reached(site: int, value: object) -> object:
            hits.add(f"{module}:{site}")
            return value

        self.namespace["_mutant_site_reached"] = reached
        tree = ast.parse(self.source)
        call = ast.Name("_mutant_site_reached", ast.Load())
        recorded: dict[Site, ast.expr] = {
            node: ast.Call(func=call, args=[ast.Constant(site), node], keywords=[])
            for site, node in enumerate(_sites(tree))
        }
        self.run_as(_replaced(tree, recorded))


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def _place(code: CodeType) -> tuple[str, int]:
    return code.co_qualname, code.co_firstlineno


# Running the tests


@dataclass(frozen=True, slots=True)
class _Reach:
    """The time of one test, and the expressions it reaches."""

    item: pytest.Item
    seconds: float
    hits: frozenset[str]


class _Judgement:
    """A plugin of pytest that judges mutants with the tests pytest has collected."""

    def __init__(
        self, mutants: Sequence[Mutant], directory: str, *, jobs: int, is_verbose: bool
    ) -> None:
        self.mutants = mutants
        self.directory = directory  # Results of forks, by their process id.
        self.jobs = jobs
        self.is_verbose = is_verbose
        self.survivors: list[Mutant] = []
        self._modules: dict[str, _LiveModule] = {}

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            pytest.exit("mutants: the tests could not be collected", returncode=1)
        wanted = {mutant.module for mutant in self.mutants}
        self._modules = {
            judged.module: _LiveModule(judged) for judged in JUDGED if judged.module in wanted
        }
        reaches = sorted(self._measure(session.items), key=lambda reach: reach.seconds)
        waiting = list(self.mutants)
        running: dict[int, Mutant] = {}
        while waiting or running:
            while waiting and len(running) < self.jobs:
                mutant = waiting.pop(0)
                site = f"{mutant.module}:{mutant.site}"
                chosen = [reach for reach in reaches if site in reach.hits]
                if chosen:
                    running[self._start(mutant, chosen)] = mutant
                else:
                    self._survived(mutant, "no test reaches it")
            if running:
                child, status = os.wait()
                mutant = running.pop(child)
                code = os.waitstatus_to_exitcode(status)
                if code == 0:
                    self._survived(mutant, "survived")
                elif code not in {1, -signal.SIGALRM}:
                    pytest.exit(f"mutants: exit code {code} of {mutant.name}", returncode=1)
                elif self.is_verbose:
                    failed = Path(self.directory, f"{child}.failed")
                    by = failed.read_text() if code == 1 else "the time limit"
                    _say(f"caught: line {mutant.line}: {mutant.name} by {by}")
                shutil.rmtree(Path(self.directory, f"{child}.tests"), ignore_errors=True)
        return True

    def _survived(self, mutant: Mutant, how: str) -> None:
        self.survivors.append(mutant)
        _say(f"{how}: line {mutant.line}: {mutant.name}")

    def _start(self, mutant: Mutant, chosen: Sequence[_Reach]) -> int:
        """Runs tests with a mutant in a fork, until one fails; returns the process id."""
        child = os.fork()
        if child == 0:
            code = 70
            try:
                seconds = sum(reach.seconds for reach in chosen) * _TIME_LIMIT_FACTOR
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.alarm(_TIME_LIMIT_SECONDS + int(seconds))
                self._be_alone()
                module = self._modules[mutant.module]
                module.run_as(mutated_tree(module.source, mutant))
                failed = _first_failure([reach.item for reach in chosen])
                if failed is not None:
                    Path(self.directory, f"{os.getpid()}.failed").write_text(failed)
                code = 0 if failed is None else 1
            finally:
                os._exit(code)
        return child

    def _be_alone(self) -> None:
        """In a fork: no output, and temporary directories that no other fork uses."""
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        own = Path(self.directory, f"{os.getpid()}.tests")
        own.mkdir()
        os.environ["PYTEST_DEBUG_TEMPROOT"] = str(own)

    def _measure(self, items: Sequence[pytest.Item]) -> list[_Reach]:
        """Runs all tests without a mutant in a fork."""
        with tempfile.TemporaryFile("w+") as told:
            child = os.fork()
            if child == 0:
                code = 70
                try:
                    json.dump(self._reached(items), told)
                    told.flush()
                    code = 0
                finally:
                    os._exit(code)
            _, status = os.waitpid(child, 0)
            if os.waitstatus_to_exitcode(status):
                pytest.exit("mutants: the tests could not be run", returncode=1)
            told.seek(0)
            found: list[dict[str, Any] | None] = json.load(told)
        if found[-1] is None:
            failed = items[len(found) - 1].nodeid
            pytest.exit(f"mutants: fails without any mutant: {failed}", returncode=1)
        return [
            _Reach(item, entry["seconds"], frozenset(entry["hits"]))
            for item, entry in zip(items, found, strict=True)
            if entry is not None
        ]

    def _reached(self, items: Sequence[pytest.Item]) -> list[dict[str, Any] | None]:
        """The time and reached expressions of each test; None ends the list at a failed one."""
        hits: set[str] = set()
        for name, module in self._modules.items():
            module.record_hits(name, hits)
        self._be_alone()
        found: list[dict[str, Any] | None] = []
        for item in items:
            hits.clear()
            begin = time.perf_counter()
            if _first_failure([item]) is not None:
                return [*found, None]
            found.append({"seconds": time.perf_counter() - begin, "hits": sorted(hits)})
        return found


def _first_failure(items: Sequence[pytest.Item]) -> str | None:
    """Runs the tests up to the first that fails, and returns its id."""
    for item, following in zip(items, [*items[1:], None], strict=True):
        reports = runtestprotocol(item, log=False, nextitem=following)
        if any(report.failed for report in reports):
            return item.nodeid
    return None


def _say(text: str) -> None:
    print(f"mutants: {text}", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__.split("\n")[0])
    parser.add_argument("modules", nargs="*", help="last parts of module names; all by default")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="mutants at a time")
    parser.add_argument("--verbose", action="store_true", help="name the test that caught it")
    options = parser.parse_args(arguments)
    os.chdir(ROOT)
    same = equivalents()
    stale = set(same)
    mutants: list[Mutant] = []
    tests: dict[str, None] = {}
    for judged in JUDGED:
        found = find_mutants(judged.module, judged.path.read_text())
        stale -= {_key(mutant) for mutant in found}
        if not options.modules or judged.module.rpartition(".")[2] in options.modules:
            mutants += found
            tests.update(dict.fromkeys(judged.tests))
    for function, before, after in sorted(stale):
        _say(f"{EQUIVALENTS.name} names no mutant: {function}: `{before}` as `{after}`")
    with tempfile.TemporaryDirectory() as temporary:
        judgement = _Judgement(
            [mutant for mutant in mutants if _key(mutant) not in same],
            temporary,
            jobs=options.jobs,
            is_verbose=options.verbose,
        )
        # Plain asserts, since no failure is shown; and no timer of pytest beside ours.
        quiet = ("-qq", "--no-summary", "--capture=no", "--assert=plain", "-o", "timeout=0")
        plugins = ("-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:xdist")
        code = pytest.main([*quiet, *plugins, "-m", "not slow", *tests], plugins=[judgement])
    if code:
        return int(code)
    for module in dict.fromkeys(mutant.module for mutant in mutants):
        own = [mutant for mutant in mutants if mutant.module == module]
        left = [mutant for mutant in judgement.survivors if mutant.module == module]
        excused = [mutant for mutant in own if _key(mutant) in same]
        _say(
            f"{module}: {len(own)} mutants, {len(own) - len(left) - len(excused)} caught,"
            f" {len(excused)} equivalent, {len(left)} survived"
        )
    return 1 if judgement.survivors or stale else 0


if __name__ == "__main__":
    sys.exit(main())
