"""Ports of this machine that nobody else gets while they are not listened on."""

import socket
import sys

__all__ = ["ReservedPort"]


class ReservedPort:
    """A free port. A broker may listen on it, stop, and find it free again; meanwhile connections are refused."""

    def __init__(self) -> None:
        self._socket = socket.socket()
        # Both sockets that share the address say that they share it. Linux lets one of them listen.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", 0))
        self.number: int = self._socket.getsockname()[1]
        if sys.platform != "linux":
            self._socket.close()  # elsewhere only one socket can have the address: the port is likely to stay free

    def release(self) -> None:
        self._socket.close()
