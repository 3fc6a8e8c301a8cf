"""The operating system's errors in words, and what to look at next."""

import errno
import os
import socket

__all__ = ["describe", "hint_for"]

_HINTS = {
    errno.ECONNREFUSED: "nothing listens there; is the broker running? `barnabas serve` starts one",
    errno.ETIMEDOUT: "no answer; a firewall may drop the packets, or the address is wrong",
    errno.EHOSTUNREACH: "no route to that host from here",
    errno.ENETUNREACH: "no route to that network from here",
    errno.ECONNRESET: "the other side closed the connection; a TLS or SASL listener does so with a plaintext client",
    errno.EPIPE: "the other side closed the connection",
    errno.EACCES: "the system does not allow this connection",
    errno.EMFILE: "this process has too many open files (ulimit -n)",
}


def hint_for(error: BaseException) -> str:
    """The way out for an operating system error, or an empty string."""
    if isinstance(error, socket.gaierror):
        return "the name does not resolve here; check its spelling, DNS or /etc/hosts"
    if isinstance(error, TimeoutError):
        return _HINTS[errno.ETIMEDOUT]
    if isinstance(error, OSError) and error.errno is not None:
        return _HINTS.get(error.errno, "")
    return ""


def describe(error: BaseException) -> str:
    """The error's words without Python's dressing: `connection refused` for ConnectionRefusedError(111, ...)."""
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, ConnectionRefusedError) and error.errno:
        return os.strerror(error.errno)[0].lower() + os.strerror(error.errno)[1:]  # asyncio has words of its own
    if isinstance(error, OSError) and error.strerror:
        return error.strerror[0].lower() + error.strerror[1:]
    return str(error) or type(error).__name__
