"""The log cleaner's offset map, which holds the offset of each key's last record. Compiled by mypyc.

Compressed batches and those of transactions are left to the caller: `map_batches` stops before them and says so.
"""

from __future__ import annotations

from array import array
from hashlib import blake2b
from os import urandom
from typing import Final, cast

from librt.strings import read_i64_be, read_i64_le
from librt.vecs import vec

from barnabas.records.batch import BATCH_LENGTH_OVERHEAD, CHECKED_POSITION, CRC_POSITION, HEADER_SIZE, MAGIC
from barnabas.records.checksum import crc32c
from barnabas.records.compiled.mypyc_types import i64
from barnabas.records.compiled.record_walk import _long_varint

TORN: Final = 0
"""The block ends, or its last batch is cut off."""
SPECIAL: Final = 1
"""The next batch is compressed, of a transaction or a control batch."""
FULL: Final = 2
"""The map takes no more keys."""
OLD_FORMAT: Final = 3
"""The next batch is of message format 0 or 1."""

SPECIAL_BITS: Final = 0x37
"""The attributes that make a batch SPECIAL: compression, transactional, control."""
_LOW: Final = 0xFFFFFFFF
_RELATIVE_BITS: Final = 40
RELATIVE_MAX: Final = 2**40 - 2
"""The greatest distance between the first and the last offset of a map."""
_RELATIVE: Final = 2**40 - 1
_KEY_MAX: Final = 256
"""The length up to which keys are hashed in one step."""
_LANES: Final = 3
_COPY_MAX: Final = 4096
"""The size up to which a copy is cheaper than a memoryview."""
_COMPILED: Final = not __file__.endswith(".py")
_MULTIPLIERS: Final = _LANES * (2 + _KEY_MAX // 4)


def _table(words: int) -> vec[i64]:
    """Returns a table of zeros."""
    if not _COMPILED:
        return cast("vec[i64]", array("q", bytes(8 * words)))
    return vec[i64]([0] * words)


def _random_table(words: int) -> vec[i64]:
    """Returns a table of random 64-bit numbers."""
    table = _table(words)
    noise = urandom(8 * words)
    index: i64 = 0
    while index < words:
        table[index] = read_i64_le(noise, index * 8)
        index += 1
    return table


class OffsetMap:
    """Holds the offset of each key's last record, in a table of fixed size with hashes in place of keys, as in Kafka.

    The hash is multilinear over 32-bit words with random multipliers (Lemire and Kaser, 2013). Of its three lanes 86
    bits are kept: any two of n keys share a hash with a probability below n² / 2^87. One entry takes 16 bytes.
    """

    def __init__(self, slots: int, entries_max: int, first_offset: int) -> None:
        assert 0 < entries_max < slots < 2**31, (slots, entries_max)
        self.slots: i64 = slots
        self.entries_max: i64 = entries_max
        self.entries: i64 = 0
        self.first_offset: i64 = first_offset
        """Records below this offset are not entered."""
        self.latest_offset: i64 = first_offset - 1
        """The last offset that has been entered: records above it stay, whatever their key."""
        self.records: i64 = 0
        """The number of records that have been read."""
        self.stop: i64 = TORN
        self._table: vec[i64] = _table(2 * slots)
        self._multipliers: vec[i64] = _random_table(_MULTIPLIERS)

    # -- the table -----------------------------------------------------------------------------------------------------

    def _hash(self, data: bytes, position: i64, length: i64) -> tuple[i64, i64, i64]:
        """Returns the slot of a key, and 63 and 23 bits of its hash."""
        m = self._multipliers
        if length > _KEY_MAX:
            digest = blake2b(data[position : position + length], digest_size=32).digest()
            return self._hash_words(digest, 0, 32, m[0] + m[3] * length, m[1] + m[4] * length, m[2] + m[5] * length)
        return self._hash_words(
            data, position, length, m[0] + m[3] * length, m[1] + m[4] * length, m[2] + m[5] * length
        )

    def _hash_words(
        self, data: bytes, position: i64, length: i64, first: i64, second: i64, third: i64
    ) -> tuple[i64, i64, i64]:
        m = self._multipliers
        at: i64 = 2 * _LANES
        end: i64 = position + length
        word: i64
        low: i64
        high: i64
        while position + 8 <= end:
            word = read_i64_le(data, position)
            low = word & _LOW
            high = word >> 32 & _LOW
            first += m[at] * low + m[at + 3] * high
            second += m[at + 1] * low + m[at + 4] * high
            third += m[at + 2] * low + m[at + 5] * high
            at += 6
            position += 8
        while position < end:
            low = data[position]
            shift: i64 = 8
            position += 1
            while shift < 32 and position < end:
                low |= data[position] << shift
                shift += 8
                position += 1
            first += m[at] * low
            second += m[at + 1] * low
            third += m[at + 2] * low
            at += 3
        first = first >> 32 & _LOW
        return first * self.slots >> 32, first >> 1 << 32 | (second >> 32 & _LOW), third >> 41 & 0x7FFFFF

    def _put(self, data: bytes, position: i64, length: i64, offset: i64) -> None:
        slot: i64
        key_hash: i64
        tag: i64
        slot, key_hash, tag = self._hash(data, position, length)
        table = self._table
        at: i64 = slot * 2
        end: i64 = self.slots * 2
        entry: i64 = table[at + 1]
        while entry != 0:
            if table[at] == key_hash and entry >> _RELATIVE_BITS == tag:
                break
            at += 2
            if at == end:
                at = 0
            entry = table[at + 1]
        if entry == 0:
            table[at] = key_hash
            self.entries += 1
        table[at + 1] = tag << _RELATIVE_BITS | (offset - self.first_offset + 1)

    def _get(self, data: bytes, position: i64, length: i64) -> i64:
        slot: i64
        key_hash: i64
        tag: i64
        slot, key_hash, tag = self._hash(data, position, length)
        table = self._table
        at: i64 = slot * 2
        end: i64 = self.slots * 2
        entry: i64 = table[at + 1]
        while entry != 0:
            if table[at] == key_hash and entry >> _RELATIVE_BITS == tag:
                return (entry & _RELATIVE) - 1 + self.first_offset
            at += 2
            if at == end:
                at = 0
            entry = table[at + 1]
        return -1

    def get(self, key: bytes) -> int:
        """Returns the last offset of a key, -1 if it has not been entered."""
        return self._get(key, 0, len(key))

    def skip_to(self, next_offset: int) -> None:
        """Notes that no record below `next_offset` is left to be entered."""
        if next_offset - 1 > self.latest_offset:
            self.latest_offset = next_offset - 1

    # -- filling it ----------------------------------------------------------------------------------------------------

    def map_batches(self, data: bytes, position: i64) -> i64:
        """Enters the batches from `position` on. Returns the position after the last of them; `stop` has the reason.

        Raises ValueError or IndexError for broken structure.
        """
        size: i64 = len(data)
        self.stop = TORN
        while size - position >= HEADER_SIZE:
            if data[position + 16] != MAGIC:
                self.stop = OLD_FORMAT
                break
            length: i64 = batch_size(data, position)
            if length > size - position:
                break
            if data[position + 22] & SPECIAL_BITS:
                self.stop = SPECIAL
                break
            if last_offset_of(data, position) >= self.first_offset:
                check_crc(data, position)  # a damaged key would delete the records of another one
            if not self.map_batch(data, position, data, position + HEADER_SIZE, position + length):
                self.stop = FULL
                break
            position += length
        return position

    def map_batch(self, head: bytes, at: i64, data: bytes, position: i64, end: i64) -> bool:
        """Enters the batch with the header at `head[at]` and the uncompressed records `data[position:end]`.

        Returns False if the map is full.
        """
        base_offset: i64 = read_i64_be(head, at)
        last_offset: i64 = last_offset_of(head, at)
        if last_offset < self.first_offset:
            return True
        if last_offset - self.first_offset > RELATIVE_MAX:
            return False
        if not self._map_records(data, position, end, read_i64_be(head, at + 53) & _LOW, base_offset):
            return False
        self.latest_offset = last_offset
        return True

    def _map_records(self, data: bytes, position: i64, end: i64, count: i64, base_offset: i64) -> bool:
        index: i64 = 0
        length: i64
        second: i64
        offset: i64
        key: i64
        while index < count:
            # begin varint length
            length = data[position]
            position += 1
            if length > 127:
                second = data[position]
                if second < 128:
                    length = length & 127 | second << 7
                    position += 1
                else:
                    length, position = _long_varint(data, position, length)
            # end varint
            record_end: i64 = position + (length >> 1)
            if length & 1 or record_end > end:
                raise ValueError(f"record {index} is longer than its batch")
            position += 1
            while data[position] > 127:
                position += 1
            position += 1
            # begin varint offset
            offset = data[position]
            position += 1
            if offset > 127:
                second = data[position]
                if second < 128:
                    offset = offset & 127 | second << 7
                    position += 1
                else:
                    offset, position = _long_varint(data, position, offset)
            # end varint
            # begin varint key
            key = data[position]
            position += 1
            if key > 127:
                second = data[position]
                if second < 128:
                    key = key & 127 | second << 7
                    position += 1
                else:
                    key, position = _long_varint(data, position, key)
            # end varint
            if not key & 1:
                key = key >> 1
                if position + key > record_end:
                    raise ValueError(f"record {index} has a key of {key} bytes, which is longer than the record")
                offset = base_offset + (offset >> 1 ^ -(offset & 1))
                if offset >= self.first_offset:
                    if self.entries >= self.entries_max:
                        return False
                    self._put(data, position, key, offset)
                    self.latest_offset = offset
            position = record_end
            self.records += 1
            index += 1
        if position != end:
            raise ValueError(f"{end - position} bytes follow the last of {count} records")
        return True


def batch_size(data: bytes, position: i64) -> i64:
    """Returns the size of the batch at `position`. Raises ValueError for an impossible length."""
    size: i64 = (read_i64_be(data, position + 8) >> 32) + BATCH_LENGTH_OVERHEAD
    if size < HEADER_SIZE:
        raise ValueError(f"a batch of {size} bytes at byte {position}")
    return size


def check_crc(data: bytes, position: i64) -> None:
    """Raises ValueError if the batch at `position` fails its checksum."""
    end: i64 = position + batch_size(data, position)
    found: i64
    if end - position < _COPY_MAX:
        found = crc32c(data[position + CHECKED_POSITION : end])
    else:
        found = crc32c(memoryview(data)[position + CHECKED_POSITION : end])
    if found != read_i64_be(data, position + CRC_POSITION) >> 32 & _LOW:
        raise ValueError(f"the batch of offset {read_i64_be(data, position)} fails its checksum")


def last_offset_of(data: bytes, position: i64) -> i64:
    """Returns the last offset of the batch at `position`."""
    return read_i64_be(data, position) + (read_i64_be(data, position + 23) >> 32)
