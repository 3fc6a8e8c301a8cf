"""Produce payloads, good and bad, each with the kind of topic it is sent to: for Apache Kafka and for us alike.

`ask_kafka.py` sends them to a real broker and writes what it answered to `verdicts.json`.
"""

import gzip
import struct
from typing import NamedTuple

from barnabas.records.batch import read_header, set_crc
from barnabas.records.builder import build_batch
from barnabas.records.compression import CODECS, compress
from barnabas.records.record import Record
from barnabas.records.validation import AppendPolicy

T0 = 1_700_000_000_000
"""The usual record timestamp: long past, so that no clock matters."""
FUTURE = 4_900_000_000_000

TOPICS: dict[str, dict[str, str]] = {
    "plain": {},
    "compacted": {"cleanup.policy": "compact"},
    "append_time": {"message.timestamp.type": "LogAppendTime"},
    "tight": {"message.timestamp.before.max.ms": "1000", "message.timestamp.after.max.ms": "1000"},
    "small": {"max.message.bytes": "1000"},
    "to_gzip": {"compression.type": "gzip"},
    "to_zstd": {"compression.type": "zstd"},
    "uncompressed": {"compression.type": "uncompressed"},
    "small_uncompressed": {"compression.type": "uncompressed", "max.message.bytes": "1000"},
}

NOW = 1_795_000_000_000
"""The time at which our own check takes place: between T0 and FUTURE, as the real broker's was."""

POLICIES: dict[str, AppendPolicy] = {
    "plain": AppendPolicy(),
    "compacted": AppendPolicy(compacted=True),
    "append_time": AppendPolicy(log_append_time=True),
    "tight": AppendPolicy(timestamp_before_max_ms=1000, timestamp_after_max_ms=1000),
    "small": AppendPolicy(max_message_bytes=1000),
    "to_gzip": AppendPolicy(compression_type="gzip"),
    "to_zstd": AppendPolicy(compression_type="zstd"),
    "uncompressed": AppendPolicy(compression_type="uncompressed"),
    "small_uncompressed": AppendPolicy(compression_type="uncompressed", max_message_bytes=1000),
}


class Poison(NamedTuple):
    name: str
    topic: str
    data: bytes
    version: int = 8


def records(count: int = 3, timestamp: int = T0, key: bytes | None = b"key") -> list[Record]:
    return [Record(0, timestamp + i, key, b"value-%d" % i, (("h", b"x"), ("n", None))) for i in range(count)]


def varint(number: int) -> bytes:
    raw = (number << 1) ^ (number >> 63)
    out = bytearray()
    while raw > 127:
        out.append(raw & 127 | 128)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def record_bytes(
    offset: int = 0,
    timestamp: int = 0,
    key: bytes | None = b"key",
    value: bytes | None = b"value",
    *,
    attributes: int = 0,
    length_off_by: int = 0,
    key_length: int | None = None,
    value_length: int | None = None,
    headers: bytes = b"\x00",
    tail: bytes = b"",
) -> bytes:
    body = bytes([attributes]) + varint(timestamp) + varint(offset)
    body += varint(key_length if key_length is not None else -1 if key is None else len(key)) + (key or b"")
    body += varint(value_length if value_length is not None else -1 if value is None else len(value)) + (value or b"")
    body += headers + tail
    return varint(len(body) + length_off_by) + body


FIELDS = {
    "base_offset": (0, ">q"),
    "batch_length": (8, ">i"),
    "magic": (16, ">b"),
    "crc": (17, ">I"),
    "attributes": (21, ">h"),
    "last_offset_delta": (23, ">i"),
    "base_timestamp": (27, ">q"),
    "max_timestamp": (35, ">q"),
    "producer_id": (43, ">q"),
    "producer_epoch": (51, ">h"),
    "base_sequence": (53, ">i"),
    "record_count": (57, ">i"),
}


def patched(batch: bytes, **fields: int) -> bytes:
    """`batch` with header fields set; the checksum is right again unless it is itself given."""
    changed = bytearray(batch)
    for name, number in fields.items():
        position, form = FIELDS[name]
        struct.pack_into(form, changed, position, number)
    if "crc" not in fields and len(changed) >= 61:
        set_crc(changed)
    return bytes(changed)


def sized_batch(size: int) -> bytes:
    """A batch of one record, `size` bytes as a whole."""
    batch = build_batch([Record(0, T0, None, b"x" * (size - 70))])
    assert len(batch) == size, len(batch)
    return batch


def raw_batch(section: bytes, count: int, codec: str = "none", **fields: int) -> bytes:
    """A batch around hand-made records."""
    template = build_batch([Record(0, T0, None, None)])[:61]
    payload = compress(CODECS.index(codec), section)
    given = {
        "batch_length": 49 + len(payload),
        "attributes": CODECS.index(codec),
        "last_offset_delta": count - 1,
        "record_count": count,
        **fields,
    }
    return patched(template + payload, **given)


def header_poisons() -> list[Poison]:
    good = build_batch(records())
    size = len(good)
    legacy = struct.pack(">qi", 0, 14 + 8) + b"\0" * 4 + b"\x00\x00" + b"\xff" * 4 + struct.pack(">i", 8) + b"12345678"
    producer = build_batch(records(), producer_id=4000, producer_epoch=0, base_sequence=0)
    return [
        Poison("good", "plain", good),
        Poison("good gzip", "plain", build_batch(records(), compression="gzip")),
        Poison("good snappy", "plain", build_batch(records(), compression="snappy")),
        Poison("good lz4", "plain", build_batch(records(), compression="lz4")),
        Poison("good zstd", "plain", build_batch(records(), compression="zstd")),
        Poison("zstd in version 6", "plain", build_batch(records(), compression="zstd"), 6),
        Poison("lz4 in version 6", "plain", build_batch(records(), compression="lz4"), 6),
        Poison("no bytes", "plain", b""),
        Poison("eleven bytes", "plain", good[:11]),
        Poison("sixteen bytes", "plain", good[:16]),
        Poison("seventeen bytes", "plain", good[:17]),
        Poison("sixty bytes", "plain", good[:60]),
        Poison("header only of a longer batch", "plain", good[:61]),
        Poison("last byte missing", "plain", good[:-1]),
        Poison("five bytes follow", "plain", good + b"12345"),
        Poison("zeros follow", "plain", good + b"\0" * 30),
        Poison("torn batch follows", "plain", good + good[:-1]),
        Poison("torn batch of magic 9 follows", "plain", good + patched(good, magic=9)[:-1]),
        Poison("second batch", "plain", good + good),
        Poison("message of magic 0", "plain", legacy),
        Poison("magic 1", "plain", patched(good, magic=1)),
        Poison("magic 3", "plain", patched(good, magic=3)),
        Poison("magic -1", "plain", patched(good, magic=-1)),
        Poison("length 13", "plain", patched(good, batch_length=13)),
        Poison("length 14", "plain", patched(good, batch_length=14)),
        Poison("length 48", "plain", patched(good, batch_length=48)),
        Poison("length 48, no more bytes", "plain", patched(good, batch_length=48)[:60]),
        Poison("length -1", "plain", patched(good, batch_length=-1)),
        Poison("length too short by one", "plain", patched(good, batch_length=size - 13)),
        Poison("length too long by one", "plain", patched(good, batch_length=size - 11)),
        Poison("length 2^31-1", "plain", patched(good, batch_length=2**31 - 1)),
        Poison("wrong checksum", "plain", patched(good, crc=1)),
        Poison("base offset 7", "plain", patched(good, base_offset=7)),
        Poison("base offset -1", "plain", patched(good, base_offset=-1)),
        Poison("base offset 7 and wrong checksum", "plain", patched(good, base_offset=7, crc=1)),
        Poison("no records", "plain", patched(good, record_count=0)),
        Poison("no records at all", "plain", raw_batch(b"", 0)),
        Poison("record count -1", "plain", patched(good, record_count=-1)),
        Poison("record count one more", "plain", patched(good, record_count=4)),
        Poison("record count one less", "plain", patched(good, record_count=2)),
        Poison("last offset delta one more", "plain", patched(good, last_offset_delta=3)),
        Poison("last offset delta one less", "plain", patched(good, last_offset_delta=1)),
        Poison("last offset delta -1", "plain", patched(good, last_offset_delta=-1)),
        Poison("last offset delta 2^31-1", "plain", patched(good, last_offset_delta=2**31 - 1, record_count=-(2**31))),
        Poison("count and delta one more", "plain", patched(good, record_count=4, last_offset_delta=3)),
        Poison("count and delta one less", "plain", patched(good, record_count=2, last_offset_delta=1)),
        Poison("control bit", "plain", build_batch(records(), control=True)),
        Poison("producer without sequence", "plain", patched(producer, base_sequence=-1)),
        Poison("producer with sequence -5", "plain", patched(producer, base_sequence=-5)),
        Poison("sequence without producer", "plain", build_batch(records(), base_sequence=5)),
        Poison("producer id -2", "plain", patched(producer, producer_id=-2)),
        *(Poison(f"compression type {n}", "plain", patched(good, attributes=n)) for n in (5, 6, 7)),
        Poison("delete horizon bit", "plain", patched(good, attributes=0x40)),
        Poison("unused attribute bits", "plain", patched(good, attributes=0x0180)),
        Poison("max timestamp too high", "plain", patched(good, max_timestamp=T0 + 1000)),
        Poison("max timestamp too low", "plain", patched(good, max_timestamp=T0 - 1000)),
        Poison("max timestamp -1", "plain", patched(good, max_timestamp=-1)),
        Poison("max timestamp and unused bits", "plain", patched(good, max_timestamp=-1, attributes=0x0180)),
        Poison(
            "max timestamp wrong in gzip", "plain", patched(build_batch(records(), compression="gzip"), max_timestamp=5)
        ),
        Poison("max timestamp with delete horizon", "plain", patched(good, max_timestamp=5, attributes=0x40)),
        Poison("size at the limit", "small", sized_batch(1000)),
        Poison("size over the limit", "small", sized_batch(1001)),
        Poison("size over the limit and wrong checksum", "small", patched(sized_batch(1001), crc=1)),
        Poison(
            "compressed within the limit", "small", build_batch([Record(0, T0, None, b"x" * 5000)], compression="gzip")
        ),
    ]


def record_poisons(codec: str) -> list[Poison]:
    def poison(name: str, section: bytes, count: int = 2, topic: str = "plain", **fields: int) -> Poison:
        return Poison(f"{name} ({codec})", topic, raw_batch(section, count, codec, **fields))

    first, second = record_bytes(0), record_bytes(1)
    two = first + second
    return [
        poison("two records", two),
        poison("byte after the records", two + b"\0"),
        poison("third record", two + record_bytes(2)),
        poison("second record missing", first),
        poison("second record cut", two[:-1]),
        poison("length one more", first + record_bytes(1, length_off_by=1)),
        poison("length one less", first + record_bytes(1, length_off_by=-1)),
        poison("length one less in the first", record_bytes(0, length_off_by=-1) + second),
        poison("length one more in the first", record_bytes(0, length_off_by=1) + second),
        poison("length 0", first + b"\0"),
        poison("length -1", first + varint(-1) + second[1:]),
        poison("length 2^31-1", first + varint(2**31 - 1) + second[1:]),
        poison("endless varint", first + b"\xff" * 12),
        poison("six byte length", first + b"\x90\x80\x80\x80\x80\x00" + second[1:]),
        poison("overlong length", first + bytes([second[0] | 128, 0]) + second[1:]),
        poison("byte inside the record", first + record_bytes(1, tail=b"\0")),
        poison("key too long", first + record_bytes(1, key_length=100)),
        poison("key 2^31-1", first + record_bytes(1, key_length=2**31 - 1)),
        poison("key -2", first + record_bytes(1, key=None, key_length=-2)),
        poison("value too long", first + record_bytes(1, value_length=100)),
        poison("value one too long", first + record_bytes(1, value_length=6)),
        poison("value -2", first + record_bytes(1, value=None, value_length=-2)),
        poison("null value", first + record_bytes(1, value=None)),
        poison("header count -1", first + record_bytes(1, headers=varint(-1))),
        poison("header count 1 without header", first + record_bytes(1, headers=varint(1))),
        poison("header count 2^31-1", first + record_bytes(1, headers=varint(2**31 - 1))),
        poison("header key null", first + record_bytes(1, headers=varint(1) + varint(-1) + varint(0))),
        poison("header key too long", first + record_bytes(1, headers=varint(1) + varint(90) + b"k" + varint(0))),
        poison("header key not UTF-8", first + record_bytes(1, headers=varint(1) + varint(1) + b"\xff" + varint(0))),
        poison("header value too long", first + record_bytes(1, headers=varint(1) + varint(1) + b"k" + varint(90))),
        poison("header value -2", first + record_bytes(1, headers=varint(1) + varint(1) + b"k" + varint(-2))),
        poison("header value null", first + record_bytes(1, headers=varint(1) + varint(1) + b"k" + varint(-1))),
        poison("record attributes 1", first + record_bytes(1, attributes=1)),
        poison("record attributes 255", first + record_bytes(1, attributes=255)),
        poison("offset delta repeated", first + record_bytes(0)),
        poison("offset delta skipped", first + record_bytes(2)),
        poison("offset delta -1", first + record_bytes(-1)),
        poison("offset deltas from 1", second + record_bytes(2)),
        poison("offset deltas swapped", second + first),
        poison("delta of ten bytes", first + record_bytes(1, 2**62), topic="tight"),
        poison("timestamp 2^63 overflows", first + record_bytes(1, 2**63 - 1)),
        poison("no timestamps", two, base_timestamp=-1, max_timestamp=-1),
        poison("one without timestamp", first + record_bytes(1, -1 - T0), topic="tight", base_timestamp=T0),
        poison("timestamps below -1", two, base_timestamp=-5, max_timestamp=-5),
        poison("timestamp in the future", first + record_bytes(1, FUTURE - T0)),
        poison("all in the future", two, base_timestamp=FUTURE, max_timestamp=FUTURE),
        poison("too old", two, topic="tight"),
        poison("null key, compacted", first + record_bytes(1, key=None), topic="compacted"),
        poison("all null keys, compacted", record_bytes(0, key=None) + record_bytes(1, key=None), topic="compacted"),
        poison("empty key, compacted", first + record_bytes(1, key=b""), topic="compacted"),
        poison("null key in the future, compacted", record_bytes(0, FUTURE - T0, None) + second, topic="compacted"),
        poison(
            "null key, then the future, compacted",
            record_bytes(0, 0, None) + record_bytes(1, FUTURE - T0),
            topic="compacted",
        ),
        poison("append time bit", two, attributes=CODECS.index(codec) | 8, max_timestamp=T0),
        poison("append time bit without timestamp", two, attributes=CODECS.index(codec) | 8, max_timestamp=-1),
        poison("append time bit, in the future", two, attributes=CODECS.index(codec) | 8, max_timestamp=FUTURE),
        poison("append time topic", two, topic="append_time"),
        poison("append time topic, future", two, topic="append_time", base_timestamp=FUTURE, max_timestamp=FUTURE),
        poison("append time topic and bit", two, topic="append_time", attributes=CODECS.index(codec) | 8),
        poison("append time topic and null value", first + record_bytes(1, value=None), topic="append_time"),
        *(poison(f"topic recodes {topic}", two, topic=topic) for topic in ("to_gzip", "to_zstd", "uncompressed")),
        poison("recoding meets a repeated delta", first + record_bytes(0), topic="to_gzip"),
        poison("recoding finds the future", two, topic="to_zstd", base_timestamp=FUTURE, max_timestamp=FUTURE),
        poison("recoded past the limit", record_bytes(0, value=b"x" * 930) + second, topic="small_uncompressed"),
        poison("recoded within the limit", two, topic="small_uncompressed"),
    ]


def codec_poisons() -> list[Poison]:
    section = record_bytes(0) + record_bytes(1)

    def poison(name: str, codec: str, payload: bytes, count: int = 2) -> Poison:
        template = build_batch([Record(0, T0, None, None)])[:61]
        fields = {
            "batch_length": 49 + len(payload),
            "attributes": CODECS.index(codec),
            "last_offset_delta": count - 1,
            "record_count": count,
        }
        return Poison(f"{name} [{codec}]", "plain", patched(template + payload, **fields))

    found = []
    for number, codec in enumerate(CODECS[1:], 1):
        packed = compress(number, section)
        found += [
            poison("no payload", codec, b""),
            poison("rubbish", codec, b"rubbish, not compressed at all"),
            poison("uncompressed records", codec, section),
            poison("cut in half", codec, packed[: len(packed) // 2]),
            poison("last byte missing", codec, packed[:-1]),
            poison("rubbish follows", codec, packed + b"rubbish, and not a header"),
            poison("zero follows", codec, packed + b"\0"),
            poison("the same again follows", codec, packed + packed),
            poison("records over two frames", codec, compress(number, section[:9]) + compress(number, section[9:])),
            poison("nothing inside", codec, compress(number, b"")),
        ]
    from cramjam import snappy
    from lz4 import frame

    long = record_bytes(0, value=bytes(range(256)) * 600)
    found += [
        poison("raw block", "snappy", bytes(snappy.compress_raw(section))),
        poison("wrong checksum", "gzip", gzip.compress(section)[:-5] + b"\0" + gzip.compress(section)[-4:]),
        poison("linked blocks", "lz4", frame.compress(long, block_linked=True, block_size=4), 1),
        poison("independent blocks", "lz4", frame.compress(long, block_linked=False, block_size=4), 1),
        poison("content size", "lz4", frame.compress(section, block_linked=False, store_size=True)),
        poison("content checksum", "lz4", frame.compress(section, block_linked=False, content_checksum=True)),
        poison("block checksum", "lz4", frame.compress(section, block_linked=False, block_checksum=True)),
        poison("level 12", "lz4", frame.compress(section, block_linked=False, compression_level=12)),
    ]
    return found


def all_poisons() -> list[Poison]:
    found = header_poisons() + codec_poisons()
    for codec in CODECS:
        found += record_poisons(codec)
    assert len({p.name for p in found}) == len(found)
    assert read_header(found[0].data).record_count == 3
    return found
