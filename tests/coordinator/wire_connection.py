"""Requests to a real broker as message classes, over a socket."""

import socket
from struct import pack, unpack
from typing import Any

from barnabas.protocol.apis import ApiKey, message_classes, request_header_version, response_header_version
from barnabas.protocol.codec import decode, encode

__all__ = ["WireConnection"]


class WireConnection:
    def __init__(self, host: str, port: int, client_id: str) -> None:
        self._socket = socket.create_connection((host, port), timeout=30)
        self._client_id = client_id.encode()
        self._correlation_id = 0
        self._last = (ApiKey.API_VERSIONS, 0)

    def send(self, api: ApiKey, version: int, fields: dict[str, Any]) -> None:
        self._correlation_id += 1
        self._last = (api, version)
        header = pack(">hhih", api, version, self._correlation_id, len(self._client_id)) + self._client_id
        tags = b"\0" if request_header_version(api, version) == 2 else b""
        frame = header + tags + encode(message_classes(api)[0](**fields), version)
        self._socket.sendall(pack(">i", len(frame)) + frame)

    def receive(self) -> Any:
        api, version = self._last
        (size,) = unpack(">i", self._exactly(4))
        start = 5 if response_header_version(api, version) == 1 else 4
        return decode(message_classes(api)[1], version, self._exactly(size), start)[0]

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            if not more:
                raise EOFError("the broker closed the connection")
            data += more
        return data
