"""Ports of this machine that nobody else gets while they are not listened on."""

import socket
import sys

__all__ = ["ReservedPort"]


class ReservedPort:
    """A free port. A broker may listen on it, stop, and find it free again; meanwhile connections are refused."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self._socket = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        # Both sockets that share the address say that they share it. Linux lets one of them listen.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((host, 0))
        except OSError:
            self._socket.close()
            raise
        self.number: int = self._socket.getsockname()[1]
        if sys.platform != "linux":
            self._socket.close()  # elsewhere only one socket can have the address: the port is likely to stay free

    def release(self) -> None:
        self._socket.close()

    def __del__(self) -> None:
        """A broker whose start failed has nobody who closes it."""
        self._socket.close()
