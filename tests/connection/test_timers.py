"""What is left of a timeout, in the words of whoever gave it."""

import pytest

from barnabas.connection.timers import spelled


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.299997, "0.3 s"), (29.9999, "30 s"), (2.9971, "3 s"), (0.05, "0.05 s"), (3599.99, "3600 s"), (0, "0 s")],
)
def test_seconds_are_spelled_as_people_give_them(seconds: float, text: str) -> None:
    assert spelled(seconds) == text
