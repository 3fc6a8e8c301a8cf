"""Decodes protobuf values by the descriptors that protoc writes, without generated code."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from barnabas.errors import UsageError
from barnabas.spark.formats.shapes import build_array, leaf

__all__ = ["ProtobufDecoder", "message_type", "read_descriptors"]

_TIMESTAMP: Final = "google.protobuf.Timestamp"
_UNSIGNED_64: Final = DecimalType(20, 0)
_SCALARS: Final[dict[str, DataType]] = {
    "DOUBLE": DoubleType(),
    "FLOAT": FloatType(),
    "INT64": LongType(),
    "UINT64": _UNSIGNED_64,
    "INT32": IntegerType(),
    "FIXED64": _UNSIGNED_64,
    "FIXED32": LongType(),
    "BOOL": BooleanType(),
    "STRING": StringType(),
    "BYTES": BinaryType(),
    "UINT32": LongType(),
    "ENUM": StringType(),
    "SFIXED32": IntegerType(),
    "SFIXED64": LongType(),
    "SINT32": IntegerType(),
    "SINT64": LongType(),
}

Read = Callable[[Any], Any]


def read_descriptors(path: str) -> bytes:
    """Returns the contents of a file of descriptors. Raises UsageError."""
    _require_protobuf()
    if not path:
        raise UsageError(
            "valueFormat=protobuf needs option valueSchema: the path of descriptors, as `protoc --include_imports"
            " --descriptor_set_out=orders.desc orders.proto` writes them"
        )
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise UsageError(f"option valueSchema={path}: {(error.strerror or str(error)).lower()}") from None


def _require_protobuf() -> None:
    try:
        import google.protobuf  # noqa: F401
    except ImportError:
        raise UsageError("valueFormat=protobuf needs protobuf: pip install 'barnabas[spark-formats]'") from None


def _descriptor(descriptors: bytes, name: str) -> Any:
    """Returns the descriptor of a message. Raises UsageError."""
    from google.protobuf import descriptor_pb2, descriptor_pool
    from google.protobuf.message import DecodeError

    pool = descriptor_pool.DescriptorPool()
    messages: list[str] = []
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(descriptors).file
        for file in files:
            pool.AddSerializedFile(file.SerializeToString())
            prefix = f"{file.package}." if file.package else ""
            messages += [prefix + message.name for message in file.message_type]
    except (DecodeError, TypeError, ValueError) as error:
        raise UsageError(
            f"option valueSchema is no set of descriptors ({error}); `protoc --include_imports --descriptor_set_out`"
            " writes one"
        ) from None
    if not name:
        raise UsageError(f"valueFormat=protobuf needs option messageName; there are {', '.join(messages)}")
    try:
        return pool.FindMessageTypeByName(name)
    except KeyError:
        raise UsageError(
            f"option messageName={name} is not among the descriptors; there are {', '.join(messages)}"
        ) from None


# --- Spark types ------------------------------------------------------------------------------------------------------


def message_type(descriptors: bytes, name: str) -> StructType:
    """Returns the Spark type of a message. Raises UsageError if there is none."""
    descriptor = _descriptor(descriptors, name)
    struct = _struct_of(descriptor, (descriptor.full_name,), "value")
    if struct is None:
        raise UsageError(f"option messageName={name}: a message without fields has no type in Spark")
    return struct


def _struct_of(descriptor: Any, above: Sequence[str], path: str) -> StructType | None:
    """Returns the type of a message; None if it has no fields. Leaves out fields of empty messages, as Spark's
    from_protobuf does."""
    types = [(field.name, _type_of(field, above, f"{path}.{field.name}")) for field in descriptor.fields]
    fields = [StructField(name, each) for name, each in types if each is not None]
    return StructType(fields) if fields else None


def _type_of(field: Any, above: Sequence[str], path: str) -> DataType | None:
    if _is_map(field):
        key, item = field.message_type.fields_by_name["key"], field.message_type.fields_by_name["value"]
        key_type, item_type = _type_of(key, above, path), _type_of(item, above, f"{path}[]")
        return None if key_type is None or item_type is None else MapType(key_type, item_type)
    kind = _single_type_of(field, above, path)
    return ArrayType(kind) if kind is not None and _is_repeated(field) else kind


def _single_type_of(field: Any, above: Sequence[str], path: str) -> DataType | None:
    message = field.message_type
    if message is None:
        return _SCALARS[_kind(field)]
    if message.full_name == _TIMESTAMP:
        return TimestampType()
    if message.full_name in above:
        raise UsageError(f"{path}: the message {message.full_name} contains itself; Spark has no types that do")
    return _struct_of(message, (*above, message.full_name), path)


def _kind(field: Any) -> str:
    from google.protobuf import descriptor_pb2

    return str(descriptor_pb2.FieldDescriptorProto.Type.Name(field.type)).removeprefix("TYPE_")


def _is_repeated(field: Any) -> bool:
    is_repeated = getattr(field, "is_repeated", None)  # protobuf 6.31 and newer
    return bool(field.label == field.LABEL_REPEATED if is_repeated is None else is_repeated)


def _is_map(field: Any) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


# --- values -----------------------------------------------------------------------------------------------------------


class ProtobufDecoder:
    """Decodes values of one message type."""

    def __init__(self, descriptors: bytes, name: str, target: Any) -> None:
        from google.protobuf import message_factory

        descriptor = _descriptor(descriptors, name)
        self._message = message_factory.GetMessageClass(descriptor)
        self._read = _message_reader(descriptor)
        self._shape = leaf(target)

    def decode(self, values: Any, failures: dict[int, str]) -> Any:
        from google.protobuf.message import DecodeError

        decoded: list[Any] = []
        for index, value in enumerate(values.to_pylist()):
            try:
                decoded.append(self._read(self._message.FromString(value)))
            except (DecodeError, ValueError, RecursionError) as error:
                decoded.append(None)
                failures[index] = f"not protobuf of the message: {error}"
        return build_array(self._shape, decoded, failures)


def _message_reader(descriptor: Any) -> Read:
    """Returns a reader of a message as a dict. Unset fields are null if they have presence, and otherwise have their
    default."""
    fields = [(field.name, field.has_presence, _field_reader(field)) for field in descriptor.fields]

    def read(message: Any) -> dict[str, Any]:
        values = {}
        for name, has_presence, convert in fields:
            if has_presence and not message.HasField(name):
                continue
            value = getattr(message, name)
            values[name] = value if convert is None else convert(value)
        return values

    return read


def _field_reader(field: Any) -> Read | None:
    """Returns the conversion of a field's value; None if there is nothing to convert."""
    if _is_map(field):
        item = _single_reader(field.message_type.fields_by_name["value"])
        if item is None:
            return lambda entries: list(entries.items())
        return lambda entries: [(key, item(each)) for key, each in entries.items()]
    single = _single_reader(field)
    if not _is_repeated(field):
        return single
    if single is None:
        return list
    return lambda elements: [single(each) for each in elements]


def _single_reader(field: Any) -> Read | None:
    message, enum = field.message_type, field.enum_type
    if enum is not None:
        names = {number: value.name for number, value in enum.values_by_number.items()}
        return lambda number: names.get(number, str(number))
    if message is None:
        return None
    if message.full_name == _TIMESTAMP:
        return lambda time: time.seconds * 1_000_000 + time.nanos // 1000
    return _message_reader(message)
