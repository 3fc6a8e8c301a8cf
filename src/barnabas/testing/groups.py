"""The wait for a group's members, at a broker or in a cluster."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

__all__ = ["AwaitedGroup", "GroupState"]


class GroupState(NamedTuple):
    """The state of a group, as Kafka names it, and the number of its members."""

    state: str
    members: int


class AwaitedGroup:
    """A group that shall be stable with so many members. `look` returns its state, None while nobody can tell."""

    def __init__(self, group_id: str, members: int, timeout: float, look: Callable[[str], GroupState | None]) -> None:
        self._wanted = GroupState("Stable", members)
        self._group_id = group_id
        self._timeout = timeout
        self._look = partial(look, group_id)
        self._seen: GroupState | None = None

    def is_stable(self) -> bool:
        self._seen = self._look()
        return self._seen == self._wanted

    def message(self, _: bool) -> str:
        """Returns the message of the TimeoutError."""
        seen = self._seen
        state = "no coordinator is ready" if seen is None else f"it is {seen.state} with {seen.members} members"
        what = f"group {self._group_id} with {self._wanted.members} stable members"
        return f"{what} did not come true within {self._timeout:g} s; {state}"
