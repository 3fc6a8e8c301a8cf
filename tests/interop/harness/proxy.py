"""A TCP proxy that keeps what clients send in Produce requests, to compare it with what the broker stored."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections import defaultdict

from .wire import Address, Reader


class RecordingProxy:
    """Passes everything on unchanged; `sent` has the records of each topic partition in the order of sending."""

    def __init__(self, listen: Address) -> None:
        self._listener = socket.create_server(listen)
        self._target: Address | None = None
        self._threads: list[threading.Thread] = []
        self.sent: dict[tuple[str, int], list[bytes]] = defaultdict(list)

    def start(self, target: Address) -> None:
        self._target = target
        threading.Thread(target=self._accept, daemon=True).start()

    def stop(self) -> None:
        # Wakes the accepting thread, which closing alone does not.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                assert self._target is not None
                broker = socket.create_connection(self._target)
                for source, sink, watch in ((client, broker, True), (broker, client, False)):
                    threading.Thread(target=self._pass, args=(source, sink, watch), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, watch: bool) -> None:
        held = bytearray()
        with contextlib.suppress(OSError):
            while chunk := source.recv(1 << 16):
                if watch:
                    # First noted, then passed on: what the broker has was seen here.
                    held += chunk
                    self._note_frames(held)
                sink.sendall(chunk)
        for each in (sink, source):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _note_frames(self, held: bytearray) -> None:
        while len(held) >= 4 and len(held) >= 4 + (size := struct.unpack_from(">i", held)[0]):
            request = bytes(held[4 : 4 + size])
            del held[: 4 + size]
            if request[:2] == b"\0\0":
                self._note_produce(request)

    def _note_produce(self, request: bytes) -> None:
        reader = Reader(request)
        _, version, _ = reader.take("hhi")
        reader.string()
        flexible = version >= 9
        if flexible:
            reader.raw(1)
        _text(reader, flexible)
        reader.take("hi")
        for _ in range(_count(reader, flexible)):
            # Version 13 names the topic by its id.
            topic = reader.raw(16).hex() if version >= 13 else _text(reader, flexible)
            for _ in range(_count(reader, flexible)):
                partition = reader.take("i")
                self.sent[(topic, partition)].append(reader.raw(_count(reader, flexible)))
                if flexible:
                    reader.raw(1)
            if flexible:
                reader.raw(1)


def _count(reader: Reader, flexible: bool) -> int:
    """An array's or a byte string's length."""
    if not flexible:
        return int(reader.take("i"))
    return _varint(reader) - 1


def _text(reader: Reader, flexible: bool) -> str:
    if not flexible:
        return reader.string() or ""
    return reader.raw(max(0, _varint(reader) - 1)).decode()


def _varint(reader: Reader) -> int:
    value = shift = 0
    while True:
        byte = reader.raw(1)[0]
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value
