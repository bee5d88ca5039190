"""Judges what a run of the exactly-once sink has left. Imports neither Spark nor odradek.

A folder has these files, one JSON object per line unless said otherwise:

=================  =================================================================================
produced.jsonl     records of the source: n, partition, offset
final.jsonl        records that a reader of committed ones found at the end, in the order of each
                   partition: topic, partition, offset, value, where value has n, p and o (number,
                   partition and offset of the source's record) and t (drawn when it was computed)
beside.jsonl       the same, by a reader that ran beside the queries
markers.jsonl      markers of the commits topic, by the first reader: batch, rows
events.jsonl       what drivers and tasks noted: life, event, and for `job`, `task-begins`,
                   `task-done` and `commits` producer_id and epoch; for tasks task and attempt;
                   for `commits` the number of tasks
plans/N            Spark's plan of batch N, as its checkpoint has it; not JSON by line
=================  =================================================================================
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["judge"]


@dataclass(slots=True)
class _Run:
    folder: Path
    found: list[str] = field(default_factory=list)

    def lines(self, name: str) -> list[dict[str, Any]]:
        path = self.folder / name
        if not path.exists():
            return []
        # The last line of a process that was killed may be cut.
        read = [_parsed(line) for line in path.read_text().splitlines()]
        return [one for one in read if one is not None]

    def say(self, what: str) -> None:
        self.found.append(what)


def judge(folder: Path) -> list[str]:
    """What is wrong; empty if nothing is."""
    run = _Run(folder)
    produced, final = run.lines("produced.jsonl"), run.lines("final.jsonl")
    plans = dict(_plans(folder / "plans"))
    _check_once(run, produced, final)
    _check_order(run, final)
    _check_beside(run, final, plans)
    _check_markers(run, plans)
    _check_events(run)
    return run.found


def _parsed(line: str) -> dict[str, Any] | None:
    try:
        one: dict[str, Any] = json.loads(line)
    except ValueError:
        return None
    return one


def _plans(folder: Path) -> Iterator[tuple[int, dict[int, int]]]:
    """Where each batch ends, by partition of the source."""
    for path in sorted(folder.iterdir(), key=lambda one: int(one.name)):
        told = json.loads(path.read_text().splitlines()[2])
        (topic,) = told["topics"].values()
        yield int(path.name), {int(number): end for number, end in topic["p"].items()}


def _check_once(run: _Run, produced: list[dict[str, Any]], final: list[dict[str, Any]]) -> None:
    wanted = Counter(one["n"] for one in produced)
    there = Counter(json.loads(one["value"])["n"] for one in final)
    for what, numbers in (("lost", wanted - there), ("twice", there - wanted)):
        if numbers:
            run.say(f"{what}: {sum(numbers.values())} rows, as {sorted(numbers)[:10]}")


def _check_order(run: _Run, final: list[dict[str, Any]]) -> None:
    last: dict[tuple[str, int, int], int] = {}
    for one in final:
        value = json.loads(one["value"])
        place = (one["topic"], one["partition"], value["p"])
        if value["o"] <= last.get(place, -1):
            run.say(f"order: {place} has {value['o']} behind {last[place]}")
            return
        last[place] = value["o"]


def _check_beside(run: _Run, final: list[dict[str, Any]], plans: dict[int, dict[int, int]]) -> None:
    """What the reader beside saw is what is there, and each batch of it is whole."""
    there = {(one["topic"], one["partition"], one["offset"]): one["value"] for one in final}
    seen: Counter[int] = Counter()
    for one in run.lines("beside.jsonl"):
        place = (one["topic"], one["partition"], one["offset"])
        if there.get(place) != one["value"]:
            run.say(f"beside: a reader of committed rows saw {one['value']} at {place}")
            return
        value = json.loads(one["value"])
        batch = _batch_of(plans, value["p"], value["o"])
        if batch is None:
            run.say(f"beside: {one['value']} is of no batch")
            return
        seen[batch] += 1
    whole: Counter[int] = Counter()
    for one in final:
        value = json.loads(one["value"])
        batch = _batch_of(plans, value["p"], value["o"])
        if batch is not None:
            whole[batch] += 1
    for batch in sorted(seen):
        if whole[batch] != _rows_of(plans, batch):
            run.say(f"batch {batch} has {whole[batch]} of {_rows_of(plans, batch)} rows")


def _batch_of(plans: dict[int, dict[int, int]], partition: int, offset: int) -> int | None:
    return next((batch for batch in sorted(plans) if offset < plans[batch].get(partition, 0)), None)


def _rows_of(plans: dict[int, dict[int, int]], batch: int) -> int:
    before = plans.get(batch - 1, {})
    return sum(end - before.get(number, 0) for number, end in plans[batch].items())


def _check_markers(run: _Run, plans: dict[int, dict[int, int]]) -> None:
    found = [(one["batch"], one["rows"]) for one in run.lines("markers.jsonl")]
    wanted = [(batch, _rows_of(plans, batch)) for batch in sorted(plans)]
    if found != wanted:
        run.say(f"markers: expected {wanted}, found {found}")


def _check_events(run: _Run) -> None:
    """An epoch serves one job, its tasks begin once, and all are done before the commit."""
    begun: dict[tuple[int, int], Counter[int]] = defaultdict(Counter)
    done: dict[tuple[int, int], set[int]] = defaultdict(set)
    jobs: Counter[tuple[int, int]] = Counter()
    for one in run.lines("events.jsonl"):
        if one["event"] not in ("job", "task-begins", "task-done", "commits"):
            continue
        epoch = (one["producer_id"], one["epoch"])
        match one["event"]:
            case "job":
                jobs[epoch] += 1
                if jobs[epoch] > 1:
                    run.say(f"epoch: {epoch} served {jobs[epoch]} send jobs")
            case "task-begins":
                begun[epoch][one["task"]] += 1
                if one["attempt"] or begun[epoch][one["task"]] > 1:
                    run.say(f"attempt: {one['attempt']} of task {one['task']} sent under {epoch}")
            case "task-done":
                done[epoch].add(one["task"])
            case "commits":
                if done[epoch] != set(range(one["tasks"])):
                    run.say(f"commit: of {epoch} before its tasks: {sorted(done[epoch])} are done")
