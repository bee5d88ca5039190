"""Roles: lead, follow, stop, delete (05 section 9)."""

import errno
import logging
import os
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from odradek.errors import ApiError, ConfigError, ErrorCode, StorageError
from odradek.metadata.delta import HostedPartition, LocalDelta, StoppedPartition
from odradek.model import TopicPartition
from odradek.replication import FetchPartition
from odradek.storage.directories.partition_directories import PARTITION_METADATA_FILE, read_topic_id
from odradek.testing import SimDisk
from tests.support.held_tasks import HeldTasks
from tests.support.logs import UnsyncedDisk, batch
from tests.support.replicas import BROKER_ID, ReplicaFixture, hosted, state_of, stopped, tp

ID_A, ID_B = uuid.UUID(int=10), uuid.UUID(int=11)


@pytest.fixture
def fixture(tmp_path: Path) -> Iterator[ReplicaFixture]:
    with ReplicaFixture(tmp_path) as fixture:
        yield fixture


def code_of(fixture: ReplicaFixture, *, expect_leader: bool) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        fixture.replicas.find_partition(tp(), expect_leader=expect_leader)
    return caught.value.code


def test_looking_up(fixture: ReplicaFixture) -> None:
    """05 section 6, get_partition_or_error."""
    assert code_of(fixture, expect_leader=True) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    fixture.known.add(tp())
    assert code_of(fixture, expect_leader=True) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert code_of(fixture, expect_leader=False) is ErrorCode.REPLICA_NOT_AVAILABLE
    fixture.lead(tp())
    assert fixture.replicas.find_partition(tp()).is_leader


@pytest.mark.parametrize(
    ("leader_epoch", "expected"),
    [
        pytest.param(2, ErrorCode.STALE_CONTROLLER_EPOCH, id="lower"),
        pytest.param(3, ErrorCode.STALE_CONTROLLER_EPOCH, id="05:R21-same"),
        pytest.param(4, ErrorCode.NONE, id="05:R21-higher"),
    ],
)
def test_leader_epoch_must_grow(
    fixture: ReplicaFixture, leader_epoch: int, expected: ErrorCode
) -> None:
    fixture.lead(tp(), leader_epoch=3)
    results = fixture.apply(hosted(state_of(tp(), leader=2, leader_epoch=leader_epoch)))
    assert results == {tp(): expected}
    assert fixture.partition(tp()).is_leader is (expected is not ErrorCode.NONE)


def test_same_epoch_with_a_later_version(fixture: ReplicaFixture) -> None:
    """15:KAFKA-13790: the state is taken, no epoch begins, and followers keep what they have."""
    partition = fixture.lead(tp(), leader_epoch=3, replicas=(1, 2, 3), partition_version=5)
    fixture.produce({tp(): batch(4)}, acks=1)
    fixture.fetch_as(2, tp(), 4)
    update = state_of(tp(), leader_epoch=3, replicas=(1, 2, 4), isr=(1, 2), partition_version=6)
    assert fixture.apply(hosted(update)) == {tp(): ErrorCode.NONE}
    assert (partition.isr, partition.partition_version) == ((1, 2), 6)
    assert partition.epoch_start_offset == 0
    assert fixture.log(tp()).leader_epochs.entries == ((3, 0),)
    assert partition.followers[2].log_end_offset == 4
    assert sorted(partition.followers) == [2, 4]
    assert fixture.high_watermark(tp()) == 4
    assert fixture.apply(hosted(update)) == {tp(): ErrorCode.STALE_CONTROLLER_EPOCH}


def test_same_epoch_under_another_leader_is_refused(fixture: ReplicaFixture) -> None:
    fixture.lead(tp(), leader_epoch=3, partition_version=5)
    update = state_of(tp(), leader=2, leader_epoch=3, partition_version=6)
    assert fixture.apply(hosted(update)) == {tp(): ErrorCode.STALE_CONTROLLER_EPOCH}


def test_not_among_the_replicas(fixture: ReplicaFixture) -> None:
    results = fixture.apply(hosted(state_of(tp(), leader=2, replicas=(2, 3))))
    assert results == {tp(): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert fixture.log_manager.get_log(tp()) is None


def test_one_bad_partition_does_not_stop_the_others(fixture: ReplicaFixture) -> None:
    results = fixture.apply(hosted(state_of(tp("a"), replicas=(2,))), hosted(state_of(tp("b"))))
    assert list(results.values()) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE]


def test_leader_and_follower(fixture: ReplicaFixture) -> None:
    fixture.lead(tp(), replicas=(1, 2), leader_epoch=1)
    assert fixture.partition(tp()).isr == (1, 2)
    fixture.apply(hosted(state_of(tp(), leader=2, replicas=(1, 2), leader_epoch=2)))
    partition = fixture.partition(tp())
    assert (partition.is_leader, partition.leader_id) == (False, 2)
    assert partition.isr == ()
    assert not partition.followers
    with pytest.raises(ApiError, match="is not the leader, 2 is"):
        partition.leader_log()


def test_epoch_of_a_leader_is_written_before_its_first_record(fixture: ReplicaFixture) -> None:
    fixture.lead(tp(), leader_epoch=1)
    fixture.produce({tp(): batch(2)})
    fixture.lead(tp(), leader_epoch=4)
    assert fixture.log(tp()).leader_epochs.entries == ((1, 0), (4, 2))
    assert fixture.partition(tp()).epoch_start_offset == 2


# Topic ids


def test_the_id_is_written_and_found_again(fixture: ReplicaFixture) -> None:
    fixture.apply(hosted(state_of(tp()), topic_id=ID_A))
    log = fixture.log(tp())
    assert read_topic_id(fixture.disk, log.directory) == ID_A
    assert fixture.partition(tp()).topic_id == ID_A


def test_only_an_unusual_refusal_is_a_warning(
    fixture: ReplicaFixture, caplog: pytest.LogCaptureFixture
) -> None:
    """A new controller announces what is known already, once more for each partition."""
    for _ in range(2):
        fixture.apply(hosted(state_of(tp(), leader=1, leader_epoch=3)))
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]
    fixture.apply(hosted(state_of(tp("other"), leader=2, replicas=(2, 3))))
    [warning] = [one for one in caplog.records if one.levelno >= logging.WARNING]
    assert "role refused" in warning.getMessage()


def test_a_log_without_an_id_adopts_one_even_if_its_epoch_is_old(fixture: ReplicaFixture) -> None:
    fixture.lead(tp(), leader_epoch=3)
    results = fixture.apply(hosted(state_of(tp(), leader_epoch=3), topic_id=ID_A, is_new=False))
    assert results == {tp(): ErrorCode.STALE_CONTROLLER_EPOCH}
    assert fixture.partition(tp()).topic_id == ID_A
    assert read_topic_id(fixture.disk, fixture.log(tp()).directory) == ID_A


@pytest.mark.parametrize("restarts", [False, True], ids=["hosted", "after-restart"])
def test_a_new_topic_of_the_same_name(fixture: ReplicaFixture, restarts: bool) -> None:
    """05:R35: the old log is set aside, and its epoch says nothing about the new topic."""
    fixture.apply(hosted(state_of(tp(), leader_epoch=5), topic_id=ID_A))
    fixture.produce({tp(): batch(3)})
    if restarts:
        fixture.restart()
    results = fixture.apply(hosted(state_of(tp(), leader_epoch=0), topic_id=ID_B, is_new=True))
    assert results == {tp(): ErrorCode.NONE}
    partition = fixture.partition(tp())
    assert (partition.leader_epoch, partition.topic_id) == (0, ID_B)
    assert fixture.log(tp()).log_end_offset == 0
    strays = [name for name in os.listdir(fixture.paths[0]) if name.endswith("-stray")]
    assert len(strays) == 1
    assert read_topic_id(fixture.disk, f"{fixture.paths[0]}/{strays[0]}") == ID_A


@pytest.mark.parametrize("restarts", [False, True], ids=["hosted", "after-restart"])
def test_another_id_of_a_partition_that_is_not_new(fixture: ReplicaFixture, restarts: bool) -> None:
    """05:R35: ids can be lost from the store, so nothing is touched."""
    fixture.apply(hosted(state_of(tp(), leader_epoch=5), topic_id=ID_A))
    fixture.produce({tp(): batch(3)})
    if restarts:
        fixture.restart()
    results = fixture.apply(hosted(state_of(tp(), leader_epoch=7), topic_id=ID_B, is_new=False))
    assert results == {tp(): ErrorCode.INCONSISTENT_TOPIC_ID}
    log = fixture.log_manager.get_log(tp())
    assert log is not None
    assert (log.log_end_offset, log.leader_epochs.latest_epoch) == (3, 5)
    assert read_topic_id(fixture.disk, log.directory) == ID_A


@pytest.mark.parametrize("is_new", [False, True])
def test_an_id_that_cannot_be_read(fixture: ReplicaFixture, is_new: bool) -> None:
    """Not new: the log is taken for what the controller says. New: it is set aside, to be safe."""
    fixture.apply(hosted(state_of(tp()), topic_id=ID_A))
    fixture.produce({tp(): batch(3)})
    path = Path(fixture.log(tp()).directory, PARTITION_METADATA_FILE)
    fixture.restart()
    path.write_bytes(b"version: 7\n")
    results = fixture.apply(hosted(state_of(tp()), topic_id=ID_B, is_new=is_new))
    assert results == {tp(): ErrorCode.NONE}
    assert fixture.log(tp()).log_end_offset == (0 if is_new else 3)
    assert read_topic_id(fixture.disk, fixture.log(tp()).directory) == ID_B


# Stopping


@pytest.mark.parametrize(
    ("leader_epoch", "expected"),
    [
        pytest.param(0, ErrorCode.FENCED_LEADER_EPOCH, id="the-first"),
        pytest.param(3, ErrorCode.FENCED_LEADER_EPOCH, id="05:R36-older"),
        pytest.param(4, ErrorCode.FENCED_LEADER_EPOCH, id="one-older"),
        pytest.param(5, ErrorCode.NONE, id="05:R36-same"),
        pytest.param(6, ErrorCode.NONE, id="newer"),
        pytest.param(-1, ErrorCode.NONE, id="not-known"),
        pytest.param(-2, ErrorCode.NONE, id="05:R36-topic-deletion"),
    ],
)
def test_deleting(fixture: ReplicaFixture, leader_epoch: int, expected: ErrorCode) -> None:
    fixture.lead(tp(), leader_epoch=5)
    assert fixture.apply(stopped(tp(), leader_epoch=leader_epoch)) == {tp(): expected}
    is_deleted = expected is ErrorCode.NONE
    assert (fixture.log_manager.get_log(tp()) is None) is is_deleted
    assert (not fixture.replicas.partitions()) is is_deleted
    assert os.path.exists(f"{fixture.paths[0]}/{tp()}") is not is_deleted


def test_deleting_what_is_not_hosted_but_on_disk(fixture: ReplicaFixture) -> None:
    """05:R36: the topic was deleted while the broker was down."""
    fixture.lead(tp())
    fixture.restart()
    assert fixture.log_manager.get_log(tp()) is not None
    assert fixture.apply(stopped(tp(), leader_epoch=-2)) == {tp(): ErrorCode.NONE}
    assert fixture.log_manager.get_log(tp()) is None


def test_deleting_what_is_not_there(fixture: ReplicaFixture) -> None:
    assert fixture.apply(stopped(tp())) == {tp(): ErrorCode.NONE}


def test_stopping_without_deleting(fixture: ReplicaFixture) -> None:
    fixture.lead(tp())
    assert fixture.apply(stopped(tp(), deletes_log=False)) == {tp(): ErrorCode.NONE}
    assert fixture.log_manager.get_log(tp()) is not None


def test_a_partition_made_again_starts_at_zero(fixture: ReplicaFixture) -> None:
    fixture.apply(hosted(state_of(tp(), leader_epoch=5), topic_id=ID_A))
    fixture.produce({tp(): batch(3)})
    fixture.replicas.checkpoint_high_watermarks()
    fixture.restart()
    fixture.lead(tp("other"))
    fixture.apply(stopped(tp(), leader_epoch=-2))
    fixture.apply(hosted(state_of(tp(), leader_epoch=0), topic_id=ID_B))
    assert fixture.high_watermark(tp()) == 0
    assert fixture.partition(tp()).leader_epoch == 0


# Failing disks


def fail_directory(fixture: ReplicaFixture, index: int) -> None:
    fixture.log_manager.directories[index].fail("test", OSError(5, "input/output error"))


def test_one_directory_failed(tmp_path: Path) -> None:
    """05:R24: its partitions answer 56, the others are served."""
    with ReplicaFixture(tmp_path, directories=("one", "two")) as fixture:
        a, b = tp("a"), tp("b")
        fixture.lead(a)
        fixture.lead(b)
        lost = [fixture.log(p).log_directory for p in (a, b)]
        assert lost[0] is not lost[1]
        fail_directory(fixture, fixture.log_manager.directories.index(lost[0]))
        [results] = fixture.produce({a: batch(), b: batch()})
        assert (results[a].error, results[b].error) == (
            ErrorCode.KAFKA_STORAGE_ERROR,
            ErrorCode.NONE,
        )
        assert fixture.replicas.offline_count == 1
        # A new role does not bring it back, and neither can it be deleted.
        assert fixture.apply(hosted(state_of(a, leader_epoch=9))) == {
            a: ErrorCode.KAFKA_STORAGE_ERROR
        }
        assert fixture.apply(stopped(a)) == {a: ErrorCode.KAFKA_STORAGE_ERROR}


def test_a_missing_log_while_a_directory_is_offline(tmp_path: Path) -> None:
    """05 section 9.1: it may lie on the offline disk, so an empty one must not take its place."""
    with ReplicaFixture(tmp_path, directories=("one", "two")) as fixture:
        fail_directory(fixture, 0)
        old, new = tp("old"), tp("new")
        results = fixture.apply(
            hosted(state_of(old), is_new=False), hosted(state_of(new), is_new=True)
        )
        assert results == {old: ErrorCode.KAFKA_STORAGE_ERROR, new: ErrorCode.NONE}
        assert not os.path.exists(f"{fixture.paths[1]}/{old}")
        assert fixture.replicas.offline_count == 1


def test_a_topic_made_anew_while_the_old_one_is_on_a_lost_disk(tmp_path: Path) -> None:
    """15:KAFKA-16157 (16234): neither is served as the other, also when the disk is back."""
    with ReplicaFixture(tmp_path, directories=("one", "two")) as fixture:
        fixture.apply(hosted(state_of(tp(), leader_epoch=5), topic_id=ID_A))
        fixture.produce({tp(): batch(3)})
        home = Path(fixture.log(tp()).log_directory.path)
        [other] = [Path(path) for path in fixture.paths if Path(path) != home]
        fail_directory(fixture, fixture.paths.index(str(home)))
        # The same topic does not get an empty log elsewhere because its disk failed.
        refused = {tp(): ErrorCode.KAFKA_STORAGE_ERROR}
        again = hosted(state_of(tp(), leader_epoch=6), topic_id=ID_A, is_new=False)
        assert fixture.apply(again) == refused
        assert not (other / str(tp())).exists()

        # The broker restarts without that disk.
        home.rename(tmp_path / "lost")
        home.write_bytes(b"")
        fixture.restart()
        assert fixture.apply(again) == refused
        assert not (other / str(tp())).exists()
        anew = hosted(state_of(tp(), leader_epoch=0), topic_id=ID_B, is_new=True)
        fixture.restart()
        assert fixture.apply(anew) == {tp(): ErrorCode.NONE}
        fixture.produce({tp(): batch(1)})
        assert read_topic_id(fixture.disk, str(other / str(tp()))) == ID_B

        # The disk is back, with the log of the deleted topic: an operator has to look at it.
        home.unlink()
        (tmp_path / "lost").rename(home)
        with pytest.raises(ConfigError, match="expected it once; move one of them out"):
            fixture.restart()
        (home / str(tp())).rename(tmp_path / "of-the-deleted-topic")
        fixture.restart()
        later = hosted(state_of(tp(), leader_epoch=1), topic_id=ID_B, is_new=False)
        assert fixture.apply(later) == {tp(): ErrorCode.NONE}
        assert (fixture.log(tp()).log_end_offset, fixture.partition(tp()).topic_id) == (1, ID_B)


def test_a_fetch_of_a_lost_partition_ends(tmp_path: Path) -> None:
    with ReplicaFixture(tmp_path, directories=("one", "two")) as fixture:
        fixture.lead(tp())
        answers = fixture.fetch(FetchPartition(tp(), None, 0, 100))
        assert not answers
        directory = fixture.log(tp()).log_directory
        fail_directory(fixture, fixture.log_manager.directories.index(directory))
        [[(_, result)]] = answers
        assert result.error is ErrorCode.KAFKA_STORAGE_ERROR


# High watermark checkpoints


def test_high_watermarks_survive_a_restart(fixture: ReplicaFixture) -> None:
    fixture.lead(tp(), replicas=(1, 2))
    fixture.produce({tp(): batch(5)}, acks=1)
    fixture.fetch_as(2, tp(), 3)
    assert fixture.high_watermark(tp()) == 3
    fixture.replicas.checkpoint_high_watermarks()
    fixture.restart()
    fixture.apply(hosted(state_of(tp(), leader=2, replicas=(1, 2), leader_epoch=1), is_new=False))
    assert fixture.high_watermark(tp()) == 3


def test_checkpoint_keeps_partitions_that_have_no_role_yet(fixture: ReplicaFixture) -> None:
    """15:KAFKA-1647: killed before the controller spoke of all, none falls back to 0."""
    early, late, gone = tp("early"), tp("late"), tp("gone")
    for partition in (early, late, gone):
        fixture.lead(partition)
        fixture.produce({partition: batch(4)})
    fixture.replicas.checkpoint_high_watermarks()
    fixture.apply(stopped(gone))
    fixture.restart()
    fixture.replicas.checkpoint_high_watermarks()  # Before the first role: nothing is written.
    fixture.lead(early, leader_epoch=1)
    fixture.replicas.checkpoint_high_watermarks(fixture.services.tasks)
    path = Path(fixture.paths[0], "replication-offset-checkpoint")
    assert path.read_text() == "0\n2\nearly 0 4\nlate 0 4\n"
    fixture.restart()
    fixture.apply(hosted(state_of(late, leader=2, replicas=(1, 2), leader_epoch=1), is_new=False))
    assert fixture.high_watermark(late) == 4


def test_a_spoilt_checkpoint_is_done_without(fixture: ReplicaFixture) -> None:
    Path(fixture.paths[0], "replication-offset-checkpoint").write_text("nonsense")
    assert fixture.lead(tp()).is_leader
    fixture.replicas.checkpoint_high_watermarks()
    assert BROKER_ID in fixture.partition(tp()).isr


# While the disk is busy (05 section 15 rule 7)


class Slow:
    """Replicas whose disk work is done when the test says so."""

    def __init__(self, fixture: ReplicaFixture) -> None:
        self.fixture = fixture
        self.tasks = HeldTasks()
        self.results: dict[TopicPartition, ErrorCode] | None = None
        manager = fixture.log_manager
        manager._services = replace(manager._services, tasks=self.tasks)

    def begin(self, *changes: HostedPartition | StoppedPartition) -> None:
        self.results = None
        self.fixture.replicas.apply_local(
            LocalDelta(
                controller_id=9,
                controller_epoch=1,
                hosted=tuple(c for c in changes if isinstance(c, HostedPartition)),
                stopped=tuple(c for c in changes if isinstance(c, StoppedPartition)),
            ),
            self._done,
        )

    def _done(self, results: dict[TopicPartition, ErrorCode], error: Exception | None) -> None:
        assert error is None
        assert self.results is None
        self.results = results

    def end(self) -> dict[TopicPartition, ErrorCode]:
        self.tasks.run_all()
        assert self.results is not None
        return self.results


def test_a_partition_answers_6_until_its_first_role_is_taken(fixture: ReplicaFixture) -> None:
    slow = Slow(fixture)
    slow.begin(hosted(state_of(tp()), topic_id=ID_A))
    steps = 0
    while slow.results is None:
        slow.tasks.run_next()
        steps += 1
        if slow.results is None and steps > 1:  # Of the first one high watermarks are read.
            assert code_of(fixture, expect_leader=True) is ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert code_of(fixture, expect_leader=False) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert slow.results == {tp(): ErrorCode.NONE}
    [answers] = fixture.produce({tp(): batch()})
    assert answers[tp()].error is ErrorCode.NONE


def test_a_leader_answers_6_while_its_next_epoch_is_written(fixture: ReplicaFixture) -> None:
    """An append meanwhile would lie in the epoch that has just ended."""
    fixture.lead(tp(), leader_epoch=1)
    fixture.produce({tp(): batch(2)})
    slow = Slow(fixture)
    slow.begin(hosted(state_of(tp(), leader_epoch=4)))
    assert slow.results is None
    [answers] = fixture.produce({tp(): batch()})
    assert answers[tp()].error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert slow.end() == {tp(): ErrorCode.NONE}
    [answers] = fixture.produce({tp(): batch()})
    assert (answers[tp()].error, answers[tp()].base_offset) == (ErrorCode.NONE, 2)
    assert fixture.log(tp()).leader_epochs.entries == ((1, 0), (4, 2))


def test_a_leader_keeps_what_it_knows_of_followers_over_its_next_epoch(
    fixture: ReplicaFixture,
) -> None:
    """05 section 9.2: only a broker that did not lead before begins anew with its followers."""
    partition = fixture.lead(tp(), replicas=(1, 2), leader_epoch=1)
    fixture.produce({tp(): batch(4)}, acks=1)
    fixture.fetch_as(2, tp(), 4)
    fixture.lead(tp(), replicas=(1, 2), leader_epoch=2)
    assert partition.followers[2].log_end_offset == 4
    fixture.apply(hosted(state_of(tp(), leader=2, replicas=(1, 2), leader_epoch=3)))
    fixture.lead(tp(), replicas=(1, 2), leader_epoch=4)
    assert partition.followers[2].log_end_offset != 4


def test_a_role_that_was_overtaken_during_a_step_is_refused(fixture: ReplicaFixture) -> None:
    """05 section 15 rule 7: epochs are compared again after every step that let others run."""
    partition = fixture.lead(tp(), leader_epoch=1)
    slow = Slow(fixture)
    slow.begin(hosted(state_of(tp(), leader_epoch=4)))
    partition.leader_epoch = 5
    assert slow.end() == {tp(): ErrorCode.STALE_CONTROLLER_EPOCH}
    assert fixture.partition(tp()).leader_epoch == 5


def test_a_role_of_a_partition_that_went_during_a_step_is_refused(fixture: ReplicaFixture) -> None:
    fixture.lead(tp(), leader_epoch=1)
    slow = Slow(fixture)
    slow.begin(hosted(state_of(tp(), leader_epoch=4)))
    fixture.replicas._hosted.remove(tp())
    assert slow.end() == {tp(): ErrorCode.STALE_CONTROLLER_EPOCH}
    assert fixture.replicas.partitions() == []


def test_the_epoch_is_durable_before_the_role_is_taken(tmp_path: Path) -> None:
    """01 section 8.8: no record of an epoch can be on disk before its entry is."""
    disk = SimDisk(tmp_path)
    with ReplicaFixture(tmp_path, disk=disk) as fixture:
        fixture.lead(tp(), leader_epoch=7)
        path = fixture.log(tp()).leader_epochs.path
        slow = Slow(fixture)
        slow.begin(hosted(state_of(tp(), leader_epoch=8)))
        assert not fixture.partition(tp()).is_leader
        assert Path(path).read_text() == "0\n1\n7 0\n"
        disk.fail("fsync", path_contains="leader-epoch-checkpoint")
        assert slow.end() == {tp(): ErrorCode.KAFKA_STORAGE_ERROR}
        [answers] = fixture.produce({tp(): batch()})
        assert answers[tp()].error is ErrorCode.KAFKA_STORAGE_ERROR


def test_an_epoch_that_cannot_be_written_for_want_of_descriptors(fixture: ReplicaFixture) -> None:
    """The role is refused, and the partition leads on in the epoch it had."""
    fixture.lead(tp(), leader_epoch=1)
    fixture.produce({tp(): batch(2)})
    slow = Slow(fixture)
    slow.begin(hosted(state_of(tp(), leader_epoch=4)))
    slow.tasks.run_next(OSError(errno.EMFILE, "too many open files"))
    assert slow.results == {tp(): ErrorCode.KAFKA_STORAGE_ERROR}
    [answers] = fixture.produce({tp(): batch()})
    assert answers[tp()].error is ErrorCode.NONE
    assert fixture.log(tp()).leader_epochs.entries == ((1, 0),)


@pytest.mark.parametrize("step", range(3))
def test_a_directory_that_fails_in_the_middle(tmp_path: Path, step: int) -> None:
    with ReplicaFixture(tmp_path, directories=("one", "two")) as fixture:
        slow = Slow(fixture)
        slow.begin(hosted(state_of(tp("a"))), hosted(state_of(tp("b"))))
        slow.tasks.run_next()
        slow.tasks.run_next()
        for _ in range(step):
            slow.tasks.run_next()
        fail_directory(fixture, 0)
        results = slow.end()
        assert sorted(results.values()) == [ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR]
        for partition, error in results.items():
            [answers] = fixture.produce({partition: batch()})
            assert answers[partition].error is error


def test_new_partitions_are_spread_although_none_is_there_yet(tmp_path: Path) -> None:
    with ReplicaFixture(tmp_path, directories=("one", "two")) as fixture:
        slow = Slow(fixture)
        slow.begin(*(hosted(state_of(tp("t", number))) for number in range(6)))
        slow.end()
        places = [fixture.log(tp("t", number)).log_directory.path for number in range(6)]
        assert sorted(Counter(places).values()) == [3, 3]


def test_a_partition_that_is_named_twice(fixture: ReplicaFixture) -> None:
    """One change follows the other, as if they had come apart."""
    slow = Slow(fixture)
    slow.begin(hosted(state_of(tp(), leader_epoch=1)), hosted(state_of(tp(), leader_epoch=2)))
    assert slow.end() == {tp(): ErrorCode.NONE}
    assert fixture.partition(tp()).leader_epoch == 2
    slow.begin(hosted(state_of(tp(), leader_epoch=3)), stopped(tp(), leader_epoch=-2))
    assert slow.end() == {tp(): ErrorCode.NONE}
    assert fixture.replicas.partitions() == []


def test_deleted_partitions_share_their_syncs(tmp_path: Path) -> None:
    """One sync of the names and one write of each checkpoint, however many go."""
    disk = CountingDisk()
    with ReplicaFixture(tmp_path, disk=disk) as fixture:
        partitions = [tp("t", number) for number in range(20)]
        fixture.apply(*(hosted(state_of(partition)) for partition in partitions))
        before = disk.syncs
        fixture.apply(*(stopped(partition, leader_epoch=-2) for partition in partitions))
        assert fixture.log_manager.all_logs() == []
        assert disk.syncs - before <= 5


class CountingDisk(UnsyncedDisk):
    def __init__(self) -> None:
        self.syncs = 0

    def fsync(self, fd: int) -> None:
        self.syncs += 1

    def fsync_dir(self, path: str) -> None:
        self.syncs += 1


def test_a_deleted_partition_is_gone_before_its_files_are(fixture: ReplicaFixture) -> None:
    fixture.lead(tp())
    slow = Slow(fixture)
    slow.begin(stopped(tp(), leader_epoch=-2))
    assert slow.results is None
    [answers] = fixture.produce({tp(): batch()})
    assert answers[tp()].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert fixture.log_manager.all_logs() == []
    assert slow.end() == {tp(): ErrorCode.NONE}


def test_a_directory_that_fails_while_partitions_are_deleted(fixture: ReplicaFixture) -> None:
    """They are there again when it is, so nothing may be made in their place."""
    fixture.lead(tp())
    slow = Slow(fixture)
    slow.begin(stopped(tp(), leader_epoch=-2))
    slow.tasks.run_next(OSError(errno.EIO, "input/output error"))
    assert slow.results == {tp(): ErrorCode.KAFKA_STORAGE_ERROR}
    with pytest.raises(StorageError, match="offline because"):
        fixture.log_manager.get_log(tp())
