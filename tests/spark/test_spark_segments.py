"""Log directories read without a broker: which files, and what is in them. No Spark."""

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import barnabas
from barnabas.errors import UsageError
from barnabas.records.batch import set_crc
from barnabas.testing import Broker
from barnabas.types import TopicPartition

pytest.importorskip("pyarrow")

from barnabas.spark.segments.file_ranges import FileRange, split
from barnabas.spark.segments.file_reader import read_range
from barnabas.spark.segments.segment_files import OFFSETS_END, SegmentFile, find_segments
from barnabas.spark.segments.transactions import read_transactions
from barnabas.spark.source.data_loss import DataLoss, OnLoss

SMALL = {"segment.bytes": "20000", "index.interval.bytes": "500"}


PAD = b"." * 60


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of a running broker's directory: `orders` with two partitions and several segments each, `mixed` with
    transactions, one of them open."""
    path = tmp_path_factory.mktemp("data")
    with Broker(data_dir=str(path / "live")) as broker:
        broker.create_topic("orders", 2, configs=SMALL)
        broker.create_topic("mixed", configs=SMALL)
        with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers, batch_size=1000) as producer:
            for number in range(2000):
                producer.send("orders", b"value-%d" % number + PAD, key=b"%d" % number, partition=number % 2)
        with barnabas.Producer(
            bootstrap_servers=broker.bootstrap_servers, transactional_id="t", batch_size=1000
        ) as producer:
            _write_transactions(producer)
            shutil.copytree(path / "live", path / "copy")
    return path / "copy"


def _write_transactions(producer: barnabas.Producer) -> None:
    """Committed and aborted ones in turn over several segments; the last one stays open."""
    producer.init_transactions()
    for number in range(30):
        producer.begin_transaction()
        for _ in range(20):
            producer.send("mixed", b"%d " % number + PAD)
        producer.flush()
        if number < 29:
            producer.abort_transaction() if number % 3 == 0 else producer.commit_transaction()


def whole_file(file: SegmentFile, **changes: Any) -> FileRange:
    return FileRange(file, file.base_offset, file.next_base_offset)._replace(**changes)


def offsets(ranges: list[FileRange], on_data_loss: str = "fail") -> list[int]:
    return [
        o
        for each in ranges
        for batch in read_range(each, OnLoss(on_data_loss), headers=False)
        for o in batch["offset"].to_pylist()
    ]


def files_of(data: Path, name: str) -> list[SegmentFile]:
    return find_segments(str(data / name))


# --- which files ------------------------------------------------------------------------------------------------------


def test_all_that_a_path_can_mean(data: Path) -> None:
    both = [TopicPartition("orders", 0), TopicPartition("orders", 1)]
    everything = find_segments(str(data))
    assert {file.partition for file in everything} == {*both, TopicPartition("mixed", 0)}
    orders = find_segments(str(data), lambda partition: partition.topic == "orders")
    assert {file.partition for file in orders} == set(both)
    assert find_segments(f"file://{data}/orders-*") == [file for file in everything if file.partition in both]
    assert find_segments(f"{data}/orders-0, {data}/orders-1") == find_segments(f"{data}/orders-[01]")
    one = files_of(data, "orders-0")
    assert len(one) > 2
    assert [file.is_newest for file in one] == [False] * (len(one) - 1) + [True]
    assert [file.next_base_offset for file in one[:-1]] == [file.base_offset for file in one[1:]]
    assert find_segments(one[1].path) == [one[1]]


def test_internal_topics_only_if_named(data: Path) -> None:
    assert not any(file.partition.topic.startswith("__") for file in find_segments(str(data)))
    assert find_segments(str(data), lambda partition: partition.topic == "__transaction_state")


def test_what_is_wrong_with_a_path_is_named(data: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="/nowhere does not exist here"):
        find_segments("/nowhere")
    with pytest.raises(UsageError, match="holds no logs"):
        find_segments(str(tmp_path))
    with pytest.raises(UsageError, match="no log of the topics"):
        find_segments(str(data), lambda partition: False)
    (tmp_path / "copy").symlink_to(data / "orders-0")
    with pytest.raises(UsageError, match="its name does not say of which partition"):
        find_segments(str(tmp_path / "copy"))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "orders-0").mkdir()
    (tmp_path / "other" / "orders-0" / os.path.basename(files_of(data, "orders-0")[0].path)).touch()
    with pytest.raises(UsageError, match=r"orders-0 is in .* would come twice"):
        find_segments(f"{data}, {tmp_path / 'other'}")


# --- what is in them --------------------------------------------------------------------------------------------------


def test_records_are_those_that_were_written(data: Path) -> None:
    for partition in (0, 1):
        ranges = [whole_file(file) for file in files_of(data, f"orders-{partition}")]
        found = [
            row for each in ranges for batch in read_range(each, "fail", headers=True) for row in batch.to_pylist()
        ]
        assert [row["offset"] for row in found] == list(range(1000))
        numbers = range(partition, 2000, 2)
        assert [(row["key"], row["value"]) for row in found] == [(b"%d" % n, b"value-%d" % n + PAD) for n in numbers]
        assert {(row["topic"], row["partition"], row["timestamp_type"]) for row in found} == {("orders", partition, 0)}


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.integers(0, 1000))
def test_any_range_of_offsets(data: Path, one: int, other: int) -> None:
    start, end = sorted((one, other))
    ranges = [
        whole_file(file, start=max(start, file.base_offset), end=min(end, file.next_base_offset))
        for file in files_of(data, "orders-1")
        if start < file.next_base_offset and end > file.base_offset
    ]
    assert offsets(ranges) == list(range(start, end))


def test_files_are_cut_by_bytes(tmp_path: Path) -> None:
    """Ten large records weigh as much as a thousand small ones."""
    with Broker(data_dir=str(tmp_path / "live")) as broker:
        broker.create_topic("skewed", 2, configs={"index.interval.bytes": "500"})
        for number in range(1000):
            broker.produce("skewed", b"." * 10, partition=0)
            if number < 10:
                broker.produce("skewed", b"." * 8_000, partition=0)
        broker.produce("skewed", b"small", partition=1)
        shutil.copytree(tmp_path / "live", tmp_path / "copy")
    files = files_of(tmp_path / "copy", "skewed-*")
    everything = [whole_file(file) for file in files]
    assert split(everything, 2) == everything
    ranges = split(everything, 5)
    assert [each.file.partition.partition for each in ranges] == [0, 0, 0, 0, 1]
    first = [each for each in ranges if each.file.partition.partition == 0]
    assert offsets(first) == list(range(1010))
    sizes = [sum(8_000 if o % 2 and o < 20 else 80 for o in range(p.start, min(p.end, 1010))) for p in first]
    assert max(sizes) < 2 * min(sizes), sizes
    assert len(split(everything, 10_000)) > 50, "as many as the index knows places"
    index = Path(files[0].path).with_suffix(".index")
    index.write_bytes(b"\xff" * 16)
    assert split(everything, 5) == everything, "without its index a file is one range"


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 400), st.integers(0, 400), st.integers(0, 900))
def test_ranges_of_files_are_the_whole(data: Path, least: int, start: int, size: int) -> None:
    files = files_of(data, "orders-0")
    wanted = [
        FileRange(file, max(start, file.base_offset), min(start + size, file.next_base_offset))
        for file in files
        if max(start, file.base_offset) < min(start + size, file.next_base_offset)
    ]
    ranges = split(wanted, least)
    assert all(each.start < each.end for each in ranges)
    assert offsets(ranges) == offsets(wanted)


def test_aborted_and_open_transactions(data: Path) -> None:
    files = files_of(data, "mixed-0")
    assert len(files) > 2
    everything = {o: n for n in range(30) for o in range(21 * n, 21 * n + 20)}  # a marker takes an offset too
    assert offsets([whole_file(file) for file in files]) == list(everything)
    transactions = read_transactions(files)
    assert transactions.last_stable_offset == 29 * 21
    assert len(transactions.aborted) == 10
    ranges = [
        whole_file(
            file,
            end=min(file.next_base_offset, transactions.last_stable_offset),
            aborted=transactions.aborted_between(file.base_offset, OFFSETS_END),
        )
        for file in files
    ]
    expected = [o for o, number in everything.items() if number % 3 and number < 29]
    assert offsets(ranges) == expected
    for path in (data / "mixed-0").glob("*.snapshot"):  # without them all headers are looked at
        path.rename(path.with_suffix(".aside"))
    try:
        assert read_transactions(files).last_stable_offset == 29 * 21
    finally:
        for path in (data / "mixed-0").glob("*.aside"):
            path.rename(path.with_suffix(".snapshot"))


def test_a_directory_of_kafkas() -> None:
    """See tests/log/test_kafka_files.py: 26 transactions have commit markers, eight abort markers, one is open."""
    files = find_segments(str(Path(__file__).parents[1] / "log" / "golden" / "txn-0"))
    transactions = read_transactions(files)
    assert (transactions.last_stable_offset, len(transactions.aborted)) == (365, 8)
    everything = offsets([whole_file(file) for file in files])
    markers = 26 + 8
    assert len(everything) == 366 - markers
    kept = offsets([whole_file(file, end=365, aborted=transactions.aborted) for file in files])
    dropped = {o for each in transactions.aborted for o in range(each.first_offset, each.last_offset)}
    assert kept == [o for o in everything if o < 365 and o not in dropped]


# --- damage -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def copied(data: Path, tmp_path: Path) -> Callable[[int, bytes], SegmentFile]:
    """A segment with other contents."""

    def make(which: int, content: bytes) -> SegmentFile:
        directory = tmp_path / "orders-0"
        directory.mkdir(exist_ok=True)
        for file in files_of(data, "orders-0"):
            target = directory / os.path.basename(file.path)
            target.write_bytes(Path(file.path).read_bytes())
        wanted = find_segments(str(directory))[which]
        Path(wanted.path).write_bytes(content)
        return find_segments(str(directory))[which]

    return make


def batches_of(content: bytes) -> list[tuple[int, int]]:
    found, at = [], 0
    while at < len(content):
        end = at + 12 + int.from_bytes(content[at + 8 : at + 12], "big")
        found.append((at, end))
        at = end
    return found


def content_of(data: Path, which: int) -> tuple[bytearray, list[tuple[int, int]], list[int]]:
    file = files_of(data, "orders-0")[which]
    content = bytearray(Path(file.path).read_bytes())
    return content, batches_of(bytes(content)), offsets([whole_file(file)])


def test_a_damaged_batch_is_named_or_left_out(data: Path, copied: Any, caplog: Any) -> None:
    content, batches, whole = content_of(data, 1)
    start, end = batches[3]
    content[end - 1] ^= 1
    file = copied(1, bytes(content))
    with pytest.raises(DataLoss) as caught:
        offsets([whole_file(file)])
    said = str(caught.value)
    assert f"{file.path}, byte {start}: " in said
    assert "fails its checksum" in said
    assert "seek" not in said
    assert "onDataLoss=warn" in said
    found = offsets([whole_file(file)], "warn")
    lost = set(whole) - set(found)
    assert lost
    assert lost == set(range(min(lost), max(lost) + 1))
    assert f"byte {start}" in caplog.text


def test_records_that_do_not_fill_their_batch(data: Path, copied: Any) -> None:
    """Its checksum is right: whoever wrote it meant it."""
    content, batches, whole = content_of(data, 1)
    start, end = batches[2]
    content[start + 61] = 127
    set_crc(memoryview(content)[start:end])
    file = copied(1, bytes(content))
    with pytest.raises(DataLoss, match=f"byte {start}: "):
        offsets([whole_file(file)])
    found = offsets([whole_file(file)], "skip")
    assert set(found) < set(whole)
    assert found[-1] == whole[-1]


def test_an_end_in_the_middle_of_a_batch(data: Path, copied: Any, caplog: Any) -> None:
    content, batches, whole = content_of(data, -1)
    cut = copied(-1, bytes(content[: batches[-1][1] - 5]))
    found = offsets([whole_file(cut)])
    assert 0 < len(found) < len(whole)
    assert f"byte {batches[-1][0]}: the batch there claims" in caplog.text
    older = copied(0, content_of(data, 0)[0][:-5])
    with pytest.raises(DataLoss, match="the batch there claims"):
        offsets([whole_file(older)])


def test_a_preallocated_file(data: Path, copied: Any, caplog: Any) -> None:
    content, _, whole = content_of(data, -1)
    assert offsets([whole_file(copied(-1, bytes(content) + bytes(100_000)))]) == whole
    assert not caplog.records
    with pytest.raises(DataLoss, match="impossible length 0"):
        offsets([whole_file(copied(-1, bytes(content) + bytes(1000) + b"x"))])


def test_offsets_that_go_back(data: Path, copied: Any) -> None:
    content, batches, whole = content_of(data, 1)
    start, end = batches[4]
    content[end:end] = content[start:end]
    file = copied(1, bytes(content))
    with pytest.raises(DataLoss, match=rf"byte {end}: the batch there has offset \d+, which cannot follow \d+"):
        offsets([whole_file(file)])
    assert offsets([whole_file(file)], "skip") == whole


def test_an_offset_of_another_file(data: Path, copied: Any) -> None:
    content, batches, whole = content_of(data, 1)
    start, _ = batches[-1]
    content[start + 5] ^= 1
    file = copied(1, bytes(content))
    with pytest.raises(DataLoss, match=rf"byte {start}: .* in a file that ends before {file.next_base_offset}"):
        offsets([whole_file(file)])
    assert set(offsets([whole_file(file)], "skip")) < set(whole)


def test_files_that_change_after_planning(data: Path, copied: Any) -> None:
    content, batches, _ = content_of(data, -1)
    file = copied(-1, bytes(content[: batches[-1][0]]))
    before = offsets([whole_file(file)])
    with open(file.path, "ab") as log:
        log.write(content[batches[-1][0] :])
    assert offsets([whole_file(file)]) == before  # up to the size that it had
    os.rename(file.path, file.path + ".deleted")
    with pytest.raises(DataLoss, match="is gone since the query was planned"):
        offsets([whole_file(file)])
    Path(file.path).write_bytes(bytes(content))
    with pytest.raises(DataLoss, match="is another file since the query was planned"):
        offsets([whole_file(file)])
    assert offsets([whole_file(file)], "warn") == []


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(st.integers(0, 2**32), st.integers(1, 6))
def test_damaged_bytes_are_refused_or_left_out(data: Path, copied: Any, seed: int, count: int) -> None:
    """What comes out is what was written, and nothing is missing without a word. Only offsets are not changed: they lie
    outside of the checksums, so that those that could be true are."""
    random_place = random.Random(seed)
    content, batches, whole = content_of(data, 1)
    for _ in range(count):
        place = random_place.randrange(len(content))
        if not any(start <= place < start + 8 for start, _ in batches):
            content[place] = random_place.randrange(256)
    file = copied(1, bytes(content))
    try:
        complete = offsets([whole_file(file)])
    except DataLoss:
        assert set(offsets([whole_file(file)], "skip")) <= set(whole)
    else:
        assert complete == whole
