"""A broker that does not belong to the cluster, as those which refused it tell `barnabas cluster doctor`."""

from typing import NamedTuple

__all__ = ["RefusedBroker"]


class RefusedBroker(NamedTuple):
    """A broker, most likely a copy of one of the cluster, that knew the secret and was refused."""

    broker: int
    """The node id that it came with."""
    host: str
    """The address that it came from."""
    place: str
    """Its machine and data directories, as it has told them; empty if its release tells none."""
    problem: str
    times: int
    last_ms: int

    def __str__(self) -> str:
        return f"broker {self.broker} from {self.host}" + (f" ({self.place})" if self.place else "")
