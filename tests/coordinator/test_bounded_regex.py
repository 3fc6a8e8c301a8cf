"""Patterns against Python's own matcher where that is safe, and in bounded time where it is not."""

import contextlib
import re
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.coordinator.bounded_regex import PATTERN_MAX, Pattern
from barnabas.errors import InvalidRegularExpression

TEXTS = ("", "a", "b", "ab", "aab", "abab", "A", "orders-1", "orders-12", "x\ny", "-", "é", "0")


@pytest.mark.parametrize(
    "pattern",
    [
        "", ".*", "a", "a*", "a+b", "(ab)*", "(ab)+?", "a|b", "a|", "[ab]+", "[^a]", r"orders-\d+", r"\w+", r"\W",
        r"[\w-]+", r"[^\d]+", "orders-1{1,2}2?", "a{2}b", "a{0}", "(a|b){2,}", "^ab$", r"\Aab\Z", "(?i)a+", "(?i)[^a]",
        "(?s)x.y", "x.y", "(?:a|(?P<n>b))+", "(a*)*", "(a|a*)+", "()*", "(?x) a b ", "[a-c0-9]", "a$b", r"\s*", "[^é]",
        "(?a)\\w",
    ],
)  # fmt: skip
def test_as_pythons_matcher(pattern: str) -> None:
    expected = re.compile(pattern)
    assert [text for text in TEXTS if Pattern(pattern).matches(text)] == [
        text for text in TEXTS if expected.fullmatch(text)
    ]


PIECES = st.recursive(
    st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\w", "^", "$"]),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "*?"])).map(lambda p: f"(?:{p[0]}){p[1]}"),
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda p: f"({p[0]}|{p[1]})"),
    ),
    max_leaves=6,
)


@given(PIECES, st.text("ab\n", max_size=6))
def test_any_pattern_as_pythons_matcher(pattern: str, text: str) -> None:
    try:
        mine = Pattern(pattern)
    except InvalidRegularExpression:
        return
    if "$" in pattern and text.endswith("\n"):
        return  # Python's $ also stands before a last line break
    assert mine.matches(text) is (re.fullmatch(pattern, text) is not None)


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|a)*b", "(a|aa)+$b", "(.*)*x", "a?" * 30 + "a" * 30 + "b"])
def test_what_stops_other_matchers_takes_no_time(pattern: str) -> None:
    """Each of these needs 2**30 steps where alternatives are tried one after the other."""
    assert not Pattern(pattern).matches("a" * 30)


@pytest.mark.parametrize(
    "pattern",
    ["(", "[a", "*", "a**", r"(a)\1", "(?=a)", "(?!a)", "(?<=a)b", r"\p{Alpha}", "a++", "(?>a)", r"\bfoo", "(?m)^a"],
)
def test_refused(pattern: str) -> None:
    with pytest.raises(InvalidRegularExpression):
        Pattern(pattern)


@pytest.mark.parametrize(
    "pattern", ["a" * (PATTERN_MAX + 1), "(a{1000}){1000}", "((a{100}){100}){100}", "(" * 900, "a{65535}"]
)
def test_patterns_that_are_too_large(pattern: str) -> None:
    with pytest.raises(InvalidRegularExpression):
        Pattern(pattern)


@given(st.text(max_size=20))
def test_any_text_is_a_pattern_or_one_error(text: str) -> None:
    with contextlib.suppress(InvalidRegularExpression):
        Pattern(text).matches(text)


def test_a_pattern_that_is_always_new_to_the_text_ends() -> None:
    """Every further character of the name is a set of states that was not met before."""
    with pytest.raises(InvalidRegularExpression, match="steps"):
        Pattern("(a|b)*a(a|b){900}c").matches("".join(Random(1).choices("ab", k=30_000)))


def test_many_names_cost_little() -> None:
    pattern = Pattern(r"app-\d+-[a-z]*")
    assert sum(pattern.matches(f"app-{number}-worker") for number in range(200_000)) == 200_000
