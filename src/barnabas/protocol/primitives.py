"""The protocol's primitive types of variable size: varints, texts, counts and tagged fields. Compiled by mypyc.

In flexible versions a text or an array begins with its length plus one as an unsigned varint, in earlier versions with
its length in two or four bytes.
"""

from typing import Final

from barnabas.errors import BarnabasError

__all__ = [
    "REQUEST_ELEMENTS_MAX",
    "MalformedMessage",
    "Part",
    "TooManyElements",
    "put_compact_text",
    "put_count",
    "put_legacy_text",
    "put_text",
    "read_size",
    "read_uvarint",
    "skip_tags",
    "uvarint",
]

REQUEST_ELEMENTS_MAX: Final = 150_000
"""The most elements of all arrays of a request together: a full Fetch of 100,000 partitions in 50,000 topics."""
_TEXT_MAX_BYTES: Final = 2**15 - 1
"""The most bytes of a text, whose length must fit into an int16: Kafka's clients refuse longer texts in flexible
versions, too. In practice only error messages with long names are longer."""


class MalformedMessage(BarnabasError):
    """The peer sent bytes that are no valid message. Only the connection ends."""


class TooManyElements(MalformedMessage):
    """A request has so many elements that decoding would take too long (see `barnabas.protocol.codec`)."""

    def __init__(self) -> None:
        super().__init__(f"the arrays have more than {REQUEST_ELEMENTS_MAX} elements together")


class Part:
    """The bytes `data[start:end]`, not copied. A Part keeps the whole of `data` in memory."""

    __slots__ = ("data", "end", "start")

    def __init__(self, data: bytes, start: int, end: int) -> None:
        self.data = data
        self.start = start
        self.end = end

    def __len__(self) -> int:
        return self.end - self.start

    def __bytes__(self) -> bytes:
        return self.data[self.start : self.end]


def uvarint(value: int) -> bytes:
    """Returns an unsigned varint: 7 bits a byte, low bits first."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_uvarint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """Returns the value and the position behind. Raises MalformedMessage beyond 5 bytes, IndexError beyond the end."""
    byte = data[position]
    if byte < 0x80:
        return byte, position + 1
    value, shift = byte & 0x7F, 7
    while True:
        position += 1
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position + 1
        shift += 7
        if shift > 28:
            raise MalformedMessage("a varint runs over five bytes")


def read_size(data: bytes, position: int) -> tuple[int, int]:
    """Returns the size of a text or array of flexible versions, and the position behind. Raises IndexError, also for
    null."""
    size = data[position]
    position += 1
    if size > 127:
        size, position = read_uvarint(data, position - 1)
    if not size:
        raise IndexError(position)
    return size - 1, position


def skip_tags(data: bytes | memoryview, position: int) -> int:
    """Returns the position behind a section of tagged fields, which are ignored."""
    if data[position] == 0:
        return position + 1
    count, position = read_uvarint(data, position)
    if count > REQUEST_ELEMENTS_MAX:
        raise TooManyElements
    for _ in range(count):
        _, position = read_uvarint(data, position)
        size, position = read_uvarint(data, position)
        position += size
        if position > len(data):
            raise MalformedMessage("a tagged field runs past the end")
    return position


def put_count(out: bytearray, count: int, flexible: bool) -> None:
    """Appends the number of an array's elements, or of bytes."""
    out += uvarint(count + 1) if flexible else count.to_bytes(4, "big")


def put_text(out: bytearray, value: str | None, flexible: bool) -> None:
    """Appends a nullable string."""
    if flexible:
        put_compact_text(out, value)
    else:
        put_legacy_text(out, value)


def put_legacy_text(out: bytearray, value: str | None) -> None:
    """Appends a nullable string of the versions before the flexible ones."""
    if value is None:
        out += b"\xff\xff"
        return
    data = value.encode()
    if len(data) > _TEXT_MAX_BYTES:
        data = _cut(data)
    out += len(data).to_bytes(2, "big")
    out += data


def put_compact_text(out: bytearray, value: str | None) -> None:
    """Appends a nullable string of flexible versions."""
    if value is None:
        out.append(0)
        return
    data = value.encode()
    if len(data) > _TEXT_MAX_BYTES:
        data = _cut(data)
    out += uvarint(len(data) + 1)
    out += data


def _cut(data: bytes) -> bytes:
    """Returns the text, cut at the end of a character if it is longer than _TEXT_MAX_BYTES."""
    return data[:_TEXT_MAX_BYTES].decode(errors="ignore").encode()
