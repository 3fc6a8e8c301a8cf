"""Records to send, in the form of the command protocol."""

from __future__ import annotations

import base64
import random
import time
from typing import Any

Json = dict[str, Any]

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def pack(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def unpack(text: str) -> bytes:
    return base64.b64decode(text)


def record(
    value: bytes | None,
    key: bytes | None = None,
    *,
    partition: int | None = 0,
    headers: list[tuple[str, bytes | None]] | None = None,
    timestamp: int | None = None,
) -> Json:
    made: Json = {"k": pack(key), "v": pack(value)}
    if partition is not None:
        made["p"] = partition
    if headers is not None:
        made["h"] = [[name, pack(content)] for name, content in headers]
    if timestamp is not None:
        made["t"] = timestamp
    return made


def numbered(count: int, *, partition: int | None = 0, prefix: str = "record") -> list[Json]:
    return [
        record(f"{prefix}-{index}".encode(), f"key-{index}".encode(), partition=partition) for index in range(count)
    ]


def awkward_records() -> list[Json]:
    """Every shape that clients and formats treat differently, with timestamps of the last hour."""
    noise = random.Random(4).randbytes(100_000)
    start = now_ms() - 3_600_000
    shapes: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]] = [
        (b"plain", b"key", None),
        (b"no key", None, None),
        (None, b"tombstone", None),
        (b"", b"", None),
        (bytes(range(256)), b"\x00\xff\n|", None),
        ("żółć, 郵便".encode(), "ключ".encode(), [("naïve", "é".encode())]),
        (b"headers", b"h", [("a", b"1"), ("b", b""), ("a", b"again"), ("raw", b"\xfe\xff")]),
        (b"null header", b"n", [("gone", None)]),
        (noise, b"does not compress", None),
        (b"x" * 200_000, b"compresses well", [("size", b"200000")]),
        *((f"filler {index}".encode(), str(index % 7).encode(), None) for index in range(90)),
    ]
    return [
        record(value, key, headers=headers, timestamp=start + 1000 * index)
        for index, (value, key, headers) in enumerate(shapes)
    ]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def essence(received: Json) -> Json:
    """What must come back unchanged of a received record (or of a sent one)."""
    return {"k": received["k"], "v": received["v"], "h": received.get("h", [])}


def essences(records: list[Json]) -> list[Json]:
    return [essence(each) for each in records]
