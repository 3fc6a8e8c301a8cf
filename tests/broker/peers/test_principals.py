"""Principals as bytes: Kafka's own, and hostile ones."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.peers.principals import decode_principal, encode_principal
from barnabas.errors import PrincipalDeserializationFailure

ALICE = bytes.fromhex("0000 05 55736572 06 616c696365 00 00")
"""Version 0, compact strings, no token, no tags: as Kafka's DefaultKafkaPrincipalBuilder writes it."""


def test_kafkas_bytes() -> None:
    assert encode_principal("User:alice") == ALICE
    assert decode_principal(ALICE) == "User:alice"


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=50))
def test_any_name(name: str) -> None:
    assert decode_principal(encode_principal(f"User:{name}")) == f"User:{name}"


@pytest.mark.parametrize(
    "data", [b"", b"\0", b"\0\1" + ALICE[2:], ALICE[:-1], ALICE + b"\0", b"\0\0\1\1\0\0", b"\0\0\0\0\0\0"]
)
def test_what_is_no_principal(data: bytes) -> None:
    with pytest.raises(PrincipalDeserializationFailure):
        decode_principal(data)


@given(st.binary(max_size=60))
def test_hostile_bytes(data: bytes) -> None:
    with contextlib.suppress(PrincipalDeserializationFailure):
        assert ":" in decode_principal(b"\0\0" + data)
