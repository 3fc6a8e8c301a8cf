"""Send every payload of `poisons.py` to a real broker and write its answers to `verdicts.json`.

    python tests/records/ask_kafka.py 127.0.0.1:9092 /var/kafka/data

The data directory is read to see what the broker stored of the payloads it took.
"""

import json
import socket
import struct
import sys
from pathlib import Path
from typing import Any

import poisons
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.records.builder import build_batch
from barnabas.records.record import Record


def string(text: str | None) -> bytes:
    return struct.pack(">h", -1) if text is None else struct.pack(">h", len(text)) + text.encode()


class Answer:
    def __init__(self, data: bytes) -> None:
        self.data, self.position = data, 0

    def take(self, form: str) -> Any:
        (value,) = struct.unpack_from(form, self.data, self.position)
        self.position += struct.calcsize(form)
        return value

    def string(self) -> str | None:
        size = self.take(">h")
        if size < 0:
            return None
        self.position += size
        return self.data[self.position - size : self.position].decode()


class Asker:
    def __init__(self, host: str, port: int) -> None:
        self.address = host, port
        self.socket: socket.socket | None = None

    def produce(self, topic: str, data: bytes, version: int) -> dict[str, Any]:
        body = (
            string(None)
            + struct.pack(">hii", -1, 30_000, 1)
            + string(topic)
            + struct.pack(">iii", 1, 0, len(data))
            + data
        )
        request = struct.pack(">hhi", 0, version, 7) + string("asker") + body
        if self.socket is None:
            self.socket = socket.create_connection(self.address, 20)
        self.socket.sendall(struct.pack(">i", len(request)) + request)
        try:
            (size,) = struct.unpack(">i", self.read(4))
        except EOFError:
            self.socket = None
            return {"closed": True}
        return self.parse(Answer(self.read(size)), version)

    def read(self, size: int) -> bytes:
        data = b""
        assert self.socket is not None
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise EOFError
            data += more
        return data

    @staticmethod
    def parse(answer: Answer, version: int) -> dict[str, Any]:
        answer.take(">i")
        answer.take(">i"), answer.string(), answer.take(">i"), answer.take(">i")
        verdict: dict[str, Any] = {"code": answer.take(">h")}
        answer.take(">q"), answer.take(">q"), answer.take(">q")
        if version >= 8:
            count = answer.take(">i")
            errors = [(answer.take(">i"), answer.string()) for _ in range(count)]
            if errors:
                verdict["record_errors"] = [index for index, _ in errors]
        return verdict


def main(address: str, data_dir: str) -> None:
    host, port = address.rsplit(":", 1)
    admin = AdminClient({"bootstrap.servers": address})
    created = admin.create_topics([NewTopic(name, 1, 1, config=config) for name, config in poisons.TOPICS.items()])
    for future in created.values():
        future.result()
    asker = Asker(host, int(port))
    for topic in poisons.TOPICS:  # a new topic answers NOT_LEADER_OR_FOLLOWER for a moment
        while asker.produce(topic, build_batch([Record(0, poisons.T0, b"", b"")], compression="none"), 8)["code"] == 6:
            pass
    verdicts = {}
    for poison in poisons.all_poisons():
        log = Path(data_dir) / f"{poison.topic}-0" / "00000000000000000000.log"
        before = log.stat().st_size if log.exists() else 0
        verdict = asker.produce(poison.topic, poison.data, poison.version)
        if verdict.get("code") == 0:
            stored = log.read_bytes()[before:]
            verdict["stored"] = "same" if stored[21:] == poison.data[21 : len(stored)] else stored[12:].hex()
        verdicts[poison.name] = verdict
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(verdict)}" for name, verdict in verdicts.items())
    (Path(__file__).parent / "verdicts.json").write_text("{\n" + lines + "\n}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
