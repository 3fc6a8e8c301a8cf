"""The loads: each runs against one broker once and returns its figures by name (with units in the names)."""

from __future__ import annotations

import os
import re
import signal
import socket
import statistics
import struct
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # documented place

from bench import peers, wire
from bench.brokers import HOST, BrokerFailed, BrokerProcess

Figures = dict[str, float]
PARTITIONS = 4
LOAD_TIMEOUT_S = 600
WRITE_FLOOR_BYTES_MAX = 1 << 30
LOAD_ERRORS = (KafkaException, subprocess.SubprocessError)
RESULT = re.compile(r"in (\d+)ms: (\d+) msgs/s")


class Measured(Protocol):
    """One broker, or all those of a cluster."""

    bytes_moved: int
    directory: Path

    @property
    def address(self) -> str: ...
    def cpu_s(self) -> float: ...
    def memory_mb(self) -> float: ...


def create_topic(broker: BrokerProcess, topic: str, partitions: int = PARTITIONS) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
    for future in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        future.result(60)
    wait_for_leaders(admin, topic, partitions)


def wait_for_leaders(admin: AdminClient, topic: str, partitions: int) -> None:
    """Returns once every partition has a leader (a topic is created before it can be written to)."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        described = admin.list_topics(topic, timeout=10).topics[topic].partitions
        if len(described) == partitions and all(entry.leader >= 0 for entry in described.values()):
            return
        time.sleep(0.05)
    raise BrokerFailed(f"topic {topic} has no leaders after 60 s")


def end_offsets(broker: BrokerProcess, topic: str) -> dict[int, int]:
    """The high watermark of each partition."""
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "end-offsets", "log_level": 0})
    try:
        partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        return {
            number: consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=30)[1]
            for number in partitions
        }
    finally:
        consumer.close()


def performance_command(broker: Measured, *arguments: str) -> list[str]:
    return [str(peers.rdkafka_performance()), "-b", broker.address, "-q", *arguments]


def producer_arguments(topic: str, size: int, count: int, acks: int, codec: str) -> list[str]:
    arguments = ["-P", "-t", topic, "-s", str(size), "-c", str(count), "-a", str(acks), "-z", codec]
    return [
        *arguments,
        "-X",
        "linger.ms=5",
        "-X",
        "queue.buffering.max.messages=500000",
        "-X",
        "queue.buffering.max.kbytes=1000000",
    ]


def records_per_s(command: Sequence[str]) -> float:
    """Runs rdkafka_performance to its end and returns the rate that it reports."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=LOAD_TIMEOUT_S, check=False)
    found = RESULT.findall(done.stdout + done.stderr)
    if not found:
        raise BrokerFailed(f"rdkafka_performance reported nothing: {(done.stdout + done.stderr)[-400:]}")
    return float(found[-1][1])


def produce(broker: Measured, topic: str, size: int, count: int, acks: int, codec: str) -> Figures:
    cpu_before = broker.cpu_s()
    rate = records_per_s(performance_command(broker, *producer_arguments(topic, size, count, acks, codec)))
    figures = _throughput(broker, rate, size, count, cpu_before)
    if codec == "none":
        figures["write_floor_cpu_s_per_GB"] = write_floor(broker.directory, min(size * count, WRITE_FLOOR_BYTES_MAX))
    return figures


def write_floor(directory: Path, total_bytes: int) -> float:
    """Returns the CPU seconds per GB of a bare loop that writes as many new bytes into the page cache now.

    No broker needs less. On a virtual machine it varies tenfold: memory that the guest has used before costs a quarter
    of a second per GB, memory that the host must give it first costs three.
    """
    chunk = os.urandom(1 << 20)
    with tempfile.TemporaryFile(dir=directory) as file:
        began = time.process_time()
        for _ in range(total_bytes // len(chunk)):
            file.write(chunk)
        file.flush()
        return (time.process_time() - began) / (total_bytes // len(chunk) * len(chunk) / 1e9)


def consume(broker: Measured, topic: str, size: int, count: int, partitions: int = PARTITIONS) -> Figures:
    cpu_before = broker.cpu_s()
    arguments = ["-C", "-t", topic, "-o", "beginning", "-c", str(count), "-X", "queued.min.messages=1000000"]
    arguments += ["-X", "fetch.message.max.bytes=1048576", "-B", "10000"]
    for partition in range(partitions):
        arguments += ["-p", str(partition)]
    return _throughput(broker, records_per_s(performance_command(broker, *arguments)), size, count, cpu_before)


def _throughput(broker: Measured, rate: float, size: int, count: int, cpu_before: float) -> Figures:
    broker.bytes_moved += size * count
    gigabytes = size * count / 1e9
    return {
        "records_per_s": rate,
        "MB_per_s": rate * size / 1e6,
        "cpu_s_per_GB": (broker.cpu_s() - cpu_before) / gigabytes,
    }


def produce_latency(broker: Measured, topic: str, rate: int, seconds: int, size: int = 100) -> Figures:
    """acks=all at a fixed rate into one partition; the first quarter is warm-up."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "latencies")
        cpu_before = broker.cpu_s()
        arguments = ["-P", "-l", "-r", str(rate), "-t", topic, "-p", "0", "-s", str(size), "-c", str(rate * seconds)]
        records_per_s(performance_command(broker, *arguments, "-a", "-1", "-X", "linger.ms=0", "-A", str(file)))
        cpu_s = broker.cpu_s() - cpu_before
        microseconds = [int(line) for line in file.read_text().split("\n") if line.strip().isdigit()]
    milliseconds = sorted(value / 1000 for value in microseconds[len(microseconds) // 4 :])
    return {**percentiles(milliseconds), "cpu_percent": 100 * cpu_s / seconds}


def end_to_end(broker: BrokerProcess, topic: str, count: int) -> Figures:
    """One record at a time: produced with acks=all, then awaited from a consumer in the same process."""
    producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 0, "acks": "all", "log_level": 0})
    consumer = Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": "end-to-end",
            "fetch.wait.max.ms": 500,
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    producer.produce(topic, b"x", partition=0)
    producer.flush(30)
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
    consumer.assign([TopicPartition(topic, 0, end)])
    consumer.poll(1)
    milliseconds = []
    for number in range(count):
        began = time.perf_counter()
        producer.produce(topic, b"%d" % number, partition=0)
        producer.poll(0)
        while (message := consumer.poll(5)) is None or message.error():
            if time.perf_counter() - began > 30:
                raise BrokerFailed("a record did not reach its consumer in 30 s")
        milliseconds.append((time.perf_counter() - began) * 1000)
    consumer.close()
    return percentiles(sorted(milliseconds[count // 10 :]))


def kill_under_load_and_restart(broker: BrokerProcess, topic: str) -> Figures:
    """SIGKILL while a producer is writing at full speed; seconds from the restart to the first acknowledged record."""
    command = performance_command(broker, *producer_arguments(topic, 1024, 100_000_000, -1, "none"))
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as load:
        try:
            time.sleep(2)
            broker.stop(signal.SIGKILL)
        finally:
            load.kill()
    broker.start()
    return {"first_ack_s": broker.first_ack_s()}


def many_topics(broker: BrokerProcess, count: int, partitions: int = 1, prefix: str = "many") -> Figures:
    admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
    began = time.perf_counter()
    for start in range(0, count, 100):
        topics = [NewTopic(f"{prefix}-{number}", partitions, 1) for number in range(start, min(start + 100, count))]
        for future in admin.create_topics(topics).values():
            future.result(120)
    create_s = time.perf_counter() - began
    return {"create_s": create_s, "metadata_ms": metadata_ms(broker), "memory_MB": broker.memory_mb()}


def metadata_ms(broker: BrokerProcess, repeats: int = 15) -> float:
    """Median time of a full metadata request."""
    admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        admin.list_topics(timeout=60)
        times.append((time.perf_counter() - began) * 1000)
    return statistics.median(times)


def many_connections(broker: BrokerProcess, count: int) -> Figures:
    """Opens connections one after another and sends ApiVersions (version 0) on each; all stay open."""
    memory_before = broker.memory_mb()
    request = wire.frame(wire.API_VERSIONS, 0, 1, b"")
    connections: list[socket.socket] = []
    try:
        began = time.perf_counter()
        for _ in range(count):
            connection = socket.create_connection((HOST, broker.port), 10)
            connections.append(connection)
            wire.call(connection, request)
        elapsed_s = time.perf_counter() - began
        grown_mb = broker.memory_mb() - memory_before
    finally:
        for connection in connections:
            connection.close()
    return {"connect_ms": elapsed_s / count * 1000, "memory_kB_each": grown_mb * 1024 / count}


def raw_fetch(broker: BrokerProcess, topic: str, seconds: float, partition_max_bytes: int) -> Figures:
    """MB/s of a reader that only sends Fetch and throws the answers away, beside a bare sendfile loop over its file.

    One connection; each request asks for all partitions of the topic. A first pass finds the offsets of the requests,
    and the timed passes repeat these requests.
    """
    requests = _fetch_plan(broker, topic, partition_max_bytes)
    total = 0
    with socket.create_connection((HOST, broker.port), 30) as connection:
        cpu_before, began = broker.cpu_s(), time.perf_counter()
        while time.perf_counter() - began < seconds:
            for request in requests:
                connection.sendall(request)
                total += _discard_response(connection)
        elapsed_s, cpu_s = time.perf_counter() - began, broker.cpu_s() - cpu_before
    figures = {"MB_per_s": total / elapsed_s / 1e6, "cpu_s_per_GB": cpu_s / (total / 1e9)}
    files = broker.log_files(topic)
    if files:
        chunk = PARTITIONS * partition_max_bytes
        figures["sendfile_MB_per_s"] = sendfile_rate(files[0], seconds, chunk) / 1e6
        figures["of_sendfile"] = figures["MB_per_s"] / figures["sendfile_MB_per_s"]
    return figures


def _fetch_plan(broker: BrokerProcess, topic: str, partition_max_bytes: int) -> list[bytes]:
    """Fetch requests that together read the topic once, only those that every partition answers in full."""
    offsets = dict.fromkeys(range(PARTITIONS), 0)
    plan = []
    with socket.create_connection((HOST, broker.port), 30) as connection:
        while True:
            body = wire.fetch_body(topic, offsets, partition_max_bytes)
            request = wire.frame(wire.FETCH, wire.FETCH_VERSION, 1, body)
            ranges = wire.fetched_ranges(wire.call(connection, request))
            if any(next_offset < 0 for next_offset, _ in ranges.values()):
                break
            plan.append(request)
            offsets = {partition: next_offset for partition, (next_offset, _) in ranges.items()}
    if not plan:
        raise BrokerFailed(f"topic {topic} has no records to fetch")
    return plan


_discarded = memoryview(bytearray(1 << 20))


def _discard_response(connection: socket.socket) -> int:
    size = bytearray(4)
    wire.receive_exactly(connection, memoryview(size))
    (total,) = struct.unpack(">i", size)
    left = total
    while left:
        count = connection.recv_into(_discarded, min(left, len(_discarded)))
        if not count:
            raise ConnectionError("the broker closed the connection")
        left -= count
    return int(total)


def sendfile_rate(path: Path, seconds: float, chunk: int) -> float:
    """Returns the bytes/s over loopback: for each byte received, a child process sends ``chunk`` bytes of the file by
    sendfile."""
    size = path.stat().st_size
    chunk = min(chunk, size)
    with socket.create_server((HOST, 0)) as server:
        child = os.fork()
        if child == 0:
            _serve_by_sendfile(server, path, chunk)
        try:
            with socket.create_connection(server.getsockname()[:2]) as connection:
                total, began = 0, time.perf_counter()
                while time.perf_counter() - began < seconds:
                    connection.sendall(b"?")
                    left = chunk
                    while left:
                        left -= connection.recv_into(_discarded, min(left, len(_discarded)))
                    total += chunk
                elapsed_s = time.perf_counter() - began
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    return total / elapsed_s


def _serve_by_sendfile(server: socket.socket, path: Path, chunk: int) -> None:
    """Runs in the forked child and never returns."""
    try:
        connection, _ = server.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        position, size = 0, path.stat().st_size
        with path.open("rb") as file:
            while connection.recv(1):
                position = 0 if position + chunk > size else position
                left = chunk
                while left:
                    sent = os.sendfile(connection.fileno(), file.fileno(), position, left)
                    position, left = position + sent, left - sent
    finally:
        os._exit(0)


def first_ack(broker: BrokerProcess) -> Figures:
    return {"first_ack_s": broker.first_ack_s()}


def memory_after(broker: BrokerProcess, needed: int, size: int, count: int, acks: int, codec: str) -> Figures:
    """Memory once at least ``needed`` bytes went through the broker since its start."""
    if broker.bytes_moved < needed:
        create_topic(broker, "memory")
    while broker.bytes_moved < needed:
        produce(broker, "memory", size, count, acks, codec)
        consume(broker, "memory", size, count)
    return {"memory_MB": broker.memory_mb()}


def idle(broker: Measured, settle_s: float, measure_s: float) -> Figures:
    time.sleep(settle_s)
    before = broker.cpu_s()
    time.sleep(measure_s)
    return {"memory_MB": broker.memory_mb(), "cpu_percent": 100 * (broker.cpu_s() - before) / measure_s}


def percentiles(ordered: Sequence[float]) -> Figures:
    if not ordered:
        raise BrokerFailed("no latency was measured")

    def at(share: float) -> float:
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))]

    return {"p50_ms": at(0.5), "p99_ms": at(0.99), "p999_ms": at(0.999)}
