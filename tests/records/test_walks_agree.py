"""All loops over records agree on which sections are valid and on the records in them, compiled and as plain Python."""

import random
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from walks import Walks

from barnabas.records.builder import build_batch
from barnabas.records.compiled import consumer_records
from barnabas.records.record import Record

HEADER_SIZE = 61
BROKEN = "broken"
FIELDS = st.none() | st.binary(max_size=4) | st.binary(min_size=60, max_size=70) | st.just(b"v" * 8300)
DELTAS = st.integers(-3, 70) | st.integers(8180, 8200) | st.integers(-(2**62), 2**62)
HEADERS = st.lists(st.tuples(st.text(max_size=3), FIELDS), max_size=3).map(tuple)
RECORDS = st.lists(st.builds(Record, st.just(0), DELTAS, FIELDS, FIELDS, HEADERS), min_size=1, max_size=8)


class Outcomes(NamedTuple):
    """The result of each loop over one section, or BROKEN."""

    check: object
    refused: list[tuple[int, int, int, int]]
    read: object
    cursor: object
    columns: object
    mapped: object
    filtered: object


def outcome(walk: Callable[[], object]) -> object:
    try:
        return walk()
    except (ValueError, IndexError):
        return BROKEN


def outcomes(walks: Walks, head: bytes, data: bytes, count: int) -> Outcomes:
    """Runs all loops over the `count` records of `data`, whose batch has offsets from 0 and the base timestamp 0."""
    refused: list[tuple[int, int, int, int]] = []

    def cursor() -> object:
        origin = walks.consumer.RecordOrigin("t", 0, 0, 0)
        reading = walks.consumer.RecordCursor(origin, data, 0, len(data), count, 0, 0, -1, 0, count - 1)
        found: list[consumer_records.ConsumerRecord] = []
        while reading.left:
            reading.read(found, 3)
        return [(each.offset, each.timestamp, each.key, each.value, each.headers) for each in found]

    def columns() -> object:
        found = walks.columns.RecordColumns(True)
        found.add_batch(data, 0, len(data), count, 0, 0, -1, False, 0, count - 1)
        offsets, timestamps = found.offsets.getvalue(), found.timestamps.getvalue()
        starts, keys, values = found.headers.getvalue(), found.header_keys.of(data), found.header_values.of(data)
        bounds = [int.from_bytes(starts[at : at + 4], "little") for at in range(0, len(starts), 4)]
        pairs = [(key.decode("utf-8", "replace"), value) for key, value in zip(keys, values, strict=True)]
        return [
            (
                int.from_bytes(offsets[8 * at : 8 * at + 8], "little", signed=True),
                int.from_bytes(timestamps[8 * at : 8 * at + 8], "little", signed=True),
                key,
                value,
                tuple(pairs[bounds[at] : bounds[at + 1]]),
            )
            for at, (key, value) in enumerate(zip(found.keys.of(data), found.values.of(data), strict=True))
        ]

    def mapped() -> object:
        offsets = walks.offsets.OffsetMap(100, 90, 0)
        assert offsets.map_batch(head, 0, data, 0, len(data))
        return offsets

    def filtered() -> object:
        offsets = walks.offsets.OffsetMap(100, 90, 0)
        valid_head, valid = section([])
        assert offsets.map_batch(valid_head, 0, valid, 0, len(valid))
        outcome(lambda: offsets.map_batch(head, 0, data, 0, len(data)))
        kept = walks.batches.BatchFilter(
            offsets, base_offset=0, now_ms=0, delete_horizon_ms=0, kept_offsets=frozenset(), last_kept_offset=-1,
            index_interval_bytes=4096,
        )  # fmt: skip
        kept.stands(head, 0, data, 0, len(data))
        return int(kept._kept)

    return Outcomes(
        outcome(lambda: walks.walk.check_records(data, 0, count, -(2**63), 2**63 - 1, -1, False, refused, 100)),
        refused,
        outcome(lambda: walks.walk.read_records(data, 0, count, 0, 0, None)),
        outcome(cursor),
        outcome(columns),
        outcome(mapped),
        outcome(filtered),
    )


def section(records: list[Record]) -> tuple[bytes, bytes]:
    """Returns the header of a batch and its records, whose timestamps are deltas."""
    batch = build_batch([Record(0, 0, b"first", None), *records])
    return batch[:HEADER_SIZE], batch[HEADER_SIZE:]


@settings(max_examples=60, deadline=None)
@given(RECORDS)
def test_valid_sections(walks: Walks, records: list[Record]) -> None:
    head, data = section(records)
    count = len(records) + 1
    wanted = [Record(0, 0, b"first", None)] + [each._replace(offset=1 + at) for at, each in enumerate(records)]
    found = outcomes(walks, head, data, count)
    assert found.check == max(each.timestamp for each in wanted)
    assert not found.refused
    assert found.read == found.cursor == found.columns == wanted
    last_offsets = {each.key: each.offset for each in wanted if each.key is not None}
    assert isinstance(found.mapped, walks.offsets.OffsetMap)
    assert {key: found.mapped.get(key) for key in last_offsets} == last_offsets
    # tombstones are new to the filter and stay; of each key the last record, and none without a key
    assert found.filtered == len(last_offsets)


def damaged(data: bytes, seed: int) -> bytes:
    """Returns `data` with a few bytes changed, mostly by little: that hits lengths and counts best."""
    rng = random.Random(seed)
    changed = bytearray(data)
    for _ in range(rng.randint(1, 2)):
        position = rng.randrange(min(len(changed), 60))
        if rng.random() < 0.7:
            changed[position] = (changed[position] + rng.choice((-2, -1, 1, 2))) & 255
        else:
            changed[position : position + rng.choice((0, 1))] = rng.randbytes(rng.choice((0, 1, 6)))
    return bytes(changed)


@settings(max_examples=400, deadline=None)
@given(RECORDS, st.integers(0, 2**32), st.integers(-1, 1))
@example([Record(0, 70, b"k", b"v" * 70, (("h", b"x"),))], 1, 0)
def test_damaged_sections(walks: Walks, records: list[Record], seed: int, too_many: int) -> None:
    head, data = section(records)
    data = damaged(data, seed)
    count = len(records) + 1 + too_many
    head = head[:57] + count.to_bytes(4, "big")
    found = outcomes(walks, head, data, count)
    assert found.cursor == found.columns, "the consumer's loops disagree"
    whole = found.cursor
    if found.check != BROKEN:
        assert BROKEN not in (found.read, found.mapped, found.filtered)
        if not found.refused:
            assert found.read == found.cursor
    elif isinstance(whole, list):  # fields are not read if the offset makes a record superfluous
        assert len(whole) < count


@pytest.mark.parametrize(
    "change", ["cut off", "followed by a byte", "one too few", "one too many", "a long key", "a wrong length"]
)
def test_no_loop_reads_a_section_that_does_not_fit(walks: Walks, change: str) -> None:
    head, data = section([Record(0, 70, b"key", b"v"), Record(0, 71, b"k", b"v" * 70)])
    sections = [data]
    count = 3
    if change == "cut off":
        sections = [data[:size] for size in range(len(data))]
    elif change == "followed by a byte":
        sections = [data + b"\0", data + data]
    elif change == "a long key":
        at = data.rindex(b"\x06key")
        sections = [data[:at] + bytes([2 * size]) + data[at + 1 :] for size in range(7, 64)]
    elif change == "a wrong length":
        sections = [bytes([data[0] + wrong]) + data[1:] for wrong in (-2, -1, 1, 2)]
    else:
        count += 1 if change == "one too many" else -1
    for each in sections:
        found = outcomes(walks, head[:57] + count.to_bytes(4, "big"), each, count)
        assert {BROKEN} == {str(result) for result in found._replace(refused=BROKEN)}  # type: ignore[arg-type]


def test_the_loops_are_as_their_templates_say() -> None:
    tool = Path(__file__).parents[2] / "tools" / "generate_record_walks.py"
    made = runpy.run_path(str(tool))
    modules = {path.name for path in made["FOLDER"].glob("*.py") if "# begin record_start" in path.read_text()}
    assert modules == {"record_walk.py", "consumer_records.py", "record_columns.py", "batch_filter.py"}
    assert made["stale_modules"]() == [], "run `python tools/generate_record_walks.py --write`"
