"""Messages are made of their fields."""

from typing import Any

import pytest

from barnabas.protocol.schema import NEVER, Message, Request, field


class Inner(Message):
    number: int = field("int32", 0, 3, default=0)


class Outer(Request):
    API_KEY = 99
    name: str | None = field("string", 1, 3, default="", nullable_from=2)
    inner: Inner = field(Inner, 0, 3, default=None)
    maybe: Inner | None = field(Inner, 0, 3, default=None, nullable_from=0)
    numbers: Any = field("int32", 0, 3, default=(), array=True)


def test_fields_become_slots_and_a_schema_in_their_order() -> None:
    assert [each.name for each in Outer.SCHEMA] == ["name", "inner", "maybe", "numbers"]
    assert Outer.__slots__ == ("name", "inner", "maybe", "numbers")
    first = Outer.SCHEMA[0]
    assert (first.kind, first.first, first.last, first.nullable_from, first.array, first.tag) == (
        "string", 1, 3, 2, False, -1,
    )  # fmt: skip
    assert Outer.SCHEMA[1].nullable_from == NEVER
    with pytest.raises(AttributeError):
        Outer().other = 1  # type: ignore[attr-defined]


def test_a_struct_that_cannot_be_null_is_each_messages_own() -> None:
    one, two = Outer(), Outer()
    assert (one.name, one.maybe, one.numbers) == ("", None, ())
    one.inner.number = 5
    assert two.inner.number == 0
    assert Outer(inner=Inner(number=7)).inner.number == 7


def test_only_fields_can_be_given_and_only_by_name() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'nome'"):
        Outer(nome="x")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="positional"):
        Outer("x")  # type: ignore[call-arg, misc]


def test_messages_are_equal_by_their_fields() -> None:
    assert Outer(numbers=[1, 2]) == Outer(numbers=(1, 2))
    assert Outer(numbers=[1, 2]) != Outer(numbers=(1, 3))
    assert Outer(numbers=None) != Outer(numbers=())
    assert Outer(inner=Inner(number=1)) != Outer()
    assert Outer() != Inner()
    assert repr(Inner(number=3)) == "Inner(number=3)"
    with pytest.raises(TypeError, match="unhashable"):
        hash(Inner())
