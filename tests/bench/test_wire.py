"""The requests that the benchmarks send themselves."""

import struct

from bench import wire


def test_the_next_fetch_starts_after_the_last_whole_batch() -> None:
    def batch(base_offset: int, records: int) -> bytes:
        body = bytearray(struct.pack(">qi", base_offset, 61 - 12) + bytes(49))
        struct.pack_into(">i", body, wire.LAST_OFFSET_DELTA_AT, records - 1)
        return bytes(body)

    records = batch(10, 5) + batch(15, 3) + batch(18, 4)[:40]
    body = struct.pack(">ii", 0, 1) + wire.string("topic") + struct.pack(">i", 1)
    body += struct.pack(">ihqqi", 2, 0, 22, 22, 0) + wire.data_bytes(records)
    assert wire.fetched_ranges(memoryview(body)) == {2: (18, len(records))}
