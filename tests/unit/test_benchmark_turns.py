"""How servers are warmed up and take turns in the benchmarks, with servers that only count."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.servers import KAFKA, ODRADEK, Run, Server
from benchmarks.turns import CommitBar, Samples, Slice, compare, take_turns
from odradek.builds import COMPILED, name_build


class _Servers:
    """Servers whose slices cost what a list says, and then always the same."""

    def __init__(self, **costs: list[float]) -> None:
        self.turns: list[str] = []
        self._costs = {name: iter(listed) for name, listed in costs.items()}

    def run(self, *, is_quick: bool = False) -> Run:
        return Run(
            is_quick=is_quick,
            repeats=3,
            servers={name: _Start(name) for name in self._costs},
        )

    def prepare(self, server: Server) -> Slice:
        name = server.bootstrap

        def load() -> dict[str, float]:
            self.turns.append(name)
            return {"cpu_us": next(self._costs[name], 10.0)}

        return load


class _Start:
    def __init__(self, name: str) -> None:
        self._name = name

    @contextlib.contextmanager
    def __call__(self, settings: Mapping[str, str] | None = None) -> Iterator[Server]:
        yield Server(bootstrap=self._name, pid=0, data=Path())


def test_a_server_is_warm_when_three_slices_in_a_row_agree() -> None:
    servers = _Servers(odradek=[10.0, 10.4, 10.2], kafka=[107.0, 60.0, 30.0, 26.0, 25.5, 25.0])
    samples = take_turns(servers.run(), servers.prepare, slices_at_least=1)
    assert servers.turns[:9] == [ODRADEK] * 3 + [KAFKA] * 6
    assert samples.unsettled == []


def test_slices_that_agree_early_are_not_enough() -> None:
    servers = _Servers(odradek=[])
    take_turns(servers.run(), servers.prepare, slices_at_least=7)
    assert len(servers.turns) == 7 + 3


def test_servers_take_turns_after_the_warm_up() -> None:
    servers = _Servers(odradek=[], kafka=[])
    take_turns(servers.run(), servers.prepare, slices_at_least=3)
    assert servers.turns[6:] == [ODRADEK, KAFKA] * 3


def test_a_row_says_that_a_server_never_settled() -> None:
    servers = _Servers(odradek=[], kafka=[float(cost) for cost in range(1, 1000, 50)] * 100)
    samples = take_turns(servers.run(), servers.prepare, slices_at_least=3)
    assert compare("row", samples, "cpu_us", "us").note == "not settled: kafka"


def test_a_quick_run_has_one_slice_of_warm_up() -> None:
    servers = _Servers(odradek=[], kafka=[])
    take_turns(servers.run(is_quick=True), servers.prepare, slices_at_least=30)
    assert servers.turns[:3] == [ODRADEK, KAFKA, ODRADEK]


def test_the_bar_beside_another_commit_depends_on_the_build() -> None:
    samples = Samples(
        measured={ODRADEK: [{"cpu_us": 7.0}], "fdef23a": [{"cpu_us": 10.0}]},
        warm_up={ODRADEK: [], "fdef23a": []},
    )
    row = compare("row", samples, "cpu_us", "us", 0.9, commit_bar=CommitBar(0.6, 0.85))
    is_compiled = name_build() == COMPILED
    assert (row.bar, row.is_bar_lowest) == (0.6 if is_compiled else 0.85, False)
    assert row.is_passed is not is_compiled


def test_the_bar_beside_kafka_is_that_of_the_row() -> None:
    samples = Samples(
        measured={ODRADEK: [{"per_second": 17.0}], KAFKA: [{"per_second": 10.0}]},
        warm_up={ODRADEK: [], KAFKA: []},
    )
    row = compare("row", samples, "per_second", "/s", 1.6, commit_bar=CommitBar(0.6, 0.85))
    assert (row.bar, row.is_bar_lowest, row.is_passed) == (1.6, True, True)


def test_every_row_names_its_python_and_its_build() -> None:
    samples = Samples(measured={ODRADEK: [{"cpu_us": 7.0}]}, warm_up={ODRADEK: []})
    ran_on = compare("row", samples, "cpu_us", "us").ran_on
    assert ran_on.startswith(f"{name_build()}, Python 3.")
    assert ran_on.endswith("PGO")
