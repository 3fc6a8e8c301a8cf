"""Exact ranges of offsets, against a broker of ours."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import barnabas
from barnabas.client.fetch import fetcher
from barnabas.client.partition_reader import PartitionReader
from barnabas.errors import InvalidTopic, LogTruncation, OffsetOutOfRange, OperationTimedOut
from barnabas.protocol.fetch import FetchResponse, read_fetch_response
from barnabas.protocol.primitives import Part
from barnabas.testing import Broker
from barnabas.types import TopicPartition
from stopwatch import Stopwatch

pytest.importorskip("pyarrow")

LONG_S = 60.0
"""What is over before that has not waited to the end."""
FILES_MAX = 20
IN_PIECES = "connection/broker/frame_buffer.py"
"""Takes part only if a response comes in pieces, which depends on the moment."""
"""Modules of the package that take part in reading a partition."""


def write(broker: Broker, topic: str, count: int) -> TopicPartition:
    broker.create_topic(topic)
    with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=2) as producer:
        for index in range(count):
            producer.send(topic, b"v%d" % index)
    return TopicPartition(topic, 0)


def write_batches(broker: Broker, topic: str, count: int) -> TopicPartition:
    """Writes one record in each batch."""
    broker.create_topic(topic)
    with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for index in range(count):
            producer.send(topic, b"v%d" % index)
            producer.flush()
    return TopicPartition(topic, 0)


def offsets(reader: PartitionReader, topic_partition: TopicPartition, start: int, end: int) -> list[int]:
    return [
        o for batch in reader.read(topic_partition, start, end, timeout=60) for o in batch.column("offset").to_pylist()
    ]


@pytest.fixture
def reader(broker: Broker):
    with PartitionReader({"bootstrap.servers": broker.bootstrap_servers, "max.partition.fetch.bytes": 300}) as reader:
        yield reader


def test_ranges_are_exact(broker: Broker, reader: PartitionReader, name: str) -> None:
    topic_partition = write(broker, name, 500)
    for start, end in ((0, 500), (17, 18), (100, 333), (499, 500), (250, 250), (0, 1)):
        assert offsets(reader, topic_partition, start, end) == list(range(start, end))


def test_one_answer_holds_several_batches(broker: Broker, name: str) -> None:
    broker.create_topic(name)
    with barnabas.Producer(bootstrap_servers=broker.bootstrap_servers, batch_size=100_000) as producer:
        producer.send_many(name, [b"v" * 1000] * 4000)
    with PartitionReader({"bootstrap.servers": broker.bootstrap_servers}) as reader:
        batches = reader.read(TopicPartition(name, 0), 0, 4000, timeout=60)
        first = [next(batches).column("offset") for _ in range(2)]
        assert first[0][0].as_py() == 0
        assert first[1][0].as_py() == len(first[0])
        rest = [offset for batch in batches for offset in batch.column("offset").to_pylist()]
        assert rest == list(range(len(first[0]) + len(first[1]), 4000))


def test_an_abandoned_range_leaves_nothing_behind(broker: Broker, reader: PartitionReader, name: str) -> None:
    topic_partition = write(broker, name, 500)
    first = next(reader.read(topic_partition, 100, 400, timeout=60))
    assert first.column("offset")[0].as_py() == 100
    assert offsets(reader, topic_partition, 90, 110) == list(range(90, 110))


def test_the_end_of_a_range_leaves_no_question_with_the_broker(broker: Broker, name: str, stopwatch: Stopwatch) -> None:
    topic_partition = write(broker, name, 10)
    settings = {"bootstrap.servers": broker.bootstrap_servers, "fetch.max.wait.ms": round(LONG_S * 1000)}
    began = stopwatch()
    with PartitionReader(settings) as reader:
        for _ in range(3):
            assert offsets(reader, topic_partition, 0, 10) == list(range(10))
    assert stopwatch() < began + LONG_S / 2


def test_ranges_of_other_topics(broker: Broker, reader: PartitionReader, name: str) -> None:
    for topic in (name, f"{name}-b", name):
        topic_partition = TopicPartition(topic, 0) if topic in broker.topics() else write(broker, topic, 5)
        assert offsets(reader, topic_partition, 1, 4) == [1, 2, 3]


def test_bounds(broker: Broker, reader: PartitionReader, name: str) -> None:
    topic_partition = write(broker, name, 20)
    broker.admin.delete_records({topic_partition: 4})
    assert reader.bounds(topic_partition) == (4, 20)


def test_an_impossible_topic_is_an_error(reader: PartitionReader) -> None:
    with pytest.raises(InvalidTopic):
        offsets(reader, TopicPartition("no/topic", 0), 0, 1)


def test_a_closed_reader_may_be_closed_again(broker: Broker) -> None:
    reader = PartitionReader({"bootstrap.servers": broker.bootstrap_servers})
    reader.close()
    reader.close()


def test_a_range_goes_on_after_its_leader_has_begun_a_new_epoch(name: str, tmp_path: Path) -> None:
    with Broker() as broker:
        topic_partition = write_batches(broker, name, 50)
        settings = {"bootstrap.servers": broker.bootstrap_servers, "max.partition.fetch.bytes": 300}
        with PartitionReader(settings) as reader:
            batches = reader.read(topic_partition, 0, 50, timeout=LONG_S)
            found = next(batches).column("offset").to_pylist()
            with broker.down():  # a broker without a log begins a new epoch
                (broker.data_dir / f"{name}-0").rename(tmp_path / "log")
            with broker.down():
                shutil.rmtree(broker.data_dir / f"{name}-0")
                (tmp_path / "log").rename(broker.data_dir / f"{name}-0")
            for batch in batches:
                found += batch.column("offset").to_pylist()
    assert found == list(range(50))


def test_a_log_that_was_cut_below_the_position_is_an_error(name: str) -> None:
    with Broker() as broker:
        topic_partition = write_batches(broker, name, 50)
        settings = {"bootstrap.servers": broker.bootstrap_servers, "max.partition.fetch.bytes": 300}
        with PartitionReader(settings) as reader:
            batches = reader.read(topic_partition, 0, 50, timeout=LONG_S)
            next(batches)
            with broker.down():
                shutil.rmtree(broker.data_dir / f"{name}-0")
            with pytest.raises(LogTruncation):
                list(batches)


def test_what_is_gone_is_out_of_range(broker: Broker, reader: PartitionReader, name: str) -> None:
    topic_partition = write(broker, name, 20)
    with barnabas.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.delete_records({topic_partition: 10})
    with pytest.raises(OffsetOutOfRange, match=f"{name}-0: offset 3"):
        offsets(reader, topic_partition, 3, 20)
    assert offsets(reader, topic_partition, 10, 20) == list(range(10, 20))


def test_an_end_that_does_not_come_times_out(broker: Broker, reader: PartitionReader, name: str) -> None:
    topic_partition = write(broker, name, 20)
    with pytest.raises(OperationTimedOut, match=f"{name}-0: nothing came from offset 20 on, wanted up to 21"):
        list(reader.read(topic_partition, 15, 21, timeout=3))


def test_aborted_records_at_the_end_are_no_reason_to_wait(broker: Broker, name: str) -> None:
    topic_partition = write(broker, name, 5)
    settings = {"bootstrap_servers": broker.bootstrap_servers, "transactional_id": name}
    with barnabas.Producer(**settings) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(name, b"never")
        producer.flush()
        producer.abort_transaction()
    settings = {"bootstrap.servers": broker.bootstrap_servers, "isolation.level": "read_committed"}
    with PartitionReader(settings) as reader:
        assert offsets(reader, topic_partition, 0, 7) == list(range(5))
        assert offsets(reader, topic_partition, 5, 7) == []


def test_a_log_whose_last_records_are_compacted_away_ends_there(
    broker: Broker, reader: PartitionReader, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker says that it has everything up to the end, and gives nothing."""
    topic_partition = write(broker, name, 20)

    def without_records(data: bytes, position: int, version: int) -> FetchResponse:
        response = read_fetch_response(data, position, version)
        for _, partitions in response.topics:
            for partition in partitions:
                partition.records = Part(data, 0, 0)
        return response

    monkeypatch.setattr(fetcher, "read_fetch_response", without_records)
    assert offsets(reader, topic_partition, 12, 20) == []


COUNT_FILES = """
import sys
from pathlib import Path

import barnabas
from barnabas.client.partition_reader import PartitionReader
from barnabas.types import TopicPartition

package = Path(barnabas.__file__).parent
seen = set()


def note(frame, event, argument):
    if event == "call" and frame.f_code.co_name != "<module>":
        seen.add(frame.f_code.co_filename)


topic_partition = TopicPartition(sys.argv[2], 0)
with PartitionReader({"bootstrap.servers": sys.argv[1]}) as reader:
    list(reader.read(topic_partition, 0, 100, timeout=60))
    reader._driver.wait_for(reader._driver.run(reader._client.refresh_metadata))  # so none comes meanwhile
    sys.setprofile(note)
    count = sum(batch.num_rows for batch in reader.read(topic_partition, 100, 3000, timeout=60))
    sys.setprofile(None)
assert count == 2900
names = {str(Path(name).relative_to(package)) for name in seen if name.startswith(str(package))}
print(*sorted(names), sep=chr(10))
"""


def test_few_files_take_part_in_reading_a_partition(broker: Broker, name: str, tmp_path: Path) -> None:
    """Those of the wire format aside, which any reader needs: `protocol`, `errors` and `types`. The package is copied
    without its compiled modules, whose calls cannot be seen."""
    write(broker, name, 3000)
    shutil.copytree(
        Path(barnabas.__file__).parent,
        tmp_path / "barnabas",
        ignore=lambda folder, names: [n for n in names if n.endswith(".so") and "records" not in folder],
    )
    done = subprocess.run(
        [sys.executable, "-c", COUNT_FILES, broker.bootstrap_servers, name],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    files = [file for file in done.stdout.split() if file.split("/")[0] not in ("protocol", "errors.py", "types.py")]
    files = [file for file in files if file != IN_PIECES]
    assert "client/partition_reader.py" in files
    assert not [file for file in files if file.startswith("client/consumer/")]
    assert len(files) <= FILES_MAX, files
