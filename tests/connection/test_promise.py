"""A result that is settled once."""

import pytest

from barnabas.connection.promise import Promise, resolved


def test_only_the_first_result_counts() -> None:
    promise: Promise[int] = Promise()
    with pytest.raises(AssertionError, match="not settled"):
        promise.result()
    promise.resolve(1)
    promise.resolve(2)
    promise.fail(ValueError("late"))
    assert (promise.done, promise.error, promise.result()) == (True, None, 1)
    failed: Promise[int] = Promise()
    failed.fail(ValueError("first"))
    failed.resolve(3)
    with pytest.raises(ValueError, match="first"):
        failed.result()


def test_callbacks_come_once_and_in_order_also_late_ones() -> None:
    heard: list[object] = []
    promise: Promise[int] = Promise()
    promise.on_done(lambda done: heard.append(("first", done.result())))
    promise.on_done(lambda done: done.on_done(lambda again: heard.append(("within", again.result()))))
    settled = promise.settled()
    assert not settled.done
    promise.resolve(5)
    promise.resolve(6)
    assert heard == [("first", 5), ("within", 5)]
    promise.on_done(lambda done: heard.append("late"))
    assert heard[-1] == "late"
    assert settled.result() is None


def test_an_error_settles_too() -> None:
    promise: Promise[int] = Promise()
    settled = promise.settled()
    promise.fail(ValueError("x"))
    assert settled.result() is None
    assert resolved("v").result() == "v"
