"""Kafka's wire protocol by hand, just enough to ask a broker without any client library and to send it nonsense."""

from __future__ import annotations

import socket
import struct
import time
from typing import Any, NamedTuple

from crc32c import crc32c

PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS, CREATE_TOPICS = 0, 1, 2, 3, 18, 19
OFFSET_COMMIT, FIND_COORDINATOR, JOIN_GROUP, HEARTBEAT = 8, 10, 11, 12
TIMEOUT_S = 45.0

Address = tuple[str, int]


class Closed(Exception):
    """The broker closed the connection."""


def string(text: str | None) -> bytes:
    if text is None:
        return struct.pack(">h", -1)
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def array(items: list[bytes]) -> bytes:
    return struct.pack(">i", len(items)) + b"".join(items)


def int32(value: int) -> bytes:
    return struct.pack(">i", value)


def varint(value: int) -> bytes:
    """An unsigned varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def zigzag(value: int) -> bytes:
    return varint(value << 1 ^ value >> 63)


def header(
    api_key: int, version: int, correlation: int, client: str | None = "wire", *, flexible: bool = False
) -> bytes:
    """Request header v1, or v2 (with no tagged fields) when `flexible`."""
    return struct.pack(">hhi", api_key, version, correlation) + string(client) + (b"\0" if flexible else b"")


def frame(payload: bytes) -> bytes:
    return int32(len(payload)) + payload


class Reader:
    """Reads the fields of a response one after another."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, layout: str) -> Any:
        values = struct.unpack_from(">" + layout, self.data, self.at)
        self.at += struct.calcsize(">" + layout)
        return values[0] if len(values) == 1 else values

    def raw(self, size: int) -> bytes:
        found = self.data[self.at : self.at + size]
        self.at += size
        return found

    def string(self) -> str | None:
        size = self.take("h")
        return None if size < 0 else self.raw(size).decode()

    @property
    def left(self) -> int:
        return len(self.data) - self.at


class Connection:
    """A plain TCP connection to a broker; every wait is bounded by `timeout_s`."""

    def __init__(self, address: Address, timeout_s: float = TIMEOUT_S) -> None:
        self._socket = socket.create_connection(address, timeout=timeout_s)
        self._correlation = 0

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, data: bytes) -> None:
        """Send all, or raise Closed when the broker does not want more."""
        try:
            self._socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise Closed from error

    def half_close(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)

    def frame(self) -> bytes:
        """The next response without its size; raises Closed."""
        size = struct.unpack(">i", self._exactly(4))[0]
        return self._exactly(size)

    def response(self) -> tuple[int, Reader]:
        """The correlation id and the rest of the next response (response header v0)."""
        reader = Reader(self.frame())
        return reader.take("i"), reader

    def ask(self, api_key: int, version: int, body: bytes, *, flexible: bool = False) -> Reader:
        """One request and its response; a flexible response has its header's tagged fields already read."""
        self._correlation += 1
        self.send(frame(header(api_key, version, self._correlation, flexible=flexible) + body))
        correlation, reader = self.response()
        assert correlation == self._correlation
        if flexible and api_key != API_VERSIONS:
            assert reader.take("b") == 0
        return reader

    def wait_closed(self, timeout_s: float = TIMEOUT_S) -> bytes:
        """What the broker still sends until it closes; fails if it does not close in time."""
        self._socket.settimeout(timeout_s)
        found = b""
        try:
            while chunk := self._socket.recv(65536):
                found += chunk
        except ConnectionResetError:
            pass
        except TimeoutError:
            raise AssertionError(f"the broker kept the connection open for {timeout_s:g} s") from None
        return found

    def _exactly(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            try:
                chunk = self._socket.recv(size - len(found))
            except ConnectionResetError as error:
                raise Closed from error
            if not chunk:
                raise Closed
            found += chunk
        return bytes(found)


# Requests


def api_versions(connection: Connection) -> dict[int, tuple[int, int]]:
    reader = connection.ask(API_VERSIONS, 0, b"")
    assert reader.take("h") == 0
    return {key: (low, high) for key, low, high in (reader.take("hhh") for _ in range(reader.take("i")))}


def metadata_topics(connection: Connection, *topics: str) -> dict[str, tuple[int, int]]:
    """Error code and partition count of each topic, without creating any (Metadata v4)."""
    body = array([string(topic) for topic in topics]) + b"\0"
    reader = connection.ask(METADATA, 4, body)
    reader.take("i")
    for _ in range(reader.take("i")):
        reader.take("i")
        reader.string()
        reader.take("i")
        reader.string()
    reader.string()
    reader.take("i")
    found = {}
    for _ in range(reader.take("i")):
        code = reader.take("h")
        name = reader.string()
        assert name is not None
        reader.take("b")
        partitions = reader.take("i")
        for _ in range(partitions):
            reader.take("hii")
            for _ in range(2):
                reader.raw(4 * reader.take("i"))
        found[name] = (code, partitions)
    return found


def create_topic(address: Address, topic: str, partitions: int = 1, configs: dict[str, str] | None = None) -> None:
    """Create the topic and wait until it can be written."""
    settings = array([string(name) + string(value) for name, value in (configs or {}).items()])
    wanted = string(topic) + struct.pack(">ih", partitions, 1) + array([]) + settings
    with Connection(address) as connection:
        reader = connection.ask(CREATE_TOPICS, 2, array([wanted]) + struct.pack(">i?", 10_000, False))
        reader.take("i")
        assert reader.take("i") == 1
        reader.string()
        code = reader.take("h")
        assert code == 0, f"CreateTopics {topic}: error {code}: {reader.string()}"
        deadline = time.monotonic() + TIMEOUT_S
        # Metadata may name the leader a moment before the leader knows of it.
        while any(end_offset(connection, topic, each)[0] for each in range(partitions)):
            assert time.monotonic() < deadline, f"{topic} had no leader within {TIMEOUT_S:g} s"


def end_offset(connection: Connection, topic: str, partition: int) -> tuple[int, int]:
    """Error code and log end offset (ListOffsets v1)."""
    reader = connection.ask(
        LIST_OFFSETS, 1, int32(-1) + array([string(topic) + array([struct.pack(">iq", partition, -1)])])
    )
    assert reader.take("i") == 1
    reader.string()
    assert reader.take("i") == 1
    _, error, _, offset = reader.take("ihqq")
    return error, offset


class Produced(NamedTuple):
    error: int
    offset: int


def produce_body(topic: str, partition: int, records: bytes, acks: int = -1, timeout_ms: int = 5000) -> bytes:
    """The body of Produce v3 to v8."""
    data = array([int32(partition) + int32(len(records)) + records])
    return string(None) + struct.pack(">hi", acks, timeout_ms) + array([string(topic) + data])


def produce(connection: Connection, topic: str, partition: int, records: bytes) -> Produced:
    return produced(connection.ask(PRODUCE, 7, produce_body(topic, partition, records)))


def produced(reader: Reader) -> Produced:
    """The only partition of a response to Produce v5 to v7."""
    assert reader.take("i") == 1
    reader.string()
    assert reader.take("i") == 1
    _, error, offset, _, _ = reader.take("ihqqq")
    return Produced(error, offset)


def fetch_body(
    topic: str, partition: int, offset: int, *, wait_ms: int = 500, min_bytes: int = 1, max_bytes: int = 1 << 26
) -> bytes:
    """The body of Fetch v4."""
    asked = string(topic) + array([struct.pack(">iqi", partition, offset, max_bytes)])
    return struct.pack(">iiiib", -1, wait_ms, min_bytes, max_bytes, 0) + array([asked])


def fetch(connection: Connection, topic: str, partition: int, offset: int, **limits: int) -> tuple[int, int, bytes]:
    """Error code, high watermark and the raw records."""
    reader = connection.ask(FETCH, 4, fetch_body(topic, partition, offset, **limits))
    reader.take("i")
    if reader.take("i") == 0:
        return 0, -1, b""
    reader.string()
    assert reader.take("i") == 1
    _, error, high_watermark, _ = reader.take("ihqq")
    reader.raw(16 * max(0, reader.take("i")))
    return error, high_watermark, reader.raw(reader.take("i"))


def fetch_all(address: Address, topic: str, partition: int = 0) -> list[Batch]:
    """Every whole batch of the partition, from offset 0."""
    batches: list[Batch] = []
    with Connection(address) as connection:
        while True:
            offset = batches[-1].last_offset + 1 if batches else 0
            error, high_watermark, data = fetch(connection, topic, partition, offset)
            assert error == 0, f"Fetch {topic}-{partition} from {offset}: error {error}"
            found = split_batches(data)
            batches += found
            if not found or found[-1].last_offset + 1 >= high_watermark:
                return batches


# Batches


class Batch(NamedTuple):
    """The fields of a stored batch, and all its bytes."""

    base_offset: int
    leader_epoch: int
    attributes: int
    last_offset: int
    producer_id: int
    base_sequence: int
    record_count: int
    raw: bytes

    @property
    def codec(self) -> int:
        return self.attributes & 7

    @property
    def as_sent(self) -> bytes:
        """The batch without what a leader fills in: base offset and leader epoch."""
        return self.raw[8:12] + self.raw[16:]

    @property
    def crc_is_right(self) -> bool:
        return bool(struct.unpack_from(">I", self.raw, 17)[0] == crc32c(self.raw[21:]))


def split_batches(data: bytes) -> list[Batch]:
    """The whole batches in `data`; a cut one at the end is left out, as Kafka's consumers do."""
    batches = []
    at = 0
    while len(data) - at >= 61:
        base_offset, length, epoch, magic = struct.unpack_from(">qiib", data, at)
        if len(data) - at < 12 + length:
            break
        assert magic == 2, f"batch at byte {at} has magic {magic}"
        raw = data[at : at + 12 + length]
        attributes, last_delta, _, _, producer_id, _, sequence, count = struct.unpack_from(">hiqqqhii", raw, 21)
        batches.append(
            Batch(base_offset, epoch, attributes, base_offset + last_delta, producer_id, sequence, count, raw)
        )
        at += 12 + length
    return batches


def encode_record(index: int, key: bytes | None, value: bytes | None, timestamp_delta: int = 0) -> bytes:
    """One record of a v2 batch, without headers."""
    body = b"\0" + zigzag(timestamp_delta) + zigzag(index)
    for field in (key, value):
        body += zigzag(-1) if field is None else zigzag(len(field)) + field
    body += zigzag(0)
    return zigzag(len(body)) + body


def encode_batch(
    records: bytes,
    count: int,
    *,
    codec: int = 0,
    timestamp: int | None = None,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    last_offset_delta: int | None = None,
    magic: int = 2,
    attributes: int = 0,
) -> bytes:
    """A v2 batch around record bytes that are already compressed if `codec` says so."""
    now = time.time_ns() // 1_000_000 if timestamp is None else timestamp
    last = count - 1 if last_offset_delta is None else last_offset_delta
    tail = struct.pack(">hiqqqhii", codec | attributes, last, now, now, producer_id, epoch, sequence, count) + records
    head = struct.pack(">iib", len(tail) + 9, -1, magic) + struct.pack(">I", crc32c(tail))
    return struct.pack(">q", 0) + head + tail


def simple_batch(*values: bytes, **fields: int) -> bytes:
    """An uncompressed batch of records with the key `k`."""
    records = b"".join(encode_record(index, b"k", value) for index, value in enumerate(values))
    return encode_batch(records, len(values), **fields)
