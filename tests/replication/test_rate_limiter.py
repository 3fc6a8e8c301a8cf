"""The rate limiter, on a clock that the test moves."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.replication.rate_limiter import RateLimiter

SLACK = 1.0
"""Bytes that the rounding of floating-point numbers may cost."""


def test_a_take_is_followed_by_a_wait_until_it_is_paid_for() -> None:
    limiter = RateLimiter(100, 0.0)
    assert not limiter.is_exceeded(0.0), "one window is there from the beginning"
    limiter.take(600, 0.0)
    assert limiter.is_exceeded(0.0)
    assert limiter.wait_s(0.0) == 5.0
    assert limiter.is_exceeded(4.9)
    assert not limiter.is_exceeded(5.0)


def test_planned_bytes_count_before_they_are_told() -> None:
    limiter = RateLimiter(100, 0.0)
    assert not limiter.is_exceeded(0.0, 100)
    assert limiter.is_exceeded(0.0, 101)
    assert not limiter.is_exceeded(0.0), "asking costs nothing"


def test_what_was_left_unused_may_be_used_later_but_not_after_a_long_rest() -> None:
    limiter = RateLimiter(100, 0.0, windows=3, window_s=2.0)
    limiter.take(200, 0.0)
    assert not limiter.is_exceeded(5.0, 500), "five seconds of the six that count"
    assert limiter.is_exceeded(5.0, 501)
    limiter.take(1, 5.0)
    assert not limiter.is_exceeded(12.0, 200), "one window of two seconds, after a rest of seven"
    assert limiter.is_exceeded(12.0, 201)


def test_a_rate_of_zero_lets_nothing_through() -> None:
    limiter = RateLimiter(0, 0.0)
    assert limiter.is_exceeded(1e9)
    assert limiter.wait_s(1e9) == math.inf
    limiter.set_rate(1, 1e9)
    assert not limiter.is_exceeded(1e9 + 1)
    assert limiter.bytes_at_once == 1


@pytest.mark.parametrize(("rate", "wait_s"), [(1000, 0.9), (10, 90.0)])
def test_a_debt_stays_when_the_rate_changes(rate: int, wait_s: float) -> None:
    limiter = RateLimiter(100, 0.0)
    limiter.take(1000, 0.0)
    limiter.set_rate(rate, 0.0)
    assert limiter.wait_s(0.0) == pytest.approx(wait_s)


def test_nothing_is_saved_at_a_higher_rate_than_the_present_one() -> None:
    limiter = RateLimiter(2**63 - 1, 0.0)
    limiter.set_rate(100, 5.0)
    assert limiter.is_exceeded(5.0, 101)


STEPS = st.lists(
    st.tuples(
        st.floats(0, 30),  # the seconds before the step
        st.integers(1, 5_000),  # the bytes that it takes if it may
    ),
    max_size=60,
)


@given(STEPS, st.integers(1, 2_000), st.integers(1, 12), st.sampled_from([1.0, 3.0]))
def test_the_rate_holds_in_every_window(
    steps: list[tuple[float, int]], rate: int, windows: int, window_s: float
) -> None:
    limiter = RateLimiter(rate, 0.0, windows=windows, window_s=window_s)
    now, taken = 0.0, []
    for pause, count in steps:
        now += pause
        if not limiter.is_exceeded(now):
            limiter.take(count, now)
            taken.append((now, count))
    for first in range(len(taken)):
        for last in range(first, len(taken)):
            span = taken[last][0] - taken[first][0]
            before_last = sum(count for _, count in taken[first:last])
            assert before_last <= rate * (span + windows * window_s) + SLACK


@given(st.lists(st.integers(1, 5_000), max_size=60), st.integers(1, 2_000))
def test_who_waits_as_long_as_told_may_always_go_on(takes: list[int], rate: int) -> None:
    """A copy that takes all it may needs bytes / rate, and is ahead of that by no more than one window."""
    limiter = RateLimiter(rate, 0.0)
    now = total = 0.0
    for count in takes:
        wait_s = limiter.wait_s(now)
        assert now + wait_s <= total / rate + SLACK / rate, "it starves"
        now += wait_s + 1e-9
        assert not limiter.is_exceeded(now)
        assert total <= rate * (now + 1) + SLACK, "it is too fast"
        limiter.take(count, now)
        total += count
