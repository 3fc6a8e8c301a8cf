"""kcat behind the common commands: a kcat process for each producing run and each consumer.

kcat tells no offsets, sets no timestamps, and has one set of headers for a whole run; `open` with several places starts
a process for each.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import IO, Any

from common import Json, record_json, serve, unpack

WAIT_S = 40
KEY_END, RECORD_END = b"=~key~=", b"=~end~=\n"
FORMAT = "%t %p %o %T %K %S %h\\n%k%s\\n"


class KcatError(Exception):
    pass


class Running:
    """A kcat that consumes; a thread reads what it prints."""

    def __init__(self, command: list[str], sink: Sink) -> None:
        self._errors = Path(tempfile.mkstemp(prefix="kcat-")[1])
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors)
        assert self._process.stdout is not None
        self._thread = threading.Thread(target=self._read, args=(self._process.stdout, sink), daemon=True)
        self._thread.start()

    def words(self) -> str:
        return self._errors.read_text(errors="replace")

    def stop(self) -> None:
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._thread.join()
        self._errors.unlink()

    @staticmethod
    def _read(output: IO[bytes], sink: Sink) -> None:
        while line := output.readline():
            topic, partition, offset, timestamp, key_size, value_size, headers = line.rstrip(b"\n").split(b" ", 6)
            key = _sized(output, int(key_size))
            value = _sized(output, int(value_size))
            output.read(1)
            pairs = _headers(headers)
            sink.add(record_json(topic.decode(), int(partition), int(offset), int(timestamp), key, value, pairs))


class Sink:
    def __init__(self) -> None:
        self._arrived: list[Json] = []
        self._condition = threading.Condition()

    def add(self, record: Json) -> None:
        with self._condition:
            self._arrived.append(record)
            self._condition.notify_all()

    def take(self, count: int, timeout_ms: int) -> list[Json]:
        deadline = time.monotonic() + timeout_ms / 1000
        with self._condition:
            while len(self._arrived) < count and (left := deadline - time.monotonic()) > 0:
                self._condition.wait(left)
            taken, self._arrived = self._arrived[:count], self._arrived[count:]
            return taken


def _sized(output: IO[bytes], size: int) -> bytes | None:
    return None if size < 0 else output.read(size)


def _headers(text: bytes) -> list[tuple[str, bytes | None]]:
    pairs = [each.split(b"=", 1) for each in text.split(b",") if each]
    return [(name.decode(), None if value == b"NULL" else value) for name, value in pairs]


class Client:
    version = subprocess.run(["kcat", "-V"], capture_output=True, text=True).stdout.split("Version ")[1].split(" ")[0]

    def __init__(self, bootstrap: str) -> None:
        self._kcat = ["kcat", "-b", bootstrap]
        self._consumers: dict[str, tuple[list[Running], Sink]] = {}

    # Producing: records that can share a run follow each other in one kcat.

    def produce(self, topic: str, records: list[Json], **settings: Any) -> Json:
        for (partition, headers, nulls), run in itertools.groupby(records, _run_of):
            command = [*self._kcat, "-P", "-t", topic, "-p", str(partition), "-z", settings.get("compression", "none")]
            command += ["-K", KEY_END.decode(), "-D", RECORD_END.decode().replace("\n", "\\n")]
            command += ["-X", f"acks={settings.get('acks', 'all')}", "-X", "linger.ms=5"]
            command += ["-X", f"enable.idempotence={str(settings.get('idempotent', False)).lower()}"]
            for name, value in json.loads(headers):
                text = unpack(value)
                command += ["-H", name if text is None else f"{name}={os.fsdecode(text)}"]
            if nulls:
                command.append("-Z")
            self._run(command, b"".join(_line(each) for each in run))
        return {"offsets": [[-1, -1]] * len(records)}

    @staticmethod
    def _run(command: list[str], data: bytes) -> bytes:
        done = subprocess.run(command, input=data, capture_output=True, timeout=WAIT_S)
        if done.returncode:
            raise KcatError(done.stderr.decode(errors="replace"))
        return done.stdout

    # Consuming

    def open(
        self,
        id: str,
        assign: list[list[Any]] | None = None,
        topics: list[str] | None = None,
        group: str | None = None,
        reset: str = "earliest",
        assignor: str = "range",
        instance: str | None = None,
        session_timeout_ms: int = 30_000,
        fetch_wait_ms: int = 500,
        fetch_min_bytes: int = 1,
        max_partition_bytes: int = 10_000_000,
        isolation: str = "read_committed",
    ) -> Json:
        settings = {
            "fetch.wait.max.ms": fetch_wait_ms,
            "fetch.min.bytes": fetch_min_bytes,
            "fetch.message.max.bytes": max_partition_bytes,
            "session.timeout.ms": session_timeout_ms,
            "heartbeat.interval.ms": min(250, session_timeout_ms // 4),
            "partition.assignment.strategy": assignor,
            "isolation.level": isolation,
            "enable.auto.commit": "false",
            "auto.offset.reset": reset,
            "reconnect.backoff.max.ms": 500,
        }
        if instance:
            settings["group.instance.id"] = instance
        common = [*self._kcat, "-u", "-E", "-f", FORMAT]
        for name, value in settings.items():
            common += ["-X", f"{name}={value}"]
        sink = Sink()
        if assign is not None:
            places = [
                [*common, "-C", "-t", topic, "-p", str(number), "-o", self._at(topic, number, at)]
                for topic, number, at in assign
            ]
            running = [Running(command, sink) for command in places]
        else:
            running = [Running([*common, "-G", str(group), *(topics or [])], sink)]
        self._consumers[id] = (running, sink)
        return {}

    def _at(self, topic: str, partition: int, at: Any) -> str:
        if isinstance(at, dict):
            return f"s@{at['timestamp']}"
        if at == "latest":
            return str(self.offsets(topic, [partition], "latest")["offsets"][0])
        return "beginning" if at == "earliest" else str(at)

    def take(self, id: str, count: int, timeout_ms: int) -> Json:
        return {"records": self._consumers[id][1].take(count, timeout_ms)}

    def assignment(self, id: str) -> Json:
        """kcat tells of its group in lines such as `% Group g rebalanced (memberid m): assigned: t [0], t [1]`."""
        (running,), _ = self._consumers[id]
        told = re.findall(r"rebalanced \(memberid [^)]*\): (assigned|revoked): ?(.*)", running.words())
        if not told or told[-1][0] == "revoked":
            return {"partitions": []}
        return {"partitions": [[topic, int(number)] for topic, number in re.findall(r"(\S+) \[(\d+)\]", told[-1][1])]}

    def close(self, id: str) -> Json:
        for each in self._consumers.pop(id)[0]:
            each.stop()
        return {}

    # Queries

    def metadata(self) -> Json:
        found = json.loads(self._run([*self._kcat, "-L", "-J"], b""))
        return {
            "brokers": len(found["brokers"]),
            "topics": {each["topic"]: len(each["partitions"]) for each in found["topics"]},
        }

    def offsets(self, topic: str, partitions: list[int], at: Any) -> Json:
        time_of = {"earliest": -2, "latest": -1}.get(at, at)
        command = [*self._kcat, "-Q", *(word for each in partitions for word in ("-t", f"{topic}:{each}:{time_of}"))]
        told = re.findall(r"\[(\d+)\] offset (-?\d+)", self._run(command, b"").decode())
        found = {int(partition): int(offset) for partition, offset in told}
        return {"offsets": [found[each] for each in partitions]}


def _run_of(record: Json) -> tuple[int, str, bool]:
    return record.get("p", -1), json.dumps(record.get("h", [])), record["v"] is None


def _line(record: Json) -> bytes:
    key = unpack(record["k"])
    return (b"" if key is None else key + KEY_END) + (unpack(record["v"]) or b"") + RECORD_END


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        serve(Client(json.loads(sys.argv[1])["bootstrap"]), lambda error: None)
