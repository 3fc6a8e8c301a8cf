"""Readers and writers of messages, compiled per class and version from the schemas.

Callers use `decode(cls, version, data, position)` and `encode(message, version)`. The first use of a class and version
writes a small function as Python source and compiles it (about a millisecond), because a generic walk over the schema
costs several times more on every message. Every mistake in received bytes raises MalformedMessage; memory is never
allocated for a length that exceeds the remaining bytes. Source: the protocol guide; KIP-482 for flexible versions.

A request of 100 MB can hold 50 million empty structs, which would be gigabytes of objects and a minute in which no
other client is served. So a request has at most REQUEST_ELEMENTS_MAX elements in all its arrays together, tagged fields
included, and is refused before they are made. This limits the cost of a request to half a second for decoding, as much
for handling the elements, and 30 MB beside twice its own bytes. Responses, which the client decodes, have no such
limit.

Where we differ from Kafka: a request has at most 150,000 elements in all its arrays together, or its connection ends;
Kafka bounds each array alone.
"""

import struct
from collections.abc import Callable, Generator
from typing import Any, Final, TypeVar
from uuid import UUID

from barnabas.protocol.primitives import (
    REQUEST_ELEMENTS_MAX,
    MalformedMessage,
    Part,
    TooManyElements,
    put_compact_text,
    put_legacy_text,
    read_uvarint,
    uvarint,
)
from barnabas.protocol.schema import NEVER, Field, Message, Request

__all__ = [
    "ARRAY_ELEMENTS_MAX",
    "MalformedMessage",
    "decode",
    "encode",
    "encode_into",
    "encode_slices",
    "encode_struct",
]

ARRAY_ELEMENTS_MAX: Final = 1_000_000
"""The most elements of an array, as in Kafka 4.4."""

M = TypeVar("M", bound=Message)
Reader = Callable[[bytes, int], tuple[Any, int]]
Writer = Callable[[bytearray, Any], None]
Slicer = Callable[[bytearray, Any], Generator[None, None, None]]

_READERS: Final[dict[tuple[type, int, bool], Reader]] = {}
_WRITERS: Final[dict[tuple[type, int], Writer]] = {}
"""The functions that were compiled, by class and version (readers also by `parts`). A struct belongs to one message and
is flexible in the same versions."""
_SLICERS: Final[dict[tuple[type, int], Slicer]] = {}
"""The writers that are generators."""

_FIXED: Final = {
    "int8": ("b", 1),
    "int16": ("h", 2),
    "int32": ("i", 4),
    "int64": ("q", 8),
    "uint16": ("H", 2),
    "uint32": ("I", 4),
    "float64": ("d", 8),
    "bool": ("?", 1),
    "uuid": ("16s", 16),
}


class _Counted(bytes):
    """The bytes of a request that is large enough for too many elements, and the number of elements that are left."""

    left = REQUEST_ELEMENTS_MAX


def decode(
    cls: type[M], version: int, data: bytes | memoryview, position: int = 0, *, parts: bool = False
) -> tuple[M, int]:
    """Returns the message that starts at `position`, and the position behind it. Raises MalformedMessage.

    A memoryview is copied once. With `parts` records are not copied out of `data`: such a field is a Part, in spite of
    its annotation.
    """
    if len(data) > REQUEST_ELEMENTS_MAX and issubclass(cls, Request):  # an element has at least one byte
        data = _Counted(data)
    elif type(data) is memoryview:
        data = bytes(data)
    try:
        message, end = _reader(cls, version, parts=parts)(data, position)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise MalformedMessage(f"{cls.__name__} v{version}: {error}") from None
    except TooManyElements:
        raise
    except MalformedMessage as error:
        raise MalformedMessage(f"{cls.__name__} v{version}: {error}") from None
    return message, end


def encode(message: Message, version: int) -> bytes:
    """Returns the bytes of a message. Fields that the version does not have are left out."""
    out = bytearray()
    _writer(type(message), version)(out, message)
    return bytes(out)


def encode_into(out: bytearray, message: Message, version: int) -> None:
    """Appends the bytes of a message to `out`."""
    _writer(type(message), version)(out, message)


def encode_slices(out: bytearray, message: Message, version: int) -> Generator[None, None, None]:
    """Appends the bytes of a message to `out` in steps, one for each struct in an array. Arrays may make their elements
    lazily."""
    return _slicer(type(message), version)(out, message)


def encode_struct(struct_message: Message, version: int, *, flexible: bool) -> bytes:
    """Returns the bytes of a struct of a message, for responses that are composed of parts that were encoded before."""
    out = bytearray()
    _writer(type(struct_message), version, flexible)(out, struct_message)
    return bytes(out)


# --- run-time helpers of the compiled functions ---------------------------------------------------------------------


def _take(data: bytes, start: int, size: int) -> bytes:
    if size < 0 or start + size > len(data):
        raise MalformedMessage(f"{size} bytes asked for at {start}, the message has {len(data)}")
    return bytes(data[start : start + size])


def _part(data: bytes, start: int, size: int) -> Part:
    if size < 0 or start + size > len(data):
        raise MalformedMessage(f"{size} bytes asked for at {start}, the message has {len(data)}")
    return Part(data, start, start + size)


def _text(data: bytes, start: int, size: int) -> str:
    return str(_take(data, start, size), "utf-8")


def _check_count(data: bytes, position: int, count: int, element_size_min: int) -> int:
    if count > ARRAY_ELEMENTS_MAX:
        raise MalformedMessage(f"an array claims {count} elements, {ARRAY_ELEMENTS_MAX} is the most")
    if count * element_size_min > len(data) - position:
        raise MalformedMessage(f"an array claims {count} elements, {len(data) - position} bytes are left")
    if type(data) is _Counted and count > 0:
        data.left -= count
        if data.left < 0:
            raise TooManyElements
    return count


def _null(name: str) -> MalformedMessage:
    return MalformedMessage(f"{name} must not be null")


def _skip_tag(data: bytes, position: int) -> int:
    size, position = read_uvarint(data, position)
    if position + size > len(data):
        raise MalformedMessage("a tagged field runs past the end")
    return position + size


def _put_legacy_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out += b"\xff\xff\xff\xff"
        return
    out += len(value).to_bytes(4, "big")
    out += value


def _put_compact_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out.append(0)
        return
    out += uvarint(len(value) + 1)
    out += value


def _put_compact_count(out: bytearray, value: Any) -> None:
    out += b"\0" if value is None else uvarint(len(value) + 1)


def _put_legacy_count(out: bytearray, value: Any) -> None:
    out += b"\xff\xff\xff\xff" if value is None else len(value).to_bytes(4, "big")


_NAMESPACE: Final = {name: value for name, value in globals().items() if name.startswith("_")} | {
    "UUID": UUID,
    "put_compact_text": put_compact_text,
    "put_legacy_text": put_legacy_text,
    "read_uvarint": read_uvarint,
    "uvarint": uvarint,
    "MalformedMessage": MalformedMessage,
}


# --- the compiler ---------------------------------------------------------------------------------------------------


def _fields(cls: type[Message], version: int) -> tuple[list[Field], list[Field]]:
    """Returns the fields of a version in the body, and its tagged fields in the order of their tags."""
    present = [field for field in cls.SCHEMA if field.first <= version <= field.last]
    body = [field for field in present if field.tag < 0]
    return body, sorted((field for field in present if field.tag >= 0), key=lambda field: field.tag)


def _size_min(field: Field) -> int:
    """Returns the fewest bytes of an element of the field, by which the bytes that are left limit an array's count."""
    if isinstance(field.kind, str) and field.kind in _FIXED:
        return _FIXED[field.kind][1]
    return 1


def _compile(source: list[str], name: str, names: dict[str, Any]) -> Any:
    namespace = dict(_NAMESPACE) | names
    exec(compile("\n".join(source), f"<{name}>", "exec"), namespace)  # noqa: S102  the source is ours, from the schema
    return namespace[name]


def _reader(cls: type[Message], version: int, flexible: bool | None = None, *, parts: bool = False) -> Reader:
    reader = _READERS.get((cls, version, parts))
    if reader is None:
        reader = _compile_reader(cls, version, version >= cls.FLEXIBLE_FROM if flexible is None else flexible, parts)
        _READERS[cls, version, parts] = reader
    return reader


def _compile_reader(cls: type[Message], version: int, flexible: bool, parts: bool) -> Reader:
    body, tagged = _fields(cls, version)
    compiler = _ReaderSource(flexible, version, parts)
    source = [f"def read_{cls.__name__}(b, p):"]
    source += [f"    {line}" for line in compiler.body(body)]
    if flexible:
        source += [f"    {line}" for line in compiler.tags(tagged)]
    present = {field.name for field in (*body, *tagged)}
    arguments = ", ".join(f"{field.name}=v_{field.name}" for field in cls.SCHEMA if field.name in present)
    source.append(f"    return cls({arguments}), p")
    result: Reader = _compile(source, f"read_{cls.__name__}", compiler.names | {"cls": cls})
    return result


class _ReaderSource:
    def __init__(self, flexible: bool, version: int, parts: bool) -> None:
        self.flexible = flexible
        self.version = version
        self.names: dict[str, Any] = {}
        self._takers = {"string": "_text", "records": "_part" if parts else "_take"}
        self._parts = parts

    def body(self, fields: list[Field]) -> list[str]:
        lines: list[str] = []
        run: list[Field] = []
        for field in fields:
            if not field.array and isinstance(field.kind, str) and field.kind in _FIXED:
                run.append(field)
                continue
            lines += self._fixed(run)
            run = []
            lines += self.value(field, f"v_{field.name}")
        return lines + self._fixed(run)

    def _fixed(self, run: list[Field]) -> list[str]:
        """Returns the code that reads neighbouring fields of fixed size by one unpack."""
        if not run:
            return []
        packed = struct.Struct(">" + "".join(_FIXED[str(field.kind)][0] for field in run))
        name = f"s{len(self.names)}"
        self.names[name] = packed.unpack_from
        targets = "".join(f"v_{field.name}, " for field in run)
        lines = [f"{targets}= {name}(b, p)", f"p += {packed.size}"]
        lines += [f"v_{field.name} = UUID(bytes=v_{field.name})" for field in run if field.kind == "uuid"]
        return lines

    def value(self, field: Field, target: str) -> list[str]:
        nullable = self.version >= field.nullable_from
        if field.array:
            return self._array(field, target, nullable)
        if isinstance(field.kind, str):
            return self._primitive(field, target, nullable)
        return self._struct(field, target, nullable)

    def _count(self, kind: str) -> list[str]:
        """Returns the code that reads a length into `n`, -1 for null."""
        if self.flexible:
            return ["n = b[p]", "p += 1", "if n > 127: n, p = read_uvarint(b, p - 1)", "n -= 1"]
        width = 2 if kind == "string" else 4
        return [
            f"n = int.from_bytes(b[p:p + {width}], 'big', signed=True)",
            f"p += {width}",
            "if p > len(b): raise MalformedMessage('the message ends early')",
        ]

    def _when_null(self, field: Field, target: str, nullable: bool) -> list[str]:
        if nullable:
            return ["if n < 0:", f"    {target} = None"]
        return ["if n < 0:", f"    raise _null('{field.name}')"]

    def _primitive(self, field: Field, target: str, nullable: bool) -> list[str]:
        kind = str(field.kind)
        if kind in _FIXED:
            return self._fixed([field._replace(name=target.removeprefix("v_"))])
        take = self._takers.get(kind, "_take")
        return [
            *self._count(kind),
            *self._when_null(field, target, nullable),
            "else:",
            f"    {target} = {take}(b, p, n)",
            "    p += n",
        ]

    def _struct(self, field: Field, target: str, nullable: bool) -> list[str]:
        assert not isinstance(field.kind, str)
        name = f"r_{field.kind.__name__}"
        self.names[name] = _reader(field.kind, self.version, self.flexible, parts=self._parts)
        if not nullable:
            return [f"{target}, p = {name}(b, p)"]
        return [
            "n = b[p]",
            "p += 1",
            "if n == 255:",
            f"    {target} = None",
            "else:",
            f"    {target}, p = {name}(b, p)",
        ]

    def _array(self, field: Field, target: str, nullable: bool) -> list[str]:
        element = field._replace(array=False, nullable_from=NEVER)
        lines = [*self._count("array"), *self._when_null(field, target, nullable), "else:"]
        kind = field.kind
        if isinstance(kind, str) and kind in _FIXED and kind != "uuid":
            code, width = _FIXED[kind]
            self.names["_unpack"] = struct.unpack_from
            lines += [
                f"    _check_count(b, p, n, {width})",
                f"    {target} = list(_unpack(f'>{{n}}{code}', b, p))",
                f"    p += n * {width}",
            ]
            return lines
        lines += [
            f"    {target} = []",
            f"    for _ in range(_check_count(b, p, n, {_size_min(field)})):",
            *(f"        {line}" for line in self.value(element, "v_element")),
            f"        {target}.append(v_element)",
        ]
        return lines

    def tags(self, tagged: list[Field]) -> list[str]:
        lines = []
        for field in tagged:
            default = field.default
            if not isinstance(field.kind, str) and not field.array:
                lines.append(f"v_{field.name} = None")
                continue
            self.names[f"d_{field.name}"] = default
            lines.append(f"v_{field.name} = d_{field.name}")
        lines += [
            "t, p = read_uvarint(b, p)",
            "for _ in range(_check_count(b, p, t, 2)):",
            "    tag, p = read_uvarint(b, p)",
        ]
        keyword = "if"
        for field in tagged:
            lines.append(f"    {keyword} tag == {field.tag}:")
            lines += ["        size, p = read_uvarint(b, p)", "        end = p + size"]
            lines += [f"        {line}" for line in self.value(field, f"v_{field.name}")]
            lines.append("        if p != end: raise MalformedMessage('a tagged field has another size than it says')")
            keyword = "elif"
        if tagged:
            lines += ["    else:", "        p = _skip_tag(b, p)"]
        else:
            lines.append("    p = _skip_tag(b, p)")
        return lines


def _writer(cls: type[Message], version: int, flexible: bool | None = None) -> Writer:
    writer = _WRITERS.get((cls, version))
    if writer is None:
        writer = _compile_writer(cls, version, version >= cls.FLEXIBLE_FROM if flexible is None else flexible)
        _WRITERS[cls, version] = writer
    return writer


def _compile_writer(cls: type[Message], version: int, flexible: bool) -> Writer:
    result: Writer = _compile_with(_WriterSource(flexible, version), cls)
    return result


def _slicer(cls: type[Message], version: int, flexible: bool | None = None) -> Slicer:
    slicer = _SLICERS.get((cls, version))
    if slicer is None:
        flexible = version >= cls.FLEXIBLE_FROM if flexible is None else flexible
        slicer = _SLICERS[cls, version] = _compile_with(_SlicerSource(flexible, version), cls)
    return slicer


def _compile_with(compiler: "_WriterSource", cls: type[Message]) -> Any:
    body, tagged = _fields(cls, compiler.version)
    source = [f"def write_{cls.__name__}(out, m):"]
    source += [f"    {line}" for line in compiler.body(body)]
    if compiler.flexible:
        source += [f"    {line}" for line in compiler.tags(tagged)]
    source += [f"    {line}" for line in compiler.end]
    return _compile(source, f"write_{cls.__name__}", compiler.names)


class _WriterSource:
    end: "tuple[str, ...]" = ("return None",)

    def __init__(self, flexible: bool, version: int) -> None:
        self.flexible = flexible
        self.version = version
        self.names: dict[str, Any] = {}
        self.style = "compact" if flexible else "legacy"

    def body(self, fields: list[Field]) -> list[str]:
        lines: list[str] = []
        run: list[Field] = []
        for field in fields:
            if not field.array and isinstance(field.kind, str) and field.kind in _FIXED:
                run.append(field)
                continue
            lines += self._fixed(run, "m.")
            run = []
            lines += self.value(field, f"m.{field.name}", "out")
        return lines + self._fixed(run, "m.")

    def _fixed(self, run: list[Field], prefix: str, out: str = "out") -> list[str]:
        if not run:
            return []
        packed = struct.Struct(">" + "".join(_FIXED[str(field.kind)][0] for field in run))
        name = f"s{len(self.names)}"
        self.names[name] = packed.pack
        values = ", ".join(f"{prefix}{field.name}" + (".bytes" if field.kind == "uuid" else "") for field in run)
        return [f"{out} += {name}({values})"]

    def value(self, field: Field, expression: str, out: str) -> list[str]:
        nullable = self.version >= field.nullable_from
        if field.array:
            return self._array(field, expression, out, nullable)
        if isinstance(field.kind, str):
            if field.kind in _FIXED:
                holder, _, name = expression.rpartition(".")
                return self._fixed([field._replace(name=name)], f"{holder}." if holder else "", out)
            put = f"put_{self.style}_text" if field.kind == "string" else f"_put_{self.style}_bytes"
            write = [f"{put}({out}, {expression})"]
            return write if nullable else [*self._refuse_none(field, expression), *write]
        name = f"w_{field.kind.__name__}"
        self.names[name] = _writer(field.kind, self.version, self.flexible)
        if not nullable:
            return [f"{name}({out}, {expression})"]
        return [
            f"if {expression} is None:",
            f"    {out}.append(255)",
            "else:",
            f"    {out}.append(1)",
            f"    {name}({out}, {expression})",
        ]

    def _refuse_none(self, field: Field, expression: str) -> list[str]:
        return [f"if {expression} is None: raise TypeError('{field.name} must not be None in v{self.version}')"]

    def _array(self, field: Field, expression: str, out: str, nullable: bool) -> list[str]:
        element = field._replace(array=False, nullable_from=NEVER)
        return [
            *([] if nullable else self._refuse_none(field, expression)),
            f"_put_{self.style}_count({out}, {expression})",
            f"for e in {expression} or ():",
            *(f"    {line}" for line in self.value(element, "e", out)),
        ]

    def tags(self, tagged: list[Field]) -> list[str]:
        if not tagged:
            return ["out.append(0)"]
        lines = ["tags = []"]
        for field in tagged:
            if not isinstance(field.kind, str) and not field.array:
                self.names[f"d_{field.name}"] = field.kind() if self.version < field.nullable_from else None
                test = f"m.{field.name} is not None and m.{field.name} != d_{field.name}"
            elif field.array:
                test = f"m.{field.name}" if field.default == () else f"m.{field.name} is not None"
            else:
                self.names[f"d_{field.name}"] = field.default
                test = f"m.{field.name} != d_{field.name}"
            lines += [
                f"if {test}:",
                "    t = bytearray()",
                *(f"    {line}" for line in self.value(field, f"m.{field.name}", "t")),
                f"    tags.append(({field.tag}, t))",
            ]
        lines += [
            "out += uvarint(len(tags))",
            "for tag, t in tags:",
            "    out += uvarint(tag)",
            "    out += uvarint(len(t))",
            "    out += t",
        ]
        return lines


class _SlicerSource(_WriterSource):
    """Makes the source of a writer that is a generator, which yields after each struct of an array."""

    end = ("return", "yield")
    """The last lines of the function: the `yield` makes a function without arrays a generator, too."""

    def _array(self, field: Field, expression: str, out: str, nullable: bool) -> list[str]:
        lines = super()._array(field, expression, out, nullable)
        kind = field.kind
        if isinstance(kind, str) or out != "out":  # a tagged field is written in one step: its size is in front of it
            return lines
        if any(inner.array and not isinstance(inner.kind, str) for inner in _fields(kind, self.version)[0]):
            name = f"w_{kind.__name__}"
            self.names[name] = _slicer(kind, self.version, self.flexible)
            return [*lines[:-1], f"    yield from {name}(out, e)", "    yield"]
        return [*lines, "    yield"]
