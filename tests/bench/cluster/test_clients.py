"""What the clients of a failover remember."""

import pytest

from bench.cluster.clients import Anomalies, Gap, find_anomalies, longest_gap


def test_the_longest_gap_counts_from_the_begin_and_to_the_end() -> None:
    assert longest_gap([1.0, 1.5, 4.0, 4.5], 0.5, 5.0) == Gap(2.5, 4.0)
    assert longest_gap([1.0], 0.0, 4.0) == Gap(3.0, 4.0)
    assert longest_gap([], 1.0, 3.0) == Gap(2.0, 3.0)


def test_times_outside_do_not_shorten_a_gap() -> None:
    assert longest_gap([0.0, 2.0, 9.0], 1.0, 5.0) == Gap(3.0, 5.0)


@pytest.mark.parametrize(
    ("read", "found"),
    [
        ([[1, 3], [2, 4]], Anomalies()),
        ([[1, 3, 5], [2, 4]], Anomalies()),  # written, and its answer did not come
        ([[1], [2]], Anomalies(lost=2)),
        ([[1, 3, 3], [2, 4]], Anomalies(doubled=1)),
        ([[3, 1], [2, 4]], Anomalies(disordered=1)),
        ([[1, 2, 3], [4]], Anomalies(lost=1)),  # in the other partition
    ],
)
def test_what_was_acknowledged_is_there_once_and_in_order(read: list[list[int]], found: Anomalies) -> None:
    assert find_anomalies([[1, 3], [2, 4]], read) == found
