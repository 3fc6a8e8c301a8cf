"""Growth with the number of topics and connections."""

import pytest

from bench import growth


def test_growth_is_told_as_an_exponent_of_the_upper_decade() -> None:
    points = {10.0: {"create_s": 1.0, "memory_MB": 5.0}, 100.0: {"create_s": 100.0, "memory_MB": 5.0}}
    assert growth.slopes(points) == pytest.approx({"create_s": 2.0, "memory_MB": 0.0})
