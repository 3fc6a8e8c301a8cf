"""Replicas are compared by their batches, wherever their segments begin."""

import struct
from itertools import pairwise
from pathlib import Path

import pytest

from cluster.replicas import batches, difference, log_bytes


def batch(base_offset: int, count: int, epoch: int = 0, payload: bytes = b"payload") -> bytes:
    body = struct.pack(">ibIhi", epoch, 2, 0, 0, count - 1).ljust(49, b"\0") + payload
    return struct.pack(">qi", base_offset, len(body)) + body


def test_segments_that_begin_at_different_places_are_no_difference(tmp_path: Path) -> None:
    written = [batch(0, 3), batch(3, 1), batch(4, 2)]
    for broker, cuts in ((1, [0, 3]), (2, [0, 1, 2, 3])):
        (tmp_path / str(broker)).mkdir()
        for begin, end in pairwise(cuts):
            (tmp_path / str(broker) / f"{begin:020}.log").write_bytes(b"".join(written[begin:end]))
    logs = {broker: log_bytes(tmp_path / str(broker)) for broker in (1, 2)}
    assert difference(logs) is None
    assert [(each.base_offset, each.last_offset) for each in batches(logs[2])] == [(0, 2), (3, 3), (4, 5)]


def test_the_first_batch_that_differs_is_told() -> None:
    whole = batch(0, 3) + batch(3, 1, epoch=1)
    told = difference({1: whole, 2: whole, 3: batch(0, 3) + batch(3, 1, epoch=2)})
    assert told == "brokers 1 and 3: other batches: offsets 3 to 3 in epoch 1 / offsets 3 to 3 in epoch 2"
    told = difference({1: whole, 2: batch(0, 3) + batch(3, 1, epoch=1, payload=b"another")})
    assert told == "brokers 1 and 2: other bytes: offsets 3 to 3 in epoch 1 / offsets 3 to 3 in epoch 1"
    assert difference({1: whole, 2: batch(0, 3)}) == (
        "brokers 1 and 2: other batches: offsets 3 to 3 in epoch 1 / the end"
    )


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (batch(0, 3) + batch(4, 1), "offset 4 follows offset 2"),
        (batch(0, 3) + batch(3, 1)[:30], "30 bytes at the end are no batch"),
        (batch(0, 3)[:-1], "has the length 56"),
    ],
)
def test_what_is_no_log_is_refused(data: bytes, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        batches(data)
