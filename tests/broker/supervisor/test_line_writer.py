"""Lines of several processes on one descriptor: whole, with the process's name, in turn, and never more than may be
kept."""

import contextlib
import os
import select
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.supervisor.line_writer import Lines, LineWriter


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    yield reader, writer
    for descriptor in (reader, writer):
        with contextlib.suppress(OSError):  # the test has closed it
            os.close(descriptor)


def read(descriptor: int) -> bytes:
    found = b""
    while True:
        try:
            data = os.read(descriptor, 1 << 16)
        except BlockingIOError:
            return found
        if not data:
            return found
        found += data


def taken(lines: Lines) -> bytes:
    found = b""
    while data := lines.take():
        found += data
    return found


@given(st.lists(st.text("ab\n", max_size=4).map(str.encode)))
def test_reads_that_end_anywhere_make_the_same_lines(pieces: list[bytes]) -> None:
    lines = Lines("broker 1 | ")
    for piece in pieces:
        lines.feed(piece)
    lines.end()
    assert taken(lines) == b"".join(b"broker 1 | %s\n" % line for line in b"".join(pieces).splitlines())


def test_a_line_without_end_is_cut_before_it_is_too_long() -> None:
    lines = Lines("")
    for _ in range(100):
        lines.feed(b"x" * 1000)
    assert not lines.has_room
    lines.end()
    written = taken(lines)
    assert written.replace(b"\n", b"") == b"x" * 100_000
    assert max(map(len, written.split(b"\n"))) <= 16 * 1024


def test_no_more_is_read_than_may_be_kept() -> None:
    lines = Lines("p ")
    line = b"y" * 99 + b"\n"
    fed = 0
    while lines.has_room:
        lines.feed(line)
        fed += 1
    assert fed * 102 < 128 * 1024
    lines.take()
    assert lines.has_room
    taken(lines)
    assert lines.take() == b""


def test_a_line_that_is_taken_is_not_written() -> None:
    seen: list[bytes] = []

    def take(line: bytes) -> bool:
        seen.append(line)
        return line.startswith(b"{")

    lines = Lines("b ", take)
    lines.feed(b'one\n{"two": 2}\nthr')
    assert taken(lines) == b"b one\n"
    assert seen == [b"one", b'{"two": 2}']


def test_a_process_that_floods_does_not_hold_up_the_others(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    flood, other = Lines("flood "), Lines("other ")
    flood.feed(b"z" * 98 + b"\n")
    for _ in range(600):
        flood.feed(b"z" * 98 + b"\n")
    out = LineWriter(writer, [flood, other])
    out.write()
    other.feed(b"here\n")
    out.write()
    out.write()
    assert b"other here\n" in read(reader)


def test_lines_are_never_mixed_and_none_is_lost(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    os.set_blocking(writer, False)
    sources = [Lines(f"{name} ") for name in "ab"]
    long = b"0123456789" * 900  # longer than a pipe takes at once
    for source in sources:
        for _ in range(7):
            source.feed(long + b"\nshort\n")
    out = LineWriter(writer, sources)
    found = b""
    while out.has_lines():
        out.write()
        if not select.select([], [writer], [], 0)[1]:
            found += read(reader)
    found += read(reader)
    for name in (b"a ", b"b "):
        assert [line for line in found.splitlines() if line.startswith(name)] == [name + long, name + b"short"] * 7


def test_a_full_pipe_is_left_alone(pipe: tuple[int, int]) -> None:
    _, writer = pipe
    os.set_blocking(writer, False)
    lines = Lines("")
    out = LineWriter(writer, [lines])
    for _ in range(10):
        while lines.has_room:
            lines.feed(b"w" * 999 + b"\n")
        for _ in range(20):
            out.write()
    assert out.has_lines()
    assert not lines.has_room
    out.write_all(0.01)
    assert out.has_lines()


def test_output_that_nobody_can_read_is_dropped(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    os.close(reader)
    lines = Lines("")
    out = LineWriter(writer, [lines])
    for _ in range(3):
        lines.feed(b"unseen\n")
        out.write()
        assert not out.has_lines()


def test_what_is_left_is_written_at_the_end(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    lines = Lines("")
    lines.feed(b"1\n2\n3")
    lines.end()
    LineWriter(writer, [lines]).write_all(10)
    assert read(reader) == b"1\n2\n3\n"
