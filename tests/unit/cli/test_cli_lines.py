"""What `odradek produce` reads: messages between delimiters, or whole files, as they arrive."""

import asyncio
import io
import os
from pathlib import Path

import pytest

from odradek.cli.connecting import CommandError
from odradek.cli.messages.lines import read_chunks, read_whole


def split(chunk: bytes, delimiter: bytes) -> list[bytes]:
    lines = chunk.split(delimiter)
    return lines if lines[-1] else lines[:-1]


def lines_of(fd: int, delimiter: bytes = b"\n") -> list[list[bytes]]:
    async def collect() -> list[list[bytes]]:
        return [split(chunk, delimiter) async for chunk in read_chunks(fd, delimiter)]

    return asyncio.run(collect())


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", []),
        (b"a\nb\r\n\nc", [b"a", b"b\r", b"", b"c"]),
        (b"a\n", [b"a"]),
        (b"x" * 2_600_000 + b"\ny", [b"x" * 2_600_000, b"y"]),
    ],
    ids=["nothing", "no last line end", "last line end", "longer than a chunk"],
)
def test_lines_of_a_file_and_of_a_pipe(
    content: bytes, expected: list[bytes], tmp_path: Path
) -> None:
    path = tmp_path / "input"
    path.write_bytes(content)
    with path.open("rb") as file:
        assert [line for lines in lines_of(file.fileno()) for line in lines] == expected

    async def through_a_pipe() -> list[bytes]:
        reader, writer = os.pipe()
        with os.fdopen(reader, "rb") as source, os.fdopen(writer, "wb") as sink:
            writing = asyncio.create_task(asyncio.to_thread(_write, sink, content))
            found = [
                line
                async for chunk in read_chunks(source.fileno(), b"\n")
                for line in split(chunk, b"\n")
            ]
            await writing
        return found

    assert asyncio.run(through_a_pipe()) == expected


def _write(sink: io.BufferedWriter, content: bytes) -> None:
    sink.write(content)
    sink.close()


def test_a_line_without_end_does_not_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("odradek.cli.messages.lines._MAX_LINE_BYTES", 1_000)
    path = tmp_path / "input"
    path.write_bytes(b"x" * 2_000)
    with path.open("rb") as file, pytest.raises(CommandError, match="longer than 1000 bytes"):
        lines_of(file.fileno())


@pytest.mark.parametrize("delimiter", [b"\0", b"--", b"-+-+-"])
@pytest.mark.parametrize("step", [1, 2, 3, 7, 1000])
def test_any_delimiter_however_the_bytes_arrive(
    delimiter: bytes, step: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("odradek.cli.messages.lines._CHUNK_BYTES", step)
    lines = [b"a", b"", b"-", b"b-+-c", b"\n+", b"end"]
    path = tmp_path / "input"
    path.write_bytes(delimiter.join(lines))
    with path.open("rb") as file:
        found = [line for some in lines_of(file.fileno(), delimiter) for line in some]
    assert found == delimiter.join(lines).split(delimiter)


def test_a_whole_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "input"
    path.write_bytes(b"a\nb\n" * 1_000)
    with path.open("rb") as file:
        assert asyncio.run(read_whole(file.fileno())) == b"a\nb\n" * 1_000
    monkeypatch.setattr("odradek.cli.messages.lines._MAX_LINE_BYTES", 1_000)
    with path.open("rb") as file, pytest.raises(CommandError, match="larger than 1000 bytes"):
        asyncio.run(read_whole(file.fileno()))
