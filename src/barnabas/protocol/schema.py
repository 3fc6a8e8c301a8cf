"""How a message class says what each version of it looks like on the wire.

Every message is a plain class with slots, the union of the fields of all its versions, and a `SCHEMA`: one `Field` per
attribute in wire order. `codec` compiles readers and writers from it. Source: the protocol guide's primitive types.
"""

from typing import Any, ClassVar, Final, NamedTuple

__all__ = ["NEVER", "Field", "Message"]

NEVER: Final = 32767


class Field(NamedTuple):
    """One attribute on the wire. Versions are inclusive; outside of them the attribute keeps its default."""

    name: str
    kind: "str | type[Message]"
    """A primitive's name (int8 ... string, bytes, records, uuid, bool, float64) or the class of a struct."""
    first: int
    last: int
    default: Any
    array: bool = False
    nullable_from: int = NEVER
    tag: int = -1
    """The tag of a tagged field, -1 for a field in the body."""


class Message:
    """Base of all messages: equality and repr over the slots."""

    __slots__ = ()
    SCHEMA: ClassVar[tuple[Field, ...]] = ()
    FLEXIBLE_FROM: ClassVar[int] = NEVER
    """The first version with compact types and tagged fields."""
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 0

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        for field in self.SCHEMA:
            mine, theirs = getattr(self, field.name), getattr(other, field.name)
            # A list that was decoded equals the tuple it was built from.
            if field.array and mine is not None and theirs is not None:
                if list(mine) != list(theirs):
                    return False
            elif mine != theirs:
                return False
        return True

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        body = ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in self.SCHEMA)
        return f"{type(self).__name__}({body})"


class Request(Message):
    """A request: knows its API key and the class of its response."""

    __slots__ = ()
    API_KEY: ClassVar[int] = -1


class Response(Message):
    """A response."""

    __slots__ = ()
    API_KEY: ClassVar[int] = -1
