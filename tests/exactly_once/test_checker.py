"""The checker finds each anomaly, planted in a good history; and nothing in the good one."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.exactly_once.checker import judge

_ROWS, _BATCHES = 4, 3


def value(number: int, token: str = "t") -> str:
    # As the source has them: one partition, the number is the offset.
    return json.dumps({"n": number, "p": 0, "o": number, "t": token})


def good() -> dict[str, list[dict[str, Any]]]:
    total = _ROWS * _BATCHES
    final = [
        {"topic": "t", "partition": number % 2, "offset": number // 2, "value": value(number)}
        for number in range(total)
    ]
    events: list[dict[str, Any]] = []
    for epoch in range(_BATCHES):
        of = {"producer_id": 1, "epoch": epoch}
        events.append({"event": "job", **of})
        for kind in ("task-begins", "task-done"):
            events += [{"event": kind, "task": task, "attempt": 0, **of} for task in range(2)]
        events.append({"event": "commits", "tasks": 2, **of})
    return {
        "produced": [{"n": number, "partition": 0, "offset": number} for number in range(total)],
        "final": sorted(final, key=lambda one: (one["partition"], one["offset"])),
        "beside": final[: _ROWS + 1],
        "markers": [{"batch": batch, "rows": _ROWS} for batch in range(_BATCHES)],
        "events": events,
    }


def judged(folder: Path, history: dict[str, list[dict[str, Any]]]) -> list[str]:
    for name, lines in history.items():
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / f"{name}.jsonl").write_text(text)
    (folder / "plans").mkdir()
    for batch in range(_BATCHES):
        told = {"v": 1, "topics": {"source": {"id": "x", "p": {"0": _ROWS * (batch + 1)}}}}
        (folder / "plans" / str(batch)).write_text(f"v1\n{{}}\n{json.dumps(told)}")
    return judge(folder)


def test_a_good_history_is_clean(tmp_path: Path) -> None:
    assert judged(tmp_path, good()) == []


def _lose(history: dict[str, list[dict[str, Any]]]) -> None:
    history["final"].pop()


def _double(history: dict[str, list[dict[str, Any]]]) -> None:
    history["final"].append({"topic": "t", "partition": 1, "offset": 99, "value": value(11)})


def _swap(history: dict[str, list[dict[str, Any]]]) -> None:
    first, second = history["final"][0], history["final"][1]
    first["value"], second["value"] = second["value"], first["value"]


def _show_aborted(history: dict[str, list[dict[str, Any]]]) -> None:
    history["beside"][0] = {**history["beside"][0], "value": value(0, "another attempt")}


def _tear(history: dict[str, list[dict[str, Any]]]) -> None:
    history["beside"] = history["beside"][:1]
    history["final"] = [one for one in history["final"] if json.loads(one["value"])["n"] != 1]


def _drop_marker(history: dict[str, list[dict[str, Any]]]) -> None:
    del history["markers"][1]


def _repeat_marker(history: dict[str, list[dict[str, Any]]]) -> None:
    history["markers"].append(history["markers"][-1])


def _use_epoch_twice(history: dict[str, list[dict[str, Any]]]) -> None:
    history["events"].append(history["events"][0])


def _send_in_attempt_1(history: dict[str, list[dict[str, Any]]]) -> None:
    history["events"].insert(3, {**history["events"][1], "attempt": 1})


def _commit_early(history: dict[str, list[dict[str, Any]]]) -> None:
    history["events"].insert(4, history["events"].pop(5))


@pytest.mark.parametrize(
    ("plant", "told"),
    [
        (_lose, "lost: 1 rows"),
        (_double, "twice: 1 rows"),
        (_swap, "order: "),
        (_show_aborted, "beside: a reader of committed rows saw"),
        (_tear, "batch 0 has 3 of 4 rows"),
        (_drop_marker, "markers: "),
        (_repeat_marker, "markers: "),
        (_use_epoch_twice, "epoch: (1, 0) served 2 send jobs"),
        (_send_in_attempt_1, "attempt: 1 of task 0 sent under (1, 0)"),
        (_commit_early, "commit: of (1, 0) before its tasks"),
    ],
)
def test_an_anomaly_is_found(
    plant: Callable[[dict[str, list[dict[str, Any]]]], None], told: str, tmp_path: Path
) -> None:
    history = good()
    plant(history)
    assert any(told in one for one in judged(tmp_path, history))


def test_the_checker_is_not_of_those_it_checks() -> None:
    text = (Path(__file__).parent / "checker.py").read_text()
    imports = [line for line in text.splitlines() if line.startswith(("import ", "from "))]
    assert not [line for line in imports if "odradek" in line or "spark" in line]
