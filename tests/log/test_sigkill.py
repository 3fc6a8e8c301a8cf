"""A real process, really killed while it appends: what it acknowledged is there, once and in order."""

import os
import random
import signal
import struct

import pytest

from barnabas.config.log_config import LogConfig
from barnabas.log.log_manager import LogManager
from barnabas.records.batch import iter_batches
from barnabas.records.reader import read_records
from barnabas.records.record import Record
from barnabas.types import TopicPartition

TP = TopicPartition("flights", 0)
CONFIG = LogConfig(segment_bytes=200_000, index_interval_bytes=500)
ROUNDS = int(os.environ.get("BARNABAS_SIGKILL_ROUNDS", "10"))


def start(rig) -> LogManager:
    manager = LogManager([rig.root / "data"], rig.clock, boot_id="boot-1")
    manager.startup(lambda topic: CONFIG, node_id=1)
    return manager


def batch_of(rig, sequence: int):
    size = random.Random(sequence).choice((10, 100, 1000, 20_000))
    value = struct.pack(">q", sequence) + bytes(size)
    records = [Record(0, rig.clock.now_ms, None, value)]
    return rig.batch_of(records, producer_id=7, producer_epoch=0, base_sequence=sequence)


def produce_until_killed(rig, first: int, acknowledged: int) -> None:
    """In the child: append, acknowledge, append."""
    log = start(rig).create(TP, None, CONFIG)
    sequence = first
    while True:
        info = log.append_as_leader(batch_of(rig, sequence), 0)
        log.update_high_watermark(log.log_end_offset)
        os.write(acknowledged, struct.pack(">q", info.first_offset))
        sequence += 1


def run_child(rig, first: int, count: int) -> list[int]:
    """The offsets that a child acknowledged before it was killed, `count` of them or a few more."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(read_end)
            produce_until_killed(rig, first, write_end)
        finally:
            os._exit(1)
    os.close(write_end)
    data = b""
    while len(data) < 8 * count:
        more = os.read(read_end, 8 * count - len(data))
        assert more, "the child ended by itself"
        data += more
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while more := os.read(read_end, 1 << 16):
        data += more
    os.close(read_end)
    return [offset for (offset,) in struct.iter_unpack(">q", data[: len(data) // 8 * 8])]


def sequences_in(log) -> list[int]:
    found: list[int] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        piece = log.read(offset, 1 << 20, upper_bound=log.log_end_offset, min_one_message=True).file_slice
        for header, batch in iter_batches(piece.read()):
            found += [struct.unpack_from(">q", record.value)[0] for record in read_records(batch)]
            offset = header.next_offset
    return found


@pytest.mark.parametrize("seed", [1])
def test_acknowledged_records_survive(rig, seed: int) -> None:
    chance = random.Random(seed)
    following = 0
    for _ in range(ROUNDS):
        acknowledged = run_child(rig, following, chance.randrange(1, 120))
        assert acknowledged == list(range(following, following + len(acknowledged)))
        manager = start(rig)
        log = manager.get(TP)
        following += len(acknowledged)
        assert log.log_end_offset - following in (0, 1), "all that was acknowledged, and at most what was under way"
        log.update_high_watermark(log.log_end_offset)
        # the producer sends again what was not acknowledged, and the four before it
        for sequence in range(max(following - 4, 0), following + 1):
            info = log.append_as_leader(batch_of(rig, sequence), 0)
            assert info.first_offset == sequence
        following += 1
        assert sequences_in(log) == list(range(following))
        for other in manager.logs.values():
            other.release()
        manager.directories[0].unlock()
