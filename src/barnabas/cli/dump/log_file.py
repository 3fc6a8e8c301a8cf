"""Dumps `.log` files: batches of v2, messages of v0 and v1, and with `deep` the records in them.

Checks lengths, magic, checksum, record count, and that offsets go up. Reading goes on after a batch with a wrong
checksum. It ends at an impossible length, because the next batch cannot be found then.
"""

import os
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from barnabas.cli.dump.items import Item, problem
from barnabas.errors import CorruptMessage
from barnabas.records.batch import BATCH_LENGTH_OVERHEAD, HEADER_SIZE, crc_of, read_header
from barnabas.records.compression import codec_name
from barnabas.records.legacy import LegacyMessage, read_message, records_of
from barnabas.records.reader import read_records
from barnabas.records.record import Record

__all__ = ["BatchPlace", "LogScan", "read_control_record"]

PREFIX_SIZE: Final = 17
"""Offset, length and the four bytes up to the magic, in all formats."""
MAGIC_POSITION: Final = 16
LENGTH_MIN: Final = 14
ZERO_CHUNK: Final = 1 << 20
CONTROL_TYPES: Final = {
    0: "abort",
    1: "commit",
    2: "leader change",
    3: "snapshot header",
    4: "snapshot footer",
    5: "kraft version",
    6: "kraft voters",
}


class BatchPlace(NamedTuple):
    """The place of a batch, for the check of the indexes."""

    position: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    magic: int


class LogScan:
    """Reads a segment file once; `places` is complete when `items` is exhausted."""

    def __init__(self, path: str, *, deep: bool = False) -> None:
        self.path = path
        self.places: list[BatchPlace] = []
        self.record_count = 0
        self.size = os.path.getsize(path)
        self.valid_bytes = 0
        """The length of the undamaged beginning of the file."""
        self._deep = deep
        self._next_offset = -1
        self._sound = True

    def items(self) -> Iterator[Item]:
        """Yields batches, records (deep) and problems, in the file's order."""
        with open(self.path, "rb", buffering=0) as file:
            position = 0
            while position < self.size:
                head = os.pread(file.fileno(), PREFIX_SIZE, position)
                size = self._batch_size(head, position)
                if isinstance(size, str):
                    yield from self._tail(file.fileno(), position, head, size)
                    return
                batch = os.pread(file.fileno(), size, position)
                yield from self._batch(batch, position, head[MAGIC_POSITION])
                position += size
                if self._sound:
                    self.valid_bytes = position

    def _batch_size(self, head: bytes, position: int) -> int | str:
        """Returns the size of the batch, or the text of a problem."""
        left = self.size - position
        if len(head) < PREFIX_SIZE:
            return f"torn batch: {left} bytes are left, a header needs {HEADER_SIZE}"
        magic = head[MAGIC_POSITION]
        length = int.from_bytes(head[8:12], "big", signed=True)
        if magic > 2:
            return f"magic {magic} does not exist"
        least = HEADER_SIZE - BATCH_LENGTH_OVERHEAD if magic == 2 else LENGTH_MIN
        if length < least:
            return f"a batch of magic {magic} claims the length {length}, {least} is the least"
        if length + BATCH_LENGTH_OVERHEAD > left:
            return f"torn batch: it claims {length + BATCH_LENGTH_OVERHEAD} bytes, {left} are left"
        return length + BATCH_LENGTH_OVERHEAD

    def _tail(self, fd: int, position: int, head: bytes, message: str) -> Iterator[Item]:
        """Reports the damaged end of a file, unless it is all zeros, as in a preallocated file."""
        if not any(head) and _is_zero(fd, position, self.size):
            yield {"type": "entry", "file": self.path, "position": position, "preallocated": self.size - position}
            return
        self._sound = False
        yield problem(self.path, position, f"{message}; nothing after it can be read")

    def _batch(self, data: bytes, position: int, magic: int) -> Iterator[Item]:
        try:
            item, records = self._read_v2(data, position) if magic == 2 else self._read_legacy(data, position)
        except CorruptMessage as error:
            self._sound = False
            yield problem(self.path, position, str(error))
            return
        yield item
        if item["crc"] != "ok":
            self._sound = False
            yield problem(
                self.path, position, f"offsets {item['base_offset']} to {item['last_offset']}: wrong checksum"
            )
        if item["base_offset"] < self._next_offset or item["last_offset"] < item["base_offset"]:
            self._sound = False
            yield problem(
                self.path,
                position,
                f"offsets {item['base_offset']} to {item['last_offset']} do not follow {self._next_offset - 1}",
            )
        self._next_offset = max(self._next_offset, item["last_offset"] + 1)
        self.record_count += max(item["count"], 0)
        self.places.append(
            BatchPlace(position, item["base_offset"], item["last_offset"], item["max_timestamp"], item["magic"])
        )
        if isinstance(records, CorruptMessage):
            self._sound = False
            yield problem(self.path, position, str(records))
        else:
            for record in records:
                yield _record_item(self.path, record, control=bool(item.get("control")))

    def _read_v2(self, data: bytes, position: int) -> tuple[Item, "list[Record] | CorruptMessage"]:
        header = read_header(data)
        sound = crc_of(data) == header.crc
        item: Item = {
            "type": "batch",
            "file": self.path,
            "position": position,
            "base_offset": header.base_offset,
            "last_offset": header.last_offset,
            "count": header.record_count,
            "magic": 2,
            "codec": codec_name(header.compression_type),
            "size": len(data),
            "crc": "ok" if sound else "wrong",
            "leader_epoch": header.partition_leader_epoch,
            "max_timestamp": header.max_timestamp,
            "timestamp_type": "LogAppendTime" if header.is_log_append_time else "CreateTime",
        }
        if header.has_producer_id:
            item |= {
                "producer_id": header.producer_id,
                "producer_epoch": header.producer_epoch,
                "base_sequence": header.base_sequence,
                "last_sequence": header.last_sequence,
            }
        if header.is_transactional:
            item["transactional"] = True
        if header.is_control:
            item["control"] = True
        if header.has_delete_horizon:
            item["delete_horizon"] = header.base_timestamp
        if not self._deep or not sound:
            return item, []
        return item, _attempt(lambda: read_records(data, check_crc=False))

    def _read_legacy(self, data: bytes, position: int) -> tuple[Item, "list[Record] | CorruptMessage"]:
        message = read_message(data)
        inner: list[Record] | CorruptMessage = []
        if message.is_valid and (message.compression_type or self._deep):
            inner = _attempt(lambda: records_of(message))
        first, count = _legacy_span(message, inner)
        item: Item = {
            "type": "batch",
            "file": self.path,
            "position": position,
            "base_offset": first,
            "last_offset": message.offset,
            "count": count,
            "magic": message.magic,
            "codec": codec_name(message.compression_type),
            "size": len(data),
            "crc": "ok" if message.is_valid else "wrong",
            "max_timestamp": message.timestamp,
            "timestamp_type": "LogAppendTime" if message.is_log_append_time else "CreateTime",
        }
        if not self._deep and not isinstance(inner, CorruptMessage):
            inner = []
        return item, inner

    def place_of(self, offset: int) -> BatchPlace | None:
        """Returns the batch that contains an offset, or the first one after it."""
        index = bisect_right(self.places, offset, key=lambda place: place.base_offset) - 1
        if index >= 0 and self.places[index].last_offset >= offset:
            return self.places[index]
        return self.places[index + 1] if index + 1 < len(self.places) else None


def _legacy_span(message: LegacyMessage, inner: "list[Record] | CorruptMessage") -> tuple[int, int]:
    """Returns (first offset, count): a wrapper message has only the last offset of the messages in it."""
    if isinstance(inner, CorruptMessage) or not inner:
        return message.offset, 1
    return inner[0].offset, len(inner)


def _attempt(read: Any) -> "list[Record] | CorruptMessage":
    try:
        records: list[Record] = read()
    except CorruptMessage as error:
        return error
    return records


def _record_item(path: str, record: Record, *, control: bool) -> Item:
    item: Item = {
        "type": "record",
        "file": path,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": record.key,
        "value": record.value,
        "headers": record.headers,
    }
    if control:
        item["marker"] = read_control_record(record)
    return item


def read_control_record(record: Record) -> str:
    """Returns the type in a control record's key, such as `commit` or `abort`."""
    if record.key is None or len(record.key) < 4:
        return "unknown"
    number = int.from_bytes(record.key[2:4], "big")
    return CONTROL_TYPES.get(number, f"unknown({number})")


def _is_zero(fd: int, position: int, end: int) -> bool:
    while position < end:
        chunk = os.pread(fd, min(ZERO_CHUNK, end - position), position)
        if any(chunk):
            return False
        position += len(chunk)
    return True
