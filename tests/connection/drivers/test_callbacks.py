"""The application's callbacks, on the threads of the synchronous clients."""

from collections import deque
from collections.abc import Callable

from barnabas.connection.drivers.callbacks import Callbacks
from interrupts import signalled_at

FILES = ("drivers/callbacks.py", "drivers/signals.py")
PLACES_MAX = 1000


def test_ctrl_c_anywhere_costs_no_call() -> None:
    """Whoever comes next makes those that are left."""
    for place in range(PLACES_MAX):
        made: list[int] = []
        due: deque[Callable[[], None]] = deque([lambda: made.append(1), lambda: made.append(2)])  # noqa: B023 - made here
        callbacks = Callbacks(due, "test")
        struck, _ = signalled_at(place, FILES, callbacks.make)
        callbacks.make()
        assert made == [1, 2], place
        if not struck:
            assert place
            return
    raise AssertionError("it never goes through")


def test_a_callback_that_fails_is_no_obstacle() -> None:
    made: list[int] = []
    due: deque[Callable[[], None]] = deque([lambda: made.append(1 // 0), lambda: made.append(2)])
    Callbacks(due, "test").make()
    assert made == [2]
    assert not due


def test_a_callback_may_make_callbacks_due() -> None:
    made: list[int] = []
    due: deque[Callable[[], None]] = deque()
    due.append(lambda: due.append(lambda: made.append(1)))
    Callbacks(due, "test").make()
    assert made == [1]
