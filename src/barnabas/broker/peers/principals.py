"""The principal of a forwarded request as bytes: the version and Kafka's DefaultPrincipalData."""

from typing import Final

from barnabas.errors import PrincipalDeserializationFailure
from barnabas.protocol.codec import MalformedMessage, decode, encode
from barnabas.protocol.messages.default_principal_data import DefaultPrincipalData

__all__ = ["decode_principal", "encode_principal"]

_VERSION: Final = 0


def encode_principal(principal: str) -> bytes:
    """Returns the bytes of a principal such as User:alice."""
    kind, _, name = principal.partition(":")
    return _VERSION.to_bytes(2, "big") + encode(DefaultPrincipalData(type_=kind, name=name), _VERSION)


def decode_principal(data: bytes) -> str:
    """Returns the principal of these bytes. Raises PrincipalDeserializationFailure."""
    if len(data) < 2 or int.from_bytes(data[:2], "big") != _VERSION:
        raise PrincipalDeserializationFailure("the principal of a forwarded request has no known version")
    try:
        principal, end = decode(DefaultPrincipalData, _VERSION, data, 2)
    except MalformedMessage as error:
        raise PrincipalDeserializationFailure(str(error)) from None
    if end != len(data) or not principal.type_ or not principal.name:
        raise PrincipalDeserializationFailure("the principal of a forwarded request is incomplete")
    return f"{principal.type_}:{principal.name}"
