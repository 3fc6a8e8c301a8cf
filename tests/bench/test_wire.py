"""The requests that the benchmarks send themselves."""

import socket
import struct

import pytest

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


def test_the_leader_of_the_quorum_is_read() -> None:
    ours, brokers = socket.socketpair()
    with ours, brokers:
        name = b"__cluster_metadata"
        partition = struct.pack(">ihi", 0, 0, 3) + b"\0" * 12
        body = struct.pack(">ibh", 1, 0, 0) + b"\2" + bytes([len(name) + 1]) + name + b"\2" + partition
        brokers.sendall(struct.pack(">i", len(body)) + body)
        assert wire.quorum_leader(ours) == 3
        refused = struct.pack(">ibhb", 1, 0, 35, 1)
        brokers.sendall(struct.pack(">i", len(refused)) + refused)
        with pytest.raises(ValueError):
            wire.quorum_leader(ours)
