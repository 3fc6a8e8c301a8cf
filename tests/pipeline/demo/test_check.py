"""The comparison finds what is wrong, and names it."""

import pytest

pandas = pytest.importorskip("pandas")

from barnabas.pipeline.demo.check import Results, compare, expected_delays  # noqa: E402
from barnabas.pipeline.demo.flights import read_flights  # noqa: E402


@pytest.fixture(scope="module")
def expected() -> "pandas.DataFrame":
    return expected_delays(read_flights(200))


def test_what_is_expected(expected: "pandas.DataFrame") -> None:
    """Counted by hand from the first flights of the file."""
    flights = [flight for flight in read_flights(200) if flight.key == b"HA"]
    (row,) = expected[expected["carrier"] == "HA"].to_dict("records")
    assert row["flights"] == row["departed"] == len(flights) == 1
    assert (row["airline"], row["farthest"], row["miles"]) == ("Hawaiian Airlines Inc.", "Honolulu Intl", 4983)
    assert expected["flights"].sum() == 200


def test_nothing_is_wrong(expected: "pandas.DataFrame") -> None:
    shuffled = expected.sample(frac=1, random_state=1).reset_index(drop=True)
    assert compare(Results(shuffled, 0, []), expected).problems == []


def test_each_difference_is_named(expected: "pandas.DataFrame") -> None:
    found = expected.copy()
    first, second = (f"{found['carrier'][n]} {found['hour'][n]}" for n in (0, 1))
    was = found.loc[0, "delay_minutes"]
    found.loc[0, "delay_minutes"] = was + 1
    found.loc[1, "hour"] = "2013-12-31T00:00:00Z"
    problems = compare(Results(found, 0, ["UA|x"]), expected).problems
    assert problems == [
        "UA|x was written twice by one batch",
        f"{second} is missing",
        f"{found['carrier'][1]} 2013-12-31T00:00:00Z should not be there",
        f"{first}: delay_minutes is {was + 1}, pandas has {was}",
    ]


def test_a_figure_that_is_missing_is_a_difference(expected: "pandas.DataFrame") -> None:
    found = expected.copy()
    found["worst"] = found["worst"].astype("float64")
    found.loc[3, "worst"] = float("nan")
    (problem,) = compare(Results(found, 0, []), expected).problems
    assert "worst is nan, pandas has" in problem
