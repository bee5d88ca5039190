"""Names of partition directories (01 §2), and their removal."""

from pathlib import Path

import pytest

from odradek.files import Disk
from odradek.model import TopicPartition
from odradek.storage.directories.partition_directories import (
    MAX_NAME_LENGTH,
    PartitionKind,
    parse_directory_name,
    remove_directory,
    staged_name,
)

HEX = "0123456789abcdef" * 2


@pytest.mark.parametrize(
    ("name", "topic", "partition", "kind"),
    [
        ("test-topic-0", "test-topic", 0, PartitionKind.LIVE),
        ("test-topic-1", "test-topic", 1, PartitionKind.LIVE),
        ("t-2147483647", "t", 2**31 - 1, PartitionKind.LIVE),
        ("a.b_c-7", "a.b_c", 7, PartitionKind.LIVE),
        ("t--3", "t-", 3, PartitionKind.LIVE),
        (f"t-0.{HEX}-delete-5", f"t-0.{HEX}-delete", 5, PartitionKind.LIVE),
        (f"t-12.{HEX}-delete", "t", 12, PartitionKind.DELETED),
        (f"a-b-0.{HEX}-future", "a-b", 0, PartitionKind.FUTURE),
        (f"t-0.{HEX}-stray", "t", 0, PartitionKind.STRAY),
    ],
)
def test_a_name_is_split_at_its_last_dash(
    name: str, topic: str, partition: int, kind: PartitionKind
) -> None:
    found = parse_directory_name(name)
    assert found is not None
    assert (found.name, found.topic_partition, found.kind) == (
        name,
        TopicPartition(topic, partition),
        kind,
    )


@pytest.mark.parametrize(
    "name",
    [
        "lost+found",
        "t",
        "-0",
        "t-",
        "t-x",
        "t-00",
        "t-01",
        "t-2147483648",
        "t-0.deleted",
        "t-0-delete",
        "t-0.abc-delete",
        f"t-0.{HEX.upper()}-delete",
        f"t-0.{HEX}-else",
        f"t-0.{HEX}-delete\n",
        "..-0",
        "tøpic-0",
        "t" * 250 + "-0",
    ],
)
def test_other_names_are_not_ours(name: str) -> None:
    assert parse_directory_name(name) is None


@pytest.mark.parametrize("kind", [PartitionKind.DELETED, PartitionKind.FUTURE, PartitionKind.STRAY])
def test_a_staged_name_is_read_back(kind: PartitionKind) -> None:
    tp = TopicPartition("orders.eu-west", 11)
    name = staged_name(tp, kind, 0xABC)
    assert name == f"orders.eu-west-11.{0xABC:032x}{kind.value}"
    found = parse_directory_name(name)
    assert found is not None
    assert (found.topic_partition, found.kind) == (tp, kind)


@pytest.mark.parametrize("kind", [PartitionKind.DELETED, PartitionKind.STRAY])
def test_the_longest_topic_is_shortened_to_a_name_the_disk_takes(
    kind: PartitionKind, tmp_path: Path
) -> None:
    """01 §2: `<topic>-<partition>.<32 hex uuid>-delete`, at most 255 characters."""
    name = staged_name(TopicPartition("x" * 249, 2**31 - 1), kind, 2**128 - 1)
    assert len(name) == MAX_NAME_LENGTH
    (tmp_path / name).mkdir()
    found = parse_directory_name(name)
    assert found is not None
    assert found.kind is kind


def test_the_topic_of_a_future_name_is_never_shortened() -> None:
    with pytest.raises(ValueError, match="cannot move to another directory"):
        staged_name(TopicPartition("x" * 249, 0), PartitionKind.FUTURE, 1)


def test_removing_a_directory_takes_all_it_holds_and_follows_no_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    victim = tmp_path / "t-0"
    (victim / "nested").mkdir(parents=True)
    (victim / "nested" / "file").touch()
    (victim / "00000000000000000000.log").touch()
    (victim / "link").symlink_to(outside)
    remove_directory(Disk(), str(victim))
    assert not victim.exists()
    assert (outside / "kept").exists()
    remove_directory(Disk(), str(victim))  # Gone already: no error.
