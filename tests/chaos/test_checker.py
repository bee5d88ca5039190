"""The checker is tried itself: good histories are clean, and it names each planted anomaly."""

import ast
import copy
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.chaos.checker import ANOMALIES, MalformedHistoryError, judge, parse_history
from tests.chaos.good_histories import GROUP, PARTITIONS, TOPIC, Event, good_history, parsed
from tests.chaos.good_transactions import PLANTED_IN_TRANSACTIONS, good_transactions

CHECKER = Path(__file__).parent / "checker"
ROOT = Path(__file__).parents[2]


def test_the_checker_imports_the_standard_library_alone() -> None:
    """Issue of the cluster: its own package, no import of odradek."""
    foreign = set()
    for path in CHECKER.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0
                foreign.add(str(node.module))
            elif isinstance(node, ast.Import):
                foreign |= {alias.name for alias in node.names}
    outside = {
        name
        for name in foreign
        if name.partition(".")[0] not in sys.stdlib_module_names
        and not name.startswith("tests.chaos.checker")
    }
    assert foreign
    assert outside == set()


@given(seed=st.integers(0, 2**32), steps=st.integers(0, 300))
@settings(max_examples=60)
def test_random_good_histories_are_clean(seed: int, steps: int) -> None:
    """15:3: the checker accuses no cluster that keeps its promises."""
    report = judge(parsed(good_history(Random(seed), steps)))

    assert report.anomalies == ()


@given(seed=st.integers(0, 2**32), steps=st.integers(0, 300))
@settings(max_examples=60)
def test_random_good_transactions_are_clean(seed: int, steps: int) -> None:
    """15:3: pipelines that die, are fenced, abort, and are not told."""
    report = judge(parsed(good_transactions(Random(seed), steps)))

    assert report.anomalies == ()


Planting = Callable[[list[Event], Random], set[str]]


def final_of(events: list[Event], partition: int) -> Event:
    return next(
        one for one in events if one["event"] == "final-read" and one["partition"] == partition
    )


def replicas_of(events: list[Event], partition: int) -> list[Event]:
    return [one for one in events if one["event"] == "replica" and one["partition"] == partition]


def acknowledged(events: list[Event], random: Random, *, since: float = 0) -> tuple[Event, Event]:
    """A send and the answer that told its offset."""
    sends = {(one["process"], one["n"]): one for one in events if one["event"] == "send"}
    pairs = [
        (sends[one["process"], one["n"]], one)
        for one in events
        if one["event"] == "sent" and one["outcome"] == "ok" and one["offset"] is not None
    ]
    return random.choice([pair for pair in pairs if pair[0]["t"] > since])


def forget(events: list[Event], partition: int, offset: int) -> None:
    """No client read it, and it is not there at the end."""
    for poll in (one for one in events if one["event"] == "poll"):
        poll["records"] = [row for row in poll["records"] if row[1:3] != [partition, offset]]
    for one in [final_of(events, partition), *replicas_of(events, partition)]:
        one["records"] = [row for row in one["records"] if row[0] != offset]


def polls_of(events: list[Event], prefix: str, at_least: int) -> list[Event]:
    """Polls with some records of one partition in a row."""
    return [
        one
        for one in events
        if one["event"] == "poll"
        and one["process"].startswith(prefix)
        and len(one["records"]) >= at_least
        and len({row[1] for row in one["records"][:at_least]}) == 1
    ]


def plant_lost_write(events: list[Event], random: Random) -> set[str]:
    send, sent = acknowledged(events, random)
    forget(events, send["partition"], sent["offset"])
    return {send["value"], send["process"]}


def plant_unseen(events: list[Event], random: Random) -> set[str]:
    """The last record of a partition that was not read out."""
    last = final_of(events, 0)["records"][-1]
    forget(events, 0, last[0])
    for one in [final_of(events, 0), *replicas_of(events, 0)]:
        events.remove(one)
    return {last[1]}


def plant_lost_write_without_final_read(events: list[Event], random: Random) -> set[str]:
    healed = next(one["t"] for one in events if one["event"] == "healed")
    while True:
        send, sent = acknowledged(events, random)
        if send["t"] < healed:  # Others are behind it.
            break
    forget(events, send["partition"], sent["offset"])
    events.remove(final_of(events, send["partition"]))
    for one in replicas_of(events, send["partition"]):
        events.remove(one)
    return {send["value"]}


def plant_vanished_read(events: list[Event], random: Random) -> set[str]:
    """A record without an answer is read, and then it is gone."""
    log = final_of(events, 1)
    t = max(one["t"] for one in events if one["event"] == "poll")
    rows = [[TOPIC, 1, log["high"], "producer-1/900"]]
    events.append(
        {"t": 100.5, "process": "producer-1", "event": "send", "n": 900, "topic": TOPIC,
         "partition": 1, "key": "k", "value": "producer-1/900"}
    )  # fmt: skip
    events.append({"t": t, "process": "reader-1", "event": "poll", "records": rows})
    return {"producer-1/900", "reader-1"}


def plant_duplicate(events: list[Event], random: Random) -> set[str]:
    """The record of a retry was written again."""
    for one in [final_of(events, 0), *replicas_of(events, 0)]:
        end = one["records"][-1][0] + 1
        value = one["records"][0][1]
        one["records"].append([end, value])
        one["high"] = end + 1
    for poll in (one for one in events if one["event"] == "poll"):
        if [TOPIC, 0, end - 1] in [row[:3] for row in poll["records"]]:
            at = [row[:3] for row in poll["records"]].index([TOPIC, 0, end - 1])
            poll["records"].insert(at + 1, [TOPIC, 0, end, value])
    for one in replicas_of(events, 0):
        one["batches"].append([end, end, 99, "dd", 7, 0, 0])
    return {value}


def plant_duplicate_without_files(events: list[Event], random: Random) -> set[str]:
    """The same, where the numbers are not known."""
    facts = plant_duplicate(events, random)
    for one in replicas_of(events, 0):
        events.remove(one)
    return facts


def plant_client_duplicate(events: list[Event], random: Random) -> set[str]:
    """A client sent a record again, as another one: in a new epoch."""
    facts = plant_duplicate(events, random)
    for one in replicas_of(events, 0):
        one["batches"][-1][5] = 1
    return facts


def plant_inconsistent_offsets(events: list[Event], random: Random) -> set[str]:
    """A reader got another record than the one that is there."""
    poll = random.choice(polls_of(events, "reader-1", 2))
    first, second = poll["records"][:2]
    first[3], second[3] = second[3], first[3]
    return {first[3], second[3], poll["process"]}


def plant_inconsistent_replica(events: list[Event], random: Random) -> set[str]:
    """One replica has another record at an offset, although its bytes were not compared."""
    replica = random.choice(replicas_of(events, 0))
    rows = copy.deepcopy(replica["records"])
    rows[0][1], rows[1][1] = rows[1][1], rows[0][1]
    replica["records"] = rows
    return {rows[0][1], f"broker-{replica['broker']}"}


def plant_nonmonotonic_send(events: list[Event], random: Random) -> set[str]:
    """The order in which a producer sent two records was not kept."""
    pairs = [
        (one, other)
        for one in events
        for other in events
        if one["event"] == other["event"] == "send"
        and one["process"] == other["process"]
        and one["partition"] == other["partition"]
        and one["n"] < other["n"]
    ]
    written = {
        row[1] for number in range(PARTITIONS) for row in final_of(events, number)["records"]
    }
    one, other = random.choice(
        [pair for pair in pairs if pair[0]["value"] in written and pair[1]["value"] in written]
    )
    # The same records at the same places, if it had sent them the other way round.
    exchanged = {one["n"]: other["n"], other["n"]: one["n"]}
    for event in events:
        if event["event"] in ("send", "sent") and event["process"] == one["process"]:
            event["n"] = exchanged.get(event["n"], event["n"])
    return {one["value"], other["value"], one["process"]}


def plant_phantom_read(events: list[Event], random: Random) -> set[str]:
    """A record of another topic, or of a former life of this one."""
    for one in [final_of(events, 0), *replicas_of(events, 0)]:
        end = one["records"][-1][0] + 1
        one["records"].append([end, "elsewhere/1"])
    return {"elsewhere/1"}


def plant_failed_write_read(events: list[Event], random: Random) -> set[str]:
    send, sent = acknowledged(events, random)
    sent.update(outcome="fail", offset=None, error="RECORD_LIST_TOO_LARGE")
    return {send["value"], send["process"], "RECORD_LIST_TOO_LARGE"}


def plant_nonmonotonic_poll(events: list[Event], random: Random) -> set[str]:
    """A reader gets a poll once more."""
    poll = random.choice(polls_of(events, "reader-", 1))
    again = copy.deepcopy(poll)
    again["t"] += 1e-6
    events.append(again)
    return {poll["process"], poll["records"][0][3]}


def plant_nonmonotonic_poll_of_a_member(events: list[Event], random: Random) -> set[str]:
    poll = random.choice(polls_of(events, "member-", 1))
    again = copy.deepcopy(poll)
    again["t"] += 1e-6
    events.append(again)
    return {poll["process"]}


def plant_int_nonmonotonic_poll(events: list[Event], random: Random) -> set[str]:
    poll = random.choice(polls_of(events, "reader-", 2))
    poll["records"][0], poll["records"][1] = poll["records"][1], poll["records"][0]
    return {poll["process"]}


def plant_poll_skip(events: list[Event], random: Random) -> set[str]:
    """The first record of a poll did not come; another poll follows the last."""
    poll = random.choice(polls_of(events, "reader-", 2))
    missed = poll["records"].pop(0)
    return {poll["process"], str(missed[2])}


def plant_int_poll_skip(events: list[Event], random: Random) -> set[str]:
    poll = random.choice(polls_of(events, "reader-", 3))
    missed = poll["records"].pop(1)
    return {poll["process"], str(missed[2])}


def plant_offset_regression(events: list[Event], random: Random) -> set[str]:
    """A client hears of a smaller end than before."""
    last = [one for one in events if one["event"] == "watermarks"][-1]
    high = last["high"] - 1
    events.append({**last, "since": last["t"], "t": last["t"] + 1e-6, "high": high})
    return {"observer-1", str(last["high"]), str(high)}


def plant_start_regression(events: list[Event], random: Random) -> set[str]:
    last = [one for one in events if one["event"] == "watermarks"][-1]
    last["low"] = 3
    events.append({**last, "since": last["t"], "t": last["t"] + 1e-6, "low": 2})
    return {"observer-1", "start"}


def ended_commits(events: list[Event]) -> list[tuple[Event, Event]]:
    """Commits that were accepted, with the answer."""
    begun = {one["n"]: one for one in events if one["event"] == "commit"}
    return [
        (begun[one["n"]], one)
        for one in events
        if one["event"] == "commit-done" and one["outcome"] == "ok"
    ]


def add_commit(events: list[Event], t: float, offset: int, n: int) -> None:
    rows = [[TOPIC, 0, offset]]
    events.append(
        {"t": t, "process": "member-1", "event": "commit", "n": n, "group": GROUP,
         "generation": None, "offsets": rows}
    )  # fmt: skip
    events.append(
        {"t": t + 0.1, "process": "member-1", "event": "commit-done", "n": n, "outcome": "ok",
         "error": None}
    )  # fmt: skip


def add_look(events: list[Event], t: float, offset: int | None, process: str) -> None:
    events.append(
        {"t": t + 0.1, "since": t, "process": process, "event": "committed", "group": GROUP,
         "offsets": [[TOPIC, 0, offset]]}
    )  # fmt: skip


def plant_commit_regression(events: list[Event], random: Random) -> set[str]:
    """During faults one client is told a later commit first, and then an earlier one."""
    add_commit(events, 50, 7001, 901)
    add_commit(events, 51, 7002, 902)
    add_look(events, 52, 7002, "observer-2")
    add_look(events, 53, 7001, "observer-2")
    return {"observer-2", "7001", "7002"}


def plant_commit_lost(events: list[Event], random: Random) -> set[str]:
    """After healing the last commit is not found."""
    end = max(one["t"] for one in events)
    add_commit(events, end + 1, 7001, 901)
    add_commit(events, end + 2, 7002, 902)
    add_look(events, end + 3, 7001, "observer-2")
    return {"observer-2", "7001", "7002"}


def plant_commits_forgotten(events: list[Event], random: Random) -> set[str]:
    """After healing the group has no offset at all."""
    end = max(one["t"] for one in events)
    add_commit(events, end + 1, 7001, 901)
    add_look(events, end + 3, None, "observer-2")
    return {"observer-2", "None", "7001"}


def plant_phantom_commit(events: list[Event], random: Random) -> set[str]:
    add_look(events, 99, 4711, "observer-2")
    return {"observer-2", "4711"}


def plant_double_ownership(events: list[Event], random: Random) -> set[str]:
    joined = random.choice(
        [one for one in events if one["event"] == "joined" and one["partitions"]]
    )
    events.append(
        {**joined, "t": joined["t"] + 1e-6, "process": "member-9", "member": "member-9-id"}
    )
    events.append(
        {"t": joined["t"] + 2e-6, "process": "member-9", "event": "revoked", "group": GROUP,
         "generation": joined["generation"], "partitions": joined["partitions"]}
    )  # fmt: skip
    return {joined["process"], "member-9", f"generation {joined['generation']}"}


def plant_fenced_commit(events: list[Event], random: Random) -> set[str]:
    """A member that sleeps commits in a generation that is over."""
    first = next(one for one in events if one["event"] == "joined")
    end = max(one["t"] for one in events)
    events.append(
        {"t": end + 1, "process": "member-1", "event": "commit", "n": 903, "group": GROUP,
         "generation": first["generation"], "offsets": [[TOPIC, 0, 1]]}
    )  # fmt: skip
    events.append(
        {"t": end + 2, "process": "member-1", "event": "commit-done", "n": 903, "outcome": "ok",
         "error": None}
    )  # fmt: skip
    return {"member-1", f"generation {first['generation']}"}


def plant_generation_regression(events: list[Event], random: Random) -> set[str]:
    last = [one for one in events if one["event"] == "joined"][-1]
    end = max(one["t"] for one in events)
    events.append({**last, "t": end + 1, "generation": 0, "partitions": []})
    return {last["process"], str(last["generation"])}


def plant_divergent_bytes(events: list[Event], random: Random) -> set[str]:
    """The same records in other bytes."""
    replica = random.choice(replicas_of(events, 1)[1:])
    random.choice(replica["batches"])[3] = "other"
    return {f"broker-{replica['broker']}", "other"}


def plant_short_replica(events: list[Event], random: Random) -> set[str]:
    replica = random.choice(replicas_of(events, 1))
    replica["batches"].pop()
    return {f"broker-{replica['broker']}", str(replica["high"])}


def plant_epoch_regression(events: list[Event], random: Random) -> set[str]:
    for replica in replicas_of(events, 0):
        replica["batches"][0][2] = 7
    return {"epoch 1", "broker-1"}


def plant_replica_out_of_sync(events: list[Event], random: Random) -> set[str]:
    told = random.choice([one for one in events if one["event"] == "in-sync"])
    told["in_sync"] = [1, 3]
    return {f"{told['topic']}-{told['partition']}", "broker-2", "only [1, 3]"}


def plant_two_controllers(events: list[Event], random: Random) -> set[str]:
    events[-1]["counts"] = {"1": 1, "2": 1, "3": 0}
    return {"1: 1, 2: 1"}


def plant_no_controller(events: list[Event], random: Random) -> set[str]:
    events[-1]["counts"] = {"1": 0, "2": 0, "3": 0}
    return {"1: 0, 2: 0"}


def plant_stalled_service(events: list[Event], random: Random) -> set[str]:
    """The store is gone for a while, and one partition takes no record meanwhile."""
    end = max(one["t"] for one in events)
    row = {"process": "campaign", "event": "fault", "n": 99, "name": "store-gone"}
    row |= {"targets": ["zookeeper-1"], "detail": "", "serves": True}
    events.append({**row, "t": end + 1, "phase": "begin"})
    events.append({**row, "t": end + 60, "phase": "end"})
    for n, partition in ((801, 0), (802, 1)):
        place = {"process": "producer-9", "n": n, "topic": "u", "partition": partition}
        value = f"producer-9/{n}"
        events.append({**place, "t": end + 30, "event": "send", "key": "k", "value": value})
    events.append(
        {"process": "producer-9", "event": "sent", "n": 801, "t": end + 31, "outcome": "ok",
         "offset": 0, "error": None}
    )  # fmt: skip
    return {"u-1", "store-gone", "zookeeper-1"}


def plant_stalled_producer(events: list[Event], random: Random) -> set[str]:
    """What one producer sent after healing has no answer."""
    healed = next(one["t"] for one in events if one["event"] == "healed")
    mine = {
        one["n"]
        for one in events
        if one["event"] == "send" and one["process"] == "producer-2" and one["t"] > healed
    }
    for one in list(events):
        if one["event"] == "sent" and one["process"] == "producer-2" and one["n"] in mine:
            events.remove(one)
    return {"producer-2", "never"}


def plant_late_producer(events: list[Event], random: Random) -> set[str]:
    next(one for one in events if one["event"] == "healed")["bound_s"] = 0
    return {"only"}


def plant_stalled_reader(events: list[Event], random: Random) -> set[str]:
    last = polls_of(events, "reader-1", 1)[-1]
    last["records"].pop()
    return {"reader-1"}


def plant_stalled_group(events: list[Event], random: Random) -> set[str]:
    for one in events:
        if one["event"] == "poll" and one["process"].startswith("member-"):
            one["records"] = [row for row in one["records"] if row[1] != 1]
    return {"member-1", GROUP}


def plant_unread_partition(events: list[Event], random: Random) -> set[str]:
    events.remove(final_of(events, 1))
    return set()


PLANTED: list[tuple[str, Planting]] = [
    ("lost-write", plant_lost_write),
    ("lost-write", plant_lost_write_without_final_read),
    ("unseen", plant_unseen),
    ("vanished-read", plant_vanished_read),
    ("duplicate", plant_duplicate),
    ("duplicate", plant_duplicate_without_files),
    ("client-duplicate", plant_client_duplicate),
    ("inconsistent-offsets", plant_inconsistent_offsets),
    ("inconsistent-offsets", plant_inconsistent_replica),
    ("nonmonotonic-send", plant_nonmonotonic_send),
    ("phantom-read", plant_phantom_read),
    ("failed-write-read", plant_failed_write_read),
    ("nonmonotonic-poll", plant_nonmonotonic_poll),
    ("nonmonotonic-poll", plant_nonmonotonic_poll_of_a_member),
    ("int-nonmonotonic-poll", plant_int_nonmonotonic_poll),
    ("poll-skip", plant_poll_skip),
    ("int-poll-skip", plant_int_poll_skip),
    ("offset-regression", plant_offset_regression),
    ("offset-regression", plant_start_regression),
    ("commit-regression", plant_commit_regression),
    ("commit-regression", plant_commit_lost),
    ("commit-regression", plant_commits_forgotten),
    ("phantom-commit", plant_phantom_commit),
    ("double-ownership", plant_double_ownership),
    ("fenced-commit", plant_fenced_commit),
    ("generation-regression", plant_generation_regression),
    ("divergent-replicas", plant_divergent_bytes),
    ("divergent-replicas", plant_short_replica),
    ("epoch-regression", plant_epoch_regression),
    ("stalled-replica", plant_replica_out_of_sync),
    ("split-control", plant_two_controllers),
    ("split-control", plant_no_controller),
    ("stalled-service", plant_stalled_service),
    ("stalled-producer", plant_stalled_producer),
    ("stalled-producer", plant_late_producer),
    ("stalled-reader", plant_stalled_reader),
    ("stalled-group", plant_stalled_group),
    ("unread-partition", plant_unread_partition),
]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("name", "plant"), PLANTED, ids=[plant.__name__.removeprefix("plant_") for _, plant in PLANTED]
)
def test_a_planted_anomaly_is_named(name: str, plant: Planting, seed: int) -> None:
    """15:3, 15:7: found, by its name, with the records, offsets and processes that it is about."""
    random = Random(seed)
    events = good_history(random, steps=200)
    facts = plant(events, random)

    report = judge(parsed(events))

    assert name in report.names
    told = "\n".join(str(one) for one in report.illegal if one.name == name)
    assert [fact for fact in facts if fact not in told] == []


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("name", "plant"),
    PLANTED_IN_TRANSACTIONS,
    ids=[plant.__name__.removeprefix("plant_") for _, plant in PLANTED_IN_TRANSACTIONS],
)
def test_an_anomaly_planted_in_transactions_is_named(name: str, plant: Planting, seed: int) -> None:
    """15:3, 15:7: likewise, with times."""
    random = Random(seed)
    events = good_transactions(random)
    facts = plant(events, random)

    report = judge(parsed(events))

    assert name in report.names
    told = "\n".join(str(one) for one in report.illegal if one.name == name)
    assert [fact for fact in facts if fact not in told] == []
    assert "t=" in told


def test_what_became_of_transactions_is_counted() -> None:
    report = judge(parsed(good_transactions(Random(1))))

    assert report.transactions["committed"] > report.transactions["aborted"] > 0
    assert f"transactions: {report.transactions['committed']} committed" in report.show()


def test_each_anomaly_is_planted() -> None:
    assert {name for name, _ in (*PLANTED, *PLANTED_IN_TRANSACTIONS)} == set(ANOMALIES)


@pytest.mark.parametrize(
    ("name", "plant"), PLANTED, ids=[plant.__name__.removeprefix("plant_") for _, plant in PLANTED]
)
def test_the_text_has_times(name: str, plant: Planting) -> None:
    random = Random(3)
    events = good_history(random, steps=200)
    plant(events, random)
    told = [str(one) for one in judge(parsed(events)).anomalies if one.name == name]

    if name in ("split-control", "unread-partition", "stalled-reader", "stalled-group"):
        return  # About the end of the run.
    assert "t=" in told[0] or name == "epoch-regression"


def test_what_a_run_may_have_is_not_illegal() -> None:
    """15:3: the allowed set is data."""
    random = Random(1)
    events = good_history(random)
    plant_lost_write(events, random)
    events[0]["allowed"] = sorted(ANOMALIES)

    report = judge(parsed(events))

    assert "lost-write" in report.names
    assert report.illegal == ()
    assert "(allowed in this run)" in report.show()


def test_what_the_logs_of_a_cluster_explain_is_not_illegal() -> None:
    """A fault of the cluster that is known does not hide others."""
    random = Random(2)
    events = good_transactions(random)
    dict(PLANTED_IN_TRANSACTIONS)["lost-transaction"](events, random)
    excuse = {"t": 1, "process": "campaign", "event": "excused", "why": "markers were left out"}

    assert judge(parsed([*events, {**excuse, "names": ["torn-transaction"]}])).illegal
    names = ["lost-transaction", "lost-result"]
    assert judge(parsed([*events, {**excuse, "names": names}])).illegal == ()


def test_a_deleted_topic_owes_nothing() -> None:
    random = Random(1)
    events = good_history(random)
    row = {"process": "producer-3", "topic": "churn#1", "partition": 0}
    events += [
        {"t": 101, "event": "send", "n": 1, "key": "k", "value": "x", **row},
        {"t": 102, "event": "sent", "process": "producer-3", "n": 1, "outcome": "ok", "offset": 0},
        {"t": 103, "event": "deleted", "process": "campaign", "topic": "churn#1"},
    ]

    assert judge(parsed(events)).anomalies == ()
    assert {"unseen", "stalled-producer", "unread-partition"} <= judge(parsed(events[:-1])).names


def test_a_line_that_was_cut_short_is_left_out() -> None:
    history = parse_history(['{"t": 1, "event": "healed", "bound_s": 3}\n', '{"t": 2, "ev'])

    assert history.healed is not None


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("[]\n", "expected a JSON object with t and event"),
        ("{\n", "line 1"),
        ('{"t": 1, "event": "nonsense"}\n', "no event has the name 'nonsense'"),
        ('{"t": 1, "event": "sent", "process": "p", "n": 3, "outcome": "ok"}\n', "('p', 3)"),
    ],
)
def test_a_line_that_is_wrong_is_named(line: str, said: str) -> None:
    with pytest.raises(MalformedHistoryError) as caught:
        parse_history([line])

    assert said in str(caught.value)


def test_the_command_judges_files(tmp_path: Path) -> None:
    random = Random(1)
    events = good_history(random)
    path = tmp_path / "history.jsonl"
    command = [sys.executable, "-m", "tests.chaos.checker", str(path)]

    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    clean = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    plant_lost_write(events, random)
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    lost = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert (clean.returncode, lost.returncode) == (0, 1)
    assert "lost-write t-" in lost.stdout


def test_a_partition_that_is_served_during_a_fault_is_clean() -> None:
    random = Random(1)
    events = good_history(random)
    plant_stalled_service(events, random)

    told = [one for one in judge(parsed(events)).anomalies if one.name == "stalled-service"]

    assert [one.where for one in told] == ["u-1"]
