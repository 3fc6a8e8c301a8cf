"""What a broker may lack that has returned, as the registry keeps it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.metadata.returned import Returned

names = st.frozensets(st.sampled_from(["a-0", "a-1", "b.c_d-10"]))
any_returned = st.builds(
    lambda unclean, lost: Returned.of(unclean=unclean, lost=lost), st.booleans(), st.none() | names
)


@pytest.mark.parametrize(
    ("returned", "text"),
    [
        (Returned(), ""),
        (Returned(unclean=True), "unclean"),
        (Returned(lost=None), "lost"),
        (Returned(unclean=True, lost=None), "lost"),
        (Returned(lost=frozenset(("b-1", "a-0"))), "lost:a-0,b-1"),
        (Returned(unclean=True, lost=frozenset(("a-0",))), "unclean lost:a-0"),
    ],
)
def test_text(returned: Returned, text: str) -> None:
    assert returned.text == text


@given(any_returned)
def test_what_is_written_is_read(returned: Returned) -> None:
    read = Returned.parse(returned.text)
    assert read == returned or (returned.lost is None and read == Returned(lost=None))


@given(any_returned, any_returned)
def test_the_worse_has_both(one: Returned, other: Returned) -> None:
    both = one.worse(other)
    assert both == other.worse(one)
    assert both.worse(one) == both
    assert both.lost is None or both.lost >= (one.lost or frozenset())


def test_what_a_later_release_writes_is_the_worst() -> None:
    assert Returned.parse("unclean misplaced").lost is None


def test_too_many_are_all() -> None:
    assert Returned.of(unclean=False, lost=[f"t-{number}" for number in range(10_001)]).text == "lost"
