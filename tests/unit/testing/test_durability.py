"""The crash model itself: images of pages, and the journal of names."""

import os
from pathlib import Path
from random import Random

from odradek.testing.durability import PAGE_BYTES, Directory, File, Image, NameChange, UnsyncedNames


def image(content: bytes) -> Image:
    pages = {
        position // PAGE_BYTES: content[position : position + PAGE_BYTES].ljust(PAGE_BYTES, b"\0")
        for position in range(0, len(content), PAGE_BYTES)
    }
    return Image.cut(len(content), pages)


def test_image_of_a_sparse_file_holds_only_its_data(tmp_path: Path) -> None:
    path = tmp_path / "index"
    with path.open("wb") as file:
        file.truncate(10 << 20)
        file.seek(5 << 20)
        file.write(b"entry")

    sparse = Image.read(str(path))

    assert sparse.length == 10 << 20
    assert list(sparse.pages) == [(5 << 20) // PAGE_BYTES]


def test_image_survives_writing_and_reading(tmp_path: Path) -> None:
    content = b"a" * 5000 + bytes(3 * PAGE_BYTES) + b"b" * 77
    original = image(content)

    original.write(str(tmp_path / "copy"))

    assert Image.read(str(tmp_path / "copy")) == original
    assert (tmp_path / "copy").read_bytes() == content == original.to_bytes()


def test_equal_contents_are_equal_images_however_they_came_about() -> None:
    """A page of zeros and a hole read the same; so do bytes cut off behind the end."""
    assert image(bytes(PAGE_BYTES) + b"x") == Image(
        PAGE_BYTES + 1, {1: b"x".ljust(PAGE_BYTES, b"\0")}
    )
    assert Image.cut(3, {0: b"abcdef".ljust(PAGE_BYTES, b"\0"), 1: b"z" * PAGE_BYTES}) == image(
        b"abc"
    )


def test_torn_pages_are_old_new_or_new_up_to_a_sector() -> None:
    file = File()
    file.durable = image(b"o" * 2 * PAGE_BYTES)
    current = image(b"n" * 4 * PAGE_BYTES)
    lengths = set()
    outcomes = set()
    for seed in range(200):
        content = file.torn(current, Random(seed)).to_bytes()
        lengths.add(len(content))
        page = content[:PAGE_BYTES]
        new_bytes = page.count(b"n")
        assert page == b"n" * new_bytes + b"o" * (PAGE_BYTES - new_bytes)
        assert new_bytes % 512 == 0
        outcomes.add(new_bytes)
        # A page that was never durable and did not arrive is a hole, never another one's bytes.
        assert set(content[2 * PAGE_BYTES :]) <= set(b"n\0")

    assert min(lengths) == 2 * PAGE_BYTES
    assert max(lengths) == 4 * PAGE_BYTES
    assert len(lengths) > 3
    assert {0, PAGE_BYTES} < outcomes


def test_torn_truncation_leaves_a_length_in_between() -> None:
    file = File()
    file.durable = image(b"o" * 3 * PAGE_BYTES)
    lengths = {file.torn(image(b"o" * 10), Random(seed)).length for seed in range(50)}

    assert min(lengths) == 10
    assert max(lengths) == 3 * PAGE_BYTES
    assert len(lengths) > 3


def test_synced_bytes_survive_every_tear() -> None:
    file = File()
    file.sync(image(b"s" * 6000))
    for seed in range(50):
        torn = file.torn(image(b"s" * 6000 + b"n" * 9000), Random(seed)).to_bytes()
        assert torn[:6000] == b"s" * 6000


def test_a_failed_sync_drops_its_pages_until_they_are_written_again() -> None:
    file = File()
    first, second = b"1" * PAGE_BYTES, b"2" * PAGE_BYTES
    file.fail_sync(image(first))
    file.sync(image(first + second))
    assert file.durable.to_bytes() == bytes(PAGE_BYTES) + second

    file.sync(image(b"3" * PAGE_BYTES + second))
    assert file.durable.to_bytes() == b"3" * PAGE_BYTES + second


def test_a_page_cut_off_after_a_failed_sync_is_a_new_page() -> None:
    file = File()
    file.fail_sync(image(b"data"))
    file.truncate(0)
    file.sync(image(b"data"))

    assert file.durable.to_bytes() == b"data"


def test_names_between_two_directories_keep_their_order() -> None:
    """The worked example of the module's docstring."""

    def example() -> tuple[Directory, Directory, UnsyncedNames]:
        a, b, journal, x, y = Directory(), Directory(), UnsyncedNames(), File(), File()
        journal.record(NameChange(a, "x", x))
        journal.record(NameChange(b, "y", y))
        journal.record(NameChange(a, "x", None), NameChange(b, "x", x))
        journal.record(NameChange(b, "y", None))
        return a, b, journal

    a, b, journal = example()
    journal.sync(a)
    assert (set(a.durable), set(b.durable)) == (set(), {"x", "y"})

    left = set()
    for seed in range(300):
        a, b, journal = example()
        journal.tear(Random(seed))
        left.add((tuple(a.durable), tuple(sorted(b.durable))))
    assert left == {
        ((), ()),
        (("x",), ()),
        ((), ("y",)),
        (("x",), ("y",)),
        ((), ("x", "y")),
        ((), ("x",)),
    }


def test_nothing_overtakes_a_rename_between_directories() -> None:
    seen = set()
    for seed in range(100):
        a, b, journal, x = Directory(), Directory(), UnsyncedNames(), File()
        journal.record(NameChange(a, "x", x))
        journal.record(NameChange(a, "x", None), NameChange(b, "x", x))
        journal.record(NameChange(b, "later", File()))
        journal.tear(Random(seed))
        seen.add((tuple(a.durable), tuple(b.durable)))

    assert seen == {((), ()), (("x",), ()), ((), ("x",)), ((), ("x", "later"))}


def test_a_name_that_a_crash_dropped_stays_dropped() -> None:
    directory, journal = Directory(), UnsyncedNames()
    journal.record(NameChange(directory, "x", File()))
    journal.tear(Random(0))
    durable = set(directory.durable)
    journal.sync_all()

    assert set(directory.durable) == durable


def test_paths_follow_renames() -> None:
    top, journal = Directory(), UnsyncedNames()
    inner, file = Directory(), File()
    journal.record(NameChange(top, "t-0", inner))
    journal.record(NameChange(inner, "0.log", file))
    assert file.path == os.path.join("t-0", "0.log")

    journal.record(NameChange(top, "t-0", None), NameChange(top, "t-0.deleted", inner))
    assert file.path == os.path.join("t-0.deleted", "0.log")
