"""A broker that another one cannot reach, as brokers tell `barnabas cluster doctor`."""

from typing import NamedTuple

__all__ = ["UnreachedPeer"]


class UnreachedPeer(NamedTuple):
    """A live broker that does not answer another one."""

    broker: int
    listener: str
    """The name of its listener for brokers; empty if it has registered none."""
    address: str
    stage: str
    """That of `Attempt` which has failed; empty if nothing has, and no answer came either."""
    error: str
