"""What can go wrong between a client and a broker, with every attempt: where, at which stage, why, what next.

A broker's own answer is a `barnabas.errors.KafkaError`; the classes here are for when no answer came.
"""

import errno
import socket
from typing import ClassVar, NamedTuple

from barnabas.errors import BarnabasError, UnknownTopicOrPartition

__all__ = [
    "Attempt",
    "BrokerUnreachable",
    "ClientError",
    "ConnectionLost",
    "OperationTimedOut",
    "TopicNotFound",
    "hint_for",
]


class Attempt(NamedTuple):
    """One try to reach or use a broker."""

    address: str
    stage: str
    """`dns`, `tcp`, `version` (the ApiVersions handshake), or `request`."""
    error: str
    """The operating system's or the decoder's words."""
    hint: str
    """What to look at, or empty."""
    elapsed_ms: float = 0.0

    def __str__(self) -> str:
        return f"{self.address}: {self.stage}: {self.error}"


class ClientError(BarnabasError):
    """No usable answer came. `attempts` says what was tried, oldest first."""

    retriable: ClassVar[bool] = False

    def __init__(self, message: str, attempts: tuple[Attempt, ...] = ()) -> None:
        super().__init__(message)
        self.attempts = attempts


class ConnectionLost(ClientError):
    """A connection could not be made or broke; another try may succeed. What was in flight may have happened or not."""

    retriable = True


class BrokerUnreachable(ClientError):
    """No bootstrap address led to a broker."""


class TopicNotFound(UnknownTopicOrPartition):
    """Metadata does not have the topic or partition: asking a leader again would not help, unlike for its base."""

    retriable = False


class OperationTimedOut(ClientError):
    """The deadline passed. `attempts` has the reasons of the tries before it."""


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
    if isinstance(error, OSError) and error.strerror:
        return error.strerror[0].lower() + error.strerror[1:]
    return str(error) or type(error).__name__
