"""The records that a broker may lack when it returns: the end of its logs after an unclean stop, or the logs of a lost
directory.

The registry keeps it as text until the controller has taken the broker in: "unclean", "lost" for all logs, or
"lost:orders-0,orders-3".
"""

from collections.abc import Collection
from typing import Final, NamedTuple

__all__ = ["Returned"]

_REPLICAS_MAX: Final = 10_000
"""The number of lost replicas that are told one by one. More of them count as all."""


class Returned(NamedTuple):
    """`lost` has the names of the replicas without their logs; None stands for all."""

    unclean: bool = False
    lost: frozenset[str] | None = frozenset()

    @classmethod
    def of(cls, *, unclean: bool, lost: Collection[str] | None = ()) -> "Returned":
        return cls(unclean, None if lost is None or len(lost) > _REPLICAS_MAX else frozenset(lost))

    @classmethod
    def parse(cls, text: str) -> "Returned":
        """Reads what `text` gives. An unknown word, of a later release, counts as the worst."""
        found = cls()
        for word in text.split():
            kind, colon, names = word.partition(":")
            if kind == "unclean":
                found = found.worse(cls(unclean=True))
            else:
                found = found.worse(cls(lost=frozenset(names.split(",")) if colon and kind == "lost" else None))
        return found

    def worse(self, other: "Returned") -> "Returned":
        """Returns what a broker lacks that has returned in both ways, one after the other."""
        lost = None if self.lost is None or other.lost is None else self.lost | other.lost
        return Returned.of(unclean=self.unclean or other.unclean, lost=lost)

    @property
    def text(self) -> str:
        if self.lost is None:
            return "lost"
        words = ["unclean"] if self.unclean else []
        if self.lost:
            words.append(f"lost:{','.join(sorted(self.lost))}")
        return " ".join(words)
