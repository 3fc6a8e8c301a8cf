"""A leader's checks of a batch before it appends it. A batch that its readers could not read is refused as in Kafka.

The rules, in the order of the checks (source: Kafka's ProduceRequest, UnifiedLog and LogValidator, and the responses of
Apache Kafka 4.4.0 to each payload of tests/records/poisons.py):

    rule                                                                     refused with
    -----------------------------------------------------------------------  ----------------------------
    fewer than 17 bytes, or the batch's length reaches past the end           INVALID_RECORD (no batch)
    the batch's length below 14, magic not 0, 1 or 2                          CORRUPT_MESSAGE
    magic 0 or 1                                                              INVALID_RECORD
    zstd before Produce v7 (`zstd_allowed` False)                             UNSUPPORTED_COMPRESSION_TYPE
    a second batch, whole                                                     INVALID_RECORD
    a base offset other than 0                                                INVALID_RECORD
    the whole batch larger than max.message.bytes, before or after recoding   MESSAGE_TOO_LARGE
    a length below a header's, a wrong CRC-32C                                CORRUPT_MESSAGE
    no records; count and last offset delta that do not agree                 INVALID_RECORD
    a control batch; a producer id without a sequence                         INVALID_RECORD
    compression type 5 to 7; records that cannot be decompressed              UNKNOWN_SERVER_ERROR
    more records than `AppendPolicy.decompression_bound` allows               MESSAGE_TOO_LARGE
    more pieces than that may have (`compression.pieces_max`)                 INVALID_RECORD
    a compressed record larger than max.decompressed.message.bytes            INVALID_RECORD
    records that do not fill the batch exactly, lengths, varints, headers     INVALID_RECORD
    an offset delta that is not the record's index                            INVALID_RECORD per record
    no key on a compacted topic                                               INVALID_RECORD per record
    a timestamp out of bounds (CreateTime), a LogAppendTime batch             INVALID_TIMESTAMP per record

Barnabas refuses some batches that Kafka stores, on which some readers then fail or misnumber the records: wrong offset
deltas; a compressed record whose length is not that of its fields; key, value or header lengths below -1; bytes after
the end of gzip, snappy or lz4 data; decompressed size and number of pieces without bound. As Kafka does, it cuts off a
torn second batch and corrects a header's max_timestamp that the records contradict.
"""

import time
from functools import partial
from struct import Struct
from typing import Final

from barnabas.errors import (
    BarnabasError,
    CorruptMessage,
    InvalidRecord,
    KafkaError,
    MessageTooLarge,
    UnknownServerError,
    UnsupportedCompressionType,
)
from barnabas.records.append_policy import (
    TARGETS,
    AppendPolicy,
    RecordError,
    RefusedRecords,
    RefusedTimestamps,
    record_errors_of,
)
from barnabas.records.batch import (
    BATCH_LENGTH_OVERHEAD,
    CHECKED,
    CHECKED_POSITION,
    COMPRESSION_MASK,
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    HEADER_SIZE,
    LOG_APPEND_TIME_FLAG,
    PREFIX,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Buffer,
    read_header,
)
from barnabas.records.checksum import crc32c
from barnabas.records.compiled import record_walk
from barnabas.records.compiled.mypyc_types import I64_MAX, I64_MIN
from barnabas.records.compression import (
    CODECS,
    GZIP,
    LZ4,
    ZSTD,
    DamagedData,
    DecompressedTooLarge,
    TooManyPieces,
    TrailingData,
    compress,
    decompress,
)

__all__ = [
    "RECORD_ERRORS_MAX",
    "AppendPolicy",
    "RecordError",
    "RefusedRecords",
    "RefusedTimestamps",
    "TooMuchWork",
    "ValidatedBatch",
    "check_record_sizes",
    "own_batch",
    "record_errors_of",
    "validate_produce",
    "validate_replicated",
]

RECORD_ERRORS_MAX: Final = 1_000
"""The most reasons that are given for one batch. A batch of a megabyte can hold 140,000 wrong records."""

_AT_ONCE_BYTES_MAX: Final = 1 << 20
_AT_ONCE_GZIP_BYTES_MAX: Final = 1 << 18
_AT_ONCE_RECODED_BYTES_MAX: Final = 1 << 15
"""The most uncompressed bytes of a batch that is validated at once: one or two milliseconds of work."""
_PAUSE_S: Final = 0.0002
"""Long enough for another thread to take the interpreter lock."""

_LENGTH_MIN_ANY_MAGIC: Final = 14
_SIZE_UP_TO_MAGIC: Final = 17
_HEADER: Final = Struct(">qiibIhiqqqhii")
_unpack_header = _HEADER.unpack_from
_LENGTH: Final = Struct(">i")
_FLAGS_KEPT: Final = COMPRESSION_MASK | TRANSACTIONAL_FLAG | CONTROL_FLAG | DELETE_HORIZON_FLAG
_LZ4_FLAGS_POSITION: Final = HEADER_SIZE + 4
_LZ4_MASK: Final = 0x23
_LZ4_INDEPENDENT: Final = 0x20
"""Independent blocks, no dictionary, no reserved bit: Java clients read no other frames."""


class TooMuchWork(BarnabasError):
    """The batch takes more than about a millisecond to validate: do it in a thread."""


class ValidatedBatch:
    """A batch that the leader may append. `payload` is the whole batch, as sent or rewritten as the topic requires."""

    __slots__ = ("header", "max_timestamp", "offset_of_max_timestamp_delta", "payload", "record_count")

    def __init__(
        self,
        header: BatchHeader,
        payload: Buffer,
        max_timestamp: int,
        offset_of_max_timestamp_delta: int,
        record_count: int,
    ) -> None:
        self.header = header
        """The header of `payload`, crc included."""
        self.payload = payload
        self.max_timestamp = max_timestamp
        """In milliseconds, -1 if no record has a timestamp."""
        self.offset_of_max_timestamp_delta = offset_of_max_timestamp_delta
        """The offset delta for the time index: as in Kafka, the last of the batch, not the latest record's."""
        self.record_count = record_count

    def __repr__(self) -> str:
        return f"ValidatedBatch({self.header}, {len(self.payload)} bytes)"


def own_batch(batch: bytes) -> ValidatedBatch:
    """Wraps a batch that this broker has built itself, without validation."""
    header = read_header(batch)
    return ValidatedBatch(header, batch, header.max_timestamp, header.last_offset_delta, header.record_count)


def validate_produce(
    records: Buffer | None, policy: AppendPolicy, now_ms: int, *, zstd_allowed: bool = True, at_once: bool = False
) -> ValidatedBatch:
    """Checks the records of one partition of a Produce request (v3 and later) by the rules of this module.

    `records` is not kept unless it becomes the payload. Raises a KafkaError; `record_errors_of` returns its reasons.
    `at_once` raises TooMuchWork before the batch takes much time; without it, other threads may run meanwhile.
    """
    size_all = 0 if records is None else len(records)
    if records is None or size_all < HEADER_SIZE:
        raise _short(records)
    fields = _unpack_header(records)
    (base_offset, length, _, magic, crc, attributes, last_offset_delta) = fields[:7]
    size = length + BATCH_LENGTH_OVERHEAD
    if magic != 2 or length < 49 or size != size_all:
        records = _one_batch(records, length, magic, size_all, zstd_allowed or attributes & COMPRESSION_MASK != ZSTD)
    elif not zstd_allowed and attributes & COMPRESSION_MASK == ZSTD:
        raise _zstd_too_early()
    if base_offset != 0:
        raise InvalidRecord(f"the batch's base offset is {base_offset}; a producer must send 0")
    if size > policy.max_message_bytes:
        raise _too_large(size, policy)
    if size < HEADER_SIZE:
        raise CorruptMessage(f"the batch has {size} bytes, a header alone has {HEADER_SIZE}")
    data = records if type(records) is bytes else bytes(records)
    computed = crc32c(memoryview(data)[CHECKED_POSITION:])
    if computed != crc:
        raise CorruptMessage(f"the batch's checksum is {crc:#010x}, its bytes give {computed:#010x}")
    header = BatchHeader._make(fields)
    count = header.record_count
    if count <= 0 or last_offset_delta != count - 1 or attributes & CONTROL_FLAG or header.producer_id >= 0:
        _check_header(header)
    codec = attributes & COMPRESSION_MASK
    position = HEADER_SIZE
    target = TARGETS[policy.compression_type]
    recodes = target >= 0 and target != codec
    if codec:
        data, position = _decompressed(data, header, policy, recodes, at_once), 0
        check_record_sizes(data, count, policy.record_max_bytes)
    elif recodes and at_once and size > _AT_ONCE_RECODED_BYTES_MAX:
        raise TooMuchWork(f"{size} bytes are to be compressed")
    max_timestamp = _check_records(data, position, header, policy, now_ms, at_once)
    if recodes:
        return _recoded(header, data[position:], target, max_timestamp, policy)
    wants_flag = LOG_APPEND_TIME_FLAG if policy.log_append_time else 0
    if max_timestamp != header.max_timestamp or attributes & LOG_APPEND_TIME_FLAG != wants_flag:
        return _retimed(header, records, max_timestamp, policy)
    return ValidatedBatch(header, records, max_timestamp, last_offset_delta, count)


def _short(records: Buffer | None) -> KafkaError:
    """Returns the error for fewer bytes than a header has."""
    size = 0 if records is None else len(records)
    if records is not None and size >= BATCH_LENGTH_OVERHEAD:
        (length,) = _LENGTH.unpack_from(records, 8)
        if length < _LENGTH_MIN_ANY_MAGIC:
            return CorruptMessage(f"the batch's length is {length}, no batch is that short")
        if size >= _SIZE_UP_TO_MAGIC:
            magic = bytes(records[16:17])[0]
            if magic > 2:
                return CorruptMessage(f"the batch's magic is {magic}, it can be 0 to 2")
            if length + BATCH_LENGTH_OVERHEAD <= size:
                return _wrong_magic(magic) if magic < 2 else CorruptMessage("the batch is shorter than its header")
    return InvalidRecord(f"the partition's {size} bytes hold no whole record batch; a request must have one")


def _wrong_magic(magic: int) -> InvalidRecord:
    return InvalidRecord(f"the batch has magic {magic}; Produce requests from version 3 on carry magic 2 only")


def _zstd_too_early() -> UnsupportedCompressionType:
    return UnsupportedCompressionType("zstd needs Produce version 7 or later")


def _too_large(size: int, policy: AppendPolicy) -> MessageTooLarge:
    return MessageTooLarge(f"the batch has {size} bytes, max.message.bytes is {policy.max_message_bytes}")


def _one_batch(records: Buffer, length: int, magic: int, size_all: int, codec_allowed: bool) -> Buffer:
    """Returns the bytes of the only batch. A second whole batch is refused; a torn one is cut off, as in Kafka."""
    if length < _LENGTH_MIN_ANY_MAGIC:
        raise CorruptMessage(f"the batch's length is {length}, no batch is that short")
    if not 0 <= magic <= 2:
        raise CorruptMessage(f"the batch's magic is {magic}, it can be 0 to 2")
    size = length + BATCH_LENGTH_OVERHEAD
    if size > size_all:
        raise InvalidRecord(f"the batch has {size} bytes, {size_all} are there; a request must have one whole batch")
    if magic != 2:
        raise _wrong_magic(magic)
    if not codec_allowed:
        raise _zstd_too_early()
    rest = memoryview(records)[size:]
    if len(rest) >= BATCH_LENGTH_OVERHEAD:
        (next_length,) = _LENGTH.unpack_from(rest, 8)
        if next_length < _LENGTH_MIN_ANY_MAGIC:
            raise CorruptMessage(f"{len(rest)} bytes follow the batch, and they are no batch: length {next_length}")
        if len(rest) >= _SIZE_UP_TO_MAGIC and rest[16] > 2:
            raise CorruptMessage(f"{len(rest)} bytes follow the batch, and they are no batch: magic {rest[16]}")
        if len(rest) >= next_length + BATCH_LENGTH_OVERHEAD:
            raise InvalidRecord("the partition has more than one batch; a request may have one")
    return memoryview(records)[:size]


def _check_header(header: BatchHeader) -> None:
    if header.last_offset_delta < 0:
        raise InvalidRecord(f"the batch's last offset delta is {header.last_offset_delta}")
    if header.record_count <= 0:
        raise InvalidRecord(f"the batch's record count is {header.record_count}; it must have a record")
    if header.record_count != header.last_offset_delta + 1:
        raise InvalidRecord(
            f"the batch's record count is {header.record_count}, its last offset delta {header.last_offset_delta}"
        )
    if header.is_control:
        raise InvalidRecord("clients may not write control batches")
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise InvalidRecord(f"producer {header.producer_id} sent a batch with sequence {header.base_sequence}")


def _decompressed(data: bytes, header: BatchHeader, policy: AppendPolicy, recodes: bool, at_once: bool) -> bytes:
    codec = header.compression_type
    if codec >= len(CODECS):
        raise UnknownServerError(f"the batch's compression type is {codec}, it can be 0 to {len(CODECS) - 1}")
    if codec == LZ4 and len(data) > _LZ4_FLAGS_POSITION and data[_LZ4_FLAGS_POSITION] & _LZ4_MASK != _LZ4_INDEPENDENT:
        raise UnknownServerError("the records cannot be decompressed: lz4 blocks must be independent")
    most = allowed = policy.decompression_bound(len(data))
    if at_once:
        fast = _AT_ONCE_GZIP_BYTES_MAX if codec == GZIP else _AT_ONCE_BYTES_MAX
        most = min(allowed, _AT_ONCE_RECODED_BYTES_MAX if recodes else fast)
    try:
        return decompress(codec, memoryview(data)[HEADER_SIZE:], most)
    except (DecompressedTooLarge, TooManyPieces) as error:
        if most < allowed:
            raise TooMuchWork(str(error)) from None
        if isinstance(error, TooManyPieces):
            raise InvalidRecord(str(error)) from None
        raise MessageTooLarge(f"{error}; send smaller batches") from None
    except TrailingData as error:
        raise InvalidRecord(str(error)) from None
    except DamagedData as error:
        raise UnknownServerError(f"the records cannot be decompressed: {error}") from None


def check_record_sizes(data: bytes, count: int, limit: int) -> None:
    """Raises InvalidRecord if one of the first `count` uncompressed records has more bytes than the limit; what is no
    record is left to other checks."""
    if len(data) <= limit:
        return
    position = 0
    for index in range(count):
        raw = shift = 0
        while position < len(data) and shift < 35:
            byte = data[position]
            position += 1
            raw |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        if raw & 1 or raw == 0:
            return
        if raw >> 1 > limit:
            raise InvalidRecord(f"record {index} has {raw >> 1} bytes, max.decompressed.message.bytes is {limit}")
        position += raw >> 1


_pause: Final = partial(time.sleep, _PAUSE_S)


def _check_records(
    data: bytes, position: int, header: BatchHeader, policy: AppendPolicy, now_ms: int, at_once: bool
) -> int:
    """Checks the records and returns the max_timestamp that the batch's header must have."""
    base = header[7]
    append_time = header[5] & LOG_APPEND_TIME_FLAG
    low, high = I64_MIN, I64_MAX
    if not policy.log_append_time:
        low = max(low, max(low, now_ms - policy.timestamp_before_max_ms) - base)
        high = min(high, min(high, now_ms + policy.timestamp_after_max_ms) - base)
        if low > I64_MAX or high < I64_MIN:  # the base timestamp is out of bounds, and no delta corrects that
            low, high = I64_MAX, I64_MIN
    refused: list[tuple[int, int, int, int]] = []
    keyed = policy.compacted
    try:
        delta = record_walk.check_records(
            data, position, header[12], low, high, -1 - base, keyed, refused, RECORD_ERRORS_MAX,
            None if at_once else _pause,
        )  # fmt: skip
    except ValueError as error:
        raise InvalidRecord(str(error)) from None
    except IndexError:
        raise InvalidRecord("the records end before the last field of a record") from None
    if append_time:
        _check_append_time(header, policy, now_ms, refused)
    if refused:
        raise _refusal(header, refused, policy, now_ms)
    if policy.log_append_time:
        return now_ms
    return base + delta if base + delta > -1 else -1


def _refusal(
    header: BatchHeader, refused: list[tuple[int, int, int, int]], policy: AppendPolicy, now_ms: int
) -> KafkaError:
    """Returns the error for well-formed records that the policy refuses, with one reason for each."""
    reasons: dict[int, str] = {}
    about_time = False
    for index, offset_delta, timestamp_delta, key_length in refused:
        reason = _record_reason(index, offset_delta, key_length, policy)
        if reason is None:
            about_time = True
            reason = _out_of_bounds(header.base_timestamp + timestamp_delta, policy, now_ms)
        reasons[index] = reason
    return _refused(reasons, about_time, header.record_count)


def _record_reason(index: int, offset_delta: int, key_length: int, policy: AppendPolicy) -> str | None:
    if offset_delta != index:
        return f"its offset delta is {offset_delta}, it must be {index}"
    if policy.compacted and key_length < 0:
        return "it has no key, and the topic is compacted"
    return None


def _out_of_bounds(timestamp: int, policy: AppendPolicy, now_ms: int) -> str:
    low, high = now_ms - policy.timestamp_before_max_ms, now_ms + policy.timestamp_after_max_ms
    return f"its timestamp {timestamp} is out of bounds, they are {low} to {high} now"


def _refused(reasons: dict[int, str], about_time: bool, record_count: int) -> KafkaError:
    index, reason = next(iter(reasons.items()))
    number = str(len(reasons)) if len(reasons) < RECORD_ERRORS_MAX else f"{RECORD_ERRORS_MAX} or more"
    text = f"{number} of {record_count} records refused; record {index}: {reason}"
    errors = tuple(RecordError(index, reason) for index, reason in reasons.items())
    return RefusedTimestamps(text, errors) if about_time else RefusedRecords(text, errors)


def _check_append_time(
    header: BatchHeader, policy: AppendPolicy, now_ms: int, refused: list[tuple[int, int, int, int]]
) -> None:
    """Checks a client's batch of type LogAppendTime: its max_timestamp is the timestamp of every record for readers.

    Kafka appends such a batch as CreateTime. So does Barnabas, if this timestamp is within the bounds.
    """
    timestamp = header.max_timestamp
    low, high = now_ms - policy.timestamp_before_max_ms, now_ms + policy.timestamp_after_max_ms
    if policy.log_append_time or timestamp == -1:
        reason = "only a broker may say that a timestamp is the time of the append"
    elif not low <= timestamp <= high:
        reason = _out_of_bounds(timestamp, policy, now_ms)
    else:
        return
    reasons = dict.fromkeys(range(min(header.record_count, RECORD_ERRORS_MAX)), reason)
    for index, offset_delta, _, key_length in refused:
        reasons[index] = _record_reason(index, offset_delta, key_length, policy) or reason
    raise _refused(reasons, reason in reasons.values(), header.record_count)


def _recoded(
    header: BatchHeader, records: bytes, target: int, max_timestamp: int, policy: AppendPolicy
) -> ValidatedBatch:
    """Compresses the records with the topic's codec."""
    attributes = (header.attributes & TRANSACTIONAL_FLAG) | target
    return _rewritten(header, compress(target, records, policy.compression_level), attributes, max_timestamp, policy)


def _retimed(header: BatchHeader, batch: Buffer, max_timestamp: int, policy: AppendPolicy) -> ValidatedBatch:
    """Sets another maximum timestamp or timestamp type and keeps the records."""
    attributes = header.attributes & _FLAGS_KEPT
    return _rewritten(header, memoryview(batch)[HEADER_SIZE:], attributes, max_timestamp, policy)


def _rewritten(
    header: BatchHeader, records: Buffer, attributes: int, max_timestamp: int, policy: AppendPolicy
) -> ValidatedBatch:
    if policy.log_append_time:
        attributes |= LOG_APPEND_TIME_FLAG
    checked = CHECKED.pack(attributes, header[6], header[7], max_timestamp, *header[9:])
    crc = crc32c(records, crc32c(checked))
    length = HEADER_SIZE - BATCH_LENGTH_OVERHEAD + len(records)
    size = length + BATCH_LENGTH_OVERHEAD
    if size > policy.max_message_bytes:
        raise _too_large(size, policy)
    prefix = PREFIX.pack(header[0], length, header[2], header[3], crc)
    rewritten = header._replace(batch_length=length, crc=crc, attributes=attributes, max_timestamp=max_timestamp)
    payload = b"".join((prefix, checked, records))
    return ValidatedBatch(rewritten, payload, max_timestamp, header.last_offset_delta, header.record_count)


def validate_replicated(records: Buffer) -> list[tuple[BatchHeader, memoryview]]:
    """Checks header and checksum of each batch in a leader's Fetch response, not the records.

    A torn batch at the end is left out: a Fetch response may end in the middle of a batch. Raises CorruptMessage.
    """
    view = memoryview(records)
    position, end = 0, len(view)
    batches: list[tuple[BatchHeader, memoryview]] = []
    while end - position >= HEADER_SIZE:
        header = BatchHeader._make(_unpack_header(view, position))
        length = header[1]
        if header[3] != 2 or length < 49:
            raise CorruptMessage(f"batch at byte {position} has magic {header[3]} and length {length}")
        after = position + length + BATCH_LENGTH_OVERHEAD
        if after > end:
            break
        if crc32c(view[position + CHECKED_POSITION : after]) != header[4]:
            raise CorruptMessage(f"batch of offsets {header.base_offset} to {header.last_offset} fails its checksum")
        batches.append((header, view[position:after]))
        position = after
    return batches
