"""The batches that a cleaning leaves of a log. Each test runs on the compiled kernels and on their source."""

import os
from dataclasses import replace
from pathlib import Path
from struct import pack

import pytest

from barnabas.log.cleaner.cleaner_protocol import CleanerConfig
from barnabas.records.batch import CRC_POSITION, crc_of, read_header
from barnabas.records.builder import build_batch
from barnabas.records.reader import read_records
from barnabas.records.record import Record
from log.cleaner.cleaner_rig import TP, CleanerRig, MakeRig

pytestmark = pytest.mark.usefixtures("kernels")

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


# -- records -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", CODECS)
def test_the_last_record_of_each_key_stays_where_it_was(rig: CleanerRig, compression: str) -> None:
    rig.put(("a", "1"), ("b", "1"), ("c", "1"), compression=compression)
    rig.put(("a", "2"), ("b", "2"), compression=compression)
    rig.put(("a", "3"), compression=compression)
    rig.roll()
    rig.put(("c", "active"), compression=compression)
    assert rig.clean() == 1
    assert rig.values() == [(2, "c", "1"), (4, "b", "2"), (5, "a", "3"), (6, "c", "active")]
    assert rig.log.cleaned_offset == 6


@pytest.mark.parametrize("compression", CODECS)
def test_a_batch_keeps_its_offsets_epoch_codec_and_producer(rig: CleanerRig, compression: str) -> None:
    rig.epoch = 5
    options = {"producer_id": 7, "producer_epoch": 3, "base_sequence": 40}
    rig.put(("a", "1"), ("b", "1"), ("a", "2"), ("c", "1"), compression=compression, **options)
    before = rig.headers()[0]
    rig.put(("c", "2"))
    rig.roll()
    rig.clean()
    header, batch = rig.batches()[0]
    same = ("base_offset", "last_offset_delta", "partition_leader_epoch", "compression_type", "base_timestamp")
    for field in (*same, "producer_id", "producer_epoch", "base_sequence", "last_sequence"):
        assert getattr(header, field) == getattr(before, field), field
    assert header.crc == crc_of(batch)
    assert [record.offset for record in read_records(batch)] == [1, 2]


def test_what_nothing_is_taken_from_is_copied_as_it_is(rig: CleanerRig) -> None:
    for number in range(20):
        rig.put((f"k{number}", "v"), ("same", str(number)) if number > 17 else (f"l{number}", "v"), compression="lz4")
    rig.roll()
    before = [batch for _, batch in rig.batches()]
    rig.clean()
    after = [batch for _, batch in rig.batches()]
    assert after[:18] == before[:18]
    assert after[18] != before[18]
    assert after[19] == before[19]


def test_a_segment_of_which_nothing_goes_is_not_written_again(rig: CleanerRig) -> None:
    rig.put(("a", "1"), ("b", "1"))
    rig.roll()
    path = Path(rig.log.segments[0].path(".log"))
    inode = path.stat().st_ino
    assert rig.clean() == 1
    assert path.stat().st_ino == inode
    assert [event["event"] for event in rig.worker.events] == ["mapped", "finished"]
    assert rig.log.cleaned_offset == 2


@pytest.mark.parametrize("io_bytes", [0, 4096, 1 << 20])
def test_the_first_change_may_come_late_in_a_segment(rig: CleanerRig, io_bytes: int) -> None:
    for number in range(200):
        rig.put((f"k{number}", "v" * 100))
    rig.put(("k190", "new"))
    rig.roll()
    rig.limits = CleanerConfig(io_buffer_size=io_bytes)
    rig.clean()
    assert rig.offsets() == [*range(190), *range(191, 201)]


def test_batches_larger_than_the_buffer(rig: CleanerRig) -> None:
    rig.put(("a", "x" * 100_000), ("b", "1"))
    rig.put(("a", "y" * 50_000), compression="zstd")
    rig.put(("c", "z" * 70_000))
    rig.roll()
    rig.limits = CleanerConfig(io_buffer_size=1)
    rig.clean()
    assert rig.offsets() == [1, 2, 3]


def test_long_keys_count_whole(rig: CleanerRig) -> None:
    long = "k" * 5000
    rig.put((long, "1"), (long + "x", "1"), ("k" * 256, "1"), ("k" * 257, "1"), ("", "1"))
    rig.put((long, "2"), ("k" * 256, "2"), ("", "2"))
    rig.roll()
    rig.clean()
    assert rig.offsets() == [1, 3, 5, 6, 7]


def test_records_without_a_key_go(rig: CleanerRig) -> None:
    """They came while the topic was not compacted."""
    rig.append(build_batch([Record(0, rig.clock.now_ms, None, b"1"), Record(0, rig.clock.now_ms, b"a", b"1")]))
    rig.roll()
    rig.append(build_batch([Record(0, rig.clock.now_ms, None, b"2")]))
    rig.clean()
    assert rig.offsets() == [1, 2]


def test_the_largest_timestamp_is_that_of_the_records_left(rig: CleanerRig) -> None:
    now = rig.clock.now_ms
    rig.append(build_batch([Record(0, now + 5, b"a", b"1"), Record(0, now, b"b", b"1")]))
    rig.put(("a", "2"))
    rig.roll()
    rig.clean()
    assert [(h.base_timestamp, h.max_timestamp) for h in rig.headers()] == [(now + 5, now), (now, now)]
    assert rig.log.segments[0].max_timestamp == now


def test_log_append_time_stays(rig: CleanerRig) -> None:
    now = rig.clock.now_ms
    rig.put(("a", "1"), ("b", None), log_append_time=now + 50)
    rig.put(("a", "2"))
    rig.roll()
    rig.clean()
    header, batch = rig.batches()[0]
    assert header.is_log_append_time
    assert header.max_timestamp == now + 50
    assert [record.timestamp for record in read_records(batch)] == [now + 50]


def test_record_headers_stay(rig: CleanerRig) -> None:
    fields = (("source", b"here"), ("empty", None))
    records = [Record(0, rig.clock.now_ms, key, value, fields) for key, value in ((b"a", b"1"), (b"b", None))]
    rig.append(build_batch(records, compression="gzip"))
    rig.put(("a", "2"))
    rig.roll()
    rig.clean()
    (record,) = read_records(rig.batches()[0][1])
    assert (record.key, record.headers) == (b"b", fields)


# -- tombstones --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", CODECS)
def test_a_tombstone_stays_for_its_time(make_rig: MakeRig, compression: str) -> None:
    rig = make_rig(delete_retention_ms=1000)
    rig.put(("a", "1"), ("b", "1"), compression=compression)
    rig.put(("a", None), ("c", "1"), compression=compression)
    rig.roll()
    now = rig.clock.now_ms
    stamps = [record.timestamp for record in rig.read()]
    rig.clean()
    assert rig.values() == [(1, "b", "1"), (2, "a", None), (3, "c", "1")]
    header = rig.headers()[1]
    assert header.has_delete_horizon
    assert header.base_timestamp == now + 1000
    assert [record.timestamp for record in rig.read()] == stamps[1:]
    rig.clock.now_ms = now + 999
    assert rig.clean() == 0
    rig.clock.now_ms = now + 1000
    assert rig.clean() == 1
    assert rig.values() == [(1, "b", "1"), (3, "c", "1")]
    assert [record.timestamp for record in rig.read()] == [stamps[1], stamps[3]]
    rig.clock.now_ms += 100_000
    assert rig.clean() == 0, "its horizon is still in the batch, and nothing is left to go"


def test_a_pass_for_old_tombstones_writes_the_segments_that_have_some(make_rig: MakeRig) -> None:
    rig = make_rig(segment_bytes=300)
    rig.put(("a", "x" * 150))
    rig.put(("b", None), ("c", "x" * 100))
    rig.put(("d", "x" * 150))
    rig.roll()
    rig.clean()
    rig.worker.events.clear()
    rig.clock.now_ms += 5000
    rig.clean()
    assert [e["segments"] for e in rig.worker.events if e["event"] == "cleaned"] == [[1]]
    assert rig.offsets() == [0, 2, 3]
    assert rig.log.cleaned_offset == 4


def test_a_tombstone_goes_with_its_successor(rig: CleanerRig) -> None:
    rig.put(("a", None))
    rig.put(("a", "1"))
    rig.roll()
    rig.clean()
    assert rig.values() == [(1, "a", "1")]


def test_a_tombstone_that_the_map_does_not_reach_gets_no_horizon(rig: CleanerRig) -> None:
    rig.put(("a", "1"), ("b", "1"), ("a", None))
    rig.roll()
    rig.limits = CleanerConfig(dedupe_buffer_size=48, io_buffer_load_factor=1.0)
    assert rig.cleaner.run()
    assert rig.log.cleaned_offset == 2
    assert not rig.headers()[0].has_delete_horizon
    rig.clean()
    assert rig.headers()[0].has_delete_horizon
    assert rig.values() == [(1, "b", "1"), (2, "a", None)]


# -- passes ------------------------------------------------------------------------------------------------------------


def test_a_small_map_takes_several_passes(rig: CleanerRig) -> None:
    for number in range(30):
        rig.put((f"k{number % 10}", str(number)))
        rig.roll()
    rig.limits = CleanerConfig(dedupe_buffer_size=24 * 4, io_buffer_load_factor=1.0)
    assert rig.clean() > 2
    assert rig.offsets() == list(range(20, 30))
    assert rig.log.cleaned_offset == 30


def test_neighbours_become_one_segment_up_to_its_size(make_rig: MakeRig) -> None:
    rig = make_rig(segment_bytes=1000)
    for number in range(12):
        rig.put((f"k{number}", "x" * 200))
        rig.roll()
    rig.clean()
    assert [segment.base_offset for segment in rig.log.segments] == [0, 3, 6, 9, 12]
    assert rig.offsets() == list(range(12))
    assert rig.cleaner.state(TP).bytes_after == rig.cleaner.state(TP).bytes_before


def test_the_new_indexes_are_those_that_appending_would_have_made(make_rig: MakeRig) -> None:
    rig = make_rig(index_interval_bytes=300, segment_bytes=100_000)
    for number in range(300):
        rig.clock.now_ms += 3 if number % 7 else -5
        rig.put((f"k{number % 80}", "x" * (number % 40)), (f"once{number}", "y"))
    rig.roll()
    rig.clean()
    segment = rig.log.segments[0]
    files = {suffix: Path(segment.path(suffix)).read_bytes() for suffix in (".index", ".timeindex")}
    assert len(files[".index"]) > 80
    rig.restart()
    for suffix in files:
        Path(segment.path(suffix)).unlink()
    rig.restart(crash=True)  # which builds them from the batches
    assert Path(segment.path(".index")).read_bytes() == files[".index"]
    built = Path(segment.path(".timeindex")).read_bytes()
    assert files[".timeindex"].startswith(built)
    assert len(files[".timeindex"]) - len(built) <= 12, "the entry of the segment's end"
    everything = rig.read()
    for wanted in range(rig.log.log_end_offset):
        assert rig.read(start=wanted) == [record for record in everything if record.offset >= wanted]
    for record in everything[::17]:
        found = rig.log.offset_for_timestamp(record.timestamp)
        assert found is not None
        assert found.offset <= record.offset


# -- producers ---------------------------------------------------------------------------------------------------------


def test_the_last_batch_of_a_producer_stays_though_it_is_empty(rig: CleanerRig) -> None:
    for sequence in range(3):
        rig.put(("a", str(sequence)), producer_id=7, producer_epoch=0, base_sequence=sequence)
    last = build_batch([Record(0, rig.clock.now_ms, b"a", b"2")], producer_id=7, producer_epoch=0, base_sequence=2)
    rig.put(("a", "other"))
    rig.roll()
    rig.clean()
    assert rig.offsets() == [3]
    kept = rig.headers()
    assert [(h.base_offset, h.record_count, h.producer_id, h.base_sequence) for h in kept] == [
        (2, 0, 7, 2),
        (3, 1, -1, -1),
    ]
    for _ in range(2):
        info = rig.append(last)
        assert (info.duplicate, info.first_offset) == (True, 2)
        rig.restart()
    rig.worker.events.clear()
    rig.put(("b", "1"))
    rig.roll()
    rig.clean()
    assert [h.base_offset for h in rig.headers()] == [2, 3, 4]


def test_the_empty_batch_of_a_producer_that_went_on_goes(rig: CleanerRig) -> None:
    rig.put(("a", "0"), producer_id=7, producer_epoch=0, base_sequence=0)
    rig.put(("a", "1"))
    rig.roll()
    rig.clean()
    assert [h.base_offset for h in rig.headers()] == [0, 1]
    rig.put(("b", "0"), producer_id=7, producer_epoch=0, base_sequence=1)
    rig.roll()
    rig.clean()
    assert [h.base_offset for h in rig.headers()] == [1, 2]


def test_the_end_of_the_cleaned_part_keeps_its_batch(rig: CleanerRig) -> None:
    """A follower that copies the log must be able to come to its end."""
    rig.put(("a", "1"))
    rig.append(build_batch([Record(0, rig.clock.now_ms, None, b"no key")]))
    rig.roll()
    rig.clean()
    assert [(h.base_offset, h.record_count) for h in rig.headers()] == [(0, 1), (1, 0)]
    rig.put(("b", "1"))
    rig.roll()
    rig.clean()
    assert [(h.base_offset, h.record_count) for h in rig.headers()] == [(0, 1), (2, 1)]


# -- what is not touched -----------------------------------------------------------------------------------------------


def damage(rig: CleanerRig, at: int, byte: int) -> None:
    with open(rig.log.segments[0].path(".log"), "r+b") as file:
        file.seek(at)
        file.write(bytes([byte]))


def mend_crc(rig: CleanerRig) -> None:
    """The first batch's checksum fits what is there now."""
    path = Path(rig.log.segments[0].path(".log"))
    data = bytearray(path.read_bytes())
    size = read_header(data).size_bytes
    data[CRC_POSITION : CRC_POSITION + 4] = pack(">I", crc_of(data[:size]))
    path.write_bytes(data)


@pytest.mark.parametrize("size", [1, 5000])
@pytest.mark.parametrize("in_transaction", [False, True])
def test_a_damaged_key_deletes_nothing_of_another(rig: CleanerRig, in_transaction: bool, size: int) -> None:
    rig.put(("kez", "live"))
    if in_transaction:
        rig.transaction(1, 0, ("key", "1" * size))
        rig.marker(1, commit=True)
    else:
        rig.put(("key", "1" * size))
    rig.roll()
    path = Path(rig.log.segments[0].path(".log"))
    damaged = path.read_bytes().replace(b"\x06key", b"\x06kez")
    path.write_bytes(damaged)
    rig.clean()
    assert "offset 1 fails its checksum" in rig.uncleanable()
    assert path.read_bytes() == damaged


def test_damage_is_not_made_to_look_whole(rig: CleanerRig) -> None:
    rig.put(("a", "1"), ("b", "value"))
    rig.put(("a", "2"))
    size = rig.log.active_segment.size
    rig.roll()
    first = read_header(Path(rig.log.segments[0].path(".log")).read_bytes()).size_bytes
    damage(rig, first - 3, ord("X"))  # in the value of b
    rig.clean()
    assert "offset 0 fails its checksum" in rig.uncleanable()
    assert rig.log.segments[0].size == size
    assert rig.clean() == 0
    assert not rig.files(".cleaned", ".swap")
    description = rig.cleaner.describe(rig.log)
    assert description["uncleanable"] == rig.uncleanable()
    assert description["dirty_bytes"] == size


@pytest.mark.parametrize(("at", "byte"), [(61, 0x7E), (61, 1), (65, 0x7E), (8, 0xFF), (60, 200)])
def test_broken_structure_is_named(rig: CleanerRig, at: int, byte: int) -> None:
    rig.put(("a", "1"))
    rig.put(("a", "2"))
    rig.roll()
    damage(rig, at, byte)
    if at > CRC_POSITION:
        mend_crc(rig)
    rig.clean()
    assert "checksum" not in rig.uncleanable()
    assert rig.uncleanable().startswith(f"{0:020d}.log: ")


def test_a_damaged_compressed_batch_is_named(rig: CleanerRig) -> None:
    rig.put(("a", "1" * 100), compression="gzip")
    rig.put(("a", "2"))
    rig.roll()
    damage(rig, 75, 0)
    mend_crc(rig)
    rig.clean()
    assert "gzip" in rig.uncleanable()


@pytest.mark.parametrize("is_clean", [False, True], ids=["while-it-is-mapped", "while-it-is-filtered"])
def test_a_record_that_is_larger_than_the_topic_allows_now_waits_for_the_limit(rig: CleanerRig, is_clean: bool) -> None:
    rig.put(("a", "1" * 1000), ("b", "2"), compression="gzip")
    rig.roll()
    if is_clean:
        rig.clean()
    rig.put(("b", "3"))
    rig.roll()
    before, allowed = rig.values(), rig.log.config
    rig.log.config = replace(allowed, max_decompressed_message_bytes=999)
    assert rig.clean() == 1
    state = rig.cleaner.state(TP)
    assert "record 0 has 10" in state.failure
    assert "max.decompressed.message.bytes is 999" in state.failure
    assert (rig.values(), state.uncleanable) == (before, "")
    rig.log.config, rig.clock.now_ms = allowed, state.retry_ms
    rig.clean()
    assert [value for _, _, value in rig.values()] == ["1" * 1000, "3"]


def test_older_formats_are_left_alone(rig: CleanerRig) -> None:
    rig.put(("a", "1"))
    rig.put(("a", "2"))
    rig.roll()
    damage(rig, 16, 1)
    rig.clean()
    assert "message format 1 at offset 0" in rig.uncleanable()


def test_a_batch_that_is_cut_off(rig: CleanerRig) -> None:
    rig.put(("a", "1"))
    rig.put(("a", "2"))
    rig.roll()
    segment = rig.log.segments[0]
    os.truncate(segment.path(".log"), segment.size - 5)
    rig.clean()
    assert "cut off" in rig.uncleanable()


def test_damage_in_what_is_clean_and_stays_as_it_is_does_not_matter(rig: CleanerRig) -> None:
    rig.put(("a", "1"))
    rig.put(("b", "1"), ("c", "1"))
    rig.roll()
    rig.clean()
    rig.put(("c", "2"))
    rig.roll()
    path = rig.log.segments[0].path(".log")
    data = bytearray(Path(path).read_bytes())
    data[CRC_POSITION : CRC_POSITION + 4] = pack(">I", 1)  # of the batch of a, which stays as it is
    Path(path).write_bytes(data)
    rig.clean()
    assert not rig.uncleanable()
    assert read_header(Path(rig.log.segments[0].path(".log")).read_bytes()).crc == 1
