"""Declares the fields of messages and the versions in which they are on the wire.

A message class names each of its fields once, the union of the fields of all its versions, in wire order:

    class Heartbeat(Request):
        API_KEY = 12
        group_id: str = field("string", 0, 4, default="")

Its slots, its `SCHEMA` and its constructor, which takes keywords, follow from that. `codec` compiles readers and
writers from the schema. Source: the protocol guide's primitive types.
"""

from typing import Any, ClassVar, Final, NamedTuple, dataclass_transform

__all__ = ["NEVER", "Field", "Message", "Request", "Response", "field"]

NEVER: Final = 32767


class Field(NamedTuple):
    """A field of a message. In versions before `first` and after `last` the attribute keeps its default."""

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


def field(
    kind: "str | type[Message]",
    first: int,
    last: int,
    *,
    default: Any,
    array: bool = False,
    nullable_from: int = NEVER,
    tag: int = -1,
) -> Any:
    """Declares a field of a message; the parameters are those of `Field`. The default of a struct that cannot be null
    is None: each message then gets a struct of its own."""
    return Field("", kind, first, last, default, array, nullable_from, tag)


class MessageType(type):
    """Makes the slots and the schema of a message class from its fields."""

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> "MessageType":
        fields = {key: value for key, value in namespace.items() if type(value) is Field}
        if fields:
            for key in fields:
                del namespace[key]
            namespace["SCHEMA"] = tuple(Field(key, *value[1:]) for key, value in fields.items())
        namespace["__slots__"] = tuple(fields)
        return super().__new__(cls, name, bases, namespace)


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
class Message(metaclass=MessageType):
    """The base of all messages: constructor, equality and repr over the fields."""

    SCHEMA: ClassVar[tuple[Field, ...]] = ()
    FLEXIBLE_FROM: ClassVar[int] = NEVER
    """The first version with compact types and tagged fields."""
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 0

    def __init__(self, **values: Any) -> None:
        """Compiles the constructor of the class when its first message is made: most classes that a process imports
        never have a message."""
        cls = type(self)
        cls.__init__ = _compile_constructor(cls.SCHEMA)  # type: ignore[method-assign]
        cls.__init__(self, **values)

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


def _compile_constructor(schema: tuple[Field, ...]) -> Any:
    parameters, body, names = ["self"], ["pass"], {}
    if schema:
        parameters.append("*")
    for field in schema:
        name, value = field.name, field.name
        names[f"d_{name}"] = field.default
        parameters.append(f"{name}=d_{name}")
        if not isinstance(field.kind, str) and not field.array and field.nullable_from == NEVER:
            names[f"t_{name}"] = field.kind
            value = f"t_{name}() if {name} is None else {name}"
        body.append(f"self.{name} = {value}")
    source = f"def __init__({', '.join(parameters)}):\n " + "\n ".join(body)
    exec(source, names)  # noqa: S102  the source is ours, from the schema
    return names["__init__"]


class Request(Message):
    """The base of all requests."""

    API_KEY: ClassVar[int] = -1


class Response(Message):
    """The base of all responses."""

    API_KEY: ClassVar[int] = -1
