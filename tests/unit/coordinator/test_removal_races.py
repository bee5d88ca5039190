"""Removals that meet commits: what is acknowledged is what is read, now and after a restart."""

from odradek.coordinator.config import GroupCoordinatorConfig
from odradek.errors import ErrorCode
from odradek.protocol.hot.offset_commit import OffsetCommitView
from tests.unit.coordinator.coordinator_fakes import Coordination

TOPIC = "t" * 200


def make(config: GroupCoordinatorConfig | None = None) -> Coordination:
    made = Coordination(config)
    made.lead_all()
    return made


def commit(
    made: Coordination, offset: int, *, topic: str = "t", partitions: range = range(1)
) -> list[ErrorCode]:
    """The answers to a commit from outside the group, filled as they come."""
    answers: list[ErrorCode] = []
    entries: list[tuple[int, int, int, str | None]] = [
        (partition, offset, -1, None) for partition in partitions
    ]
    view = OffsetCommitView("g", -1, "", None, -1, [(topic, entries)])
    outcome = made.groups.commit(view, 8, lambda error, _rejected: answers.append(error))
    if outcome is not None:
        answers.append(outcome[0])
    return answers


def committed(made: Coordination) -> dict[tuple[str, int], int]:
    return made.committed("g")


def reload(made: Coordination) -> dict[tuple[str, int], int]:
    """What another coordinator reads from the same log."""
    made.restart(GroupCoordinatorConfig())
    made.lead_all(1)
    return committed(made)


def test_a_commit_to_a_topic_made_again_survives_the_end_of_the_old_one() -> None:
    """The sweep through all groups comes to this one later than the commit."""
    made = make()
    assert commit(made, 5) == [ErrorCode.NONE]
    assert commit(made, 1, topic="u") == [ErrorCode.NONE]
    made.groups.forget_topics(["t"])
    assert commit(made, 7) == [ErrorCode.NONE]
    assert committed(made) == {("t", 0): 7, ("u", 0): 1}
    made.tasks.run()
    assert committed(made) == {("t", 0): 7, ("u", 0): 1}
    assert reload(made) == {("t", 0): 7, ("u", 0): 1}


def test_a_group_that_loses_all_its_offsets_to_a_commit_still_has_that_commit() -> None:
    """With the last old offset the group would go, too."""
    made = make()
    assert commit(made, 5) == [ErrorCode.NONE]
    made.groups.forget_topics(["t"])
    assert commit(made, 7) == [ErrorCode.NONE]
    assert committed(made) == {("t", 0): 7}
    made.tasks.run()
    assert committed(made) == {("t", 0): 7}
    assert reload(made) == {("t", 0): 7}


def test_the_first_commit_of_a_group_while_its_topic_is_forgotten() -> None:
    """There is nothing to forget in a group that was just made."""
    made = make()
    view = OffsetCommitView("other", -1, "", None, -1, [("u", [(0, 1, -1, None)])])
    assert made.groups.commit(view, 8, lambda *_: None) == (ErrorCode.NONE, None)
    made.groups.forget_topics(["t"])
    assert commit(made, 7) == [ErrorCode.NONE]
    made.tasks.run()
    assert committed(made) == {("t", 0): 7}


def test_a_topic_that_is_deleted_twice_is_forgotten_twice() -> None:
    made = make()
    assert commit(made, 5) == [ErrorCode.NONE]
    made.groups.forget_topics(["t"])
    assert commit(made, 7) == [ErrorCode.NONE]
    made.groups.forget_topics(["t"])
    made.tasks.run()
    assert committed(made) == {}
    assert not made.groups._sweeps
    assert reload(made) == {}


def test_a_commit_under_way_goes_with_its_topic() -> None:
    """It stands before the tombstone in the log, so it must not be read either."""
    made = make()
    assert commit(made, 5) == [ErrorCode.NONE]
    made.topic.is_held = True
    answers = commit(made, 7)
    made.groups.forget_topics(["t"])
    made.tasks.run()
    made.topic.release()
    assert answers == [ErrorCode.NONE]
    made.topic.release()
    assert committed(made) == {}
    made.topic.is_held = False
    assert reload(made) == {}


def test_a_commit_behind_a_tombstone_under_way_stays() -> None:
    made = make()
    assert commit(made, 5) == [ErrorCode.NONE]
    assert commit(made, 1, topic="u") == [ErrorCode.NONE]
    made.topic.is_held = True
    made.groups.forget_topics(["t"])
    made.tasks.run()
    answers = commit(made, 7)
    made.topic.release()
    made.topic.release()
    assert answers == [ErrorCode.NONE]
    assert committed(made) == {("t", 0): 7, ("u", 0): 1}
    made.topic.is_held = False
    assert reload(made) == {("t", 0): 7, ("u", 0): 1}


def test_a_commit_between_two_batches_of_tombstones_is_as_the_log_has_it() -> None:
    """More offsets are deleted than one batch holds; the commit comes before its end."""
    made = make()
    partitions = range(7_000)
    assert commit(made, 5, topic=TOPIC, partitions=partitions) == [ErrorCode.NONE]
    made.topic.is_held = True
    deleted: list[ErrorCode] = []
    made.groups.delete_offsets(
        "g", [(TOPIC, partition) for partition in partitions],
        lambda error, _results: deleted.append(error),
    )  # fmt: skip
    made.topic.release()
    answers = commit(made, 7, topic=TOPIC)
    while made.topic.held:
        made.topic.release()
    assert deleted == [ErrorCode.NONE]
    assert answers == [ErrorCode.NONE]
    assert committed(made) == {(TOPIC, 0): 7}
    made.topic.is_held = False
    assert reload(made) == {(TOPIC, 0): 7}


def test_tombstones_in_several_batches_of_which_one_fails() -> None:
    """The error is told once, when all batches have their outcome."""
    made = make()
    partitions = range(7_000)
    assert commit(made, 5, topic=TOPIC, partitions=partitions) == [ErrorCode.NONE]
    made.topic.is_held = True
    deleted: list[ErrorCode] = []
    made.groups.delete_offsets(
        "g", [(TOPIC, partition) for partition in partitions],
        lambda error, _results: deleted.append(error),
    )  # fmt: skip
    made.topic.release(ErrorCode.NOT_ENOUGH_REPLICAS)
    while made.topic.held:
        assert deleted == []
        made.topic.release()
    assert deleted == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    left = committed(made)
    assert 0 < len(left) < len(partitions)
    made.topic.is_held = False
    assert reload(made) == left, "what was written is gone from memory, too, and nothing else"
