"""`odradek groups` and `odradek consume --group` on a running broker."""

import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from odradek import Admin, Producer
from odradek.client.consumer import OffsetAndMetadata
from odradek.model import TopicPartition
from odradek.records.builder import build_batch
from odradek.testing import EmbeddedBroker
from tests.support.commands import Commands, Outcome
from tests.support.group_readers import OurReader, new_name, poll_until
from tests.support.stopped_logs import append_while_stopped

pytestmark = pytest.mark.slow

NOTHING_DONE = "odradek groups reset-offsets: nothing was changed; --execute does it\n"
# Messages 0 to 4 of each partition carry these times.
FIRST_MS = int(datetime(2020, 1, 31, 12, tzinfo=UTC).timestamp() * 1000)
MINUTE_MS = 60_000


@pytest.fixture(scope="module")
def odradek() -> Iterator[Commands]:
    with EmbeddedBroker({"group.initial.rebalance.delay.ms": "0"}) as broker:
        yield Commands(broker.bootstrap_servers)


def eventually(look: Callable[[], Outcome], holds: Callable[[Outcome], bool]) -> Outcome:
    deadline = time.monotonic() + 60
    while not holds(found := look()):
        assert time.monotonic() < deadline, found
        time.sleep(0.02)
    return found


def filled_topic(odradek: Commands) -> str:
    """A topic of two partitions with five messages each, one a minute."""
    topic = new_name("t")
    # Old as they are, they stay.
    odradek.ok("topics", "create", topic, "--partitions", 2, "--config", "retention.ms=-1")
    with Producer(bootstrap_servers=odradek.bootstrap) as producer:
        for number in range(10):
            producer.send(
                topic,
                b"%d" % number,
                partition=number % 2,
                timestamp=FIRST_MS + number // 2 * MINUTE_MS,
            )
    return topic


def group_at(odradek: Commands, topic: str, *offsets: int) -> str:
    """A group without members that has committed these offsets, by partition."""
    group = new_name("g")
    with Admin(bootstrap_servers=odradek.bootstrap) as admin:
        admin.alter_group_offsets(
            group,
            {
                TopicPartition(topic, number): OffsetAndMetadata(offset)
                for number, offset in enumerate(offsets)
            },
        )
    return group


def committed(odradek: Commands, group: str) -> dict[int, int]:
    rows = odradek("groups", "describe", group, "--json").json
    return {row["partition"]: row["current_offset"] for row in rows}


def test_a_group_goes_on_behind_the_last_message_shown(odradek: Commands) -> None:
    topic, group = filled_topic(odradek), new_name("g")
    read = ("consume", topic, "--group", group)
    first = odradek.ok(*read, "--from-beginning", "--max-messages", 4)
    second = odradek.ok(*read, "--from-beginning", "--max-messages", 6)
    assert len(first.lines) == 4
    assert sorted([*first.lines, *second.lines]) == [str(number) for number in range(10)]
    assert committed(odradek, group) == {0: 5, 1: 5}

    refused = odradek(*read, "--partition", 0)
    assert refused.code == 2
    assert "--partition cannot go with --group" in refused.err


def test_groups_are_listed_by_state(odradek: Commands) -> None:
    topic = filled_topic(odradek)
    idle = group_at(odradek, topic, 1, 1)
    busy = new_name("g")
    with OurReader(odradek.bootstrap, busy, topic) as reader:
        poll_until([reader], lambda: len(reader.partitions) == 2, "it has both")
        listed = odradek.ok("groups", "list").rows
        assert [idle, "Empty", ""] in listed
        assert [busy, "Stable", "consumer"] in listed
        stable = [row[0] for row in odradek.ok("groups", "list", "--state", "stable").rows]
        assert busy in stable
        assert idle not in stable
        by_name = {one["group_id"]: one for one in odradek.ok("groups", "list", "--json").json}
        assert by_name[busy]["state"] == "Stable"
        unknown = odradek("groups", "list", "--state", "asleep")
        assert unknown.code == 2
        assert "asleep is not a state: expected one of PreparingRebalance, " in unknown.err
        table = odradek.ok("groups", "list", terminal=True).lines
        assert table[0].split() == ["GROUP", "STATE", "PROTOCOL"]


def test_a_group_with_a_member_is_described_and_kept(odradek: Commands) -> None:
    """Offsets and lag, members, state; what may not be done to it names the reason."""
    topic, group = filled_topic(odradek), new_name("g")
    with OurReader(odradek.bootstrap, group, topic, client_id="reader") as reader:
        poll_until([reader], lambda: len(reader.values) == 10, "it reads everything")
        reader.commit()
        odradek.ok("produce", topic, stdin=b"one more")
        offsets = odradek.ok("groups", "describe", group).rows
        assert [row[:4] for row in offsets] == [
            [group, topic, "0", "5"],
            [group, topic, "1", "5"],
        ]
        assert sorted(row[4:6] for row in offsets) == [["5", "0"], ["6", "1"]]
        again = odradek.ok("groups", "describe", group, "--offsets").rows
        assert [row[:9] for row in again] == [row[:9] for row in offsets]  # Seconds pass.
        (member,) = odradek.ok("groups", "describe", group, "--members").rows
        assert member[0] == group
        assert member[1].startswith("reader-")
        assert member[2:] == ["", "/127.0.0.1", "reader", "2", f"{topic}(0,1)"]
        assert {(row[6], row[7], row[8]) for row in offsets} == {
            (member[1], "/127.0.0.1", "reader")
        }
        state = odradek.ok("groups", "describe", group, "--state").rows  # 07:T5
        assert state == [[group, f"{odradek.bootstrap} (0)", "range", "Stable", "1"]]
        (told,) = odradek.ok("groups", "describe", group, "--state", "--json").json
        assert (told["coordinator"], told["coordinator_address"]) == (0, odradek.bootstrap)

        reset = odradek("groups", "reset-offsets", group, "--to-earliest", "--execute")
        assert (reset.code, reset.out) == (1, "")
        assert reset.err == (
            f"odradek groups reset-offsets: group {group!r} has 1 active member: reader on "
            f"/127.0.0.1 reads {topic}(0,1); "
            "stop them first: their next commit would overwrite the change\n"
        )
        idle = group_at(odradek, topic, 1, 1)
        deleted = odradek("groups", "delete", group, idle)
        assert (deleted.code, deleted.lines) == (1, [idle])
        assert deleted.err.endswith("NON_EMPTY_GROUP; stop its members first\n")
        forgotten = odradek("groups", "delete-offsets", group, "--topic", f"{topic}:0")
        assert (forgotten.code, forgotten.out) == (1, "")
        assert forgotten.err == (
            f"odradek groups delete-offsets: {topic}-0: GROUP_SUBSCRIBED_TO_TOPIC; "
            "stop the members that read it first\n"
        )
        reader.commit()  # It is still a member.


def test_a_group_without_members_is_said_to_have_none(
    odradek: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")  # Nothing is cut.
    topic = filled_topic(odradek)
    group = group_at(odradek, topic, 3)
    shown = odradek("groups", "describe", group, terminal=True)
    assert (shown.code, shown.err) == (
        0,
        f"odradek groups describe: group {group!r} has no active members\n",
    )
    assert shown.lines[0].split()[:6] == [
        "GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG",
    ]  # fmt: skip
    assert shown.lines[1].split()[:9] == [group, topic, "0", "3", "5", "2", "-", "-", "-"]
    (one,) = odradek("groups", "describe", group, "--json").json
    assert (one["lag"], one["consumer_id"]) == (2, None)
    assert odradek.ok("groups", "describe", group, "--members").out == ""
    everything = odradek("groups", "describe", "--state")
    assert [group, f"{odradek.bootstrap} (0)", "", "Empty", "0"] in everything.rows


@pytest.mark.parametrize(
    ("place", "moved_to"),
    [
        (["--to-earliest"], (0, 0)),
        (["--to-latest"], (5, 5)),
        (["--to-offset", 4], (4, 4)),
        (["--to-offset", 400], (5, 5)),
        (["--shift-by", -2], (1, 0)),
        (["--shift-by", 1], (4, 2)),
        (["--to-datetime", "2020-01-31T12:02:00Z"], (2, 2)),
        (["--to-datetime", "2020-01-31T14:01:30+02:00"], (2, 2)),
        (["--to-datetime", "2020-01-31T12:04:00.001"], (5, 5)),
        (["--by-duration", "P36500D"], (0, 0)),
        (["--by-duration", "PT0S"], (5, 5)),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, list) else "",
)
def test_offsets_are_moved_when_that_is_asked_for(
    place: list[object], moved_to: tuple[int, int], odradek: Commands, shared_topic: str
) -> None:
    group = group_at(odradek, shared_topic, 3, 1)
    wanted = [
        [group, shared_topic, "0", "3", str(moved_to[0])],
        [group, shared_topic, "1", "1", str(moved_to[1])],
    ]
    reset = ("groups", "reset-offsets", group, *place)
    shown = odradek(*reset)
    assert (shown.code, shown.rows, shown.err) == (0, wanted, NOTHING_DONE)
    assert committed(odradek, group) == {0: 3, 1: 1}
    assert odradek.ok(*reset, "--execute").rows == wanted
    assert committed(odradek, group) == {0: moved_to[0], 1: moved_to[1]}


@pytest.fixture(scope="module")
def shared_topic(odradek: Commands) -> str:
    return filled_topic(odradek)


def test_partitions_to_move_can_be_chosen(odradek: Commands, shared_topic: str) -> None:
    group = group_at(odradek, shared_topic, 3, 1)
    chosen = ("--topic", f"{shared_topic}:1")
    moved = odradek.ok(
        "groups", "reset-offsets", group, *chosen, "--to-latest", "--execute", "--json"
    )
    assert moved.json == [
        {
            "group": group,
            "topic": shared_topic,
            "partition": 1,
            "current_offset": 1,
            "new_offset": 5,
        }
    ]
    assert committed(odradek, group) == {0: 3, 1: 5}

    newcomer = new_name("g")
    begun = odradek.ok("groups", "reset-offsets", newcomer, *chosen, "--to-offset", 2, "--execute")
    assert begun.rows == [[newcomer, shared_topic, "1", "", "2"]]
    assert committed(odradek, newcomer) == {1: 2}


def test_offsets_that_cannot_be_moved(odradek: Commands, shared_topic: str) -> None:
    group = group_at(odradek, shared_topic, 3)
    reset = ("groups", "reset-offsets")

    def refusal(*words: object) -> str:
        refused = odradek(*reset, *words, "--execute")
        assert refused.code != 0
        assert refused.out == ""
        return refused.err.splitlines()[-1]

    assert "GROUP_ID_NOT_FOUND" in refusal("nobody", "--to-earliest")
    assert "one of the arguments --to-earliest" in refusal(group)
    assert "not allowed with" in refusal(group, "--to-earliest", "--to-latest")
    assert "soon is not a time such as" in refusal(group, "--to-datetime", "soon")
    assert "'soon' is no duration such as" in refusal(group, "--by-duration", "soon")
    assert "-1 is not an offset" in refusal(group, "--to-offset=-1")
    only = ("--to-earliest", "--topic")
    assert "has partitions 0 to 1" in refusal(group, *only, f"{shared_topic}:2")
    assert "expected TOPIC or TOPIC:0,1" in refusal(group, *only, f"{shared_topic}:all")
    missing = refusal(group, *only, "nowhere")
    assert "does not exist; create it with `odradek topics create nowhere`" in missing
    unread = refusal(group, "--shift-by", 1, "--topic", shared_topic)
    assert (
        unread
        == f"odradek groups reset-offsets: --shift-by: nothing is committed for {shared_topic}-1"
    )
    assert committed(odradek, group) == {0: 3}


def test_groups_and_offsets_are_deleted(odradek: Commands, shared_topic: str) -> None:
    first, second = (group_at(odradek, shared_topic, 3, 1) for _ in range(2))
    forget = ("groups", "delete-offsets", first, "--topic")
    assert odradek.ok(*forget, f"{shared_topic}:0").out == f"{shared_topic}-0\n"
    assert committed(odradek, first) == {1: 1}
    assert odradek("groups", "delete-offsets", first).code == 2
    assert "topic 'nowhere' does not exist" in odradek(*forget, "nowhere").err
    nobody = odradek("groups", "delete-offsets", "nobody", "--topic", shared_topic)
    assert nobody.code == 1
    assert "GROUP_ID_NOT_FOUND" in nobody.err

    assert odradek.ok("groups", "delete", first, second, "--json").json == [first, second]
    gone = odradek("groups", "delete", first)
    assert (gone.code, gone.out) == (1, "")
    assert gone.err.endswith("GROUP_ID_NOT_FOUND; `odradek groups list` shows all groups\n")
    for view in ("--offsets", "--members", "--state"):
        missing = odradek("groups", "describe", first, view)
        assert (missing.code, missing.out) == (1, "")
        assert f"group {first!r}: " in missing.err
        assert "GROUP_ID_NOT_FOUND" in missing.err
    assert not {first, second} & {row[0] for row in odradek.ok("groups", "list").rows}


def test_what_the_offsets_topic_holds_can_be_read(odradek: Commands, shared_topic: str) -> None:
    group = new_name("g")
    with OurReader(odradek.bootstrap, group, shared_topic, client_id="reader") as reader:
        poll_until([reader], lambda: len(reader.values) == 10, "it reads everything")
        reader.commit()
    odradek.ok("groups", "delete", group)

    def shown(form: str) -> list[Any]:
        """This group's records; the last one tells that it is gone."""
        words = ("consume", "__consumer_offsets", "--from-beginning", "--format", form)

        def of_group(read: Outcome) -> list[Any]:
            lines = [json.loads(line) for line in read.lines]
            return [one for one in lines if one["key"]["data"]["group"] == group]

        read = eventually(
            lambda: odradek.ok(*words, "--timeout", 1),
            lambda read: bool(found := of_group(read)) and found[-1]["value"] is None,
        )
        return of_group(read)

    offsets = shown("offsets")
    assert {one["key"]["type"] for one in offsets} == {1}
    assert offsets[0]["key"]["data"]["topic"] == shared_topic
    assert {one["key"]["data"]["partition"] for one in offsets} == {0, 1}
    first = offsets[0]["value"]["data"]
    assert (first["offset"], first["leaderEpoch"], first["metadata"]) == (5, 0, "")
    groups = shown("group-metadata")
    assert groups[0]["key"] == {"type": 2, "data": {"group": group}}
    told = groups[0]["value"]["data"]
    assert (told["protocolType"], told["protocol"], told["generation"]) == ("consumer", "range", 1)
    (member,) = told["members"]
    assert (member["clientId"], member["memberId"]) == ("reader", told["leader"])


def open_transaction(data_dir: Path, topic: str, value: bytes) -> None:
    """One message of a transaction that does not end."""
    batch = build_batch(
        [(FIRST_MS, None, value, ())],
        producer_id=4_000,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    append_while_stopped(data_dir, TopicPartition(topic, 0), bytes(batch))


def test_messages_of_an_open_transaction_are_shown_only_to_those_who_want_them(
    tmp_path: Path,
) -> None:
    """08:T-4: the last N are counted from the end that the isolation level has."""
    topic = new_name("t")
    with EmbeddedBroker(data_dir=tmp_path) as broker:
        commands = Commands(broker.bootstrap_servers)
        # Old as the message of the transaction is, it stays.
        commands.ok("topics", "create", topic, "--partitions", 1, "--config", "retention.ms=-1")
        commands.ok("produce", topic, stdin=b"a\nb\nc")
    open_transaction(tmp_path, topic, b"pending")
    with EmbeddedBroker(data_dir=tmp_path) as broker:
        check_open_transaction(Commands(broker.bootstrap_servers), topic)


def check_open_transaction(odradek: Commands, topic: str) -> None:
    odradek.ok("produce", topic, stdin=b"behind it")

    last = ("consume", topic, "--partition", 0, "--offset", -2)
    committed_only = ("--isolation-level", "read_committed")
    assert odradek.ok(*last, "--max-messages", 2).lines == ["pending", "behind it"]
    assert odradek.ok(*last, *committed_only, "--max-messages", 2).lines == ["b", "c"]
    everything = ("consume", topic, "--from-beginning")
    shown = odradek.ok(*everything, "--max-messages", 5).lines
    assert shown == ["a", "b", "c", "pending", "behind it"]
    only = odradek.ok(*everything, *committed_only, "--timeout", 1).lines
    assert not {"pending", "behind it"} & set(only)
    assert odradek.ok(*last[:4], "--offset", -9, *committed_only, "--max-messages", 3).lines == [
        "a", "b", "c",
    ]  # fmt: skip
